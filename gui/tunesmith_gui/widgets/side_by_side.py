"""Two widgets beside each other, or one below the other where the width doesn't suffice for both."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QWidget

from tunesmith_gui.tokens import SPACE


class SideBySide(QWidget):
    """Turns with its width.

    Args:
        first: takes the room that is left.
        second: keeps its own width beside the first, and may use the whole width below it.
        first_letters: the room that `first` needs beside `second`, in letters; 0 for its own width.
        most_lines: of `first` beside `second`, where the whole width would take fewer; 0 for any number.
    """

    def __init__(
        self,
        first: QWidget,
        second: QWidget,
        *,
        first_letters: int = 0,
        most_lines: int = 0,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._first, self._second = first, second
        self._first_letters, self._most_lines = first_letters, most_lines
        self._row = QBoxLayout(QBoxLayout.Direction.LeftToRight, self)
        self._row.setContentsMargins(0, 0, 0, 0)
        self._row.setSpacing(SPACE)
        self._row.addWidget(first, 1)
        self._row.addWidget(second, 0, Qt.AlignmentFlag.AlignVCenter)

    @property
    def beside(self) -> bool:
        """Whether the two stand beside each other now."""
        return self._row.direction() is QBoxLayout.Direction.LeftToRight

    def minimumSizeHint(self) -> QSize:
        """As narrow as the wider of the two."""
        width = max(self._first.minimumSizeHint().width(), self._second.minimumSizeHint().width())
        return QSize(width, super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Turns where the new width asks for it."""
        super().resizeEvent(event)
        self._arrange()

    def event(self, event: QEvent) -> bool:
        """Turns where other words or another font size ask for it."""
        if event.type() == QEvent.Type.LayoutRequest:
            self._arrange()
        return super().event(event)

    def _is_squeezed(self, width: int) -> bool:
        """Whether the first takes more lines in a width than it may, and fewer in the whole one."""
        height = self._first.heightForWidth(width)
        line = self.fontMetrics().lineSpacing()
        limit = self._most_lines * line + line // 2 if self._most_lines else 0
        return 0 < limit < height and self._first.heightForWidth(self.width()) < height

    def _arrange(self) -> None:
        wanted = self._second.sizeHint().width()
        letters = self.fontMetrics().averageCharWidth() * self._first_letters
        left = self.width() - SPACE - wanted
        beside = left >= (letters or self._first.sizeHint().width()) and not self._is_squeezed(left)
        direction = QBoxLayout.Direction.LeftToRight if beside else QBoxLayout.Direction.TopToBottom
        self._second.setMinimumWidth(wanted if beside else 0)
        if direction is not self._row.direction():
            self._row.setDirection(direction)
            self._row.setAlignment(self._second, Qt.AlignmentFlag.AlignVCenter if beside else Qt.AlignmentFlag(0))
            self.updateGeometry()
