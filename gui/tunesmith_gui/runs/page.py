"""All runs as a table with the selected one beside it: filter, compare, export, delete, resume."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QItemSelectionModel, QLocale, QModelIndex, Qt, QTimer
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QApplication,
    QHBoxLayout,
    QHeaderView,
    QLineEdit,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from tunesmith_core.files import atomic_write_text
from tunesmith_core.runs import RunState
from tunesmith_core.spec import RunSpec
from tunesmith_gui.assets import asset_folder
from tunesmith_gui.context import Context
from tunesmith_gui.export.sheet import open_sheet
from tunesmith_gui.models.run_row import RunContents, RunRow, contents_of, distinct_names
from tunesmith_gui.models.run_spec import duplicate_spec
from tunesmith_gui.page import Page
from tunesmith_gui.plain_text import set_tip
from tunesmith_gui.runs.model import runs_csv
from tunesmith_gui.runs.run_card import RunCard
from tunesmith_gui.runs.sparkline import SparklineDelegate
from tunesmith_gui.runs.state_cell import StateDelegate
from tunesmith_gui.runs.table import ROW_ROLE, Column, RunFilter, RunTable, RunTableModel
from tunesmith_gui.theme import theme
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import fill
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.empty_state import EmptyState
from tunesmith_gui.widgets.page_header import PageHeader
from tunesmith_gui.widgets.safe_label import SafeLabel
from tunesmith_gui.widgets.save_file import ask_where_to_save
from tunesmith_gui.widgets.segmented import Segmented
from tunesmith_gui.widgets.side_by_side import SideBySide

_STATES = {
    "all": frozenset[RunState](),
    "live": frozenset(state for state in RunState if state.live),
    "finished": frozenset({RunState.FINISHED}),
    "stopped": frozenset({RunState.STOPPED, RunState.INTERRUPTED}),
    "failed": frozenset({RunState.FAILED, RunState.DAMAGED}),
}
_DETAIL_FROM_PX = 900
_LIVE_REFRESH_MS = 3000
_NAME_LETTERS = 34
_BY_WORTH = (Column.EVAL_LOSS, Column.DURATION, Column.DATA, Column.CURVE, Column.MODEL, Column.SIZE)
"""Columns that are shown where there is room for them, the first ones first; the card beside shows them all."""


def sample_data() -> Path:
    """The bundled training data in the language in force."""
    language = "zh" if QLocale().language() == QLocale.Language.Chinese else "en"
    return asset_folder("samples") / language / "train.jsonl"


class RunsPage(Page):
    """Build and bind; rows come from `services.library`."""

    icon_name = "runs"

    def __init__(self, context: Context, parent: QWidget | None = None) -> None:
        super().__init__(context, parent)
        self.model = RunTableModel(self)
        self.proxy = RunFilter(self.model, self)
        self._visible = False
        self._focus_wanted = False
        self._widths: dict[Column, int] = {}
        self._later = QTimer(self)
        self._later.setSingleShot(True)
        self._later.setInterval(_LIVE_REFRESH_MS)
        self._later.timeout.connect(self._refresh)
        self._card_later = QTimer(self)
        self._card_later.setSingleShot(True)
        self._card_later.timeout.connect(self._show_card)
        column = QVBoxLayout(self)
        column.setContentsMargins(SPACE * 3, SPACE * 3, SPACE * 3, SPACE * 3)
        column.setSpacing(SPACE * 2)
        self.header = PageHeader(self.tr("Runs"), parent=self)
        self._new = button(
            self.tr("New run"), lambda: self.navigate.emit("train", None), kind="primary", icon_name="plus", parent=self
        )
        self.header.add_action(self._new)
        column.addWidget(self.header)
        self._stack = QStackedWidget(self)
        self._empty = EmptyState(
            "runs",
            self.tr("No runs yet"),
            self.tr("A run trains an adapter on your data. It appears here and stays, also when the window is closed."),
            primary=(self.tr("Start your first run"), lambda: self.navigate.emit("train", None)),
            secondary=(self.tr("Try the sample"), lambda: self.navigate.emit("train", [sample_data()])),
            parent=self,
        )
        self._loading = SafeLabel(self.tr("Reading the list of runs…"), tone="muted", parent=self)
        self._loading.setAlignment(Qt.AlignmentFlag.AlignTop)
        for widget in (self._loading, self._build_list(), self._empty):
            self._stack.addWidget(widget)
        column.addWidget(self._stack, 1)
        library = context.library
        library.rows_changed.connect(self._take_rows)
        library.failed.connect(self.tell_failure)
        context.runs.runs_changed.connect(self._refresh)
        context.runs.run_updated.connect(self._refresh_if_quiet)
        if library.loaded:
            self._take_rows()

    def on_shown(self, argument: object = None) -> None:
        """Read the list again."""
        del argument
        self._visible = self._focus_wanted = True
        self._take_focus()
        self.context.library.refresh()

    def on_hidden(self) -> None:
        """Read nothing while nobody looks."""
        self._visible = False

    def _take_focus(self) -> None:
        """Put the keyboard where the page begins, once each time it is shown; else Qt picks any button."""
        if not (self._focus_wanted and self.context.library.loaded):
            return
        self._focus_wanted = False
        first = self.table if self.model.rows else self._empty.primary
        assert first is not None
        first.setFocus(Qt.FocusReason.OtherFocusReason)

    def perform(self, action: str) -> bool:
        """Find puts the cursor into the filter box."""
        if action != "find":
            return False
        self.filter.setFocus(Qt.FocusReason.ShortcutFocusReason)
        return True

    def _build_list(self) -> QWidget:
        holder = QWidget(self)
        column = QVBoxLayout(holder)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE * 2)
        self.filter = QLineEdit(holder)
        self.filter.setPlaceholderText(self.tr("Filter by name, model or data"))
        self.filter.setAccessibleName(self.tr("Filter runs"))
        self.filter.setClearButtonEnabled(True)
        self.filter.textChanged.connect(self._filter_changed)
        chips = (
            ("all", self.tr("All")),
            ("live", self.tr("Running")),
            ("finished", self.tr("Finished")),
            ("stopped", self.tr("Stopped")),
            ("failed", self.tr("Failed")),
        )
        self.states = Segmented(self.tr("State"), chips, parent=holder)
        self.states.changed.connect(self._states_changed)
        column.addWidget(SideBySide(self.filter, self.states, first_letters=32, parent=holder))
        body = QHBoxLayout()
        body.setSpacing(SPACE * 2)
        self.table = self._build_table(holder)
        body.addWidget(self.table, 1)
        self.no_match = EmptyState(
            "search",
            self.tr("No run matches"),
            self.tr("No run has these words and this state."),
            primary=(self.tr("Show all runs"), self._show_all),
            parent=holder,
        )
        self.no_match.hide()
        body.addWidget(self.no_match, 1)
        self.card = RunCard(holder)
        self.card.setFixedWidth(SPACE * 32)
        self.card.asked.connect(self.ask)
        self.card.hide()
        body.addWidget(self.card)
        column.addLayout(body, 1)
        column.addLayout(self._build_actions(holder))
        return holder

    def _build_table(self, parent: QWidget) -> RunTable:
        table = RunTable(parent)
        table.setAccessibleName(self.tr("Runs"))
        table.setModel(self.proxy)
        table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        table.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        table.setShowGrid(False)
        table.setTabKeyNavigation(False)
        table.setWordWrap(False)
        # Names of runs differ at their ends.
        table.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        table.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        table.verticalHeader().hide()
        table.verticalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        table.setSortingEnabled(True)
        table.horizontalHeader().setSortIndicator(Column.CREATED, Qt.SortOrder.DescendingOrder)
        table.horizontalHeader().setHighlightSections(False)
        table.horizontalHeader().setSectionResizeMode(Column.NAME, QHeaderView.ResizeMode.Stretch)
        table.setItemDelegateForColumn(Column.CURVE, SparklineDelegate(table))
        table.setItemDelegateForColumn(Column.STATE, StateDelegate(table))
        table.selectionModel().selectionChanged.connect(lambda *_changed: self._selection_changed())
        table.activated.connect(self._activated)
        # Queued: the header knows its new font only after the theme has told everybody.
        theme().changed.connect(self._size_table, Qt.ConnectionType.QueuedConnection)
        return table

    def _build_actions(self, parent: QWidget) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        self._chosen = SafeLabel("", tone="muted", parent=parent)
        row.addWidget(self._chosen)
        row.addStretch(1)
        self.compare = button(
            self.tr("Compare"), lambda: self.ask("compare"), kind="quiet", icon_name="compare", parent=parent
        )
        self.export = button(
            self.tr("Export CSV…"), lambda: self.ask("export"), kind="quiet", icon_name="table", parent=parent
        )
        self.delete = button(
            self.tr("Delete…"), lambda: self.ask("delete"), kind="quiet", icon_name="trash", parent=parent
        )
        self.trash = button(self.tr("Trash…"), self._show_trash, kind="quiet", icon_name="trash", parent=parent)
        for each in (self.compare, self.export, self.delete, self.trash):
            row.addWidget(each)
        return row

    def selected_rows(self) -> list[RunRow]:
        """The selected runs from top to bottom."""
        indexes = sorted(self.table.selectionModel().selectedRows(), key=QModelIndex.row)
        return [index.data(ROW_ROLE) for index in indexes]

    def ask(self, action: str) -> None:
        """Do what a button names with the selected runs."""
        rows = self.selected_rows()
        match action:
            case "export":
                self._export(rows or [self.proxy.index(i, 0).data(ROW_ROLE) for i in range(self.proxy.rowCount())])
            case "compare":
                self._compare(rows)
            case "delete" if rows:
                self._ask_delete(rows)
            case "open" if rows:
                self.navigate.emit("dashboard", rows[0].id)
            case "take_out" if rows:
                open_sheet(self, self.context.runs.run(rows[0].id), rows[0].name)
            case "resume" if rows:
                run_id = rows[0].id
                self.context.runs.resume(run_id, lambda _id: self.navigate.emit("dashboard", run_id))
            case "duplicate" if rows:
                run = self.context.runs.run(rows[0].id)
                self.run_in_background(run.load_spec, self._duplicate)

    def _duplicate(self, spec: RunSpec) -> None:
        self.navigate.emit("train", duplicate_spec(spec))

    def _compare(self, rows: list[RunRow]) -> None:
        runs = [(name, self.context.runs.run(row.id)) for name, row in zip(distinct_names(rows), rows, strict=True)]

        def load() -> object:
            from tunesmith_gui.runs.compare import load_compared

            return load_compared(runs)

        self.run_in_background(load, self._show_comparison)

    def _show_comparison(self, loaded: object) -> None:
        from tunesmith_gui.runs.compare import CompareDialog

        CompareDialog(loaded, self.window()).exec()  # type: ignore[arg-type]

    def _export(self, rows: list[RunRow]) -> None:
        path = ask_where_to_save(self, self.tr("Export CSV"), "runs.csv", "CSV (*.csv)")
        if path is not None:
            self.run_in_background(
                lambda: atomic_write_text(path, runs_csv(rows)),
                lambda _nothing: self.notify.emit("ok", fill(self.tr("Written to %1"), str(path))),
            )

    def _show_trash(self) -> None:
        from tunesmith_gui.runs.trash_dialog import TrashDialog

        dialog = TrashDialog(self.window())
        dialog.exec()
        if dialog.changed:
            self.context.library.refresh()

    def _ask_delete(self, rows: list[RunRow]) -> None:
        from tunesmith_gui.widgets.delete_run import DeleteRunDialog

        def tell(is_kept: bool) -> None:
            if is_kept:
                words = self.tr("Moved to the trash, from where runs can be restored.")
                self.offer_undo(words, [row.path for row in rows], self.context.library.refresh)

        def ask(contents: RunContents) -> None:
            dialog = DeleteRunDialog(rows, contents, self.window())
            if dialog.exec():
                is_kept = dialog.trash.isChecked()
                self.context.runs.delete([row.id for row in rows], dialog.remove, lambda: tell(is_kept))

        self.run_in_background(lambda: contents_of(rows), ask)

    def _refresh(self) -> None:
        if self._visible:
            self.context.library.refresh()

    def _refresh_if_quiet(self) -> None:
        # A live run reports many times a second; the list of runs need not follow each step.
        if self._visible and not self._later.isActive():
            self._later.start()

    def _take_rows(self) -> None:
        chosen = {row.id for row in self.selected_rows()}
        place = min((index.row() for index in self.table.selectionModel().selectedRows()), default=0)
        rows = self.context.library.rows
        self.model.set_rows(rows)
        self._stack.setCurrentIndex(1 if rows else 2)
        self._new.setVisible(bool(rows))
        self._say_number()
        self._size_table()
        self._select(chosen, place)
        self._take_focus()

    def _select(self, ids: set[str], place_left: int) -> None:
        """Select runs, or where none of them is left the one that took their place."""
        flags = QItemSelectionModel.SelectionFlag.Select | QItemSelectionModel.SelectionFlag.Rows
        for place in range(self.proxy.rowCount()) if ids else ():
            index = self.proxy.index(place, 0)
            if index.data(ROW_ROLE).id in ids:
                self.table.selectionModel().select(index, flags)
        if not self.selected_rows() and self.proxy.rowCount():
            self.table.selectRow(min(place_left, self.proxy.rowCount() - 1))
        self._selection_changed()

    def _say_number(self) -> None:
        rows = self.model.rows
        parts = [self.tr("%n run(s)", "", len(rows))] if rows else []
        waiting = sum(row.state is RunState.QUEUED for row in rows)
        if running := sum(row.state.live for row in rows) - waiting:
            parts.append(fill(self.tr("%1 running"), running))
        if waiting:
            parts.append(fill(self.tr("%1 waiting"), waiting))
        self.header.set_subtitle(", ".join(parts))

    def _filter_changed(self, text: str) -> None:
        self.proxy.set_words(text)
        self._selection_changed()

    def _states_changed(self, group: str) -> None:
        self.proxy.set_states(_STATES[group])
        self._selection_changed()

    def _show_all(self) -> None:
        self.filter.clear()
        self.states.set_value("all")
        self.table.setFocus(Qt.FocusReason.OtherFocusReason)

    def _selection_changed(self) -> None:
        rows = self.selected_rows()
        nothing = bool(self.model.rows) and not self.proxy.rowCount()
        self.table.setVisible(not nothing)
        self.no_match.setVisible(nothing)
        live = any(row.state.live for row in rows)
        self.compare.setEnabled(2 <= len(rows) <= 6)
        set_tip(self.compare, "" if self.compare.isEnabled() else self.tr("Select two to six runs to compare them"))
        self.delete.setEnabled(bool(rows) and not live)
        set_tip(self.delete, self.tr("Stop the run first, then you can delete it") if live else "")
        self._chosen.setText(self.tr("%n selected", "", len(rows)) if len(rows) > 1 else "")
        if rows:
            self.card.show_row(rows[0], self.context.runs.place(rows[0].id))
        if rows and self.table.is_pressed and self.card.isHidden():
            # It moves the columns, and the second click of a double click is to find the same run.
            self._card_later.start(QApplication.doubleClickInterval())
        else:
            self._show_card()

    def _activated(self, index: QModelIndex) -> None:
        self.navigate.emit("dashboard", index.data(ROW_ROLE).id)

    def _show_card(self) -> None:
        shown = self.width() >= _DETAIL_FROM_PX * theme().font_scale and bool(self.selected_rows())
        self.card.setVisible(shown)
        self._make_room(self.width() - SPACE * 6 - (self.card.width() + SPACE * 2 if shown else 0))

    def _make_room(self, room_px: int) -> None:
        wanted = self.table.fontMetrics().averageCharWidth() * _NAME_LETTERS
        always = sum(width for column, width in self._widths.items() if column not in _BY_WORTH)
        left_px = room_px - wanted - always
        for column in _BY_WORTH:
            fits = self._widths.get(column, 0) <= left_px
            self.table.setColumnHidden(column, not fits)
            left_px -= self._widths.get(column, 0) if fits else 0

    def _size_table(self) -> None:
        metrics = self.table.fontMetrics()
        self.card.setFixedWidth(round(SPACE * 32 * theme().font_scale))
        self.table.verticalHeader().setDefaultSectionSize(metrics.height() + SPACE * 5 // 2)
        letters = {
            Column.STATE: 17,
            Column.CURVE: 13,
            Column.EVAL_LOSS: 12,
            Column.MODEL: 16,
            Column.DATA: 16,
            Column.DURATION: 10,
            Column.CREATED: 13,
            Column.SIZE: 9,
        }
        for column, count in letters.items():
            # A hidden column has no size of its head; those without room are hidden again below.
            self.table.setColumnHidden(column, False)
            head = self.table.horizontalHeader().sectionSizeHint(column)
            # Which columns there is room for is not to depend on how long their heads are in a language.
            self._widths[column] = metrics.averageCharWidth() * count + SPACE * 2
            self.table.setColumnWidth(column, max(self._widths[column], head))
        self._show_card()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Show the card where there is room for it."""
        super().resizeEvent(event)
        self._show_card()
