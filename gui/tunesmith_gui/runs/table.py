"""The table of runs: rows from the library, sorted in the model, filtered by words and state in a proxy.

Sorting happens here on plain Python values and not in the proxy: with 5000 runs a proxy that compares through `data()`
needs most of a second for each letter that is deleted from the filter.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any

from PySide6.QtCore import (
    QAbstractTableModel,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QSortFilterProxyModel,
    Qt,
)
from PySide6.QtGui import QMouseEvent
from PySide6.QtWidgets import QTableView

from tunesmith_core.runs import RunState
from tunesmith_gui import tr
from tunesmith_gui.models.run_row import RunRow, when
from tunesmith_gui.models.run_words import state_word
from tunesmith_gui.plain_text import line, tip

Index = QModelIndex | QPersistentModelIndex


class Column(IntEnum):
    """Columns in their order."""

    NAME = 0
    STATE = 1
    CURVE = 2
    EVAL_LOSS = 3
    MODEL = 4
    DATA = 5
    DURATION = 6
    CREATED = 7
    SIZE = 8


ROW_ROLE = Qt.ItemDataRole.UserRole
"""Role under which every cell hands out its RunRow."""

_SORT_KEYS: dict[Column, Callable[[RunRow], Any]] = {  # Any: values of one column compare with each other
    Column.NAME: lambda row: row.name.casefold(),
    Column.STATE: lambda row: (not row.state.live, row.state.value),
    Column.CURVE: lambda row: row.step,
    Column.EVAL_LOSS: lambda row: (
        row.eval_loss is None,
        row.eval_reward is None,
        row.eval_loss or -(row.eval_reward or 0.0),
    ),
    Column.MODEL: lambda row: row.model.casefold(),
    Column.DATA: lambda row: row.data.casefold(),
    Column.DURATION: lambda row: row.duration_s or 0.0,
    Column.CREATED: lambda row: row.created_at,
    Column.SIZE: lambda row: row.size_bytes,
}

_NUMERIC = frozenset({Column.EVAL_LOSS, Column.DURATION, Column.SIZE})


class RunTableModel(QAbstractTableModel):
    """Rows of runs, newest first until a header is clicked."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.rows: list[RunRow] = []
        self._column, self._order = Column.CREATED, Qt.SortOrder.DescendingOrder
        self._headers = {
            Column.NAME: self.tr("Name"),
            Column.STATE: self.tr("State"),
            Column.CURVE: self.tr("Loss"),
            Column.EVAL_LOSS: self.tr("Evaluation loss"),
            Column.MODEL: self.tr("Model"),
            Column.DATA: self.tr("Data"),
            Column.DURATION: self.tr("Duration"),
            Column.CREATED: self.tr("When"),
            Column.SIZE: self.tr("Size"),
        }

    def set_rows(self, rows: list[RunRow]) -> None:
        """Show other rows; the selection survives when the same runs stay in the same places."""
        fresh = self._sorted(rows)
        if [row.id for row in fresh] == [row.id for row in self.rows]:
            self.rows = fresh
            if fresh:
                self.dataChanged.emit(self.index(0, 0), self.index(len(fresh) - 1, len(Column) - 1))
            return
        self.beginResetModel()
        self.rows = fresh
        self.endResetModel()

    def sort(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        """Order the rows by a column."""
        self.layoutAboutToBeChanged.emit()
        self._column, self._order = Column(column), order
        before = self.persistentIndexList()
        held = [(self.rows[index.row()].id, index.column()) for index in before]
        self.rows = self._sorted(self.rows)
        places = {row.id: place for place, row in enumerate(self.rows)}
        self.changePersistentIndexList(before, [self.index(places[run_id], column) for run_id, column in held])
        self.layoutChanged.emit()

    def _sorted(self, rows: list[RunRow]) -> list[RunRow]:
        return sorted(rows, key=_SORT_KEYS[self._column], reverse=self._order == Qt.SortOrder.DescendingOrder)

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        """The number of runs."""
        return 0 if parent.isValid() else len(self.rows)

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        """The number of columns."""
        return 0 if parent.isValid() else len(Column)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = 0) -> object:
        """The column's name."""
        if orientation == Qt.Orientation.Horizontal and role == Qt.ItemDataRole.DisplayRole:
            return self._headers[Column(section)]
        if role == Qt.ItemDataRole.ToolTipRole and section == Column.EVAL_LOSS:
            return tip(self.tr("The evaluation loss at the end of the run, or its held-out reward"))
        if role == Qt.ItemDataRole.TextAlignmentRole and orientation == Qt.Orientation.Horizontal:
            return self._alignment(Column(section))
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """Text, alignment, tool tip or the whole row of a cell."""
        if not index.isValid():
            return None
        row, column = self.rows[index.row()], Column(index.column())
        if role == ROW_ROLE:
            return row
        if role == Qt.ItemDataRole.DisplayRole:
            return self._text(row, column)
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return f"{self._headers[column]}: {self._text(row, column)}"
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return self._alignment(column)
        if role == Qt.ItemDataRole.ToolTipRole and column in (Column.NAME, Column.MODEL, Column.DATA):
            return tip(self._text(row, column))
        return None

    @staticmethod
    def _alignment(column: Column) -> Qt.AlignmentFlag:
        side = Qt.AlignmentFlag.AlignRight if column in _NUMERIC else Qt.AlignmentFlag.AlignLeft
        return side | Qt.AlignmentFlag.AlignVCenter

    @staticmethod
    def _text(row: RunRow, column: Column) -> str:
        match column:
            case Column.NAME:
                return line(row.name)
            case Column.STATE:
                return state_word(row.state, row.obstacle)
            case Column.EVAL_LOSS:
                if row.eval_reward is not None:
                    return tr.fill(tr.translate("RunTable", "reward %1"), tr.number(row.eval_reward, 3))
                return "" if row.eval_loss is None else tr.number(row.eval_loss, 3)
            case Column.MODEL:
                return line(row.model)
            case Column.DATA:
                return line(row.data)
            case Column.DURATION:
                return "" if row.duration_s is None else tr.duration(row.duration_s)
            case Column.CREATED:
                return when(row.created_at)
            case Column.SIZE:
                return tr.size(row.size_bytes) if row.size_bytes else ""
        return ""


class RunTable(QTableView):
    """A table that knows whether the mouse selects.

    Attributes:
        is_pressed: a mouse button goes down right now.
    """

    is_pressed = False

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Selects as ever."""
        self.is_pressed = True
        super().mousePressEvent(event)
        self.is_pressed = False


class RunFilter(QSortFilterProxyModel):
    """Lets rows through whose words and state match; the order is the model's."""

    def __init__(self, model: RunTableModel, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._words: list[str] = []
        self._states: frozenset[RunState] = frozenset()
        self._model = model
        self.setDynamicSortFilter(False)
        self.setSourceModel(model)

    def set_words(self, text: str) -> None:
        """Show the runs that hold every word of a text."""
        self.beginFilterChange()
        self._words = text.casefold().split()
        self.endFilterChange(QSortFilterProxyModel.Direction.Rows)

    def set_states(self, states: frozenset[RunState]) -> None:
        """Show the runs of some states; an empty set shows all."""
        self.beginFilterChange()
        self._states = states
        self.endFilterChange(QSortFilterProxyModel.Direction.Rows)

    def filterAcceptsRow(self, source_row: int, _source_parent: Index) -> bool:
        """Whether a run is shown."""
        row = self._model.rows[source_row]
        if self._states and row.state not in self._states:
            return False
        if not self._words:
            return True
        haystack = row.haystack
        return all(word in haystack for word in self._words)

    def sort(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        """Order the model itself."""
        if column >= 0:
            self._model.sort(column, order)
