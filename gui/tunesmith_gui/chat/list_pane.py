"""The conversations of a run: choose, rename, delete, or begin a new one."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QListWidget, QVBoxLayout, QWidget

from tunesmith_core.conversations import Conversation
from tunesmith_gui.plain_text import list_item
from tunesmith_gui.theme import theme
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.buttons import IconButton, button

_LETTERS = 24


class ConversationList(QWidget):
    """The list with its buttons.

    Signals:
        chosen: (number) another conversation of the list.
        new_asked: a new one.
        renamed: (title) of the one that is chosen.
        delete_asked: the one that is chosen.
    """

    chosen = Signal(int)
    new_asked = Signal()
    renamed = Signal(str)
    delete_asked = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE)
        row = QHBoxLayout()
        row.setSpacing(SPACE // 2)
        self.new = button(self.tr("New"), self.new_asked.emit, icon_name="plus", parent=self)
        self.new.setAccessibleName(self.tr("New conversation"))
        row.addWidget(self.new, 1)
        self.delete = IconButton("trash", self.tr("Delete this conversation"), self.delete_asked.emit, parent=self)
        row.addWidget(self.delete)
        column.addLayout(row)
        self.list = QListWidget(self)
        self.list.setAccessibleName(self.tr("Conversations"))
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.setTextElideMode(Qt.TextElideMode.ElideRight)
        self.list.currentRowChanged.connect(self._on_row)
        column.addWidget(self.list, 1)
        self.name = QLineEdit(self)
        self.name.setAccessibleName(self.tr("Name of this conversation"))
        self.name.setPlaceholderText(self.tr("Rename this conversation"))
        self.name.editingFinished.connect(lambda: self.renamed.emit(self.name.text().strip()))
        column.addWidget(self.name)
        self._quiet = False
        self._shown: list[str] = []
        theme().changed.connect(self._scale, Qt.ConnectionType.QueuedConnection)
        self._scale()

    def _scale(self) -> None:
        """Follows the size of text."""
        self.setFixedWidth(_LETTERS * self.fontMetrics().averageCharWidth() + SPACE * 4)

    def show_conversations(self, conversations: list[Conversation], current: Conversation, *, busy: bool) -> None:
        """Show the list, with the current one chosen; while an answer is under way it stays so."""
        kept = current in conversations
        words = [talk.name or self.tr("New conversation") for talk in conversations]
        if not kept:
            words.insert(0, self.tr("New conversation"))
        row = conversations.index(current) if kept else 0
        self._quiet = True
        if words != self._shown:
            self._shown = words
            self.list.clear()
            for item in map(list_item, words):
                self.list.addItem(item)
        self.list.setCurrentRow(row)
        self._quiet = False
        if not self.name.hasFocus() and self.name.text() != current.title:
            self.name.setText(current.title)
        self.name.setEnabled(kept)
        self.delete.setEnabled(kept and not busy)
        self.new.setEnabled(kept and not busy)
        self.list.setEnabled(not busy)

    def _on_row(self, row: int) -> None:
        if not self._quiet and row >= 0:
            self.chosen.emit(row)
