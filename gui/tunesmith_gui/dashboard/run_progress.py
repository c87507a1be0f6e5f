"""How far a run is: one bar over all of its steps, what it does now and which step it is at."""

from __future__ import annotations

from typing import Any

from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from tunesmith_core.run_queue import Place
from tunesmith_core.runs import RunState
from tunesmith_gui import tr
from tunesmith_gui.dashboard.model import DashboardModel
from tunesmith_gui.models.run_words import doing_words
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.meter import Meter
from tunesmith_gui.widgets.safe_label import SafeLabel

_END_TONES = {
    RunState.FINISHED: "neutral",
    RunState.FAILED: "error",
    RunState.INTERRUPTED: "warn",
    RunState.STOPPED: "neutral",
    RunState.DAMAGED: "error",
}


class RunProgress(QWidget):
    """The bar is filled by the steps that are done, whatever phase the run is in and however it ended."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE)
        self.bar = Meter(self.tr("Progress"), height_px=SPACE, parent=self)
        column.addWidget(self.bar)
        row = QHBoxLayout()
        self.words = SafeLabel(role="strong", wrap=True, parent=self)
        self.steps = SafeLabel(tone="muted", parent=self)
        row.addWidget(self.words, 1)
        row.addWidget(self.steps)
        column.addLayout(row)

    def show_model(self, model: DashboardModel, place: Place | None) -> None:
        """Bring the bar up to date; `place` says what the run waits for."""
        status = model.status
        self.bar.set_share(model.fraction, _END_TONES.get(status.state, "accent"))
        self.words.setText(doing_words(status, place))
        self.steps.setText(self._steps(model))

    def _steps(self, model: DashboardModel) -> str:
        step, total = model.status.step, model.status.total_steps
        if model.pace and model.status.state is RunState.PREPARING:
            return self._rows(model.pace)
        if not total:
            return ""
        percent = int(model.fraction * 100)  # 100 % is said of the last step only
        return tr.fill(self.tr("Step %1 of %2 · %3%"), tr.number(step), tr.number(total), percent)

    def _rows(self, pace: dict[str, Any]) -> str:  # Any: JSON values
        done, total, left_s = (pace.get(name) or 0 for name in ("done", "total", "remaining_s"))
        rows = tr.fill(self.tr("%1 of about %2 rows"), tr.number(done), tr.number(total)) if total else ""
        rows = rows or tr.fill(self.tr("%1 rows"), tr.number(done))
        parts = [rows, tr.fill(self.tr("%1 rows/s"), tr.number(pace["rows_per_s"]))]
        if left_s:
            parts.append(tr.fill(self.tr("%1 left"), tr.duration(left_s)))
        return " · ".join(parts)
