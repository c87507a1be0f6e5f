"""The card that chooses the data file, says how it is read, and leads to mapping, preview and the sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QVBoxLayout, QWidget

from tunesmith_core.actions import ACTIONS
from tunesmith_core.datafmt.formats import RAW
from tunesmith_core.datafmt.labels import has_label
from tunesmith_core.errors import TunesmithError
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_gui.new_run.fitting import fitting_way
from tunesmith_gui.new_run.form import (
    BY_CLASS,
    BY_EXAMPLE,
    BY_LABEL,
    BY_PREFERENCE,
    BY_READING,
    BY_REWARD,
    BY_SCORE,
    BY_STEPS,
)
from tunesmith_gui.new_run.way_bar import way_word
from tunesmith_gui.services.data_facts import DataFacts
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text, fill, translate
from tunesmith_gui.widgets.banner import Banner
from tunesmith_gui.widgets.buttons import IconButton, button
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.column_question import (
    AskedColumns,
    ColumnQuestion,
    asked_columns,
    asks_for_columns,
    has_too_few_columns,
    label_column,
)
from tunesmith_gui.widgets.data_words import data_kinds, facts_words, notes_words, unusable_words
from tunesmith_gui.widgets.error_banner import Action, error_banner, error_details
from tunesmith_gui.widgets.flow_row import FlowRow
from tunesmith_gui.widgets.path_combo import PathChoice, PathCombo, short_name
from tunesmith_gui.widgets.row_words import role_word
from tunesmith_gui.widgets.safe_label import SafeLabel
from tunesmith_gui.widgets.sheet_choice import SheetChoice


def _wanted_words(way: str) -> str:
    """Which files a way to teach can take, and what their rows must hold."""
    pairs = translate("DataPicker", "Each row: a prompt with a better and a worse answer.")
    rows = {
        BY_PREFERENCE: pairs,
        BY_SCORE: pairs,
        BY_CLASS: translate("DataPicker", "Each row: a text and its label."),
        BY_STEPS: translate("DataPicker", "Each row: a problem, the steps of a solution, and a label for each step."),
        BY_REWARD: translate("DataPicker", "Each row: a prompt, and the right answer where there is one."),
        BY_LABEL: translate(
            "DataPicker", "Each row: a prompt, an answer, and whether it is good or bad. Pairs work too."
        ),
        BY_READING: translate("DataPicker", "A long text is cut at headings and paragraphs, and nothing is left out."),
    }.get(way, translate("DataPicker", "One example per row: a chat, a prompt and its response, or text."))
    kinds = translate("DataPicker", "JSONL, CSV, Excel, Parquet, PDF, Word, text and more.")
    if way not in (BY_EXAMPLE, BY_READING):
        kinds = translate("DataPicker", "JSONL, CSV, Excel, Parquet and more.")
    return f"{kinds} {rows}"


class DataPicker(Card):
    """File list, file dialog, facts, and the ways to look closer.

    Signals:
        path_chosen: a data file.
        path_added: one more.
        sample_asked, mapping_asked, preview_asked, skip_asked, chat_asked: the person pressed that button.
        problems_asked: what is wrong with the rows is to be seen.
        columns_chosen: (format, dict of role -> column).
        way_asked: (way) the data suits another way to teach.
    """

    path_chosen = Signal(str)
    path_added = Signal(str)
    sample_asked = Signal()
    mapping_asked = Signal()
    preview_asked = Signal()
    skip_asked = Signal()
    chat_asked = Signal()
    problems_asked = Signal()
    columns_chosen = Signal(str, object)
    way_asked = Signal(str)

    def __init__(self, *, parent: QWidget | None = None) -> None:
        super().__init__(translate("DataPicker", "Data"), parent=parent)
        self._problem: QWidget | None = None
        self.sample = button(self.tr("Use the sample"), self.sample_asked.emit, kind="link", parent=self)
        self.add = IconButton("plus", self.tr("Add another data file"), self._add, parent=self)
        self.add_action(self.add)
        self.add_action(self.sample)
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        self.combo = PathCombo(
            self.tr("Data"), self.tr("Choose a file, or drop one"), "file", parent=self
        )
        self.combo.path_chosen.connect(self.path_chosen)
        self.browse = IconButton("folder", self.tr("Browse for a data file"), self._browse, parent=self)
        row.addWidget(self.combo, 1)
        row.addWidget(self.browse)
        self.body.addLayout(row)
        self.sheets = SheetChoice(self)
        self.body.addWidget(self.sheets)
        self.facts = SafeLabel(tone="muted", wrap=True, parent=self)
        self.body.addWidget(self.facts)
        self.body.addWidget(self._build_offer())
        self.map = button(self.tr("Map columns…"), self.mapping_asked.emit, icon_name="table", parent=self)
        self.preview = button(self.tr("Preview…"), self.preview_asked.emit, icon_name="search", parent=self)
        self._looking = FlowRow((self.map, self.preview), self)
        self.body.addWidget(self._looking)
        self.body.addStretch(1)
        self.show_data(None)

    def _build_offer(self) -> QWidget:
        """What stands below the facts where the data suits the other way to teach."""
        words = self.tr("Each row has a better and a worse answer. Only the better one is learned.")
        self._offer = QWidget(self)
        column = QVBoxLayout(self._offer)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(SafeLabel(words, tone="muted", wrap=True, parent=self._offer))
        self.prefer = button(
            way_word(BY_PREFERENCE), lambda: self.way_asked.emit(BY_PREFERENCE), kind="link", parent=self._offer
        )
        column.addWidget(self.prefer, 0, Qt.AlignmentFlag.AlignLeft)
        self._offer.hide()
        return self._offer

    def set_choices(self, recent: Sequence[str]) -> None:
        """Fills the list with files used lately."""
        self.combo.set_choices([PathChoice(short_name(path), path) for path in recent])

    def show_data(
        self,
        data: DataFacts | None,
        spec: SourceSpec | None = None,
        num_skipped: int = 0,
        *,
        has_chat_template: bool = False,
        could_prefer: bool = False,
        lacks_pairs: bool = False,
        lacks_labels: TunesmithError | None = None,
        lacks_prompts: bool = False,
        way: str = BY_EXAMPLE,
    ) -> None:
        """Shows what is known about the chosen file.

        Args:
            data: the facts, None while no file is chosen.
            spec: how the form says that it is read.
            num_skipped: rows that can't be used, as counted by a preview.
            has_chat_template: whether the model can learn a prompt and its response as a chat.
            could_prefer, lacks_pairs, lacks_labels, lacks_prompts, way: see the form.
        """
        spec = spec or SourceSpec()
        self._drop_problem()
        sniffed = data.sniffed if data else None
        self.map.setEnabled(sniffed is not None and bool(sniffed.columns))
        words = self.tr("Change columns…") if spec.columns else self.tr("Map columns…")
        self.map.setText(words)
        self.map.setAccessibleName(words)
        self._looking.show_only([self.map, self.preview])
        self.preview.setEnabled(sniffed is not None)
        self.add.setEnabled(sniffed is not None)
        if data is None:
            is_read = bool(spec.path.strip())
            self.facts.setText(self.tr("Reading the first rows…") if is_read else _wanted_words(way))
        elif sniffed is not None:
            words = facts_words(data, spec, num_skipped, has_chat_template, in_labels=way == BY_LABEL)
            self.facts.setText("\n\n".join(filter(None, (words, notes_words(data)))))
        self.facts.setVisible(data is None or sniffed is not None)
        if not could_prefer and self.prefer.hasFocus():
            self.combo.setFocus(Qt.FocusReason.OtherFocusReason)
        self._offer.setVisible(could_prefer and sniffed is not None)
        if data is not None:
            unsuited = self._without_pairs if lacks_pairs else self._without_prompts if lacks_prompts else None
            self._put_problem(self._problem_of(data, spec, has_chat_template, unsuited, lacks_labels, way))

    def _drop_problem(self) -> None:
        if self._problem is None:
            return
        if self._problem.isAncestorOf(self.focusWidget()):
            # Else the keyboard would go to the first button of the window.
            self.combo.setFocus(Qt.FocusReason.OtherFocusReason)
        self._problem.hide()
        self._problem.deleteLater()
        self._problem = None

    def _put_problem(self, problem: QWidget | None) -> None:
        self._problem = problem
        if problem is not None:
            self.body.insertWidget(self.body.indexOf(self.facts) + 1, problem)
        if isinstance(problem, ColumnQuestion):
            stops = [self.browse, *problem.combos.values(), problem.use, problem.others]
            for before, after in pairwise(stops):
                QWidget.setTabOrder(before, after)

    def _problem_of(
        self,
        data: DataFacts,
        spec: SourceSpec,
        has_chat_template: bool,
        unsuited: Callable[[], QWidget] | None,
        lacks_labels: TunesmithError | None,
        way: str,
    ) -> QWidget | None:
        """What has to be said or asked before data can be trained on, or should be."""
        if asks_for_columns(data, way):
            # Until the columns are chosen there is nothing to be seen but an error.
            return self._ask(asked_columns(way), data)
        needs_three = way in (BY_PREFERENCE, BY_SCORE, BY_LABEL)
        if needs_three and data.lacks_columns and data.head and has_too_few_columns(data, asked_columns(way)):
            return self._too_few(asked_columns(way), data)
        if data.error is not None:
            return self._error(data, data.error, way)
        if lacks_labels is not None:
            self._looking.show_only([])
            if lacks_labels.code == "dataset-column-missing" and data.sniffed and has_label(data.sniffed.format):
                return self._ask(label_column(spec), data)
            return self._without_labels(lacks_labels)
        if unsuited is not None:
            self._looking.show_only([])
            return unsuited()
        if spec.format == RAW and has_chat_template:
            words = self.tr("This model has a chat template. Trained without it, it may answer wrongly in a chat.")
            fix = (core_text(ACTIONS["train-as-chat"].label), self.chat_asked.emit)
            return Banner("warn", self.tr("Trained as plain text"), words, actions=(fix,), parent=self)
        return None

    def _ask(self, asked: AskedColumns, data: DataFacts) -> ColumnQuestion:
        self._looking.show_only([])
        question = ColumnQuestion(data.head, asked, parent=self)
        question.chosen.connect(self.columns_chosen)
        question.others_asked.connect(self.mapping_asked)
        return question

    def _too_few(self, asked: AskedColumns, data: DataFacts) -> Banner:
        """What the way to teach needs and the file has, with two ways out."""
        self._looking.show_only([self.map])
        needed, found = (", ".join(names) for names in (map(role_word, asked.roles), data.column_names))
        words = fill(self.tr("Each row needs: %1. The columns of this file are: %2."), needed, found)
        by_example = (way_word(BY_EXAMPLE), lambda: self.way_asked.emit(BY_EXAMPLE))
        sample = (self.sample.text(), self.sample_asked.emit)
        return Banner("warn", self.tr("Too few columns"), words, actions=(by_example, sample), parent=self)

    def _without_labels(self, error: TunesmithError) -> Banner:
        """That the answers have no labels that can be used, and the way out."""
        words = core_text(error.message) + (f"\n{core_text(error.hint)}" if error.hint else "")
        by_example = (way_word(BY_EXAMPLE), lambda: self.way_asked.emit(BY_EXAMPLE))
        map_columns = (core_text(ACTIONS["map-columns"].label), self.mapping_asked.emit)
        actions = (by_example, map_columns) if self.map.isEnabled() else (by_example,)
        title = self.tr("No labels in this data that tell good answers from bad ones")
        if error.code == "dataset-classes":
            title = self.tr("All labels are the same")
        return Banner("warn", title, words, actions=actions, parent=self)

    def _without_pairs(self) -> Banner:
        """That the way to teach needs other data, with both ways out."""
        words = self.tr("Say which columns hold the better and the worse answer, or teach by example.")
        return self._unsuited(self.tr("No preference pairs in this data"), words)

    def _without_prompts(self) -> Banner:
        """The same where there is nothing that the model could answer."""
        words = self.tr("Say which columns hold the prompt and the right answer, or teach by example.")
        return self._unsuited(self.tr("No prompts in this data"), words)

    def _unsuited(self, title: str, words: str) -> Banner:
        map_columns = (core_text(ACTIONS["map-columns"].label), self.mapping_asked.emit)
        by_example = (way_word(BY_EXAMPLE), lambda: self.way_asked.emit(BY_EXAMPLE))
        actions = (by_example, map_columns) if self.map.isEnabled() else (by_example,)
        return Banner("warn", title, words, actions=actions, parent=self)

    def _error(self, data: DataFacts, error: TunesmithError, way: str) -> Banner:
        """What is wrong with the file, or with some rows of one that can be read."""
        if not (data.skipping_helps or data.are_all_bad):
            return error_banner(error, actions=self._ways_out(data, error, way), dismissable=False, parent=self)
        advice = self.tr("Skip such rows, or repair them on the Data page.")
        way_out: Action = (core_text(ACTIONS["skip-bad-rows"].label), self.skip_asked.emit)
        show = (self.tr("Show the problems"), self.problems_asked.emit)
        if data.are_all_bad:
            advice = self.tr("Repair the rows on the Data page, or choose another file.")
            way_out = self._fix(error)
        return Banner(
            "error",
            unusable_words(data),
            f"{core_text(error.message)}\n{advice}",
            details=error_details(error),
            actions=(way_out, show),
            parent=self,
        )

    def _ways_out(self, data: DataFacts, error: TunesmithError, way: str) -> tuple[Action, ...]:
        """What helps against a file that can't be read as it is: first another way to teach, where one suits it."""
        suits = fitting_way(data) if data.is_unsuited or data.lacks_columns else ""
        ways = ((way_word(suits), lambda: self.way_asked.emit(suits)),) if suits not in ("", way) else ()
        if not data.is_unsuited:
            return (*ways, self._fix(error))
        self._looking.show_only([self.map])
        return (*ways, (self.sample.text(), self.sample_asked.emit))

    def _fix(self, error: TunesmithError) -> Action:
        """The one step that helps against what is wrong with the file."""
        if error.code == "dataset-column-missing" and self.map.isEnabled():
            self._looking.show_only([self.preview])
            return core_text(ACTIONS["map-columns"].label), self.mapping_asked.emit
        return core_text(ACTIONS["choose-data"].label), self._browse

    def show_loading(self) -> None:
        """Says that the file is being read."""
        self.show_data(None)
        self.facts.setText(self.tr("Reading the first rows…"))

    def _add(self) -> None:
        path, _ = QFileDialog.getOpenFileName(self, self.tr("Add another data file"), self.combo.path, data_kinds())
        if path:
            self.path_added.emit(path)

    def _browse(self) -> None:
        path, _ = QFileDialog.getOpenFileName(self, self.tr("Choose a data file"), self.combo.path, data_kinds())
        if path:
            self.combo.show_path(path)
            self.path_chosen.emit(path)
