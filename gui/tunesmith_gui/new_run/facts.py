"""What the form of a new run needs to know about model, data and computer, found out on worker threads.

Questions are asked a moment after the last change, and an answer that a newer question has overtaken is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from PySide6.QtCore import QObject, QTimer, Signal

from tunesmith_core import measured, presets
from tunesmith_core.datafmt.encoding import UTF_8
from tunesmith_core.datafmt.formats import PREFERENCE
from tunesmith_core.datafmt.labels import with_labels
from tunesmith_core.datafmt.layouts import resolve_layout
from tunesmith_core.datafmt.stored import STORED
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.hardware import Hardware
from tunesmith_core.objectives import FROM_LABELS, FROM_PAIRS, LABELS
from tunesmith_core.rows_look import RowsLook
from tunesmith_core.spec_problems import cross_problems
from tunesmith_core.unmatched_names import unmatched
from tunesmith_gui.background import Latest
from tunesmith_gui.new_run.form import BY_REWARD, NewRunForm
from tunesmith_gui.new_run.hub_look import HubLook, Offered
from tunesmith_gui.new_run.looks import (
    UNMEASURED,
    HardwareCache,
    Known,
    ModelFacts,
    PlanFacts,
    Survey,
    device_for,
    look_at_model,
    make_plan,
    take_survey,
)
from tunesmith_gui.new_run.rested_look import lengths_look, weights_look
from tunesmith_gui.new_run.setting_paths import OBJECTIVE, SOURCES
from tunesmith_gui.services.data_facts import NUM_SNIFFED_ROWS, DataFacts, look_at_data

Result = TypeVar("Result")
TEXT = "text"
"""The format of data without prompts."""

AUTO = "auto"
"""Format of rows about which nobody has said or found out anything."""

DEBOUNCE_MS = 250
DATA, ENCODING, SHEET = "data.sources[0].path", "data.sources[0].encoding", "data.sources[0].sheet"
"""Settings of the one data file that the window shows."""

PLAN_PATHS = ("data.context_length", DATA, SHEET, SOURCES, "model.dtype")
PLAN_SECTIONS = (
    *("objective", "teacher", "adapter", "quantization", "optimizer", "schedule", "evaluation", "saving", "hardware"),
)


class NewRunFacts(QObject):
    """Keeps the facts up to date with the form.

    Signals:
        survey_changed, model_changed, data_changed, plan_changed: the attribute of that name has a new value.
        model_slow, data_slow: looking at it takes long enough to say so.
    """

    survey_changed = Signal()
    model_changed = Signal()
    data_changed = Signal()
    plan_changed = Signal()
    model_slow = Signal()
    data_slow = Signal()

    def __init__(self, form: NewRunForm) -> None:
        super().__init__(form)
        self._form = form
        self.survey: Survey | None = None
        self.model: ModelFacts | None = None
        self.data: DataFacts | None = None
        self.plan: PlanFacts | None = None
        self.longest_tokens: int | None = None
        self._rows_look = RowsLook()
        self.checked = UNMEASURED
        self._notes: tuple[str, ...] = ()
        self._lengths: tuple[Mapping[str, int], ...] = ()
        self._learns_nothing = self._is_too_long = False
        self._is_blamed = self._is_blamed_for_rows = False
        self._lengths_look, self._weights_look = lengths_look(self), weights_look(self)
        self._lengths_look.found.connect(self.know_preview)
        self._lengths_look.failed.connect(self._on_unmeasured)
        self._weights_look.failed.connect(self._on_refused)
        self._wants_suggestion = False
        self._hardware_cache = HardwareCache()
        self._hub = HubLook(self)
        self._hub.found.connect(lambda offered: self._take_hub(offered=offered))
        self._hub.failed.connect(lambda error: self._take_hub(error=error))
        self._surveys, self._models, self._datas, self._plans = (Latest(self) for _ in range(4))
        self._models.slow.connect(self.model_slow)
        self._datas.slow.connect(self.data_slow)
        self._plan_timer = self._timer(self._ask_plan)
        self._data_timer = self._timer(self._ask_data)
        form.changed.connect(self._on_changed)

    def refresh(self) -> None:
        """Looks again at everything: the page came to the front. What was measured holds while the data is the same."""
        self._surveys.ask(lambda: take_survey(self._hardware_cache), self._take_survey)
        if self._is_blamed:
            self._forget_preview()  # its files may be others by now
            self._forget_blame()
        self._ask_model()
        self._data_timer.start(0)
        self._plan_timer.start()

    def suggest_for_next_model(self) -> None:
        """The person chose a model: settings that suit it on this computer are to follow."""
        self._wants_suggestion = True

    def know_preview(self, answer: dict[str, Any]) -> None:  # Any: JSON values
        """A preview read the rows; what it found holds until model or data change."""
        self.longest_tokens = answer["longest_tokens"]
        self._rows_look = RowsLook.of(answer)
        self._learns_nothing = answer.get("nothing_left") is not None
        self._is_too_long = answer.get("too_long") is not None
        if unknown := answer.get("unknown_token"):
            self._is_blamed_for_rows = True
            self._blame(TunesmithError.from_dict(unknown))
        self._notes = tuple(answer.get("notes", ()))
        self._lengths = tuple(answer["histogram"])
        self._plan_timer.start()

    def know_check(self, result: dict[str, Any]) -> None:  # Any: JSON values
        """A real step measured memory and speed (the result of plan-check); holds until a setting changes."""
        self.checked = measured.by_check(result, self._form.spec)
        self.longest_tokens = result.get("longest_tokens") or self.longest_tokens
        self._notes = tuple(result.get("notes", ()))
        self._ask_plan()

    @property
    def device(self) -> Hardware | None:
        """The device that the form's spec means; None while that is not known."""
        return device_for(self._form.spec, list(self.survey.devices)) if self.survey else None

    @property
    def num_rows(self) -> int | None:
        """Examples that a run makes of the data files, an estimate until their rows were looked at."""
        if self.data is None or self.data.sniffed is None:
            return None
        used = self.rows_of_files
        return None if None in used else sum(num for num in used if num is not None)

    @property
    def rows_of_files(self) -> list[int | None]:
        """Examples that a run makes of each data file, None where that can't be told."""
        sources = self._form.spec.data.sources
        found = [self._rows_of_first, *(other.num_rows for other in self.data.others)] if self.data else []
        return self._rows_look.examples(sources, found)

    @property
    def _may_leave_out(self) -> bool:
        """Whether rows may be cut, left out or longer than the model is made for."""
        data, limit = self._form.spec.data, self.max_tokens
        made_for = self.model.context_length if self.model else 0
        return data.skip_bad_rows or limit is None or limit > min(data.context_length, made_for or data.context_length)

    @property
    def _is_counted(self) -> bool:
        """Whether the number of examples is right, not about right."""
        if self._lengths:
            return self._rows_look.is_exact(self._form.spec.data.sources)
        return not self._may_leave_out

    @property
    def may_split(self) -> bool:
        """Whether a row of the files may become several examples, and nobody has counted them yet."""
        data, limit = self._form.spec.data, self.max_tokens
        is_counted = self._rows_look.is_complete
        return data.overlong == "split" and not is_counted and (limit is None or limit > data.context_length)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that all data files have."""
        return self._known_columns or ()

    @property
    def _known_columns(self) -> tuple[str, ...] | None:
        """Columns that all data files have; None where those of one are not known."""
        sniffed = [self.data.sniffed, *(other.sniffed for other in self.data.others)] if self.data else []
        found = [each.columns for each in sniffed if each and each.columns]
        if not found or len(found) < len(sniffed):
            return None
        return tuple(name for name in found[0] if all(name in columns for columns in found))

    @property
    def _rows_of_first(self) -> int | None:
        sniffed = self.data.sniffed if self.data else None
        estimate = sniffed.num_rows_estimate if sniffed else None
        if self.data is None or estimate is None or estimate >= NUM_SNIFFED_ROWS:
            return estimate
        return self.data.num_good_rows or estimate

    @property
    def max_tokens(self) -> int | None:
        """What no row can exceed, where the files are small enough to know it."""
        prompt = self._form.spec.data.system_prompt
        # Of pairs the look at a file measures the better answer only.
        if self.data is None or self.data.sniffed is None or self._form.value(OBJECTIVE) in FROM_PAIRS:
            return None
        sniffed = [self.data.sniffed, *(other.sniffed for other in self.data.others)]
        longest = [each.max_tokens(prompt) if each else None for each in sniffed]
        known = [num for num in longest if num is not None]
        if len(known) != len(longest):
            return None
        # What is trained of a prompt are the answers that the model writes.
        return max(known) + (self._form.spec.rollouts.max_tokens if self._form.way == BY_REWARD else 0)

    def _timer(self, ask: Callable[[], None]) -> QTimer:
        timer = QTimer(self)
        timer.setSingleShot(True)
        timer.setInterval(DEBOUNCE_MS)
        timer.timeout.connect(ask)
        return timer

    def _on_changed(self, path: str) -> None:
        section = path.partition(".")[0]
        if path == "name":
            return
        if section in ("", "model", "data", "objective"):
            self._forget_preview()
        if path in ("", "model.path", "model.revision") or section == "objective":
            self._forget_blame()
        if path in ("", "model.path", "model.revision"):
            self._ask_model()
        if self.data is None or self.data.path != self._form.value(DATA):
            self._form.surroundings.is_pairs = self._form.surroundings.is_text = None
            self._form.surroundings.labels_problem = None
            self._forget_data()
        if path == "" or section == "data":
            if path in ("", DATA, "data.sources[0].columns", ENCODING, SHEET, SOURCES):
                self.longest_tokens = None
            self._data_timer.start(0 if path in ("", DATA, SHEET, SOURCES) else DEBOUNCE_MS)
        if path in ("", *PLAN_PATHS) or section in PLAN_SECTIONS:
            self._forget_check()
        if section in ("", "adapter", "objective"):
            self._compare_names()
        if self._form.problems():
            self._ask_plan()  # at once: the old verdict is about other settings
        else:
            self._plan_timer.start()

    def _on_refused(self, error: object) -> None:
        # Anything else is no fault of the model.
        if isinstance(error, UserError) and error.code != "spec-invalid":
            self._blame(error)

    def _blame(self, error: TunesmithError) -> None:
        """The training environment found what a run would refuse of the chosen model."""
        if self.model is not None:
            self._is_blamed = True
            self._take_model(ModelFacts(self.model.path, error=error))

    def _forget_blame(self) -> None:
        """What the training environment said of the model is about other files, rows or another objective."""
        self._weights_look.ask(None)
        if self._is_blamed:
            self._is_blamed = self._is_blamed_for_rows = False
            self._ask_model()

    def _on_unmeasured(self) -> None:
        self._plan_timer.start()

    def _forget_data(self) -> None:
        """Drops what is known about another file than the chosen one."""
        if self.data is not None:
            self.data = self._form.surroundings.columns = None
            self.data_changed.emit()

    def _forget_preview(self) -> None:
        self._lengths_look.ask(None)  # its answer would be about other rows
        self._notes, self._lengths = (), ()
        self._rows_look = RowsLook()
        self._learns_nothing = self._is_too_long = False
        if self._is_blamed_for_rows:
            self._forget_blame()

    def _compare_names(self) -> None:
        """Tells the form which settings name what the model certainly does not have."""
        card = self.model.card if self.model else None
        # Values that are wrong by themselves are told first.
        found = unmatched(self._form.spec, card.shapes) if card and not self._form.spec.problems() else []
        self._form.surroundings.unmatched = {each.path: each.message for each in found if each.is_certain}

    def _forget_check(self) -> None:
        self.checked = UNMEASURED

    def _take_survey(self, survey: Survey) -> None:
        self.survey = survey
        self._form.surroundings.environment_missing = survey.environment_problem is not None
        self.survey_changed.emit()

    def _ask_model(self) -> None:
        path, revision = self._form.value("model.path").strip(), self._form.value("model.revision")
        if self.model is None or self.model.path != path:
            self._hub.forget()
        if not path:
            self._models.forget()
            self._take_model(None)
        elif self.model is None or self.model.path != path or self.model.error or self.model.is_hub_id:
            self._models.ask(
                lambda: look_at_model(path, revision),
                self._take_local,
                lambda error: self._take_model(ModelFacts(path, error=error)),
            )

    def _take_model(self, model: ModelFacts | None) -> None:
        self.model = model
        self._form.surroundings.model_broken = model is not None and model.error is not None
        self._form.surroundings.no_room = bool(model and model.offered and model.offered.is_short)
        self._compare_names()
        self.model_changed.emit()
        self._plan_timer.start()

    def _take_local(self, model: ModelFacts) -> None:
        if model.is_hub_id and self.model is not None and self.model.path == model.path and not self.model.error:
            return  # the hub was asked before
        self._take_model(model)
        if model.is_hub_id:
            self._hub.ask(model.path, self._form.value("model.revision"))

    def _take_hub(self, *, offered: Offered | None = None, error: TunesmithError | None = None) -> None:
        if self.model is None or (error is not None and error.code == "environment-missing"):
            return  # Start says that training is not set up
        self._take_model(replace(self.model, offered=offered, error=error))

    def _ask_data(self) -> None:
        data = self._form.spec.data
        objective = self._form.value(OBJECTIVE)
        in_pairs, in_labels = objective in FROM_PAIRS, objective in LABELS
        path = data.sources[0].path
        if not path.strip():
            self._datas.forget()
            self._take_data(None)
        else:
            self._datas.ask(
                lambda: look_at_data(data, in_pairs=in_pairs, in_labels=in_labels),
                self._take_data,
                lambda error: self._take_data(DataFacts(path, error=error)),
            )

    def _take_data(self, data: DataFacts | None) -> None:
        if data is not None and data.path != self._form.value(DATA):
            return  # other data was chosen, and its answer is to come
        if data is not None and data.error is None and self._form.value(SHEET) not in ("", data.sheet):
            return  # another sheet was
        if self.data and data and self.data.path == data.path and self.data.sniffed != data.sniffed:
            self.longest_tokens = None
            self._forget_preview()
            self._forget_check()
        self._form.surroundings.encoding = self._recognized_encoding(data)
        self.data = data
        if data is not None and data.error is None:
            self._form.set_value(ENCODING, data.encoding)
            self._form.set_value(SHEET, data.sheet)
        error = data.error if data else None
        is_broken = error is not None or any(other.error for other in (data.others if data else ()))
        self._form.surroundings.data_broken = is_broken
        self._form.surroundings.columns = self._known_columns
        self._form.surroundings.is_pairs = self._are_all(data, PREFERENCE)
        self._form.surroundings.is_text = self._are_all(data, TEXT)
        self._form.surroundings.labels_problem = self._labels_problem(data)
        self._form.know_stored(self._has_stored(data))
        self._form.surroundings.columns_unknown = data is not None and data.lacks_columns
        self._form.surroundings.is_unsuited = data is not None and data.is_unsuited
        self.data_changed.emit()
        self._plan_timer.start()

    def _has_stored(self, data: DataFacts | None) -> bool | None:
        """Whether all data files hold what a bigger model found likely; None where that is not known."""
        if data is None or data.error is not None or data.sniffed is None:
            return None
        sniffed = (data.sniffed, *(other.sniffed for other in data.others))
        return all(each is not None and STORED in map(str.lower, each.columns) for each in sniffed)

    def _are_all(self, data: DataFacts | None, wanted: str) -> bool | None:
        """Whether all data files are of a format; None where that is not known."""
        if data is None or data.error is not None:
            return None
        sniffed = (data.sniffed, *(other.sniffed for other in data.others))
        found = [each.format if each else AUTO for each in sniffed]
        said = [source.format for source in self._form.spec.data.sources]
        formats = {own if own != AUTO else format_name for own, format_name in zip(said, found, strict=False)}
        if formats <= {wanted, AUTO}:
            return None if AUTO in formats else True
        return False

    def _labels_problem(self, data: DataFacts | None) -> TunesmithError | None:
        """Why the labels of the first file can't be learned from; None where they can, or can't be read."""
        if data is None or data.error is not None or not data.head:
            return None
        source = self._form.spec.data.sources[0]
        if self._form.value(OBJECTIVE) in FROM_LABELS:
            return data.labels_problem
        try:
            layout = resolve_layout(data.head, source.format, source.columns, data.path)
            with_labels(layout, data.head, source.columns, data.path)
        except UserError as error:
            return error
        return data.labels_problem

    def _recognized_encoding(self, data: DataFacts | None) -> str:
        """Which encoding was recognized; one that was asked for only proves to be possible."""
        if data is None:
            return ""
        is_asked_for = data.encoding == self._form.value(ENCODING) != UTF_8
        return self._form.surroundings.encoding if is_asked_for else data.encoding

    def _ask_plan(self) -> None:
        card = self.model.card if self.model else None
        # Without rows the longest example would be the whole context, and the model would be blamed for it.
        if card is None or self._form.surroundings.data_broken or self._form.problems():
            self._plans.forget()
            self._take_plan(None)
            return
        if self.data is None and self._form.value(DATA).strip():
            if self.plan is not None:
                self.plan = replace(self.plan, notes=(), hold_out_percent=None, is_measuring=True)
                self.plan_changed.emit()
            return
        longest = self.longest_tokens or self.max_tokens
        files = tuple(num for num in self.rows_of_files if num is not None)
        known = Known(
            self.num_rows,
            files,
            longest,
            self.checked,
            self._learns_nothing,
            self._rows_look.row_tokens,
            is_counted=self._is_counted,
        )
        spec, cache, suggest = self._form.spec, self._hardware_cache, self._wants_suggestion
        self._plans.ask(lambda: make_plan(spec, card, known, cache, suggest), self._take_plan_or_suggestion)

    def _take_plan_or_suggestion(self, answer: tuple[PlanFacts | None, presets.Changes]) -> None:
        facts, suggestion = answer
        if self._wants_suggestion:
            self._wants_suggestion = False
            if suggestion:
                self._form.suggest_memory_settings(suggestion)
        self._take_plan(facts)

    def _take_plan(self, facts: PlanFacts | None) -> None:
        if facts is not None:
            notes = (*self._notes, *facts.notes)
            facts = replace(facts, notes=notes, lengths=self._lengths, longest_tokens=self.longest_tokens)
        self.plan = facts
        self._look_closer()
        if self.plan is not None:
            self.plan = replace(self.plan, is_measuring=self._lengths_look.is_looking)
        verdict = facts.verdict if facts else ""
        self._form.surroundings.learns_nothing = verdict == "nothing"
        self._form.surroundings.rows_too_long = facts is not None and self._is_too_long
        self._form.surroundings.does_not_fit = verdict == "exceeds"
        self.plan_changed.emit()

    def _look_closer(self) -> None:
        """Has the model's weights looked at, and the rows made into tokens where that may change the plan and nobody
        has looked: only then it is worth a process.
        """
        is_ready = self.plan is not None and self.survey is not None and self.survey.environment_problem is None
        self._lengths_look.ask(self._form.spec if is_ready and not self._lengths and self._may_leave_out else None)
        # What is still to be chosen would be refused in the model's place.
        if is_ready and not cross_problems(self._form.spec):
            self._weights_look.ask(self._form.spec)
