"""The access token of the hub: asked for once, kept in the system's keyring."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QDialog, QHBoxLayout, QLineEdit, QWidget

from tunesmith_core.errors import TunesmithError
from tunesmith_gui.background import Job
from tunesmith_gui.services import hub_token
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.dialog_frame import framed
from tunesmith_gui.widgets.error_banner import error_words
from tunesmith_gui.widgets.field import Field
from tunesmith_gui.widgets.safe_label import SafeLabel


class TokenDialog(QDialog):
    """Open it with `open()`; it deletes itself.

    Signals:
        saved: the token is in the keyring.
    """

    saved = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        column = framed(self, self.tr("Enter an access token"))
        words = self.tr(
            "Create a token with read access in the settings of your account on the hub. It is kept in the keyring of "
            "your system, in no file, and is only sent to the hub."
        )
        column.addWidget(SafeLabel(words, wrap=True, parent=self))
        self.edit = QLineEdit(self)
        self.edit.setEchoMode(QLineEdit.EchoMode.Password)
        self.edit.textChanged.connect(self._on_text)
        self.field = Field(self.tr("Access token"), self.edit, parent=self)
        column.addWidget(self.field)
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        row.addStretch(1)
        row.addWidget(button(self.tr("Cancel"), self.reject, parent=self))
        self.save = button(self.tr("Save token"), self._save, kind="primary", parent=self)
        self.save.setDefault(True)
        self.save.setEnabled(False)
        row.addWidget(self.save)
        column.addLayout(row)
        self.edit.setFocus()

    def _on_text(self, text: str) -> None:
        self.save.setEnabled(bool(text.strip()))

    def _save(self) -> None:
        token = self.edit.text().strip()
        self.save.setEnabled(False)
        Job.start(self, lambda: hub_token.save(token), lambda _nothing: self._done(), self._refuse)

    def _done(self) -> None:
        self.saved.emit()
        self.accept()

    def _refuse(self, error: TunesmithError) -> None:
        self.save.setEnabled(True)
        self.field.set_error(error_words(error))
