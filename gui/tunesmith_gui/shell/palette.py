"""The command palette: type a few letters of an action or a run, press Enter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QModelIndex, QObject, QPersistentModelIndex, QSize, Qt
from PySide6.QtGui import QColor, QKeyEvent, QPainter
from PySide6.QtWidgets import (
    QLineEdit,
    QListWidget,
    QListWidgetItem,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from tunesmith_gui.icons import icon
from tunesmith_gui.plain_text import list_item
from tunesmith_gui.shell.popup import Popup
from tunesmith_gui.theme import theme, tokens
from tunesmith_gui.tokens import ICON_PX, SPACE
from tunesmith_gui.tr import translate
from tunesmith_gui.widgets.safe_label import SafeLabel

_WIDTH_LETTERS = 72
_SHOWN_ROWS = 9
_LIST_KEYS = (Qt.Key.Key_Up, Qt.Key.Key_Down, Qt.Key.Key_PageUp, Qt.Key.Key_PageDown)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the palette: words, the keys that do the same, an icon, and what it does."""

    words: str
    keys: str
    icon_name: str
    run: Callable[[], object]


def matches(query: str, words: str) -> bool:
    """Whether every word of the query begins or lies inside the entry, whatever the case."""
    folded = words.casefold()
    return all(part in folded for part in query.casefold().split())


class _KeysAtTheRight(QStyledItemDelegate):
    """Draws the key sequence of an entry muted at the right end of its row."""

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        super().paint(painter, option, index)
        entry: Entry = index.data(Qt.ItemDataRole.UserRole)
        painter.setPen(QColor(tokens().muted))
        rect = option.rect.adjusted(0, 0, -SPACE, 0)
        painter.drawText(rect, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, entry.keys)


class CommandPalette(Popup):
    """A pop-up with a search line and a list. Make it, `open_with(entries)`, and it deletes nothing when closed."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(translate("CommandPalette", "Commands"), parent)
        self._window = parent
        self._entries: list[Entry] = []
        self.search = QLineEdit(self)
        self.search.setPlaceholderText(self.tr("Type a command or the name of a run"))
        self.search.setAccessibleName(self.tr("Find a command"))
        self.search.textChanged.connect(self._filter)
        self.search.installEventFilter(self)
        self.list = QListWidget(self)
        self.list.setAccessibleName(self.tr("Commands"))
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.list.setItemDelegate(_KeysAtTheRight(self.list))
        self.list.itemClicked.connect(self._run)
        self.body.addWidget(self.search)
        self.body.addWidget(self.list)
        self.nothing = SafeLabel(self.tr("No matching commands or runs."), tone="muted", parent=self)
        self.body.addWidget(self.nothing)

    def open_with(self, entries: list[Entry]) -> None:
        """Shows the palette over the upper part of the window."""
        self._entries = entries
        self.list.setIconSize(QSize(ICON_PX, ICON_PX) * theme().font_scale)
        self.search.clear()
        self._filter("")
        parent = self._window
        width = min(self.fontMetrics().averageCharWidth() * _WIDTH_LETTERS, parent.width() - SPACE * 4)
        self.setFixedWidth(width)
        top_left = parent.mapToGlobal(parent.rect().topLeft())
        self.move(top_left.x() + (parent.width() - width) // 2, top_left.y() + SPACE * 6)
        self.show()
        self.search.setFocus(Qt.FocusReason.PopupFocusReason)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Keys in the search line move in the list and run its current entry."""
        if watched is self.search and event.type() == QEvent.Type.KeyPress and isinstance(event, QKeyEvent):
            if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
                current = self.list.currentItem()
                if current is not None:
                    self._run(current)
                return True
            if event.key() in _LIST_KEYS:
                self.list.event(event)
                return True
        return False

    def _filter(self, query: str) -> None:
        self.list.clear()
        for entry in self._entries:
            if not matches(query, entry.words):
                continue
            item = list_item(entry.words, icon(entry.icon_name, "muted"))
            item.setData(Qt.ItemDataRole.UserRole, entry)
            self.list.addItem(item)
        self.list.setCurrentRow(0)
        self._fit_height()

    def _fit_height(self) -> None:
        """As high as the entries that are left, up to nine, where the window has room for them."""
        num_rows = min(self.list.count(), _SHOWN_ROWS)
        self.nothing.setVisible(num_rows == 0)
        self.list.setVisible(num_rows > 0)
        room_px = self._window.height() - SPACE * 12 - self.search.sizeHint().height()
        self.list.setFixedHeight(min(num_rows * self.list.sizeHintForRow(0) + SPACE // 2, room_px) if num_rows else 0)
        self.fit_height()

    def _run(self, item: QListWidgetItem) -> None:
        entry: Entry = item.data(Qt.ItemDataRole.UserRole)
        self.hide()
        entry.run()
