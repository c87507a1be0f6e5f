"""Asks in place which column holds the question and which the answer, with a guess filled in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QComboBox, QFrame, QVBoxLayout, QWidget

from tunesmith_core.datafmt import ROLES
from tunesmith_core.datafmt.formats import LABELED, PREFERENCE, STEPS
from tunesmith_core.datafmt.guessing import guess_columns, guess_format
from tunesmith_core.datafmt.json_rows import Row
from tunesmith_core.datafmt.labels import meaning
from tunesmith_core.datafmt.unsuited import IN_ONE_WAY
from tunesmith_core.objectives import FROM_LABELS, FROM_PAIRS, FROM_STEPS
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_gui.services.data_facts import DataFacts
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import translate
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.column_choice import ColumnChoice
from tunesmith_gui.widgets.flow_row import FlowRow
from tunesmith_gui.widgets.row_words import role_word
from tunesmith_gui.widgets.safe_label import SafeLabel

PROMPT_COMPLETION, TEXT = "prompt-completion", "text"


def asks_for_columns(data: DataFacts, way: str = "sft") -> bool:
    """Whether all that is missing is which columns hold what a way to teach learns from."""
    asked = asked_columns(way)
    if not (data.lacks_columns and data.head) or has_too_few_columns(data, asked):
        return False
    # Where rows are read in one way only, no error says that columns are missing unless some may be those.
    return asked.format in IN_ONE_WAY or guess_format(data.head) == PROMPT_COMPLETION


def has_too_few_columns(data: DataFacts, asked: AskedColumns) -> bool:
    """Whether rows have fewer columns than are asked for, so that no answer would do."""
    return len(data.column_names) < len(asked.roles)


@dataclass(frozen=True, slots=True)
class AskedColumns:
    """What is asked about the columns of a file.

    Attributes:
        words: the question.
        format: of the rows, once it is answered.
        roles: what each of the columns is asked for.
        known: what is known of other columns, role to column.
    """

    words: str
    format: str
    roles: tuple[str, ...]
    known: Mapping[str, str]


def asked_columns(way: str = "sft") -> AskedColumns:
    """What a way to teach, one of `form.WAYS`, must know of rows of unknown columns."""
    if way in FROM_PAIRS:
        words = translate("ColumnQuestion", "Which column is the prompt, which the better and which the worse answer?")
        return AskedColumns(words, PREFERENCE, ("prompt", "chosen", "rejected"), {})
    if way == "kto":
        words = translate("ColumnQuestion", "Which column is the prompt, which the response, and which the label?")
        return AskedColumns(words, PROMPT_COMPLETION, ("prompt", "completion", "label"), {})
    if way in FROM_LABELS:
        words = translate("ColumnQuestion", "Which column is the text, and which the label?")
        return AskedColumns(words, LABELED, ("text", "class"), {})
    if way in FROM_STEPS:
        words = translate(
            "ColumnQuestion",
            "Which column is the prompt, which holds the steps, and which says whether they are right?",
        )
        return AskedColumns(words, STEPS, ("prompt", "steps", "step_labels"), {})
    if way == "documents":
        return AskedColumns(translate("ColumnQuestion", "Which column is the text?"), TEXT, ("text",), {})
    words = translate("ColumnQuestion", "Which column is the prompt, and which the response?")
    return AskedColumns(words, PROMPT_COMPLETION, ("prompt", "completion"), {})


def label_column(spec: SourceSpec) -> AskedColumns:
    """What is missing where all is known but which answers are good."""
    words = translate("ColumnQuestion", "Which column says whether an answer is good or bad?")
    return AskedColumns(words, spec.format, ("label",), spec.columns)


class ColumnQuestion(QFrame):
    """One question about the columns of rows that hold texts.

    Signals:
        chosen: (format, dict of role -> column).
        others_asked: the rows hold something else.
    """

    chosen = Signal(str, object)
    others_asked = Signal()

    def __init__(
        self, head: Sequence[Row], asked: AskedColumns | None = None, *, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._asked = asked or asked_columns()
        self.setProperty("banner", "neutral")
        self.setAccessibleName(self._asked.words)
        column = QVBoxLayout(self)
        column.setContentsMargins(SPACE * 3 // 2, SPACE, SPACE, SPACE)
        column.setSpacing(SPACE)
        column.addWidget(SafeLabel(self._asked.words, role="strong", wrap=True, parent=self))
        guesses = self._guesses(head)
        self._choices: dict[str, ColumnChoice] = {}
        for role in self._asked.roles:
            choice = ColumnChoice(role_word(role), self.tr("Choose a column"), head, self, num_examples=3)
            choice.choose(guesses.get(role, ""))
            choice.combo.activated.connect(lambda _index, role=role: self._pick(role))
            self._choices[role] = choice
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

    def _guesses(self, head: Sequence[Row]) -> dict[str, str]:
        """What each column probably is; a label only where every value is one, and no other role has that column."""
        if self._asked.format not in ROLES:
            guesses = dict(self._asked.known)
        else:
            labels = {name for name in (head[0] if head else {}) if _are_labels(name, head)}
            texts = [{name: value for name, value in row.items() if name not in labels} for row in head]
            guesses = guess_columns(self._asked.format, texts if "label" in self._asked.roles else head)
        if "label" in self._asked.roles:
            guesses.pop("label", None)
            free = [name for name in (head[0] if head else {}) if name not in guesses.values()]
            if label := next((name for name in free if _are_labels(name, head)), ""):
                guesses["label"] = label
        return guesses

    def _use(self) -> None:
        self.chosen.emit(self._asked.format, {**self._asked.known, **self._mapping()})


def _are_labels(name: str, head: Sequence[Row]) -> bool:
    return all(meaning(row.get(name)) is not None for row in head)
