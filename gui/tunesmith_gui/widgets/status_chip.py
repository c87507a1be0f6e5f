"""A state as icon *and* word on a soft background; colour alone never says it."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from tunesmith_gui.icons import pixmap
from tunesmith_gui.theme import font, theme, tokens
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.banner import TONE_ICONS


class StatusChip(QWidget):
    """A small rounded label such as "Running" or "fits".

    Args:
        text: the word.
        tone: neutral, accent, ok, warn or error.
        icon_name: the icon before the word; the tone's own when not given.
    """

    def __init__(
        self, text: str = "", tone: str = "neutral", *, icon_name: str = "", parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        theme().changed.connect(self._theme_changed)
        self.set_state(text, tone, icon_name=icon_name)

    def set_state(self, text: str, tone: str, *, icon_name: str = "") -> None:
        """Shows another state."""
        self.text = text
        self.tone = tone
        self._icon_name = icon_name or TONE_ICONS[tone]
        self.setAccessibleName(text)
        self._theme_changed()

    def sizeHint(self) -> QSize:
        """Room for icon, word and rounded ends at the current font scale."""
        metrics = self.fontMetrics()
        return QSize(self._icon_px() + metrics.horizontalAdvance(self.text) + SPACE * 3, metrics.height() + SPACE // 2)

    minimumSizeHint = sizeHint

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draws background, icon and word."""
        foreground, background = tokens().tone(self.tone)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(background))
        rect = QRectF(self.rect())
        painter.drawRoundedRect(rect, rect.height() / 2, rect.height() / 2)
        icon_px = self._icon_px()
        role = "muted" if self.tone == "neutral" else self.tone
        painter.drawPixmap(SPACE, (self.height() - icon_px) // 2, pixmap(self._icon_name, role, icon_px))
        painter.setPen(QColor(foreground))
        left = SPACE + icon_px + SPACE // 2
        painter.drawText(rect.adjusted(left, 0, 0, 0), Qt.AlignmentFlag.AlignVCenter, self.text)

    def _icon_px(self) -> int:
        return round(self.fontMetrics().height() * 0.9)

    def _theme_changed(self) -> None:
        self.setFont(font("caption"))
        self.updateGeometry()
        self.update()
