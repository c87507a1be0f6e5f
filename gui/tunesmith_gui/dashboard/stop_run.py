"""The question before a run is stopped: save, discard, or keep going."""

from __future__ import annotations

from PySide6.QtWidgets import QDialog, QHBoxLayout, QVBoxLayout, QWidget

from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import fill
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.safe_label import SafeLabel


class StopRunDialog(QDialog):
    """Three plain choices; saving is the one that Enter takes.

    Attributes:
        mode: "save" or "discard" after the dialog was accepted, "" when the run keeps going.
    """

    def __init__(
        self, name: str, step: int, last_checkpoint_step: int, parent: QWidget | None = None, *, paused: bool = False
    ) -> None:
        """Ask about a run; one that is paused for its disk may not be able to save."""
        super().__init__(parent)
        self.mode, self._name = "", name
        self.setWindowTitle(self.tr("Stop the run?"))
        self.setMinimumWidth(SPACE * 60)
        column = QVBoxLayout(self)
        column.setContentsMargins(SPACE * 3, SPACE * 3, SPACE * 3, SPACE * 3)
        column.setSpacing(SPACE * 2)
        column.addWidget(SafeLabel(self.tr("Stop the run?"), role="heading", parent=self))
        self._saved = SafeLabel("", wrap=True, parent=self)
        self._lost = SafeLabel("", tone="muted", wrap=True, parent=self)
        column.addWidget(self._saved)
        column.addWidget(self._lost)
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        self.save = button("", lambda: self._choose("save"), kind="primary", parent=self)
        self.discard = button(self.tr("Stop and discard"), lambda: self._choose("discard"), kind="danger", parent=self)
        self.keep = button(self.tr("Keep running"), self.reject, parent=self)
        row.addWidget(self.discard)
        row.addStretch(1)
        row.addWidget(self.keep)
        row.addWidget(self.save)
        column.addLayout(row)
        self.show_progress(step, last_checkpoint_step, paused=paused)
        self.save.setDefault(True)
        self.save.setFocus()

    def show_progress(self, step: int, last_checkpoint_step: int, *, paused: bool = False) -> None:
        """Say what a stop keeps and what it loses, of a run that goes on meanwhile."""
        saved = fill(self.tr("%1 is at step %2. If you stop and save, you can resume it from there."), self._name, step)
        if not step:
            # A stop lets a step that is running end, and saves it then.
            saved = fill(self.tr("%1 has not finished its first step, so there is nothing to save yet."), self._name)
        elif paused:
            words = self.tr("%1 is waiting to save. If it still can’t when you stop, the steps after %2 are lost.")
            saved = fill(words, self._name, last_checkpoint_step)
        lost = (
            fill(self.tr("If you discard, what came after the checkpoint of step %1 is lost."), last_checkpoint_step)
            if last_checkpoint_step
            else self.tr("If you discard, all steps are lost: there is no checkpoint yet.")
        )
        self._saved.setText(saved)
        self._lost.setText(lost)
        self._lost.setVisible(step > 0)
        self.save.setText(self.tr("Stop and save") if step else self.tr("Stop the run"))
        self.discard.setVisible(step > 0)

    def _choose(self, mode: str) -> None:
        self.mode = mode
        self.accept()
