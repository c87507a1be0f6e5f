"""A bar of what a plan takes from the free memory, part by part; the same numbers stand beside it in words."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPainterPath, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from tunesmith_gui.theme import theme, tokens

HEIGHT_PX = 10
GAP_PX = 1.0


class FitMeter(QWidget):
    """Stacked parts over the whole of the free memory.

    Args:
        name: what is shown, for a screen reader.
    """

    def __init__(self, name: str, *, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._parts: tuple[tuple[int, int], ...] = ()
        self._available_bytes = 1
        self.setAccessibleName(name)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme().changed.connect(self.update)

    def set_parts(self, parts: Sequence[tuple[int, int]], available_bytes: int, description: str) -> None:
        """Shows parts, as number of the colour and bytes, of the free memory; what goes beyond it is drawn as an error.
        """
        self._parts = tuple(parts)
        self._available_bytes = max(1, available_bytes)
        self.setAccessibleDescription(description)
        self.update()

    def sizeHint(self) -> QSize:
        """As wide as there is room."""
        return QSize(HEIGHT_PX * 8, HEIGHT_PX)

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draws groove and parts."""
        colours = tokens()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        rect = QRectF(self.rect())
        outline = QPainterPath()
        outline.addRoundedRect(rect, rect.height() / 2, rect.height() / 2)
        painter.setClipPath(outline)
        painter.fillRect(rect, QColor(colours.border))
        total = sum(num_bytes for _, num_bytes in self._parts)
        exceeds = total > self._available_bytes
        whole = max(self._available_bytes, total)
        left = 0.0
        for index, num_bytes in self._parts:
            width = rect.width() * num_bytes / whole
            painter.fillRect(QRectF(left, 0, max(0.0, width - GAP_PX), rect.height()), QColor(part_colour(index)))
            left += width
        if exceeds:
            limit = rect.width() * self._available_bytes / whole
            painter.fillRect(QRectF(limit, 0, rect.width() - limit, rect.height()), QColor(colours.error))


class Swatch(QWidget):
    """A small square in the colour of a part of the meter; decoration beside the part's name."""

    def __init__(self, index: int, *, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._index = index
        self.setFixedSize(HEIGHT_PX, HEIGHT_PX)
        theme().changed.connect(self.update)

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draws the square."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(part_colour(self._index)))
        painter.drawRoundedRect(self.rect(), 3, 3)


def part_colour(index: int) -> str:
    """The n-th colour."""
    colours = tokens().chart
    return colours[index % len(colours)]
