"""An answer on its way into a data file: what it should have been can be written instead."""

from __future__ import annotations

from PySide6.QtWidgets import QDialog, QHBoxLayout, QPlainTextEdit, QWidget

from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.dialog_frame import framed
from tunesmith_gui.widgets.safe_label import SafeLabel

_LINES = 8
_QUESTION_LETTERS = 400


class ExampleDialog(QDialog):
    """Asks which answer a question is saved with; `answer` is as it was, or as it was written."""

    def __init__(self, question: str, answer: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        column = framed(self, self.tr("Save as an example"))
        column.addWidget(SafeLabel(question, wrap=True, most=_QUESTION_LETTERS, parent=self))
        self.box = QPlainTextEdit(answer, self)
        self.box.setTabChangesFocus(True)
        self.box.setAccessibleName(self.tr("Answer in the example"))
        self.box.setFixedHeight(_LINES * self.box.fontMetrics().lineSpacing() + SPACE * 3)
        self.box.textChanged.connect(self._check)
        column.addWidget(self.box)
        words = self.tr(
            "Write what the answer should be. What was said before and the system prompt are saved with it."
        )
        column.addWidget(SafeLabel(words, tone="muted", wrap=True, parent=self))
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        row.addStretch(1)
        row.addWidget(button(self.tr("Cancel"), self.reject, parent=self))
        self.go = button(self.tr("Choose the file…"), self.accept, kind="primary", parent=self)
        self.go.setDefault(True)
        row.addWidget(self.go)
        column.addLayout(row)
        self._check()
        self.box.setFocus()

    @property
    def answer(self) -> str:
        """What is saved as the answer."""
        return self.box.toPlainText().strip()

    def _check(self) -> None:
        self.go.setEnabled(bool(self.answer))
