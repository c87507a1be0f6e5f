"""A small window with round corners that closes when the person clicks elsewhere or presses Esc."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QBitmap, QPainter, QResizeEvent
from PySide6.QtWidgets import QFrame, QVBoxLayout, QWidget

from tunesmith_gui.tokens import RADIUS, SPACE


class Popup(QWidget):
    """Add content to `body`. The corners are cut off: a see-through window is black there without a compositor.

    Attributes:
        body: the layout inside the frame.
    """

    def __init__(self, name: str, parent: QWidget) -> None:
        super().__init__(parent, Qt.WindowType.Popup | Qt.WindowType.FramelessWindowHint)
        self.setAccessibleName(name)
        frame = QFrame(self)
        frame.setProperty("popup", True)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.addWidget(frame)
        self.body = QVBoxLayout(frame)
        self.body.setContentsMargins(SPACE, SPACE, SPACE, SPACE)
        self.body.setSpacing(SPACE)
        self._whole = whole

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Cut the corners off."""
        super().resizeEvent(event)
        shape = QBitmap(self.size())
        shape.clear()
        with QPainter(shape) as painter:
            painter.setPen(Qt.GlobalColor.color1)
            painter.setBrush(Qt.GlobalColor.color1)
            painter.drawRoundedRect(self.rect().adjusted(0, 0, -1, -1), RADIUS, RADIUS)
        self.setMask(shape)

    def fit_height(self) -> None:
        """As high as the content is now; the layouts would tell only after the next events."""
        self.body.activate()
        self._whole.activate()
        self.resize(self.width(), self._whole.sizeHint().height())
