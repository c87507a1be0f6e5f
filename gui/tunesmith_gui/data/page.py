"""The Data page: a way to open a file, and for an open one its rows, what is learned of them, and their problems."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QStackedWidget, QVBoxLayout, QWidget

from tunesmith_core import data_library, paths
from tunesmith_core.datafmt.formats import PREFERENCE
from tunesmith_core.errors import TunesmithError
from tunesmith_core.model_cards import ModelCard, list_models
from tunesmith_core.model_folder import local_folder
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_gui.background import Latest
from tunesmith_gui.context import Context
from tunesmith_gui.data.answer_dialog import AnswerDialog
from tunesmith_gui.data.grid import Grid
from tunesmith_gui.data.home import DataHome
from tunesmith_gui.data.library_card import KeepDialog, Kept, ask_to_replace, kept_sets
from tunesmith_gui.data.open_file import OpenFile
from tunesmith_gui.data.question_dialog import QuestionDialog
from tunesmith_gui.data.rows import Changes, Rows
from tunesmith_gui.data.saving import Saving
from tunesmith_gui.data.unsaved import ask_to_keep, ask_to_leave, ask_to_train
from tunesmith_gui.models.run_spec import ChosenData
from tunesmith_gui.page import Page
from tunesmith_gui.services.column_memory import ColumnMemory
from tunesmith_gui.services.data_facts import DataFacts, look_at_data
from tunesmith_gui.services.form_memory import FormMemory
from tunesmith_gui.tr import core_text, fill
from tunesmith_gui.widgets.column_mapping import ColumnMappingDialog
from tunesmith_gui.widgets.confirm import ConfirmDialog


@dataclass(frozen=True, slots=True)
class _Memory:
    """What a page that takes this one's place must know.

    Attributes:
        source: the file that is open.
        changes: to its rows.
        place: of the row in front.
        part: which of the panes is shown.
        model: for which what is learned and the problems are shown.
    """

    source: SourceSpec
    changes: Changes | None = None
    place: int = 0
    part: str = "rows"
    model: str = ""


class DataPage(Page):
    """One file at a time."""

    def __init__(self, context: Context, parent: QWidget | None = None) -> None:
        super().__init__(context, parent)
        self.source = SourceSpec()
        self.data: DataFacts | None = None
        self._memory, self._columns = FormMemory(), ColumnMemory()
        self._cards: list[ModelCard] = []
        self._model = ""
        self._resumed: _Memory | None = None
        """Of the file that is being opened again."""
        self._looks = Latest(self)
        self._stack = QStackedWidget(self)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.addWidget(self._stack)
        self.home = DataHome(self)
        self.file = OpenFile(self)
        self.summary, self.parts = self.file.summary, self.file.parts
        self.learns, self.problems = self.file.learns, self.file.problems
        self.saving = Saving(self.file)
        for each in (self.home, self.file):
            self._stack.addWidget(each)
        self._connect()
        shortcut = QShortcut(QKeySequence(Qt.Key.Key_Escape), self, self.close_file)
        shortcut.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)

    def _connect(self) -> None:
        self.home.chosen.connect(self.open)
        self.home.library.chosen.connect(lambda each: self.open(each.sources[0].path, each.sources[0]))
        self.home.library.remove_asked.connect(lambda name: self._change_library(lambda: data_library.remove(name)))
        summary = self.summary
        self._looks.slow.connect(lambda: summary.show_reading(Path(self.source.path).name))
        summary.back_asked.connect(self.close_file)
        summary.train_asked.connect(self.train)
        summary.other_asked.connect(self.home.ask)
        summary.keep_asked.connect(self.keep)
        summary.mapping_asked.connect(self._open_mapping)
        summary.questions_asked.connect(lambda: self._let_write(QuestionDialog))
        summary.answers_asked.connect(lambda: self._let_write(AnswerDialog))
        summary.chat_asked.connect(lambda: self._set_source(replace(self.source, format="prompt-completion")))
        summary.columns_chosen.connect(self.map_columns)
        summary.sheets.chosen.connect(self._choose_sheet)
        self.learns.model_chosen.connect(self._choose_model)
        self.problems.save_asked.connect(self._save_repaired)
        self.file.setup_asked.connect(lambda: self.navigate.emit("setup", None))
        self.file.rows_read.connect(self._show_facts)
        self.file.rows_broken.connect(self._take_error)
        self.file.rows_read.connect(self._show_for_model)
        self.file.failed.connect(self._show_error)
        self.saving.told.connect(self.notify)
        self.saving.failed.connect(self._show_error)
        self.saving.copy_asked.connect(self._open_copy)

    @property
    def rows(self) -> Rows | None:
        """Of the open file."""
        return self.file.rows

    @property
    def grid(self) -> Grid | None:
        """That shows them."""
        return self.file.grid

    # The window

    @property
    def title(self) -> str:
        """The file that is open."""
        return Path(self.source.path).name if self.source.path else ""

    @property
    def words_for_files(self) -> str:
        """A file that is dropped here is opened."""
        return self.tr("Drop to look at the file")

    def on_shown(self, argument: object = None) -> None:
        """Takes a file to open, or one of which a part is to be seen, and looks again at models and recent files."""
        if isinstance(argument, list) and argument:
            self.open(str(argument[0]))
        elif isinstance(argument, ChosenData):
            self._show_part_of(argument)
        self.run_in_background(lambda: (self._memory.load(), list_models(paths.models_dir())), self._take_memory)
        self.run_in_background(kept_sets, self.home.library.show_sets)
        self.file.show_part()

    def on_hidden(self) -> None:
        """Starts nothing more while nobody looks."""
        self.file.rest()

    def memory(self) -> object:
        """The file that is open, how it is read, and what was changed."""
        if self.grid is not None:
            self.grid.pane.keep_typed()
        if self.rows is None or self.grid is None:
            return _Memory(self.source, model=self._model)
        changes, place = self.rows.changes(), self.grid.current() or 0
        return _Memory(self.source, changes, place, self.parts.value, self._model)

    def remember(self, memory: object) -> None:
        """Opens it again."""
        assert isinstance(memory, _Memory)
        self._model = memory.model
        if memory.source.path:
            self.open(memory.source.path, memory.source)
            self._resumed = memory

    def may_close(self) -> bool:
        """Asks about changes that are in no file yet."""
        return self._may_leave(self.window().close)

    def perform(self, action: str) -> bool:
        """Find puts the cursor into the search box."""
        if action != "find" or self.grid is None or self._stack.currentIndex() == 0:
            return False
        self.parts.set_value("rows")
        self.grid.find_bar.focus_search()
        return True

    # Opening

    def open(self, path: str, source: SourceSpec | None = None) -> None:
        """Looks at a file; unsaved changes to the one before are asked about."""
        if not self._may_leave(lambda: self.open(path, source)):
            return
        if path != self.source.path:
            self.summary.sheets.show_data(None)
        self.source = copy.deepcopy(source) if source else SourceSpec(path=path)
        self.data = self._resumed = None
        self.file.close_rows()
        self.file.setFocus(Qt.FocusReason.OtherFocusReason)  # else "All data" gets it from what is hidden now
        self._stack.setCurrentIndex(1)
        self.file.set_has_rows(False)
        self.summary.show_reading(Path(path).name)
        self.parts.set_value("rows")
        self.title_changed.emit()
        self._look()
        self.run_in_background(lambda: self._memory.add_data(path), self.home.set_recent)

    def _show_part_of(self, chosen: ChosenData) -> None:
        """Shows the rows of a file, which may be open already, or what is wrong with them."""
        if chosen.source.path == self.source.path and self.rows is not None:
            self.parts.set_value(chosen.part)
            return
        self.open(chosen.source.path, chosen.source)
        if self.source.path == chosen.source.path:
            self._model = chosen.model or self._model
            self._resumed = _Memory(self.source, part=chosen.part, model=self._model)

    def _open_copy(self, path: Path) -> None:
        """Goes on with a copy, whose columns mean what they meant in the file."""
        self.open(str(path), replace(self.source, path=str(path), encoding="utf-8", sheet=""))

    def _choose_sheet(self, name: str) -> None:
        """Opens another sheet; the one before stays when its changes are to be kept."""
        self.open(self.source.path, SourceSpec(path=self.source.path, encoding=self.source.encoding, sheet=name))
        self.summary.sheets.show_data(self.data)

    def close_file(self) -> None:
        """Goes back to the ways to open a file; unsaved changes are asked about."""
        if self._stack.currentIndex() == 0 or not self._may_leave(self.close_file):
            return
        self._looks.forget()
        self.source, self.data = SourceSpec(), None
        self.file.close_rows()
        self._stack.setCurrentIndex(0)
        self.home.choose.setFocus(Qt.FocusReason.OtherFocusReason)
        self.title_changed.emit()

    def _may_leave(self, then: Callable[[], object]) -> bool:
        """Asks about changes that are in no file yet; `then` follows once they are saved, if that is the answer."""
        if not self.file.has_unsaved():
            return True
        answer = ask_to_leave(self.window())
        if answer == ConfirmDialog.OTHER:
            self.saving.save_then(lambda _copy: then())
        return answer == ConfirmDialog.DialogCode.Accepted

    # What it is

    def _set_source(self, source: SourceSpec) -> None:
        self.source = source
        self._look()

    def _look(self) -> None:
        data = replace(self._base_spec().data, sources=[self.source], skip_bad_rows=False)
        path = self.source.path
        self._looks.ask(
            lambda: look_at_data(data), self._take_facts, lambda error: self._take_facts(DataFacts(path, error=error))
        )

    def _take_facts(self, data: DataFacts) -> None:
        asks = data.error is not None and data.error.code == "dataset-column-missing"
        if asks and self.source.format == "auto" and data.sniffed is not None:
            said = self._columns.recall(data.sniffed.columns)
            if said:
                self._set_source(replace(self.source, format=said[0], columns=said[1]))
                return
        self.data = data
        if data.sniffed is not None:
            # Also while its columns are not known: its rows are read as the first of them were.
            self.source = replace(self.source, encoding=data.encoding, sheet=data.sheet)
        self._show_facts()
        if _has_rows(data) and self.rows is None:
            memory, self._resumed = self._resumed or _Memory(self.source), None
            self.file.open_rows(self.source, data, memory.changes, memory.place)
            self.parts.set_value(memory.part)
        self._show_for_model()

    def _take_error(self, error: TunesmithError) -> None:
        """Says why there are no more rows, unless the first ones told."""
        if self.data is not None and self.data.error is None:
            self.data = replace(self.data, error=error)
            self._show_facts()
            self._show_for_model()

    def _show_facts(self) -> None:
        if self.data is None:
            return
        card = next((each for each in self._cards if str(each.path) == self._model), None)
        has_template = card is not None and card.has_chat_template
        self.summary.header.title.setText(Path(self.source.path).name)
        num_rows = self.rows.num_rows if self.rows is not None else None
        self.summary.show_data(replace(self.data, num_rows=num_rows), self.source, has_chat_template=has_template)
        self.file.set_has_rows(_has_rows(self.data))
        self.file.beginning.show_data(self.data)

    def map_columns(self, format_name: str, mapping: dict[str, str]) -> None:
        """Takes what the person says about the columns."""
        if self.data is not None and self.data.sniffed is not None:
            self._columns.remember(self.data.sniffed.columns, (format_name, mapping))
        self._set_source(replace(self.source, format=format_name, columns=mapping))

    def _open_mapping(self) -> None:
        if self.data is None or self.data.sniffed is None:
            return
        found = self.data.sniffed.format
        dialog = ColumnMappingDialog(self.data.head, found, self.source.format, self.source.columns, self)
        dialog.mapped.connect(self.map_columns)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    # What is done with it

    def train(self) -> None:
        """Goes to the Train page with this file; unsaved changes are asked about.

        Start asks there about rows that nobody has reviewed, wherever the file was chosen.
        """
        self._with_file(ask_to_train, self._go_to_train)

    def keep(self) -> None:
        """Puts this file into the library; unsaved changes are asked about."""
        self._with_file(ask_to_keep, self._ask_name)

    def _with_file(self, ask: Callable[[QWidget], int], then: Callable[[], object]) -> None:
        """Does something that reads the file, once its changes are saved if that is the answer."""
        answer = ask(self.window()) if self.file.has_changes() else ConfirmDialog.OTHER
        if answer == ConfirmDialog.DialogCode.Accepted:
            self._save_then(then)
        elif answer == ConfirmDialog.OTHER:
            then()

    def _save_then(self, then: Callable[[], object]) -> None:
        """Does something with a saved copy, which is open then."""

        def go_on(copy: Path) -> None:
            self._open_copy(copy)
            then()

        self.saving.save_then(go_on)

    def _go_to_train(self) -> None:
        self.navigate.emit("train", ChosenData(copy.deepcopy(self.source), self._model))

    def _save_repaired(self, path: Path, actions: dict[str, str]) -> None:
        spec = self._base_spec()
        spec.data.sources = [copy.deepcopy(self.source)]
        spec.model.path = self._model
        self.saving.save_repaired(path, spec, self._model_folder(), actions)

    def _let_write(self, kind: type[QuestionDialog]) -> None:
        dialog = kind(copy.deepcopy(self.source), self._cards, self._model, self.window())
        dialog.written.connect(lambda path: self.open(str(path)))
        dialog.told.connect(lambda words: self.notify.emit("ok", words))
        dialog.open()

    def _ask_name(self) -> None:
        dialog = KeepDialog(self.home.library.proposed_name(self.source.path), self.window())
        source = copy.deepcopy(self.source)
        dialog.named.connect(lambda name: self._add_to_library(name, source))
        dialog.open()

    def _add_to_library(self, name: str, source: SourceSpec, *, overwrite: bool = False) -> None:
        def failed(error: TunesmithError) -> None:
            if error.code != "dataset-name-taken":
                self.notify.emit("error", core_text(error.message))
                return
            path, free = (str(error.message.values[each]) for each in ("path", "free"))
            answer = ask_to_replace(self.window(), name, path, free)
            if answer == ConfirmDialog.DialogCode.Accepted:
                self._add_to_library(name, source, overwrite=True)
            elif answer == ConfirmDialog.OTHER:
                self._add_to_library(free, source)

        self._change_library(lambda: data_library.add(name, [source], overwrite=overwrite), name, failed)

    def _change_library(
        self, change: Callable[[], object], added: str = "", failed: Callable[[TunesmithError], object] | None = None
    ) -> None:
        def work() -> list[Kept]:
            change()
            return kept_sets()

        def done(kept: list[Kept]) -> None:
            self.home.library.show_sets(kept)
            if added:
                self.notify.emit("ok", fill(self.tr("%1 is in the library now."), added))

        self.run_in_background(work, done, failed)

    # Model and settings

    def _base_spec(self) -> RunSpec:
        return copy.deepcopy(self.context.new_run_spec) if self.context.new_run_spec else RunSpec()

    def _model_folder(self) -> str:
        return str(local_folder(self._model) or "") if self._model else ""

    def _take_memory(self, found: tuple[dict[str, Any], list[ModelCard]]) -> None:  # Any: JSON values
        content, self._cards = found
        self._columns.take(content.get("columns"))
        self.home.set_recent(content.get("data") or [])
        chosen = self._base_spec().model.path or self._model
        if not chosen and len(self._cards) == 1:
            chosen = str(self._cards[0].path)
        self._choose_model(chosen)

    def _choose_model(self, path: str) -> None:
        self._model = path
        self.learns.set_models(self._cards, path)
        self._show_facts()
        self._show_for_model()

    def _has_pairs(self) -> bool:
        sniffed = self.data.sniffed if self.data else None
        found = sniffed.format if sniffed and self.source.format == "auto" else self.source.format
        return found == PREFERENCE

    def _show_for_model(self) -> None:
        """Lets both panes that need the engine know what they are about."""
        if self.data is None or self.rows is None:
            return
        is_known = self.data.error is None or self.data.error.code != "dataset-column-missing"
        spec = self._base_spec() if is_known else None
        if spec is not None:
            spec.data.sources = [copy.deepcopy(self.source)]
            spec.data.skip_bad_rows = True
            spec.evaluation.path = ""
            spec.model.path = self._model
            if not self._has_pairs():
                # What the Train page means to learn from pairs is not to be learned from this file.
                spec.objective.kind = RunSpec().objective.kind
        self.learns.show_data(spec, self.rows if spec else None)
        self.problems.show_data(_checked(spec), self._model_folder(), self.data.state)
        if self.grid is not None and self.grid.only_problems.isChecked():
            self.problems.ask()  # what is wrong for the model that is chosen now


def _checked(spec: RunSpec | None) -> RunSpec | None:
    """What of a run its check depends on: other settings of the Train page make no other check."""
    if spec is None:
        return None
    checked = RunSpec()
    checked.data, checked.model = copy.deepcopy(spec.data), copy.deepcopy(spec.model)
    return checked


def _has_rows(data: DataFacts) -> bool:
    return data.sniffed is not None and (data.error is None or bool(data.head))
