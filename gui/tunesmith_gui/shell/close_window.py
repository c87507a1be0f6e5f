"""The question on closing the window while a run is live."""

from __future__ import annotations

from enum import Enum

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QHBoxLayout, QVBoxLayout, QWidget

from tunesmith_gui import tr
from tunesmith_gui.services.run_service import LiveRun
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.safe_label import SafeLabel

_WIDTH_LETTERS = 68


class CloseChoice(Enum):
    """What the person chose."""

    KEEP_RUNNING = "keep"
    STOP_AND_SAVE = "stop"
    CANCEL = "cancel"


class CloseWindowDialog(QDialog):
    """Keep running in the background (the default), stop and save, or cancel.

    Attributes:
        choice: the answer once the dialog is closed.
    """

    def __init__(self, runs: list[LiveRun], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.choice = CloseChoice.CANCEL
        self.setWindowTitle(self.tr("Close the window"))
        self.setMinimumWidth(self.fontMetrics().averageCharWidth() * _WIDTH_LETTERS)
        column = QVBoxLayout(self)
        column.setContentsMargins(SPACE * 3, SPACE * 3, SPACE * 3, SPACE * 2)
        column.setSpacing(SPACE)
        column.addWidget(SafeLabel(self._question(runs), role="heading", wrap=True, parent=self))
        explanation = self.tr("It can continue in the background. Open Tunesmith again to see its progress.")
        column.addWidget(SafeLabel(explanation, tone="muted", wrap=True, parent=self))
        column.addSpacing(SPACE * 2)
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        cancel = button(self.tr("Cancel"), self.reject, kind="quiet", parent=self)
        stop = button(self.tr("Stop and save"), lambda: self._choose(CloseChoice.STOP_AND_SAVE), parent=self)
        keep = button(
            self.tr("Keep running in the background"),
            lambda: self._choose(CloseChoice.KEEP_RUNNING),
            kind="primary",
            parent=self,
        )
        keep.setDefault(True)
        row.addWidget(cancel)
        row.addStretch(1)
        row.addWidget(stop)
        row.addWidget(keep)
        column.addLayout(row)
        keep.setFocus(Qt.FocusReason.OtherFocusReason)

    def _question(self, runs: list[LiveRun]) -> str:
        if len(runs) == 1:
            return tr.fill(self.tr("%1 is still running"), runs[0].name)
        return self.tr("%n run(s) are still running", "", len(runs))

    def _choose(self, choice: CloseChoice) -> None:
        self.choice = choice
        self.accept()
