"""Where a question is written: Enter sends it, Shift+Enter begins a new line, and it grows with what is written."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QHBoxLayout, QPlainTextEdit, QSizePolicy, QVBoxLayout, QWidget

from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.safe_label import SafeLabel

_MOST_LINES = 8


class QuestionBox(QPlainTextEdit):
    """The text itself.

    Signals:
        sent: Enter was pressed.
    """

    sent = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setTabChangesFocus(True)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.document().documentLayout().documentSizeChanged.connect(lambda _size: self.updateGeometry())

    def sizeHint(self) -> QSize:
        """As high as its lines, between two and eight."""
        num_lines = min(max(round(self.document().size().height()), 2), _MOST_LINES)
        frame = self.height() - self.viewport().height() + 2 * round(self.document().documentMargin())
        return QSize(super().sizeHint().width(), num_lines * self.fontMetrics().lineSpacing() + frame)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Enter sends; with Shift it begins a line."""
        entered = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        if entered and not event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier:
            self.sent.emit()
        else:
            super().keyPressEvent(event)


class Composer(QWidget):
    """The box with its buttons.

    Signals:
        asked: (question) the person sent it.
        stop_asked: the answer shall end.
        edit_canceled: an earlier question stays as it is.
    """

    asked = Signal(str)
    stop_asked = Signal()
    edit_canceled = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE // 2)
        self._editing = QWidget(self)
        above = QHBoxLayout(self._editing)
        above.setContentsMargins(0, 0, 0, 0)
        above.addWidget(
            SafeLabel(self.tr("Sending replaces this question and what follows it."), tone="muted", parent=self), 1
        )
        above.addWidget(button(self.tr("Keep it"), self.edit_canceled.emit, kind="link", parent=self))
        column.addWidget(self._editing)
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        self.box = QuestionBox(self)
        self.box.setAccessibleName(self.tr("Question"))
        self.box.setPlaceholderText(self.tr("Ask the trained model. Shift+Enter begins a new line."))
        self.box.sent.connect(self._send)
        self.box.textChanged.connect(self._enable)
        row.addWidget(self.box, 1)
        self.send = button(self.tr("Send"), self._send, kind="primary", parent=self)
        self.stop = button(self.tr("Stop"), self.stop_asked.emit, icon_name="stop", parent=self)
        for each in (self.send, self.stop):
            row.addWidget(each, 0, Qt.AlignmentFlag.AlignBottom)
        column.addLayout(row)
        self._answering = False
        self.show_state(answering=False, editing=False)

    def show_state(self, *, answering: bool, editing: bool) -> None:
        """Offers what can be done now."""
        self._answering = answering
        self._editing.setVisible(editing)
        had_focus = self.send.hasFocus() or self.stop.hasFocus()
        self.stop.setVisible(answering)
        self.send.setVisible(not answering)
        if had_focus:
            self.box.setFocus(Qt.FocusReason.OtherFocusReason)
        self._enable()

    def write(self, text: str) -> None:
        """Puts a text into the box, with the cursor behind it."""
        self.box.setPlainText(text)
        self.box.moveCursor(self.box.textCursor().MoveOperation.End)
        self.box.setFocus(Qt.FocusReason.OtherFocusReason)

    def _enable(self) -> None:
        self.send.setEnabled(bool(self.box.toPlainText().strip()) and not self._answering)

    def _send(self) -> None:
        if self.send.isEnabled():
            question = self.box.toPlainText().strip()
            self.box.clear()
            self.asked.emit(question)
