"""An open file: how it was recognized, and below that its rows, what is learned of them, or their problems."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import QFrame, QScrollArea, QStackedWidget, QVBoxLayout, QWidget

from tunesmith_core.data_library import SYNTHETIC
from tunesmith_core.errors import TunesmithError
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_gui.data.beginning import Beginning
from tunesmith_gui.data.grid import Grid
from tunesmith_gui.data.kept_check import kept_check
from tunesmith_gui.data.learns import LearnsPane
from tunesmith_gui.data.problem_marks import ProblemMarks
from tunesmith_gui.data.problems import ProblemsPane
from tunesmith_gui.data.review import ReviewBar
from tunesmith_gui.data.reviewed import Reviewed
from tunesmith_gui.data.row_problems import RowProblem
from tunesmith_gui.data.rows import Changes, Rows
from tunesmith_gui.data.summary import FileSummary
from tunesmith_gui.services.data_facts import DataFacts
from tunesmith_gui.theme import theme
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import fill
from tunesmith_gui.widgets.banner import Banner
from tunesmith_gui.widgets.empty_state import EmptyState
from tunesmith_gui.widgets.error_banner import error_banner
from tunesmith_gui.widgets.segmented import Segmented

PARTS = ("rows", "learns", "problems")
_PANE_LINES = 20
_LAYOUT_MS = 50
"""After which every part of the page has its new height."""


class OpenFile(QScrollArea):
    """The rows and the panes about them are hidden where nothing of a file could be read.

    Signals:
        setup_asked: the training environment is to be installed.
        save_asked: (Path) a copy of the rows with their changes is wanted.
        rows_read: all rows are there.
        rows_broken: (TunesmithError) the file can't be read to its end; the rows before that are there.
        failed: (TunesmithError) what was asked for could not be done; nothing else says so.

    Attributes:
        rows, grid: of the file, None while none of its rows can be shown.
        reviewed: which of its rows somebody has looked at; None where no model wrote any.
    """

    setup_asked = Signal()
    save_asked = Signal(object)
    rows_read = Signal()
    rows_broken = Signal(object)
    failed = Signal(object)

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.rows: Rows | None = None
        self.grid: Grid | None = None
        self.reviewed: Reviewed | None = None
        self._marks = ProblemMarks(self)
        self._copied: Banner | None = None
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        body = QWidget(self)
        self.setWidget(body)
        self._column = QVBoxLayout(body)
        self._column.setContentsMargins(SPACE * 3, SPACE * 2, SPACE * 3, SPACE * 2)
        self._column.setSpacing(SPACE * 3 // 2)
        self.summary = FileSummary(body)
        self._column.addWidget(self.summary)
        self.beginning = Beginning(body)
        self._column.addWidget(self.beginning, 1)
        words = (self.tr("Rows"), self.tr("What it learns"), self.tr("Problems"))
        self.parts = Segmented(self.tr("What is shown"), tuple(zip(PARTS, words, strict=True)), parent=body)
        self._column.addWidget(self.parts, 0, Qt.AlignmentFlag.AlignLeft)
        self._panes = QStackedWidget(body)
        self._rows_holder = QWidget(body)
        self._rows_column = QVBoxLayout(self._rows_holder)
        self._rows_column.setContentsMargins(0, 0, 0, 0)
        self.learns = LearnsPane(body)
        self.problems = ProblemsPane(body)
        for pane in (self._rows_holder, self.learns, self.problems):
            self._panes.addWidget(pane)
        self._column.addWidget(self._panes, 1)
        self._column.addStretch(0)  # below a message that stands alone
        self._connect()
        self._size_panes()

    def _connect(self) -> None:
        self.parts.changed.connect(lambda _part: self.show_part())
        self.summary.problems_asked.connect(lambda: self.parts.set_value("problems"))
        self.learns.place_chosen.connect(self._go_to_place)
        self.summary.fix_asked.connect(self._fix)
        self.problems.row_asked.connect(self._go_to_problem)
        self.problems.unknown.connect(self._say_why_unknown)
        self.problems.found.connect(self._marks.find)
        self._marks.found.connect(self._show_problems)
        self.problems.actions_chosen.connect(self._show_actions)
        self.summary.check_asked.connect(self.problems.check_again)
        for pane in (self.learns, self.problems):
            pane.setup_asked.connect(self.setup_asked)
        theme().changed.connect(self._size_panes, Qt.ConnectionType.QueuedConnection)

    def _size_panes(self) -> None:
        """Where text is large the page scrolls; its panes stay high enough to read in."""
        self._panes.setMinimumHeight(self.fontMetrics().lineSpacing() * _PANE_LINES)

    # Which part

    def set_has_rows(self, has_rows: bool) -> None:
        """Hides what is about rows where there are none."""
        self.parts.setVisible(has_rows)
        self._panes.setVisible(has_rows)

    def show_part(self) -> None:
        """Shows the chosen part, which may now begin its work."""
        self._panes.setCurrentIndex(PARTS.index(self.parts.value))
        is_open = self.rows is not None
        self.learns.set_shown(is_open and self.parts.value == "learns")
        self.problems.set_shown(is_open and self.parts.value == "problems")

    def rest(self) -> None:
        """Starts nothing more while nobody looks."""
        self.learns.set_shown(False)
        self.problems.set_shown(False)

    # Rows

    def open_rows(self, source: SourceSpec, data: DataFacts, changes: Changes | None, place: int) -> None:
        """Begins to read the rows, with changes that were made before and the row at a place in front."""
        assert data.sniffed is not None
        self.rows = Rows(source, data.sniffed.kind, self)
        if changes is not None:
            self.rows.take_changes(changes)
        self._marks.rows = self.problems.rows = self.rows
        self.problems.kind = data.sniffed.kind
        self.grid = Grid(self.rows, data.sniffed.columns, Path(data.path), self._rows_holder)
        self.grid.first_place = place
        self.grid.save_asked.connect(self.save_asked)
        self.grid.row_chosen.connect(self.learns.go_to)
        self.grid.finder.failed.connect(self.failed)
        self.grid.problems_asked.connect(self.problems.ask)
        self.rows.failed.connect(self._show_error)
        self.rows.read.connect(self.rows_read)
        if SYNTHETIC in data.sniffed.columns:
            self.reviewed = Reviewed(self.rows)
            self._rows_column.addWidget(ReviewBar(self.grid, self.reviewed, self._rows_holder))
        self._rows_column.addWidget(self.grid)
        self.rows.changed.connect(self._show_edited)
        self._show_edited()

    def close_rows(self) -> None:
        """Ends what is under way for a file, and forgets it."""
        self.forget_copy()
        self.beginning.show_data(None)
        self.learns.show_data(None, None)
        self.problems.show_data(None, "")
        for widget in self._rows_holder.findChildren(QWidget, options=Qt.FindChildOption.FindDirectChildrenOnly):
            widget.hide()
            widget.deleteLater()
        if self.grid is not None:
            self.grid.finder.cancel()
        if self.rows is not None:
            self.rows.close()
            self.rows.deleteLater()
        self.rows = self.grid = self.reviewed = self._marks.rows = self.problems.rows = None
        self._show_edited()

    def has_changes(self) -> bool:
        """Whether rows were changed, or typed into; the file has nothing of that."""
        if self.grid is None:
            return False
        return not self.grid.pane.keep_typed() or self.grid.rows.has_changes

    def has_unsaved(self) -> bool:
        """Whether any of that is in no copy either."""
        if self.grid is None:
            return False
        return not self.grid.pane.keep_typed() or self.grid.rows.has_unsaved

    def unreviewed(self) -> NDArray[np.int64]:
        """The places of rows that a model wrote and nobody has reviewed."""
        return self.reviewed.all_waiting() if self.reviewed is not None else np.zeros(0, dtype=np.int64)

    def _show_error(self, error: TunesmithError) -> None:
        if error.code.startswith("dataset-"):
            self.rows_broken.emit(error)
            return
        if error.code == "environment-missing":
            setup = (self.tr("Set up training"), self.setup_asked.emit)
            words = self.tr("Files of this kind are read by its libraries. JSON, CSV and text files open without it.")
            title = self.tr("Training is not set up yet")
            message: QWidget = EmptyState("environment", title, words, primary=setup, parent=self._rows_holder)
            if self.grid is not None:
                self.grid.hide()
        else:
            message = error_banner(error, dismissable=False, parent=self._rows_holder)
        self._rows_column.insertWidget(0, message)

    def _go_to_place(self, place: int) -> None:
        if self.grid is not None:
            self.grid.go_to(place)

    def _go_to_problem(self, problem: dict[str, Any]) -> None:  # Any: JSON values
        """Shows the row of a problem, and of it the column that is wrong."""
        if self.grid is not None and self.rows is not None:
            self.parts.set_value("rows")
            place = self.rows.place_of(problem["path"], problem["line"], problem.get("row"))
            if place is not None:
                self.grid.go_to(place, self.grid.model.column_of(next(iter(problem.get("keys") or ()), "")))
            self.grid.table.setFocus(Qt.FocusReason.OtherFocusReason)
            # Later: what is said there has no height yet.
            pane = self.grid.pane
            QTimer.singleShot(_LAYOUT_MS, pane, lambda: self.ensureWidgetVisible(pane.problems))

    def _show_edited(self, _places: object = None) -> None:
        """Says what is wrong with the rows as they were changed, or that only another check can tell."""
        problems = self.problems
        problems.show_outdated()
        if self.rows is None or not self.rows.has_changes:
            self.summary.show_edited(None)
        elif problems.num_problem_rows is None or problems.is_outdated:
            self.summary.show_edited(None, is_unchecked=True)
        else:
            self.summary.show_edited(problems.first_error())

    def _show_problems(self, marks: dict[int, list[RowProblem]]) -> None:
        self._show_edited()
        if self.grid is not None:
            self._show_actions()
            self.grid.checked_edits = kept_check().changed[0]
            self.grid.show_problems(marks, are_known=self.problems.num_problem_rows is not None)

    def _say_why_unknown(self) -> None:
        """Where only rows with problems were to be seen: what to do first is said where problems are."""
        if self.grid is not None and self.grid.only_problems.isChecked():
            self.grid.only_problems.setChecked(False)
            self.parts.set_value("problems")

    def _fix(self) -> None:
        self.parts.set_value("problems")
        self.problems.fix()

    def _show_actions(self) -> None:
        if self.grid is not None:
            self.grid.show_actions(self.problems.actions_in_words())

    # A copy

    def tell_copy(self, path: Path, num_rows: str, open_it: Callable[[], None] | None = None) -> None:
        """Says that a copy was saved and what is in it, and offers to open it where it is not open."""
        self.forget_copy()
        words = fill(self.tr("Saved as %1"), path.name)
        actions = ((self.tr("Open the copy"), open_it),) if open_it else ()
        self._copied = Banner("ok", words, num_rows, actions=actions, dismissable=True, parent=self)
        self._column.insertWidget(1, self._copied)

    def forget_copy(self) -> None:
        """Removes what was said about the last copy."""
        if self._copied is not None:
            self._copied.hide()
            self._copied.deleteLater()
            self._copied = None
