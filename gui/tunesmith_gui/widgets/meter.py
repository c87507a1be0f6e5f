"""A thin bar that shows a share, always beside words that say the same."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from tunesmith_gui.theme import theme, tokens

HEIGHT_PX = 5


class Meter(QWidget):
    """A bar filled from the left.

    Args:
        name: what is measured, for a screen reader.
        height_px: thickness.
    """

    def __init__(self, name: str, *, height_px: int = HEIGHT_PX, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._height_px = height_px
        self._share = 0.0
        self._tone = "accent"
        self.setAccessibleName(name)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme().changed.connect(self.update)

    @property
    def share(self) -> float:
        """How much of the bar is filled, 0 to 1."""
        return self._share

    def set_share(self, share: float, tone: str = "accent") -> None:
        """Fills the bar to `share` (0 to 1) in the colour of a tone."""
        share = min(max(share, 0.0), 1.0)
        if (share, tone) == (self._share, self._tone):
            return
        self._share, self._tone = share, tone
        self.setAccessibleDescription(f"{share:.0%}")
        self.update()

    def sizeHint(self) -> QSize:
        """As wide as there is room."""
        return QSize(HEIGHT_PX * 8, self._height_px)

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draws groove and fill."""
        colours = tokens()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        rect = QRectF(self.rect())
        radius = rect.height() / 2
        painter.setBrush(QColor(colours.track))
        painter.drawRoundedRect(rect, radius, radius)
        if self._share > 0:
            painter.setBrush(QColor(colours.accent if self._tone == "accent" else colours.tone(self._tone)[0]))
            rect.setWidth(max(rect.width() * self._share, rect.height()))
            painter.drawRoundedRect(rect, radius, radius)
