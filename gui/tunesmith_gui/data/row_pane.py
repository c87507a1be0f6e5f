"""The pane beside the rows: a cell or the whole row as text, to read and to change."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QPlainTextEdit, QVBoxLayout, QWidget

from tunesmith_core.datafmt.json_rows import Row, decode_row
from tunesmith_gui.data.hits import Span, hit_format, hits, wrong_format
from tunesmith_gui.data.row_problems import RowProblem, RowProblems
from tunesmith_gui.data.rows import ShownRow
from tunesmith_gui.icons import icon
from tunesmith_gui.plain_text import mark_letters, show_letter
from tunesmith_gui.theme import font, theme
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import fill
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.flow_row import FlowRow
from tunesmith_gui.widgets.safe_label import ElidedLabel, SafeLabel
from tunesmith_gui.widgets.segmented import Segmented

_LEAST_LINES = 4


class RowPane(QWidget):
    """One row or one of its cells.

    Signals:
        edited: (row) the person changed it.
        applied: the person is done with it.
        delete_asked: the rows that are chosen are to be left out, or brought back.
    """

    edited = Signal(object)
    applied = Signal()
    delete_asked = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._row: ShownRow | None = None
        self._column = ""
        self._shown_text = ""
        self._insists = False  # that what was typed is corrected
        self._problems: Sequence[RowProblem] = ()
        self._wanted = ""
        column = QVBoxLayout(self)
        column.setContentsMargins(SPACE, 0, 0, 0)
        column.setSpacing(SPACE)
        self.place = ElidedLabel(role="strong", parent=self)
        column.addWidget(self.place)
        parts = (("cell", self.tr("Cell")), ("row", self.tr("Whole row")))
        self.part = Segmented(self.tr("What is edited"), parts, parent=self)
        self.part.changed.connect(self._show_part)
        self._part_shown = self.part.value
        column.addWidget(self.part)
        self.problems = RowProblems(self)
        column.addWidget(self.problems)
        self.text = QPlainTextEdit(self)
        self.text.setTabChangesFocus(True)
        self.text.setAccessibleName(self.tr("Text of the row"))
        self.text.textChanged.connect(self._check)
        column.addWidget(self.text, 1)
        self.problem = SafeLabel(role="caption", tone="error", wrap=True, parent=self)
        column.addWidget(self.problem)
        self.apply = button(self.tr("Apply"), self._apply, parent=self)
        self.delete = button(self.tr("Delete row"), self.delete_asked.emit, icon_name="trash", parent=self)
        column.addWidget(FlowRow((self.apply, self.delete), self))
        QShortcut(QKeySequence("Ctrl+Return"), self.text, self._apply)
        theme().changed.connect(self._restyle)
        self._restyle()
        self.show_row("", None, "")
        self.offer_delete(0, restores=False)

    def show_row(self, place: str, row: ShownRow | None, column: str) -> None:
        """Shows a row, said which it is, and the cell of a column; None where no row is chosen."""
        self._row, self._column, self._insists, self._problems = row, column, False, ()
        can_show_cell = row is not None and row.values is not None
        self.part.setVisible(can_show_cell)
        self.place.setText(place if row else self.tr("No row is chosen"))
        self.text.setReadOnly(row is None or row.is_long)
        self.text.setEnabled(row is not None)
        self._show()

    def offer_delete(self, num_chosen: int, *, restores: bool) -> None:
        """Names what happens to the rows that are chosen: they are left out, or come back."""
        words = self.tr("Delete row") if num_chosen < 2 else self.tr("Delete %Ln row(s)", "", num_chosen)
        if restores:
            words = self.tr("Restore row") if num_chosen < 2 else self.tr("Restore %Ln row(s)", "", num_chosen)
        self.delete.setText(words)
        self.delete.setAccessibleName(words)
        self.delete.setIcon(icon("reset" if restores else "trash"))
        self.delete.setEnabled(num_chosen > 0)

    @property
    def has_changes(self) -> bool:
        """Whether something was typed that is not applied."""
        return self.text.toPlainText() != self._shown_text

    def _show(self) -> None:
        row = self._row
        if row is None:
            self._shown_text = ""
        elif row.values is None:
            self._shown_text = row.text
        elif self._part_shown == "cell":
            self._shown_text = cell_text(row.values.get(self._column))
        else:
            self._shown_text = json.dumps(row.values, ensure_ascii=False, indent=2, default=str)
        self.text.setPlainText(self._shown_text)
        # A text box has no lone carriage returns.
        self._shown_text = self.text.toPlainText()
        self._check()
        self._mark()

    def show_problems(self, problems: Sequence[RowProblem], actions: Mapping[str, str]) -> None:
        """Says what is wrong with the row, and what is done about it; marks where it is."""
        self._problems = problems
        self.problems.show_problems(problems, actions)
        self._mark()

    def show_wanted(self, wanted: str) -> None:
        """Marks a text that is looked for, "" for none."""
        self._wanted = wanted
        self._mark()

    def _mark(self) -> None:
        """Marks what is wrong, and above it what is looked for; the first of it comes into sight."""
        if self.has_changes:
            return
        text = self._shown_text
        wrong, found = self._wrong_spans(text), hits(text, self._wanted)
        marks = [(span, look) for spans, look in ((wrong, wrong_format()), (found, hit_format())) for span in spans]
        mark_letters(self.text, marks)
        if found or wrong:
            show_letter(self.text, (found or wrong)[0][0])

    def _wrong_spans(self, text: str) -> list[Span]:
        row = self._row
        if row is None:
            return []
        if row.values is None:
            return [(each.letter - 1, each.letter) for each in self._problems if 0 < each.letter <= len(text)]
        parts = [part for problem in self._problems for part in problem.parts(row.values)]
        value = row.values.get(self._column)
        if self._part_shown == "row" or not isinstance(value, str):
            parts = [json.dumps(part, ensure_ascii=False)[1:-1] for part in parts]
        return [span for part in dict.fromkeys(parts) if part for span in hits(text, part)]

    def _typed(self) -> Row | str:
        """The row as it was typed, or words for what is wrong with it."""
        assert self._row is not None
        text = self.text.toPlainText()
        is_cell = self._row.values is not None and self._part_shown == "cell"
        before = self._row.values.get(self._column) if self._row.values is not None else None
        if is_cell and isinstance(before, str | None):
            return (self._row.values or {}) | {self._column: text}
        text = text.strip()
        try:
            value, end = decode_row(text, 0)
        except json.JSONDecodeError as error:
            return self._no_json(error.lineno, error.colno)
        if end < len(text):
            return self._no_json(text.count("\n", 0, end) + 1, end - text.rfind("\n", 0, end))
        if is_cell:
            return (self._row.values or {}) | {self._column: value}
        return value if isinstance(value, dict) else self.tr('A row is an object such as {"question": "…"}.')

    def _no_json(self, row: int, column: int) -> str:
        return fill(self.tr("Not valid JSON in line %1, column %2."), row, column)

    def _check(self) -> None:
        words = ""
        if self._row is not None and self._row.is_long:
            words = self.tr("This row is too long to be edited here. This is its beginning.")
        elif self._row is not None and self.has_changes:
            typed = self._typed()
            words = typed if isinstance(typed, str) else ""
            if words and self._insists:
                words = fill(self.tr("Correct this before you leave the row: %1"), words)
        elif self._row is not None and self._row.values is None:
            words = self.tr("This row can't be read. Repair it here, or delete it.")
        self.problem.setText(words)
        self.problem.setVisible(bool(words))
        self.text.setAccessibleDescription(words)
        self.apply.setEnabled(self._row is not None and self.has_changes and not words)

    def keep_typed(self) -> bool:
        """Applies what was typed; False where it can't be applied, which is said."""
        if not self.has_changes:
            return True
        typed = self._typed()
        if isinstance(typed, str):
            self._insists = True
            self._check()
            return False
        self.drop_typed()
        self.edited.emit(typed)
        return True

    def drop_typed(self) -> None:
        """Takes what was typed as seen: nothing is applied any more."""
        self._shown_text = self.text.toPlainText()

    def _show_part(self, part: str) -> None:
        if part == self._part_shown:
            return
        if self.keep_typed():
            self._part_shown = part
            self._show()
        else:
            self.part.set_value(self._part_shown)

    def _apply(self) -> None:
        if self.apply.isEnabled():
            self.keep_typed()
            self.applied.emit()

    def _restyle(self) -> None:
        self.text.setFont(font("mono"))
        self.text.setMinimumHeight(self.text.fontMetrics().lineSpacing() * _LEAST_LINES)
        self._mark()


def cell_text(value: Any) -> str:  # Any: JSON values
    """A value as text that can be edited: texts as they are, everything else as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=str)
