"""The card that chooses the data file, says how it is read, and leads to mapping, preview and the sample."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QWidget

from tunesmith_core.actions import ACTIONS
from tunesmith_core.datafmt import READ_BY_ENGINE
from tunesmith_core.datafmt.encoding import UTF_8
from tunesmith_core.datafmt.formats import RAW
from tunesmith_core.datafmt.guessing import guess_format
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_gui.new_run.column_question import ColumnQuestion
from tunesmith_gui.new_run.facts import NUM_SNIFFED_ROWS, DataFacts
from tunesmith_gui.new_run.path_combo import PathChoice, PathCombo, short_name
from tunesmith_gui.new_run.row_words import format_word, mapping_words
from tunesmith_gui.new_run.setting_text import choice_text
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text, fill, number, size, translate
from tunesmith_gui.widgets.banner import Banner
from tunesmith_gui.widgets.buttons import IconButton, button
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.error_banner import Action, error_banner
from tunesmith_gui.widgets.flow_row import FlowRow
from tunesmith_gui.widgets.safe_label import SafeLabel


def _is_question(data: DataFacts) -> bool:
    """Whether all that is missing is which columns hold question and answer."""
    asks = data.error is not None and data.error.code == "dataset-column-missing"
    return asks and len(data.head) > 0 and guess_format(data.head) == ColumnQuestion.FORMAT


class DataPicker(Card):
    """File list, file dialog, facts, and the ways to look closer.

    Signals:
        path_chosen: a data file.
        sample_asked, mapping_asked, preview_asked, skip_asked, chat_asked: the person pressed that button.
        columns_chosen: (format, dict of role -> column).
    """

    path_chosen = Signal(str)
    sample_asked = Signal()
    mapping_asked = Signal()
    preview_asked = Signal()
    skip_asked = Signal()
    chat_asked = Signal()
    columns_chosen = Signal(str, object)

    def __init__(self, *, parent: QWidget | None = None) -> None:
        super().__init__(translate("DataPicker", "Data"), parent=parent)
        self._problem: QWidget | None = None
        self.sample = button(self.tr("Use the sample"), self.sample_asked.emit, kind="link", parent=self)
        self.add_action(self.sample)
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        self.combo = PathCombo(
            self.tr("Data"), self.tr("Choose a JSONL, JSON, CSV or Parquet file, or drop one"), "file", parent=self
        )
        self.combo.path_chosen.connect(self.path_chosen)
        self.browse = IconButton("folder", self.tr("Browse for a data file"), self._browse, parent=self)
        row.addWidget(self.combo, 1)
        row.addWidget(self.browse)
        self.body.addLayout(row)
        self.facts = SafeLabel(tone="muted", wrap=True, parent=self)
        self.body.addWidget(self.facts)
        self.map = button(self.tr("Map columns…"), self.mapping_asked.emit, icon_name="table", parent=self)
        self.preview = button(self.tr("Preview…"), self.preview_asked.emit, icon_name="search", parent=self)
        self._looking = FlowRow((self.map, self.preview), self)
        self.body.addWidget(self._looking)
        self.body.addStretch(1)
        self.show_data(None)

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
    ) -> None:
        """Shows what is known about the chosen file.

        Args:
            data: the facts, None while no file is chosen.
            spec: how the form says that it is read.
            num_skipped: rows that can't be used, as counted by a preview.
            has_chat_template: whether the model can learn a prompt and its response as a chat.
        """
        spec = spec or SourceSpec()
        if self._problem is not None:
            if self._problem.isAncestorOf(self.focusWidget()):
                # Else the keyboard would go to the first button of the window.
                self.combo.setFocus(Qt.FocusReason.OtherFocusReason)
            self._problem.hide()
            self._problem.deleteLater()
            self._problem = None
        sniffed = data.sniffed if data else None
        self.map.setEnabled(sniffed is not None and bool(sniffed.columns))
        self._looking.show_only([self.map, self.preview])
        self.preview.setEnabled(sniffed is not None)
        if data is None:
            words = self.tr("One example per row: a chat, a prompt and its response, or text.")
            self.facts.setText(words)
        elif sniffed is not None:
            self.facts.setText(self._facts_words(data, spec, num_skipped, has_chat_template))
        self.facts.setVisible(data is None or sniffed is not None)
        if data is not None and _is_question(data):
            self._looking.show_only([self.preview])
            self._problem = question = ColumnQuestion(data.head, parent=self)
            question.chosen.connect(self.columns_chosen)
            question.others_asked.connect(self.mapping_asked)
        elif data is not None and data.error is not None:
            fix = self._fix(data)
            self._problem = error_banner(data.error, actions=(fix,), dismissable=False, parent=self)
        elif data is not None and spec.format == RAW and has_chat_template:
            words = self.tr("This model has a chat template. Trained without it, it may answer wrongly in a chat.")
            fix = (core_text(ACTIONS["train-as-chat"].label), self.chat_asked.emit)
            self._problem = Banner("warn", self.tr("Trained as plain text"), words, actions=(fix,), parent=self)
        if self._problem is not None:
            self.body.insertWidget(self.body.indexOf(self.facts) + 1, self._problem)
        if isinstance(self._problem, ColumnQuestion):
            stops = [self.browse, *self._problem.combos.values(), self._problem.use, self._problem.others, self.preview]
            for before, after in pairwise(stops):
                QWidget.setTabOrder(before, after)

    def _fix(self, data: DataFacts) -> Action:
        """The one step that helps against what is wrong with the file."""
        if data.skipping_helps:
            return core_text(ACTIONS["skip-bad-rows"].label), self.skip_asked.emit
        if data.error is not None and data.error.code == "dataset-column-missing" and self.map.isEnabled():
            self._looking.show_only([self.preview])
            return core_text(ACTIONS["map-columns"].label), self.mapping_asked.emit
        return core_text(ACTIONS["choose-data"].label), self._browse

    def show_loading(self) -> None:
        """Says that the file is being read."""
        self.show_data(None)
        self.facts.setText(self.tr("Reading the first rows…"))

    def _facts_words(self, data: DataFacts, spec: SourceSpec, num_skipped: int, has_chat_template: bool) -> str:
        sniffed = data.sniffed
        assert sniffed is not None
        parts = [self._count_words(data, num_skipped), sniffed.kind.upper(), size(sniffed.num_bytes)]
        if sniffed.columns:
            own = spec.format != "auto"
            format_name = spec.format if own else sniffed.format
            parts.append(format_word(format_name))
            if format_name == "prompt-completion" and has_chat_template:
                parts.append(self.tr("trained as a chat"))
            columns = mapping_words({**({} if own else sniffed.mapping), **spec.columns})
            if columns:
                parts.append(columns)
        if spec.encoding != UTF_8:
            parts.append(choice_text(spec.encoding))
        return "  ·  ".join(filter(None, parts))

    def _count_words(self, data: DataFacts, num_skipped: int) -> str:
        """How many rows there are, and how many are left out; "" where only the engine can tell."""
        sniffed = data.sniffed
        estimate = sniffed.num_rows_estimate if sniffed else None
        if sniffed is None or estimate is None:
            return ""
        exact = sniffed.kind in READ_BY_ENGINE or estimate < NUM_SNIFFED_ROWS
        # Malformed rows are not among the estimate.
        num_rows = max(estimate, data.num_good_rows + data.num_bad_rows)
        num_left_out = max(num_skipped, data.num_bad_rows)
        if exact and num_left_out:
            count = fill(self.tr("%1 of %2 rows"), number(num_rows - num_left_out), number(num_rows))
            skipped = self.tr("%n skipped", "", num_left_out)
        else:
            words = self.tr("%1 examples") if exact else self.tr("about %1 examples")
            if exact and estimate == 1:
                words = self.tr("%1 example")
            count = fill(words, number(estimate))
            skipped = self.tr("at least %n bad rows, skipped", "", num_left_out) if num_left_out else ""
        return ", ".join(filter(None, (count, skipped)))

    def _browse(self) -> None:
        kinds = self.tr("Data (*.jsonl *.json *.csv *.tsv *.xlsx *.xlsm *.xlsb *.xls *.ods *.parquet);;All files (*)")
        path, _ = QFileDialog.getOpenFileName(self, self.tr("Choose a data file"), self.combo.path, kinds)
        if path:
            self.combo.show_path(path)
            self.path_chosen.emit(path)
