"""The texts a model wrote along the way, newest first: how a run sounds, beside how its loss falls."""

from __future__ import annotations

from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from tunesmith_gui.dashboard.model import Sample
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import fill
from tunesmith_gui.widgets.card import line
from tunesmith_gui.widgets.safe_label import ElidedLabel, SafeLabel
from tunesmith_gui.widgets.status_chip import StatusChip


class SamplesList(QWidget):
    """The newest samples, at most `max_shown`; `short` shows the start of each text only."""

    def __init__(self, *, max_shown: int, short: bool = False, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._max_shown = max_shown
        self._short = short
        self._shown: list[Sample] = []
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(SPACE)
        self._items = QWidget(self)
        self._empty = SafeLabel(tone="muted", wrap=True, parent=self)
        self._column.addWidget(self._empty)
        self._column.addWidget(self._items)
        if not short:
            self._column.addStretch(1)

    def set_samples(self, samples: list[Sample], *, live: bool) -> None:
        """Show samples of a run that is live or has ended; nothing is rebuilt when they are the same."""
        self._empty.setText(self.tr("No samples yet.") if live else self.tr("This run has no samples."))
        newest = samples[-self._max_shown :][::-1]
        if newest == self._shown:
            return
        self._shown = newest
        self._empty.setVisible(not newest)
        fresh = QWidget(self)
        column = QVBoxLayout(fresh)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE + SPACE // 2)
        for place, sample in enumerate(newest):
            if place:
                column.addWidget(line(fresh))
            self._add(column, sample, fresh)
        self._column.replaceWidget(self._items, fresh)
        self._items.deleteLater()
        self._items = fresh

    def _add(self, column: QVBoxLayout, sample: Sample, parent: QWidget) -> None:
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        chip = StatusChip(fill(self.tr("step %1"), sample.step), "neutral", icon_name="sample", parent=parent)
        row.addWidget(chip)
        row.addWidget(ElidedLabel(sample.prompt, tone="muted", parent=parent), 1)
        column.addLayout(row)
        text = sample.text
        if self._short and len(text) > 220:
            text = text[:220].rstrip() + "…"
        column.addWidget(SafeLabel(text, wrap=True, selectable=True, parent=parent))
