"""A run's state in a table cell: icon and word in the state's colour."""

from __future__ import annotations

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, Qt
from PySide6.QtGui import QColor, QPainter
from PySide6.QtWidgets import QStyledItemDelegate, QStyleOptionViewItem

from tunesmith_gui.icons import pixmap
from tunesmith_gui.models.run_words import state_look, state_word
from tunesmith_gui.runs.table import ROW_ROLE
from tunesmith_gui.theme import tokens
from tunesmith_gui.tokens import SPACE


class StateDelegate(QStyledItemDelegate):
    """Paints the state of a table row's run."""

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        """Draws the cell's background, the icon and the word."""
        row = index.data(ROW_ROLE)
        self.initStyleOption(option, index)
        option.text = ""
        style = option.widget.style()
        style.drawControl(style.ControlElement.CE_ItemViewItem, option, painter, option.widget)
        if row is None:
            return
        look = state_look(row.state)
        icon_px = round(option.fontMetrics.height() * 0.95)
        left, middle = option.rect.left() + SPACE, option.rect.center().y() + 1
        role = "muted" if look.tone == "neutral" else look.tone
        painter.drawPixmap(left, middle - icon_px // 2, pixmap(look.icon_name, role, icon_px))
        painter.save()
        painter.setFont(option.font)
        painter.setPen(QColor(tokens().tone(look.tone)[0]))
        rect = option.rect.adjusted(SPACE + icon_px + SPACE * 3 // 4, 0, 0, 0)
        painter.drawText(rect, Qt.AlignmentFlag.AlignVCenter, state_word(row.state, row.obstacle))
        painter.restore()
