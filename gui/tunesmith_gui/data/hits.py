"""Where in a text the words stand that are looked for, and how such words and wrong ones are marked."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QPointF, Qt
from PySide6.QtGui import QColor, QPainter, QTextCharFormat, QTextLayout
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem

from tunesmith_gui.theme import tokens

Span = tuple[int, int]
"""The first letter, and the one behind the last."""

MOST_HITS = 500
"""In one text: more are not seen one by one."""


def hits(text: str, wanted: str) -> list[Span]:
    """Return where a text holds another; upper and lower case are the same, as in `row_index.find`."""
    wanted = wanted.casefold()
    folded = text.casefold()
    if not wanted or wanted not in folded:
        return []
    found: list[Span] = []
    at = folded.find(wanted)
    while at >= 0 and len(found) < MOST_HITS:
        found.append((at, at + len(wanted)))
        at = folded.find(wanted, at + len(wanted))
    if len(folded) == len(text):
        return found
    # A letter may fold into several, as ß does.
    ends = list(accumulate(len(letter.casefold()) for letter in text))
    return [(bisect_right(ends, begin), bisect_right(ends, end - 1) + 1) for begin, end in found]


def hit_format() -> QTextCharFormat:
    """How a hit looks."""
    result = QTextCharFormat()
    result.setBackground(QColor(tokens().accent))
    result.setForeground(QColor(tokens().on_accent))
    return result


def wrong_format() -> QTextCharFormat:
    """How words look that are wrong."""
    result = QTextCharFormat()
    result.setBackground(QColor(tokens().warn_soft))
    result.setForeground(QColor(tokens().warn))
    result.setFontUnderline(True)
    result.setUnderlineColor(QColor(tokens().warn))
    return result


class HitDelegate(QStyledItemDelegate):
    """Paints cells with what is looked for marked in them.

    Attributes:
        wanted: what is looked for, "" for nothing.
    """

    wanted = ""

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        """Paints a cell."""
        if not self.wanted or not hits(str(index.data()), self.wanted):
            super().paint(painter, option, index)
            return
        cell = QStyleOptionViewItem(option)
        self.initStyleOption(cell, index)
        widget = cell.widget
        style, text = widget.style(), cell.text
        cell.text = ""
        style.drawControl(QStyle.ControlElement.CE_ItemViewItem, cell, painter, widget)
        cell.text = text
        rect = style.subElementRect(QStyle.SubElement.SE_ItemViewItemText, cell, widget)
        margin = style.pixelMetric(QStyle.PixelMetric.PM_FocusFrameHMargin, None, widget) + 1
        rect.adjust(margin, 0, -margin, 0)
        metrics = cell.fontMetrics
        shown = metrics.elidedText(text, Qt.TextElideMode.ElideRight, rect.width())
        layout = QTextLayout(shown, cell.font)
        layout.setFormats([_range(begin, end) for begin, end in hits(shown, self.wanted)])
        layout.beginLayout()
        line = layout.createLine()
        line.setLineWidth(rect.width() + 1)
        layout.endLayout()
        painter.save()
        painter.setPen(cell.palette.text().color())
        layout.draw(painter, QPointF(rect.x(), rect.y() + (rect.height() - line.height()) / 2))
        painter.restore()


def _range(begin: int, end: int) -> QTextLayout.FormatRange:
    result = QTextLayout.FormatRange()
    result.start, result.length, result.format = begin, end - begin, hit_format()
    return result
