"""A question with one thing to agree to, or two: what will happen, in words, before it happens."""

from __future__ import annotations

from PySide6.QtWidgets import QDialog, QHBoxLayout, QWidget

from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.dialog_frame import framed
from tunesmith_gui.widgets.safe_label import SafeLabel


class ConfirmDialog(QDialog):
    """Title, what happens, what is kept; the accepting button names what is done.

    With `danger` it can't be undone: the Enter key cancels. A second way out is named by `other`; the dialog then ends
    with `OTHER`.
    """

    OTHER = 2

    def __init__(
        self,
        title: str,
        text: str,
        note: str,
        accept: str,
        parent: QWidget | None = None,
        *,
        danger: bool = False,
        other: str = "",
    ) -> None:
        super().__init__(parent)
        column = framed(self, title)
        column.addWidget(SafeLabel(text, wrap=True, parent=self))
        if note:
            column.addWidget(SafeLabel(note, tone="muted", wrap=True, parent=self))
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        row.addStretch(1)
        self.cancel = button(self.tr("Cancel"), self.reject, parent=self)
        row.addWidget(self.cancel)
        self.other = button(other, lambda: self.done(self.OTHER), parent=self)
        self.other.setVisible(bool(other))
        row.addWidget(self.other)
        self.go = button(accept, self.accept, kind="danger" if danger else "primary", parent=self)
        row.addWidget(self.go)
        column.addLayout(row)
        usual = self.cancel if danger else self.go
        usual.setDefault(True)
        usual.setFocus()
