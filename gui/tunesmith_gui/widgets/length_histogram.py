"""How long the examples are, in tokens, with the line where the context ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from tunesmith_gui.theme import font, theme, tokens
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import fill, number

LINES_HIGH = 6


class LengthHistogram(QWidget):
    """Bars of the preview's histogram; its accessible description says the same in words."""

    def __init__(self, *, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._bars: Sequence[dict[str, Any]] = ()  # Any: JSON values
        self._context_length = 0
        self.setAccessibleName(self.tr("Lengths of the examples in tokens"))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme().changed.connect(self.update)

    def set_bars(self, bars: Sequence[dict[str, Any]], context_length: int, description: str) -> None:
        """Shows bars of {from_tokens, to_tokens, num_rows}."""
        self._bars = bars
        self._context_length = context_length
        self.setAccessibleDescription(description)
        self.update()

    def sizeHint(self) -> QSize:
        """As wide as there is room, some lines high."""
        return QSize(SPACE * 20, self.fontMetrics().height() * LINES_HIGH)

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Draws bars, axis ends and the context line."""
        if not self._bars:
            return
        colours = tokens()
        painter = QPainter(self)
        painter.setFont(font("caption"))
        text_height = painter.fontMetrics().height()
        area = QRectF(self.rect()).adjusted(0, text_height, 0, -text_height)
        most = max(bar["num_rows"] for bar in self._bars)
        end = max(self._bars[-1]["to_tokens"], 1)
        painter.setPen(Qt.PenStyle.NoPen)
        for bar in self._bars:
            left = area.width() * bar["from_tokens"] / end
            width = area.width() * (bar["to_tokens"] - bar["from_tokens"]) / end
            height = area.height() * bar["num_rows"] / max(most, 1)
            is_cut = bar["from_tokens"] >= self._context_length
            painter.setBrush(QColor(colours.warn if is_cut else colours.chart[0]))
            painter.drawRect(QRectF(left, area.bottom() - height, max(1.0, width - 2), height))
        painter.setPen(QPen(QColor(colours.outline), 1))
        painter.drawLine(area.bottomLeft(), area.bottomRight())
        painter.setPen(QColor(colours.muted))
        below = QRectF(0, area.bottom() + 1, area.width(), text_height)
        painter.drawText(below, Qt.AlignmentFlag.AlignLeft, "0")
        painter.drawText(below, Qt.AlignmentFlag.AlignRight, fill(self.tr("%1 tokens"), number(end)))
        if self._context_length <= end:
            place = area.width() * self._context_length / end
            painter.setPen(QPen(QColor(colours.error), 2, Qt.PenStyle.DashLine))
            painter.drawLine(int(place), int(area.top()), int(place), int(area.bottom()))
            painter.drawText(QRectF(self.rect()), Qt.AlignmentFlag.AlignTop, self.tr("context ends at the dashed line"))
