"""The queue as a small panel over the rail: what runs, what waits, how far, and the way to each of them."""

from __future__ import annotations

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from tunesmith_core.runs import RunState
from tunesmith_gui import tr
from tunesmith_gui.models.run_words import state_look, state_word
from tunesmith_gui.services.run_service import LiveRun
from tunesmith_gui.shell.popup import Popup
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.meter import Meter
from tunesmith_gui.widgets.safe_label import ElidedLabel, SafeLabel
from tunesmith_gui.widgets.status_chip import StatusChip

_WIDTH_LETTERS = 46


def progress_words(run: LiveRun) -> str:
    """Step, total and time left in words, as far as they are known."""
    if run.state is not RunState.RUNNING or not run.num_steps:
        return ""
    steps = tr.fill(tr.translate("Activity", "step %1 of %2"), tr.number(run.step), tr.number(run.num_steps))
    if run.eta_s is None:
        return steps
    left = tr.fill(tr.translate("Activity", "%1 left"), tr.duration(run.eta_s))
    return f"{steps} · {left}"


class _Row(QWidget):
    """One live run."""

    opened = Signal(str)

    def __init__(self, run: LiveRun, parent: QWidget) -> None:
        super().__init__(parent)
        self._id = run.id
        self.name = ElidedLabel(run.name, role="strong", parent=self)
        self.chip = StatusChip(parent=self)
        self.words = SafeLabel(role="caption", tone="muted", parent=self)
        self.meter = Meter(run.name, parent=self)
        self.open = button(self.tr("Open"), lambda: self.opened.emit(self._id), kind="link", parent=self)
        self.open.setAccessibleName(tr.fill(self.tr("Open %1"), run.name))
        head = QHBoxLayout()
        head.addWidget(self.name, 1)
        head.addWidget(self.chip)
        foot = QHBoxLayout()
        foot.addWidget(self.words, 1)
        foot.addWidget(self.open)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE // 2)
        column.addLayout(head)
        column.addWidget(self.meter)
        column.addLayout(foot)
        self.show_run(run)

    def show_run(self, run: LiveRun) -> None:
        look = state_look(run.state)
        self.name.setText(run.name)
        self.chip.set_state(state_word(run.state), look.tone, icon_name=look.icon_name)
        self.meter.set_share(run.step / run.num_steps if run.num_steps else 0.0)
        self.words.setText(progress_words(run))


class ActivityPanel(Popup):
    """A pop-up that lists the live runs; closes when the person clicks elsewhere or presses Esc.

    Signals:
        opened: (str run id) go to this run.
        new_run_asked: nothing runs and the person wants to begin.
    """

    opened = Signal(str)
    new_run_asked = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(tr.translate("ActivityPanel", "Activity"), parent)
        self._rows: dict[str, _Row] = {}
        self.body.setContentsMargins(SPACE * 2, SPACE * 2, SPACE * 2, SPACE * 2)
        self.body.setSpacing(SPACE * 2)
        self.body.addWidget(SafeLabel(self.tr("Activity"), role="heading", parent=self))
        self._empty = SafeLabel(self.tr("Nothing is running."), tone="muted", parent=self)
        self._new = button(self.tr("New run"), self._ask_new, kind="primary", icon_name="plus", parent=self)
        self.body.addWidget(self._empty)
        self.body.addWidget(self._new, 0, Qt.AlignmentFlag.AlignLeft)
        self.setMinimumWidth(self.fontMetrics().averageCharWidth() * _WIDTH_LETTERS)

    def show_runs(self, runs: list[LiveRun]) -> None:
        """Lists the runs, keeping the rows that stay."""
        for run_id in self._rows.keys() - {run.id for run in runs}:
            self._rows.pop(run_id).deleteLater()
        for run in runs:
            if run.id in self._rows:
                self._rows[run.id].show_run(run)
            else:
                row = _Row(run, self)
                row.opened.connect(self._open)
                self._rows[run.id] = row
                self.body.addWidget(row)
        self._empty.setVisible(not runs)
        self._new.setVisible(not runs)
        self.fit_height()

    def show_above(self, anchor: QWidget) -> None:
        """Opens the panel with its lower left corner beside a button."""
        self.adjustSize()
        corner = anchor.mapToGlobal(QPoint(anchor.width() + SPACE, anchor.height()))
        self.move(corner.x(), max(corner.y() - self.height(), 0))
        self.show()

    def _open(self, run_id: str) -> None:
        self.hide()
        self.opened.emit(run_id)

    def _ask_new(self) -> None:
        self.hide()
        self.new_run_asked.emit()
