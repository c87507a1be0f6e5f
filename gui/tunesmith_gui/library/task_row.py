"""Something that takes its time, with how far it is and a way to end it."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from tunesmith_core.protocol import Event
from tunesmith_gui.services.operation import OperationTask
from tunesmith_gui.tr import core_text, fill
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.meter import Meter
from tunesmith_gui.widgets.safe_label import SafeLabel
from tunesmith_gui.widgets.side_by_side import SideBySide


class TaskRow(Card):
    """Follows an operation until it has ended.

    Signals:
        succeeded: (its answer).
        failed: (TunesmithError).
        over: it has ended.
    """

    succeeded = Signal(object)
    failed = Signal(object)
    over = Signal()

    def __init__(self, task: OperationTask, parent: QWidget | None = None) -> None:
        super().__init__(parent=parent)
        self.task = task
        words = task.words
        self.setAccessibleName(words)
        self.words = SafeLabel(words, role="strong", wrap=True, parent=self)
        self.cancel = button(self.tr("Cancel"), self._cancel, parent=self)
        self.cancel.setAccessibleName(fill(self.tr("Cancel: %1"), words))
        self.phase = SafeLabel(tone="muted", wrap=True, parent=self)
        self.meter = Meter(words, parent=self)
        self.body.addWidget(SideBySide(self.words, self.cancel, first_letters=40, parent=self))
        self.body.addWidget(self.meter)
        self.body.addWidget(self.phase)
        task.happened.connect(self._show)
        task.succeeded.connect(self.succeeded)
        task.failed.connect(self.failed)
        task.ended.connect(self.over)
        self._show()

    def _cancel(self) -> None:
        self.cancel.setEnabled(False)
        self.phase.setText(self.tr("Canceling…"))
        self.task.cancel()

    def _show(self, _event: Event | None = None) -> None:
        status = self.task.status
        self.meter.set_share(status.share or 0.0)
        words = core_text(status.phase)
        # Never empty: a line that comes later would move the rows below.
        self.phase.setText(words[:1].upper() + words[1:] or self.tr("Starting…"))
