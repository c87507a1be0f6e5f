"""What the Train page does: take files and specs, start, check the plan, copy, and keep a draft. No layout here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QLocale, QObject, QTimer, Signal
from PySide6.QtGui import QGuiApplication

from tunesmith_assets import samples
from tunesmith_core import files
from tunesmith_core.datafmt.formats import PREFERENCE
from tunesmith_core.datafmt.reading import likely_encoding
from tunesmith_core.datafmt.unsuited import IN_ONE_WAY
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.kinds.engine import PLAN_CHECK
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_rollouts import TASK
from tunesmith_core.spec_sections import DataSpec, SourceSpec
from tunesmith_gui.models.run_spec import ChosenData
from tunesmith_gui.new_run.doubts_first import DoubtsFirst
from tunesmith_gui.new_run.download_first import DownloadFirst
from tunesmith_gui.new_run.facts import DATA, SHEET, NewRunFacts
from tunesmith_gui.new_run.form import (
    BY_CLASS,
    BY_FULL,
    BY_LABEL,
    BY_PREFERENCE,
    BY_READING,
    BY_REWARD,
    BY_SCORE,
    BY_STEPS,
    BY_TEACHER,
    SAMPLE_FILES,
    NewRunForm,
)
from tunesmith_gui.new_run.setting_paths import MAPPING, READING, SETTINGS, TEACHER, reward_path
from tunesmith_gui.new_run.surroundings import BY_PLAN, Missing
from tunesmith_gui.services.column_memory import ColumnMemory
from tunesmith_gui.services.diagnostics import report
from tunesmith_gui.services.form_memory import MAX_RECENT, FormMemory, remembered, write_command_spec
from tunesmith_gui.services.operation import OperationTask, operations
from tunesmith_gui.tr import core_text, fill
from tunesmith_gui.widgets.diagnostics import DiagnosticsDialog
from tunesmith_gui.widgets.save_file import ask_where_to_save

if TYPE_CHECKING:
    from tunesmith_gui.new_run.page import NewRunPage

DRAFT_DELAY_MS = 600


class NewRunActions(QObject):
    """Acts on the form for the page.

    Signals:
        error_found: (TunesmithError) to be shown at the top of the form.
        checking_changed: (bool, note, tone) the plan check began or ended.
        recent_changed: recent models or data are others.
    """

    error_found = Signal(object)
    checking_changed = Signal(bool, str, str)
    recent_changed = Signal()

    def __init__(self, page: NewRunPage, form: NewRunForm, facts: NewRunFacts) -> None:
        super().__init__(page)
        self._page, self._form, self._facts = page, form, facts
        self.recent_models: list[str] = []
        self.recent_data: list[str] = []
        self._columns = ColumnMemory()
        self._memory = FormMemory()
        self._draft_number = 0
        self._touched = self._starts_fresh = False
        self._check: OperationTask | None = None
        self.download = DownloadFirst(self)
        self.download.changed.connect(self._on_download)
        self.download.arrived.connect(self._on_arrived)
        self.download.paused.connect(self._on_paused)
        self.download.failed.connect(self.error_found)
        self.doubts = DoubtsFirst(page.window, self)
        self.doubts.cleared.connect(lambda spec: page.context.runs.start(spec, self._started, self._start_failed))
        self.doubts.given_up.connect(lambda: self._set_starting(False))
        self.doubts.failed.connect(self._start_failed)
        self._draft_timer = QTimer(self)
        self._draft_timer.setSingleShot(True)
        self._draft_timer.setInterval(DRAFT_DELAY_MS)
        self._draft_timer.timeout.connect(self.save_draft)
        form.changed.connect(self._on_changed)
        facts.survey_changed.connect(self._preselect)
        facts.model_changed.connect(self._remember_model)
        facts.data_changed.connect(self._remember_data)
        facts.data_changed.connect(self._recall_columns)

    # Draft

    def restore(self) -> None:
        """Reads the draft in the background; what the person did meanwhile wins."""
        self._page.run_in_background(self._memory.load, self._take_memory)

    def draft(self) -> dict[str, Any]:  # Any: JSON values
        """The form, what was used lately, and what was said about columns."""
        recent = {"models": self.recent_models, "data": self.recent_data}
        return {"form": self._form.to_draft(), **recent, "columns": self._columns.to_values()}

    def take_draft(self, content: dict[str, Any]) -> None:  # Any: JSON values
        """Fills the form."""
        self._take_memory(content)
        self._touched = True  # what lies on the drive is older

    def hand_over(self) -> RunSpec | None:
        """Leave what is under way to the page that takes this one's place; return the run that waits for its model."""
        spec = self.download.spec
        self.download.leave()
        self.doubts.leave()
        return spec

    def take_over(self, waiting: RunSpec | None) -> None:
        """Continue with what the page before had under way."""
        if waiting is not None:
            self.download.begin(self._page.context.downloads, waiting)
        self.doubts.resume()
        self._set_starting(self.doubts.live)
        for task in operations().of(PLAN_CHECK):
            self._follow_check(task)

    def save_draft(self) -> None:
        """Writes the draft in the background."""
        self._draft_timer.stop()
        if not self._touched:
            return
        self._draft_number += 1
        content, number = self.draft(), self._draft_number
        self._page.run_in_background(lambda: self._memory.save(content, number), lambda _nothing: None)

    def _take_memory(self, content: dict[str, Any]) -> None:  # Any: JSON values
        self.recent_models = _merged(self.recent_models, content.get("models"))
        self.recent_data = _merged(self.recent_data, content.get("data"))
        self._columns.take(content.get("columns"))
        self.recent_changed.emit()
        if not self._touched:
            self._form.load_draft(content.get("form"))
            self._starts_fresh = "form" not in content
            self._preselect()

    def _preselect(self) -> None:
        """Takes the one model of a fresh start, once; where the person has begun, or there are several, none."""
        survey = self._facts.survey
        if self._touched or not self._starts_fresh or survey is None:
            return
        self._starts_fresh = False
        if len(survey.models) == 1 and not survey.earlier and not self.recent_models:
            self.choose_model(self._only_model())

    def _on_changed(self, _path: str) -> None:
        self._touched = True
        self._page.context.new_run_spec = self._form.spec
        self._draft_timer.start()
        self.cancel_check()

    # Choosing

    def choose_way(self, way: str) -> None:
        """Takes a way to teach; where the sample is shown, that of this way."""
        if BY_FULL in (way, self._form.way) and self._form.value("model.path"):
            # It takes other settings to fit.
            self._facts.suggest_for_next_model()
        if self._form.value(DATA) in SAMPLE_FILES:
            self._fill_with_sample(way)
        else:
            self._form.choose_way(way)

    def choose_model(self, path: str) -> None:
        """Takes a model folder or hub id."""
        if path:
            self._facts.suggest_for_next_model()
        self._form.set_value("model.path", path)

    def _remember_model(self) -> None:
        model = self._facts.model
        if model is not None and model.error is None and not model.is_hub_id:
            self._remember(models=model.path)

    def _remember_data(self) -> None:
        data = self._facts.data
        if data is not None and data.sniffed is not None and data.path not in SAMPLE_FILES:
            self._remember(data=data.path)

    def _remember(self, *, models: str = "", data: str = "") -> None:
        """Keeps what proved to be a model or data, so that no slip of the keyboard stays in the lists."""
        before = (self.recent_models, self.recent_data)
        self.recent_models = remembered(self.recent_models, models)
        self.recent_data = remembered(self.recent_data, data)
        if (self.recent_models, self.recent_data) != before:
            self.recent_changed.emit()
        if self.recent_data != before[1]:
            self._page.run_in_background(lambda: self._memory.add_data(data), lambda _recent: None)

    def choose_data(self, path: str) -> None:
        """Takes a data file; what was said about the former one does not fit it."""
        self.take_source(SourceSpec(path=path))

    def take_chosen(self, chosen: ChosenData) -> None:
        """Takes what the Data page shows, where encodings are recognized and not chosen."""
        self.take_source(chosen.source, chosen.model)
        self._form.surroundings.encoding = chosen.source.encoding

    def take_source(self, source: SourceSpec, model: str = "") -> None:
        """Takes a data file and how it is read; nothing of the former one stays.

        Args:
            source: the file.
            model: what it was looked at with, for a form without one.
        """
        self._form.leave_sample()
        self._form.forget_data()
        chosen = RunSpec(data=DataSpec(sources=[source]))
        for path in (*READING, DATA):
            self._form.set_value(path, SETTINGS[path].get(chosen))
        if self._form.value("model.path"):
            return
        if model:
            self.choose_model(model)
        elif self._facts.survey and len(self._facts.survey.models) == 1:
            # Where there is one model, there is nothing to choose.
            self.choose_model(self._only_model())

    def add_data(self, path: str) -> None:
        """Takes one more data file, read in its likeliest encoding."""

        def done(encoding: str) -> None:
            self._form.add_source(SourceSpec(path=path, encoding=encoding))

        self._page.run_in_background(lambda: likely_encoding(Path(path)), done, self.error_found.emit)

    def choose_sheet(self, name: str) -> None:
        """Takes a sheet of the workbook; what was said about the columns of another one does not fit it."""
        for path in MAPPING:
            self._form.reset(path)
        self._form.set_value(SHEET, name)

    def map_columns(self, format_name: str, mapping: dict[str, str]) -> None:
        """Takes what the person says about the columns, also for other files that have the same ones."""
        data = self._facts.data
        if data is not None and data.sniffed is not None:
            self._columns.remember(data.sniffed.columns, (format_name, mapping))
        self._form.set_value("data.sources[0].format", format_name)
        self._form.set_value("data.sources[0].columns", mapping)

    def _recall_columns(self) -> None:
        data = self._facts.data
        if data is None or data.sniffed is None or not self._form.surroundings.columns_unknown:
            return
        said = self._columns.recall(data.sniffed.columns)
        if said and self._form.way in (BY_PREFERENCE, BY_SCORE) and said[0] != PREFERENCE:
            return
        wanted = self._form.value("data.sources[0].format")
        if said and (said[0] == wanted or (wanted == "auto" and said[0] not in IN_ONE_WAY)):
            self.map_columns(*said)

    def use_problems(self, answer: dict[str, Any]) -> None:  # Any: JSON values
        """Takes problems of a task that were made, and lets the task score the answers."""
        self.choose_data(answer["train"])
        self._form.set_value("evaluation.path", answer["held_out"])
        while len(self._form.spec.rollouts.rewards) > 1:
            self._form.remove_reward(1)
        self._form.set_value(reward_path(0, "kind"), TASK)
        self._form.set_value(reward_path(0, "weight"), 1.0)

    def train_as_chat(self) -> None:
        """Lets the model's chat template frame prompt and response."""
        self._form.set_value("data.sources[0].format", "prompt-completion")

    def apply_changes(self, changes: dict[str, Any]) -> None:  # Any: values of settings
        """Takes a fix of the plan."""
        for path, value in changes.items():
            self._form.set_value(path, value)

    def use_sample(self) -> None:
        """Fills the form with the bundled example of the chosen way."""
        self._fill_with_sample(self._form.way)

    def _fill_with_sample(self, way: str) -> None:
        """Fills the form with the example of a way to teach in the window's language; a chosen model stays."""
        language = "zh" if QLocale().language() == QLocale.Language.Chinese else "en"
        model = self._form.value("model.path")
        makers = {
            BY_READING: samples.document_spec,
            BY_PREFERENCE: samples.preference_spec,
            BY_LABEL: samples.label_spec,
            BY_REWARD: samples.reward_spec,
            BY_TEACHER: samples.teacher_spec,
            BY_SCORE: samples.score_spec,
            BY_STEPS: samples.step_spec,
            BY_CLASS: samples.class_spec,
            BY_FULL: samples.full_spec,
        }
        make = makers.get(way, samples.example_spec)

        def work() -> RunSpec:
            # The example has no model of its own, and a spec without one is not valid.
            return RunSpec.from_dict(make(language, model or "placeholder"))

        def done(spec: RunSpec) -> None:
            spec.model.path = self._form.value("model.path") or self._only_model()
            spec.teacher.path = self._form.value(TEACHER)
            self._form.load_spec(spec)

        self._page.run_in_background(work, done)

    def _only_model(self) -> str:
        models = self._facts.survey.models if self._facts.survey else ()
        return str(models[0].path) if models else ""

    def take_spec(self, spec: RunSpec, proposed: tuple[str, ...] = ()) -> None:
        """Fills the form from a run to repeat, with what is proposed for its data only."""
        self._form.load_spec(spec, proposed)

    def take_files(self, paths: list[Path]) -> None:
        """Takes dropped files: a model folder, a run spec, or data. Looking at them happens in the background."""

        def done(found: list[tuple[str, Path, RunSpec | None]]) -> None:
            has_data = False
            for kind, path, spec in found:
                if spec is not None:
                    self.take_spec(spec)
                elif str(path) in SAMPLE_FILES:
                    self.use_sample()
                elif kind == "model":
                    self._page.model_picker.combo.show_path(str(path))
                    self.choose_model(str(path))
                elif has_data:
                    self.add_data(str(path))
                else:
                    has_data = True
                    self.choose_data(str(path))

        self._page.run_in_background(lambda: [_recognise(path) for path in paths], done, self.error_found.emit)

    # Starting

    def start(self) -> None:
        """Starts the run if nothing is missing; else leads to what is."""
        missing = self._form.missing()
        if missing is Missing.SETTING:
            self._page.reveal_setting(next(iter(self._form.problems())))
        elif missing is Missing.MODEL:
            self._page.model_picker.combo.setFocus()
        elif missing is Missing.TEACHER:
            self._page.reveal_setting(TEACHER)
        elif missing in (Missing.DATA, Missing.PAIRS, Missing.LABELS):
            self._page.data_picker.combo.setFocus()
        if missing is not Missing.NOTHING:
            return
        self.save_draft()
        model = self._facts.model
        if model is not None and model.is_hub_id:
            self.download.begin(self._page.context.downloads, self._form.spec)
        else:
            self._start(self._form.spec)

    def _start(self, spec: RunSpec) -> None:
        self._set_starting(True)
        self.doubts.begin(spec)

    def _on_arrived(self, spec: RunSpec) -> None:
        self._facts.refresh()
        self._start(spec)

    def _on_paused(self) -> None:
        words = self.tr("What has arrived of the model is kept. Start continues the download.")
        self._page.notify.emit("accent", words)

    def _on_download(self) -> None:
        if self._form.surroundings.downloading is not self.download.live:
            self._form.surroundings.downloading = self.download.live
            self._form.changed.emit("name")

    def _started(self, run_id: str) -> None:
        self._set_starting(False)
        self._remember(models=self._form.value("model.path"))  # by now also a hub id
        self._form.set_name("")
        page = self._page
        if page.isVisible():
            page.navigate.emit("dashboard", run_id)
        else:
            # Whoever has gone elsewhere meanwhile stays there.
            page.offer.emit(
                self.tr("The run has started."), self.tr("Show it"), lambda: page.navigate.emit("dashboard", run_id)
            )

    def _start_failed(self, error: TunesmithError) -> None:
        self._set_starting(False)
        self.error_found.emit(error)

    def _set_starting(self, starting: bool) -> None:
        self._form.surroundings.starting = starting
        self._form.changed.emit("name")

    def show_diagnostics(self, error: TunesmithError) -> None:
        """Opens the report about an error."""
        context = self._page.context
        spec = json.dumps(self._form.spec.to_dict(), indent=2, ensure_ascii=False)
        values, reading = context.preferences.values, context.hardware.latest
        self._page.run_in_background(
            lambda: report(values, reading, error=error, details=f"form:\n{spec}"),
            lambda text: DiagnosticsDialog(text, self._page.window()).show(),
        )

    # Checking the plan

    def check_plan(self) -> None:
        """Lets the engine train one real step."""
        # What the plan tells can be checked.
        if self._form.missing() not in (Missing.NOTHING, *BY_PLAN):
            self.checking_changed.emit(False, self.tr("Complete the form first."), "warn")
            return
        task = operations().begin(PLAN_CHECK, self._form.spec)
        self._follow_check(task)
        task.start()

    def _follow_check(self, task: OperationTask) -> None:
        self._check = task
        task.succeeded.connect(self._check_succeeded)
        task.failed.connect(self._check_failed)
        task.ended.connect(self._check_ended)
        self.checking_changed.emit(True, "", "muted")

    def cancel_check(self) -> None:
        """Ends the check: the person said so, or the form changed under it."""
        check, self._check = self._check, None
        if check is not None:
            check.cancel()
            self.checking_changed.emit(False, "", "muted")

    def _check_succeeded(self, result: dict[str, Any]) -> None:  # Any: JSON values
        self._check = None
        self.checking_changed.emit(False, "", "muted")
        self._facts.know_check(result)

    def _check_ended(self, _outcome: object) -> None:
        """Another place of the window may have canceled it."""
        if self._check is not None and self._check.cancelled:
            self.cancel_check()

    def _check_failed(self, error: TunesmithError) -> None:
        self._check = None
        self.checking_changed.emit(False, core_text(error.message), "error")
        self.error_found.emit(error)

    # Copying

    def copy_command(self) -> None:
        """Writes the spec beside the draft and copies the command that trains it."""

        def done(command: str) -> None:
            QGuiApplication.clipboard().setText(command)
            self._page.notify.emit("ok", self.tr("The command was copied."))

        spec = self._form.spec
        self._page.run_in_background(lambda: write_command_spec(spec), done, self.error_found.emit)

    def copy_json(self) -> None:
        """Copies the spec."""
        text = json.dumps(self._form.spec.to_dict(), indent=2, ensure_ascii=False)
        QGuiApplication.clipboard().setText(text)
        self._page.notify.emit("ok", self.tr("The spec was copied."))

    def save_spec(self) -> None:
        """Asks for a file and writes the spec."""
        kind = self.tr("Run spec (*.json)")
        path = ask_where_to_save(self._page, self.tr("Save spec"), "spec.json", kind)
        if path is not None:
            values = self._form.spec.to_dict()
            self._page.run_in_background(
                lambda: files.atomic_write_json(path, values),
                lambda _nothing: self._page.notify.emit("ok", fill(self.tr("Written to %1"), str(path))),
                self.error_found.emit,
            )


def _merged(newer: list[str], older: object) -> list[str]:
    texts = [each for each in older if isinstance(each, str)] if isinstance(older, list) else []
    return list(dict.fromkeys([*newer, *texts]))[:MAX_RECENT]


def _recognise(path: Path) -> tuple[str, Path, RunSpec | None]:
    """Say what a dropped file or folder is; a JSON file that looks like a spec is read as one.

    Raises:
        UserError: a spec with wrong values.
    """
    if path.is_dir():
        return "model", path, None
    if path.suffix == ".json" and _looks_like_spec(path):
        return "spec", path, RunSpec.load(path)
    return "data", path, None


def _looks_like_spec(path: Path) -> bool:
    try:
        values = files.read_json(path)
    except (OSError, ValueError):
        return False
    return isinstance(values, dict) and "version" in values and ({"model", "data"} & values.keys()) != set()
