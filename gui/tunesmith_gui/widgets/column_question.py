"""Asks in place which column holds the question and which the answer, with a guess filled in."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QComboBox, QFrame, QVBoxLayout, QWidget

from tunesmith_core.datafmt import ROLES
from tunesmith_core.datafmt.guessing import guess_columns, guess_format
from tunesmith_core.datafmt.json_rows import Row
from tunesmith_gui.services.data_facts import DataFacts
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.column_choice import ColumnChoice
from tunesmith_gui.widgets.flow_row import FlowRow
from tunesmith_gui.widgets.row_words import role_word
from tunesmith_gui.widgets.safe_label import SafeLabel


def asks_for_columns(data: DataFacts) -> bool:
    """Whether all that is missing is which columns hold question and answer."""
    asks = data.error is not None and data.error.code == "dataset-column-missing"
    return asks and len(data.head) > 0 and guess_format(data.head) == ColumnQuestion.FORMAT


class ColumnQuestion(QFrame):
    """One question about the columns of rows that hold two texts.

    Signals:
        chosen: (format, dict of role -> column).
        others_asked: the rows hold something else.
    """

    FORMAT = "prompt-completion"

    chosen = Signal(str, object)
    others_asked = Signal()

    def __init__(self, head: Sequence[Row], *, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("banner", "neutral")
        words = self.tr("Which column is the prompt, and which the response?")
        self.setAccessibleName(words)
        column = QVBoxLayout(self)
        column.setContentsMargins(SPACE * 3 // 2, SPACE, SPACE, SPACE)
        column.setSpacing(SPACE)
        column.addWidget(SafeLabel(words, role="strong", wrap=True, parent=self))
        guesses = guess_columns(self.FORMAT, head)
        self._choices: dict[str, ColumnChoice] = {}
        for role in (each for each in ROLES[self.FORMAT] if each.required):
            choice = ColumnChoice(role_word(role.name), self.tr("Choose a column"), head, self, num_examples=3)
            choice.choose(guesses.get(role.name, ""))
            choice.combo.activated.connect(lambda _index, role=role.name: self._pick(role))
            self._choices[role.name] = choice
            column.addWidget(choice)
        self.use = button(self.tr("Use these columns"), self._use, kind="primary", parent=self)
        self.others = button(self.tr("Other columns…"), self.others_asked.emit, parent=self)
        column.addWidget(FlowRow((self.use, self.others), self))
        self._chosen = self._mapping()
        self._check()

    @property
    def combos(self) -> dict[str, QComboBox]:
        """The list of columns of each role."""
        return {role: choice.combo for role, choice in self._choices.items()}

    def _mapping(self) -> dict[str, str]:
        return {role: str(combo.currentData()) for role, combo in self.combos.items()}

    def _pick(self, role: str) -> None:
        """Takes a column; the other role gets what this one had when both would have the same."""
        column = str(self.combos[role].currentData())
        for other, choice in self._choices.items():
            if other != role and column and choice.combo.currentData() == column:
                choice.choose(self._chosen[role])
        self._choices[role].show_examples()
        self._chosen = self._mapping()
        self._check()

    def _check(self) -> None:
        columns = list(self._mapping().values())
        self.use.setEnabled(all(columns) and len(set(columns)) == len(columns))

    def _use(self) -> None:
        self.chosen.emit(self.FORMAT, self._mapping())
