"""The question on closing the window while runs or operations are live: what continues, and what is cut short."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QHBoxLayout, QVBoxLayout, QWidget

from tunesmith_gui import tr
from tunesmith_gui.services.operation import OperationTask
from tunesmith_gui.services.run_service import LiveRun
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.buttons import Kind, button
from tunesmith_gui.widgets.safe_label import SafeLabel

_WIDTH_LETTERS = 68
_MOST_SHOWN = 5
"""Operations that are told of one by one."""


class CloseChoice(Enum):
    """What the person chose."""

    CLOSE = "close"
    """Runs continue, operations end."""
    STOP_AND_SAVE = "stop"
    CANCEL = "cancel"


class CloseWindowDialog(QDialog):
    """Keep running in the background, stop and save, or cancel; operations end with the window.

    Enter does what loses nothing: it cancels where operations would end.

    Attributes:
        choice: the answer once the dialog is closed.
    """

    def __init__(
        self, runs: Sequence[LiveRun], tasks: Sequence[OperationTask] = (), parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.choice = CloseChoice.CANCEL
        self.setWindowTitle(self.tr("Close the window"))
        self.setMinimumWidth(self.fontMetrics().averageCharWidth() * _WIDTH_LETTERS)
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(SPACE * 3, SPACE * 3, SPACE * 3, SPACE * 2)
        self._column.setSpacing(SPACE)
        if runs:
            self._tell_runs(runs)
        if tasks:
            self._tell_tasks(tasks)
        self._column.addSpacing(SPACE * 2)
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        stay = button(self.tr("Cancel"), self.reject, kind="secondary" if tasks else "quiet", parent=self)
        row.addWidget(stay)
        row.addStretch(1)
        if runs:
            stop = self.tr("Stop and save")
            row.addWidget(button(stop, lambda: self._choose(CloseChoice.STOP_AND_SAVE), parent=self))
        words = self.tr("Keep running in the background") if runs else self.tr("Stop and close")
        ends: Kind = "danger" if tasks else "primary"
        close = button(words, lambda: self._choose(CloseChoice.CLOSE), kind=ends, parent=self)
        row.addWidget(close)
        self._column.addLayout(row)
        default = stay if tasks else close
        default.setDefault(True)
        default.setFocus(Qt.FocusReason.OtherFocusReason)

    def _tell_runs(self, runs: Sequence[LiveRun]) -> None:
        heading = tr.fill(self.tr("%1 is still running"), runs[0].name)
        if len(runs) > 1:
            heading = self.tr("%n run(s) are still running", "", len(runs))
        self._column.addWidget(SafeLabel(heading, role="heading", wrap=True, parent=self))
        explanation = self.tr("It can continue in the background. Open Tunesmith again to see its progress.")
        self._column.addWidget(SafeLabel(explanation, tone="muted", wrap=True, parent=self))

    def _tell_tasks(self, tasks: Sequence[OperationTask]) -> None:
        heading = self.tr("%n operation(s) end with the window", "", len(tasks))
        self._column.addWidget(SafeLabel(heading, role="heading", wrap=True, parent=self))
        for task in tasks[:_MOST_SHOWN]:
            self._column.addWidget(SafeLabel(task.words, role="strong", wrap=True, parent=self))
            words = tr.core_text(task.cut_short)
            self._column.addWidget(SafeLabel(words, tone="muted", wrap=True, parent=self))
        if len(tasks) > _MOST_SHOWN:
            more = self.tr("and %n more", "", len(tasks) - _MOST_SHOWN)
            self._column.addWidget(SafeLabel(more, tone="muted", parent=self))

    def _choose(self, choice: CloseChoice) -> None:
        self.choice = choice
        self.accept()
