"""Shows the diagnostics before they are copied, so that nobody shares what they have not seen."""

from __future__ import annotations

from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QDialog, QHBoxLayout, QPlainTextEdit, QVBoxLayout, QWidget

from tunesmith_core.plain_text import visible
from tunesmith_gui.theme import font
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.safe_label import SafeLabel


class DiagnosticsDialog(QDialog):
    """The report, a button that copies it and one that closes; does not block the window. Open it with `show()`."""

    def __init__(self, report: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle(self.tr("Diagnostics"))
        self.resize(SPACE * 90, SPACE * 70)
        column = QVBoxLayout(self)
        column.setContentsMargins(SPACE * 3, SPACE * 3, SPACE * 3, SPACE * 2)
        column.setSpacing(SPACE)
        column.addWidget(SafeLabel(self.tr("Diagnostics"), role="heading", parent=self))
        words = self.tr("Names, addresses and tokens are removed. Nothing is sent. You decide where to paste it.")
        column.addWidget(SafeLabel(words, tone="muted", wrap=True, parent=self))
        self.text = QPlainTextEdit(visible(report), self)
        self.text.setReadOnly(True)
        self.text.setFont(font("mono"))
        self.text.setAccessibleName(self.tr("Diagnostics"))
        self.text.setTabChangesFocus(True)
        column.addWidget(self.text, 1)
        row = QHBoxLayout()
        row.addStretch(1)
        row.addWidget(button(self.tr("Close"), self.reject, parent=self))
        copy = button(self.tr("Copy"), self._copy, kind="primary", icon_name="copy", parent=self)
        copy.setDefault(True)
        row.addWidget(copy)
        column.addLayout(row)

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self.text.toPlainText())
        self.accept()
