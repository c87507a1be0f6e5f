"""The table of rows: what is in sight is read when it is painted, so a million rows cost as much as fifty."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from PySide6.QtCore import QAbstractTableModel, QModelIndex, QObject, QPersistentModelIndex, Qt
from PySide6.QtGui import QColor, QFont

from tunesmith_core.datafmt.spoken import spoken
from tunesmith_core.plain_text import ELLIPSIS
from tunesmith_gui.data.hits import hits
from tunesmith_gui.data.place_set import Places
from tunesmith_gui.data.rows import Rows, is_kept
from tunesmith_gui.icons import icon
from tunesmith_gui.plain_text import line, tip
from tunesmith_gui.theme import tokens
from tunesmith_gui.tr import fill, listed, number

Index = QModelIndex | QPersistentModelIndex
MOST_LETTERS = 200
"""Of a cell; a column is never wider than that."""
_TIP_LETTERS = 600
_LINE_END = " ↵ "
_NEXT_SPEAKER = " · "
_LETTERS_AT_BEGINNING, _LETTERS_BEFORE = 20, 10
"""A match within the first letters is in sight; of a later one so many letters before it are shown."""


class RowTableModel(QAbstractTableModel):
    """Rows with their changes, all of them or those that were found.

    Attributes:
        columns: names of the columns.
    """

    def __init__(self, rows: Rows, columns: Sequence[str], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.rows = rows
        self.columns = list(columns)
        self.problems: dict[int, str] = {}
        self._places: array[int] | None = None
        self._num_shown = len(rows)
        self._texts: dict[tuple[int, int], str] = {}
        self._wanted = ""
        rows.grew.connect(self._grow)
        rows.changed.connect(self._on_changed)

    # What is shown

    def show_places(self, places: array[int] | None) -> None:
        """Shows only these rows; None shows all."""
        self.beginResetModel()
        self._places = places
        self._num_shown = len(self.rows) if places is None else len(places)
        self.endResetModel()

    def show_problems(self, problems: dict[int, str]) -> None:
        """Marks rows by what is wrong with them."""
        self.problems = problems
        self._repaint()

    def show_wanted(self, wanted: str) -> None:
        """Shows of each cell the part that holds a text, "" for its beginning."""
        if wanted != self._wanted:
            self._wanted = wanted
            self._repaint()

    def column_with(self, place: int, wanted: str) -> int | None:
        """The first column of a row that holds a text."""
        values = self.rows.shown(place).values or {}
        words = (spoken(values.get(name), column=name) for name in self.columns)
        return next((each for each, text in enumerate(words) if hits(text, wanted)), None)

    def column_of(self, name: str) -> int | None:
        """Where a column is; None where there is none of that name."""
        return self.columns.index(name) if name in self.columns else None

    def place(self, shown_row: int) -> int:
        """The place of a row that is shown."""
        return shown_row if self._places is None else self._places[shown_row]

    def places(self, begin: int, end: int) -> Places:
        """The places of rows that are shown one after the other."""
        if self._places is None:
            return range(begin, end)
        return np.frombuffer(self._places, dtype=np.uint64)[begin:end].astype(np.int64)

    def shown_row(self, place: int) -> int | None:
        """Where a place is shown; None where it is left out."""
        if self._places is None:
            return place if place < self._num_shown else None
        at = bisect_left(self._places, place)
        return at if at < len(self._places) and self._places[at] == place else None

    def _grow(self) -> None:
        if not self.columns:
            self.beginResetModel()
            self.columns = self.rows.columns()
            self._num_shown = len(self.rows) if self._places is None else self._num_shown
            self.endResetModel()
        elif self._places is None and len(self.rows) > self._num_shown:
            self.beginInsertRows(QModelIndex(), self._num_shown, len(self.rows) - 1)
            self._num_shown = len(self.rows)
            self.endInsertRows()

    def _on_changed(self, places: list[int]) -> None:
        new = [name for place in places for name in self.rows.edits.get(place, ()) if name not in self.columns]
        if new:
            names = list(dict.fromkeys(new))
            self.beginInsertColumns(QModelIndex(), len(self.columns), len(self.columns) + len(names) - 1)
            self.columns += names
            self.endInsertColumns()
        self._repaint()

    def _repaint(self) -> None:
        self._texts.clear()
        if self._num_shown and self.columns:
            self.dataChanged.emit(self.index(0, 0), self.index(self._num_shown - 1, len(self.columns) - 1))
            self.headerDataChanged.emit(Qt.Orientation.Vertical, 0, self._num_shown - 1)

    # The model

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        """The number of rows that are shown."""
        return 0 if parent.isValid() else self._num_shown

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        """The number of columns."""
        return 0 if parent.isValid() else len(self.columns)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = 0) -> object:
        """The column's name, or the row's number in its file."""
        if role == Qt.ItemDataRole.DisplayRole:
            if orientation == Qt.Orientation.Horizontal:
                return line(self.columns[section], MOST_LETTERS)
            return number(self.rows.number(self.place(section)))
        if role == Qt.ItemDataRole.TextAlignmentRole:
            is_name = orientation == Qt.Orientation.Horizontal
            side = Qt.AlignmentFlag.AlignLeft if is_name else Qt.AlignmentFlag.AlignRight
            return side | Qt.AlignmentFlag.AlignVCenter
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """Text and look of a cell."""
        if not index.isValid():
            return None
        place, column = self.place(index.row()), index.column()
        if role == Qt.ItemDataRole.ToolTipRole:
            return tip(self._tip(place, column))
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return self._text(place, column)
            case Qt.ItemDataRole.AccessibleTextRole:
                words = f"{line(self.columns[column], MOST_LETTERS)}: {self._text(place, column)}"
                return fill(self.tr("%1, %2"), words, self._state(place)) if self._state(place) else words
            case Qt.ItemDataRole.FontRole if place in self.rows.deleted:
                struck = QFont()
                struck.setStrikeOut(True)
                return struck
            case Qt.ItemDataRole.ForegroundRole if place in self.rows.deleted:
                return QColor(tokens().muted)
            case Qt.ItemDataRole.DecorationRole if column == 0:
                return self._sign(place)
        return None

    def _text(self, place: int, column: int) -> str:
        key = (place, column)
        if key not in self._texts:
            if len(self._texts) > 20_000:
                self._texts.clear()
            self._texts[key] = self._read_text(place, column)
        return self._texts[key]

    def _read_text(self, place: int, column: int) -> str:
        row = self.rows.shown(place)
        if row.values is None:
            return line(self._part(row.text), MOST_LETTERS) if column == 0 else ""
        name = self.columns[column]
        return line(self._part(spoken(row.values.get(name), _NEXT_SPEAKER, name)), MOST_LETTERS)

    def _part(self, text: str) -> str:
        """The part of a text that is shown: from its beginning, or from shortly before what is looked for."""
        found = hits(text, self._wanted)
        begin = found[0][0] if found and found[0][0] > _LETTERS_AT_BEGINNING else 0
        if begin:
            text = ELLIPSIS + text[begin - _LETTERS_BEFORE :]
        return text[: MOST_LETTERS * 4].replace("\r\n", _LINE_END).replace("\n", _LINE_END)

    def _state(self, place: int) -> str:
        if place in self.rows.deleted:
            return self.tr("deleted")
        if self._has_problem(place):
            return self.problems[place]
        row = self.rows.shown(place)
        kept = self.tr("kept") if is_kept(row.values) else ""
        edited = self.tr("edited") if self.rows.is_edited(place) else ""
        if kept or edited or row.values is not None:
            return listed((kept, edited))
        return self.tr("too long to be shown whole") if row.is_long else self.tr("can't be read")

    def _sign(self, place: int) -> object:
        if place in self.rows.deleted:
            return icon("trash", "muted")
        row = self.rows.shown(place)
        if self._has_problem(place) or (row.values is None and not row.is_long):
            return icon("warning", "warn")
        if is_kept(row.values):
            return icon("check", "ok")
        return icon("edit", "accent") if self.rows.is_edited(place) else None

    def _has_problem(self, place: int) -> bool:
        """Whether a check found one; what it finds in a row that was changed since is not known yet."""
        return place in self.problems and place not in self.rows.edits

    def _tip(self, place: int, column: int) -> str:
        text = self._text(place, column)
        values = self.rows.shown(place).values
        if values is not None and len(text) >= MOST_LETTERS:
            text = spoken(values.get(self.columns[column]), column=self.columns[column])[:_TIP_LETTERS]
        state = self._state(place)
        return f"{state[:1].upper()}{state[1:]}\n{text}" if state else text
