"""The rows of a file as a table: find, filter, edit, delete, undo, save as another file."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from pathlib import Path

import numpy as np
from PySide6.QtCore import QItemSelectionModel, QItemSelectionRange, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QKeySequence, QResizeEvent, QShortcut
from PySide6.QtWidgets import QAbstractItemView, QSplitter, QStackedWidget, QTableView, QVBoxLayout, QWidget

from tunesmith_core.datafmt.json_rows import Row
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.kinds.data import WRITTEN
from tunesmith_gui.data.copy_name import ask_for_copy
from tunesmith_gui.data.find_bar import FindBar
from tunesmith_gui.data.finder import Finder
from tunesmith_gui.data.hits import HitDelegate
from tunesmith_gui.data.place_set import Places, places_of
from tunesmith_gui.data.row_numbers import RowNumbers
from tunesmith_gui.data.row_pane import RowPane
from tunesmith_gui.data.row_problems import RowProblem
from tunesmith_gui.data.row_table import RowTableModel
from tunesmith_gui.data.rows import Rows
from tunesmith_gui.plain_text import line
from tunesmith_gui.theme import theme
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text, fill, number
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.flow_row import FlowRow
from tunesmith_gui.widgets.safe_label import SafeLabel
from tunesmith_gui.widgets.side_by_side import SideBySide

_COLUMN_LETTERS = 34
_MOST_FOR_WIDTH = 6
_PANE_BESIDE_LETTERS = 110


class Grid(QWidget):
    """Shows `Rows`; a new one is made for each file.

    Signals:
        save_asked: (Path) a copy of the rows with their changes is wanted.
        row_chosen: (place) another row is in front.
        counted: the number of rows or of changes is another.
        problems_asked: which rows have problems is to be found out.
    """

    save_asked = Signal(object)
    row_chosen = Signal(int)
    counted = Signal()
    problems_asked = Signal()

    def __init__(self, rows: Rows, columns: tuple[str, ...], file: Path, parent: QWidget) -> None:
        super().__init__(parent)
        self.rows, self._file = rows, file
        self.model = RowTableModel(rows, columns, self)
        self.finder = Finder(rows, self)
        self._marker = HitDelegate(self)
        self._went = False  # to the first match
        self.checked_edits: dict[int, Row] = {}
        """What was edited when the rows were checked."""
        self.first_place = 0
        """The row that is in front first."""
        self._in_pane: tuple[int, int] | None = None  # place and column
        self._problems: dict[int, list[RowProblem]] = {}
        self._knows_problems = False
        self._actions: dict[str, str] = {}
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE)
        self.find_bar = FindBar(self.finder, self)
        self.only_found, self.only_problems = self.find_bar.only_found, self.find_bar.only_problems
        column.addWidget(self.find_bar)
        self.splitter = QSplitter(self)
        self.splitter.setChildrenCollapsible(False)
        self.table = self._build_table()
        self.pane = RowPane(self)
        self.none = SafeLabel(self.tr("No row matches."), tone="muted", parent=self)
        self.none.setAlignment(Qt.AlignmentFlag.AlignTop)
        self._list = QStackedWidget(self)
        self._list.addWidget(self.table)
        self._list.addWidget(self.none)
        self.splitter.addWidget(self._list)
        self.splitter.addWidget(self.pane)
        self.splitter.setStretchFactor(0, 3)
        self.splitter.setStretchFactor(1, 2)
        column.addWidget(self.splitter, 1)
        self.reading = SafeLabel(self.tr("Reading…"), tone="muted", parent=self)
        column.addWidget(self.reading, 1, Qt.AlignmentFlag.AlignTop)
        column.addWidget(self._build_foot())
        for each in (self.splitter, self.count):
            each.hide()
        self.pane.edited.connect(self._edit)
        self.pane.applied.connect(lambda: self.table.setFocus(Qt.FocusReason.OtherFocusReason))
        self.pane.delete_asked.connect(self._delete_or_restore)
        self.finder.found.connect(self._show_found)
        self.find_bar.step_asked.connect(self.step)
        self.find_bar.filter_changed.connect(self._filter)
        QShortcut(QKeySequence.StandardKey.FindPrevious, self, lambda: self.step(-1))
        QShortcut(QKeySequence.StandardKey.FindNext, self, lambda: self.step(1))
        rows.grew.connect(self._on_grew)
        rows.read.connect(self._say_number)
        rows.changed.connect(self._on_changed)
        rows.failed.connect(self._end_reading)
        self._say_number()

    def _build_table(self) -> QTableView:
        table = QTableView(self)
        table.setAccessibleName(self.tr("Rows"))
        table.setVerticalHeader(RowNumbers(table))
        table.setModel(self.model)
        table.setItemDelegate(self._marker)
        table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        table.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        table.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        table.setTabKeyNavigation(False)
        table.setWordWrap(False)
        table.setCornerButtonEnabled(False)
        table.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerItem)
        table.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        # A selection of its own: with the table's, each picture of the header asks every row whether it is selected.
        table.horizontalHeader().setSelectionModel(QItemSelectionModel(self.model, self))
        table.horizontalHeader().setSectionsClickable(False)
        table.horizontalHeader().setStretchLastSection(True)
        table.selectionModel().currentChanged.connect(lambda *_changed: self._show_current())
        table.selectionModel().selectionChanged.connect(lambda *_changed: self._show_current())
        self.model.modelReset.connect(self._size_columns)
        table.activated.connect(lambda _index: self.pane.text.setFocus(Qt.FocusReason.OtherFocusReason))
        QShortcut(QKeySequence.StandardKey.Delete, table, self.delete_chosen, Qt.ShortcutContext.WidgetShortcut)
        QShortcut(QKeySequence.StandardKey.Undo, table, self.undo_change, Qt.ShortcutContext.WidgetShortcut)
        # Queued: the header knows its new font only after the theme has told everybody.
        theme().changed.connect(self._size_table, Qt.ConnectionType.QueuedConnection)
        return table

    def _build_foot(self) -> QWidget:
        self.count = SafeLabel(tone="muted", wrap=True, parent=self)
        self.undo = button(self.tr("Undo"), self.undo_change, icon_name="reset", parent=self)
        self.save = button(self.tr("Save as…"), self._save_as, icon_name="save", parent=self)
        return SideBySide(self.count, FlowRow((self.undo, self.save), self), first_letters=40, parent=self)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Puts the pane below the table where there is no room beside it."""
        super().resizeEvent(event)
        letters = self.width() / max(1, self.fontMetrics().averageCharWidth())
        beside = letters >= _PANE_BESIDE_LETTERS
        self.splitter.setOrientation(Qt.Orientation.Horizontal if beside else Qt.Orientation.Vertical)

    # Choosing

    def chosen(self) -> Places:
        """The places of the selected rows."""
        ranges = [self.model.places(each.top(), each.bottom() + 1) for each in self._ranges()]
        return ranges[0] if len(ranges) == 1 else places_of(np.unique(np.concatenate(ranges)) if ranges else ())

    def _ranges(self) -> list[QItemSelectionRange]:
        return self.table.selectionModel().selection().toList()

    def _num_chosen(self) -> int:
        # Not by the list of indexes: that of a million rows takes seconds.
        return sum(each.height() for each in self._ranges())

    def current(self) -> int | None:
        """The place of the row in front."""
        index = self.table.currentIndex()
        return self.model.place(index.row()) if index.isValid() else None

    def go_to(self, place: int, column: int | None = None) -> None:
        """Brings a row to the front, all rows if it is left out."""
        shown = self.model.shown_row(place)
        if shown is None:
            self.find_bar.show_all()
            shown = self.model.shown_row(place)
        if shown is None:
            return
        column = max(self.table.currentIndex().column(), 0) if column is None else column
        index = self.model.index(shown, column)
        flags = QItemSelectionModel.SelectionFlag.ClearAndSelect | QItemSelectionModel.SelectionFlag.Rows
        self.table.selectionModel().setCurrentIndex(index, flags)
        bar = self.table.horizontalScrollBar()
        across = bar.value()
        self.table.scrollTo(index, QAbstractItemView.ScrollHint.PositionAtCenter)
        # Columns that are in sight stay where they are.
        bar.setValue(across)
        self.table.scrollTo(index)

    def _show_current(self) -> None:
        place, index = self.current(), self.table.currentIndex()
        cell = (place, index.column()) if place is not None else None
        self._offer_delete()
        if cell == self._in_pane and self.pane.has_changes:
            return
        if not self.pane.keep_typed():
            # Later: the table is about to select the row that was clicked.
            QTimer.singleShot(0, self, self._return_to_pane)
            return
        self._in_pane = cell
        if place is None:
            self.pane.show_row("", None, "")
            self._show_row_problems()
            return
        column = self.model.columns[index.column()]
        self.pane.show_row(self.rows.words(place), self.rows.whole(place), column)
        self._show_row_problems()
        self.row_chosen.emit(place)

    def _return_to_pane(self) -> None:
        """Goes back to the row whose text can't be applied."""
        if self._in_pane is not None and self.pane.has_changes:
            place, column = self._in_pane
            self.go_to(place, column)
            self.pane.text.setFocus(Qt.FocusReason.OtherFocusReason)

    # Finding

    def step(self, direction: int) -> None:
        """Goes to the next match, or the one before; round at the ends."""
        places = self.finder.places
        if not places:
            return
        here = self.current()
        if here is None:
            here = -1
        at = bisect_right(places, here) if direction > 0 else bisect_left(places, here) - 1
        self._go_to_match(places[at % len(places)])

    def _go_to_match(self, place: int) -> None:
        """Brings a row that was found to the front, and of it the column that holds the match."""
        self.go_to(place, self.model.column_with(place, self.finder.text))

    def _show_found(self) -> None:
        self.find_bar.show_found()
        if self._marker.wanted != self.finder.text:
            self._marker.wanted = self.finder.text
            self.model.show_wanted(self.finder.text)
            self.pane.show_wanted(self.finder.text)
        if self.only_found.isChecked():
            self._filter()
        elif self.finder.places and not self._went:
            self._go_to_match(self.finder.places[0])
        self._went = bool(self.finder.places)

    def _filter(self) -> None:
        here = self.current()
        if self.only_problems.isChecked() and not self._knows_problems:
            self.problems_asked.emit()
        self.model.show_places(self.find_bar.wanted(self.model.problems if self._knows_problems else None))
        if here is not None and self.model.shown_row(here) is not None:
            self.go_to(here)
        elif self.model.rowCount():
            self.table.selectRow(0)
        else:
            self._show_current()  # a list without rows tells of no other choice
        is_none = not self.model.rowCount() and not self.finder.is_looking
        self._list.setCurrentWidget(self.none if is_none else self.table)
        self._say_number()

    def show_problems(self, problems: dict[int, list[RowProblem]], *, are_known: bool = True) -> None:
        """Marks rows with problems, and offers to see only these."""
        self._problems, self._knows_problems = problems, are_known
        self.model.show_problems(
            {place: "\n".join(line(core_text(each.message)) for each in found) for place, found in problems.items()}
        )
        self._show_row_problems()
        self.find_bar.offer_problems(may_be_any=bool(problems) or not are_known)
        if self.only_problems.isChecked() and are_known:
            self._filter()

    def show_actions(self, actions: dict[str, str]) -> None:
        """Takes what is done about the rows of each rule, in words."""
        self._actions = actions
        self._show_row_problems()

    def _show_row_problems(self) -> None:
        place = self._in_pane[0] if self._in_pane else -1
        edits = self.rows.edits
        is_changed = edits.get(place) != self.checked_edits.get(place) or place in self.rows.deleted
        self.pane.show_problems((), {}) if is_changed else self.pane.show_problems(
            self._problems.get(place, ()), self._actions
        )

    # Changing

    def _edit(self, row: Row) -> None:
        if self._in_pane is not None:
            self.rows.edit(self._in_pane[0], row)

    def delete_chosen(self) -> None:
        """Leaves the selected rows out."""
        if not self.pane.keep_typed():
            self.pane.drop_typed()
        places = self.chosen()
        if not self.rows.deleted.has_all(places):
            self.rows.delete(places)

    def _restores(self) -> bool:
        """Whether all chosen rows are deleted."""
        num_chosen, deleted = self._num_chosen(), self.rows.deleted
        return 0 < num_chosen <= len(deleted) and deleted.has_all(self.chosen())

    def _offer_delete(self) -> None:
        self.pane.offer_delete(self._num_chosen(), restores=self._restores())

    def _delete_or_restore(self) -> None:
        if self._restores():
            self.rows.restore(self.chosen())
        else:
            self.delete_chosen()

    def undo_change(self) -> None:
        """Takes the last change back."""
        if self.pane.keep_typed() and self.rows.can_undo:
            self.rows.undo()

    def _on_changed(self, _places: list[int]) -> None:
        self._show_current()
        self._say_number()

    def ask_where(self) -> Path | None:
        """Asks for the name of a copy; None where the person changed their mind, or typed what can't be applied."""
        if not self.pane.keep_typed():
            return None
        return ask_for_copy(self, self.tr("Save as"), self._file, "-edited", WRITTEN)

    def _save_as(self) -> None:
        path = self.ask_where()
        if path is not None:
            self.save_asked.emit(path)

    # Showing

    def _on_grew(self) -> None:
        if not self.table.currentIndex().isValid() and self.model.rowCount():
            self._size_columns()
            self.table.selectRow(0)
        if self.first_place and self.model.shown_row(self.first_place) is not None:
            self.go_to(self.first_place)
            self.first_place = 0
        self._say_number()

    def _say_number(self) -> None:
        rows = self.rows
        if len(rows) or rows.is_complete:
            self._end_reading()
        parts = [self.tr("%Ln row(s)", "", len(rows))]
        if not rows.is_complete:
            num = len(rows)
            so_far = self.tr("%Ln row(s) read so far", "", num)
            parts = [self.tr("%Ln row(s) up to the problem", "", num) if rows.is_broken else so_far]
        if self.model.rowCount() != len(rows):
            parts.append(fill(self.tr("%1 shown"), number(self.model.rowCount())))
        if self.only_problems.isChecked() and not self._knows_problems:
            parts.append(self.tr("looking for problems…"))
        if num_kept := rows.num_kept():
            parts.append(self.tr("%Ln kept", "", num_kept))
        if num_edited := rows.num_edited():
            parts.append(self.tr("%Ln edited", "", num_edited))
        if rows.deleted:
            parts.append(self.tr("%Ln deleted", "", len(rows.deleted)))
        self.count.setText("  ·  ".join(parts))
        self.undo.setEnabled(rows.can_undo)
        self.save.setEnabled(rows.is_complete and len(rows) > 0)
        self.counted.emit()

    def _end_reading(self, _error: TunesmithError | None = None) -> None:
        self.reading.hide()
        self.splitter.show()
        self.count.show()

    def _size_table(self) -> None:
        metrics = self.table.fontMetrics()
        self.table.verticalHeader().setDefaultSectionSize(metrics.height() + SPACE * 3 // 2)
        self.table.setIconSize(QSize(metrics.height(), metrics.height()))
        self._size_columns()

    def _size_columns(self) -> None:
        widest = self.table.fontMetrics().averageCharWidth() * _COLUMN_LETTERS
        for column in range(min(self.model.columnCount(), _MOST_FOR_WIDTH)):
            texts = (self.model.data(self.model.index(row, column)) for row in range(min(self.model.rowCount(), 20)))
            wanted = max((self.table.fontMetrics().horizontalAdvance(str(text)) for text in texts), default=0)
            header = self.table.horizontalHeader().sectionSizeHint(column)
            self.table.setColumnWidth(column, min(max(wanted + SPACE * 5, header), widest))
