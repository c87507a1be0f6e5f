"""A loss curve the size of a word: painted into a table cell or as a small widget."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPen, QPolygonF
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem

from tunesmith_gui.runs.table import ROW_ROLE
from tunesmith_gui.theme import tokens
from tunesmith_gui.tokens import SPACE

_WIDTH_PX = 112


def paint_sparkline(painter: QPainter, rect: QRectF, values: Sequence[float], colour: str) -> None:
    """Draw values as a line that fills a rectangle, with a dot at its newest end."""
    if len(values) < 2:
        return
    low, high = min(values), max(values)
    height = (high - low) or 1.0
    step = rect.width() / (len(values) - 1)
    points = [
        QPointF(rect.left() + place * step, rect.bottom() - (value - low) / height * rect.height())
        for place, value in enumerate(values)
    ]
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(QPen(QColor(colour), 1.5))
    painter.drawPolyline(QPolygonF(points))
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(QColor(colour))
    painter.drawEllipse(points[-1], 2.0, 2.0)
    painter.restore()


class SparklineDelegate(QStyledItemDelegate):
    """Paints the curve of a table row's run."""

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        """Draws the cell's background and the curve."""
        super().paint(painter, option, index)
        row = index.data(ROW_ROLE)
        if row is not None:
            colour = tokens().chart[0] if option.state & QStyle.StateFlag.State_Enabled else tokens().muted
            rect = QRectF(option.rect).adjusted(SPACE, SPACE, -SPACE, -SPACE)
            paint_sparkline(painter, rect, row.sparkline, colour)

    def sizeHint(self, option: QStyleOptionViewItem, _index: QModelIndex | QPersistentModelIndex) -> QSize:
        """Wide enough to tell falling from rising."""
        return QSize(_WIDTH_PX, option.fontMetrics.height() + SPACE * 2)
