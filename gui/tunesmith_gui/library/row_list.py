"""Rows below each other that stay where they are when the list is read again: the keyboard keeps its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QVBoxLayout, QWidget

from tunesmith_gui.tokens import SPACE

Item = TypeVar("Item")

AT_ONCE = 6
"""So many rows are made before other events are looked at."""


class RowList(QWidget, Generic[Item]):
    """Makes a widget of each item, anew only where an item is another.

    Args:
        make: a row of an item.
    """

    def __init__(self, make: Callable[[Item], QWidget], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._make = make
        self.rows: dict[Any, QWidget] = {}
        self._items: dict[Any, Item] = {}
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(SPACE)

    def show_items(self, items: Mapping[Any, Item]) -> None:  # Any: keys of one kind
        """Show these, in their order."""
        for key in [key for key in self.rows if key not in items or items[key] != self._items[key]]:
            row = self.rows.pop(key)
            row.hide()
            row.deleteLater()
        self._items = dict(items)
        self.setVisible(bool(items))
        self._fill()

    def _fill(self) -> None:
        """Make the rows that are missing, a few at a time: the window looks at its other events in between."""
        made = 0
        for place, (key, item) in enumerate(self._items.items()):
            if key not in self.rows:
                if made == AT_ONCE:
                    QTimer.singleShot(0, self, self._fill)
                    return
                self.rows[key] = self._make(item)
                made += 1
            if self._column.indexOf(self.rows[key]) != place:
                self._column.insertWidget(place, self.rows[key])
