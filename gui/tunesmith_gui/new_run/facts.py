"""What the form of a new run needs to know about model, data and computer, found out on worker threads.

Questions are asked a moment after the last change, and an answer that a newer question has overtaken is dropped.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from PySide6.QtCore import QObject, QTimer, Signal

from tunesmith_core import datafmt, environments, paths, presets
from tunesmith_core.datafmt.encoding import UTF_8
from tunesmith_core.datafmt.reading import Row
from tunesmith_core.datafmt.sniffing import head_rows
from tunesmith_core.errors import EnvironmentProblem, TunesmithError, UserError
from tunesmith_core.hardware import Hardware, detect_hardware
from tunesmith_core.model_cards import ModelCard, list_models, read_model_card
from tunesmith_core.model_folder import local_folder
from tunesmith_core.planner import Plan, plan
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import DataSpec, SourceSpec
from tunesmith_gui.background import Job
from tunesmith_gui.new_run import measured
from tunesmith_gui.new_run.form import NewRunForm
from tunesmith_gui.new_run.measured import Measured
from tunesmith_gui.new_run.workbook import look_at_workbook

Result = TypeVar("Result")
UNMEASURED = Measured()

DEBOUNCE_MS = 250
LOADING_AFTER_MS = 150
NUM_SNIFFED_ROWS = 1000
"""Files with fewer rows are counted exactly."""
NUM_HEAD_ROWS = 20
"""Rows that are kept to show what is in a column."""

HARDWARE_KEPT_S = 5.0
DATA, ENCODING = "data.sources[0].path", "data.sources[0].encoding"
"""Settings of the one data file that the window shows."""

READ_AS = "read-as-"
"""Beginning of the names of actions that read a file in an encoding."""

PLAN_SECTIONS = ("objective", "adapter", "quantization", "optimizer", "schedule", "evaluation", "saving", "hardware")


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A chosen model: its card, or what is wrong with it; neither for a hub id."""

    path: str
    card: ModelCard | None = None
    error: TunesmithError | None = None
    is_hub_id: bool = False


@dataclass(frozen=True, slots=True)
class DataFacts:
    """A chosen data file.

    Attributes:
        sniffed: what its head tells, None when no row can be read.
        head: its first rows; none of a Parquet file, which the engine reads.
        error: the first problem in it.
        skipping_helps: whether the rest can be trained on when bad rows are left out.
        num_good_rows, num_bad_rows: of its first rows, where bad rows are left out.
        encoding: in which it was read.
    """

    path: str
    sniffed: datafmt.Sniffed | None = None
    head: tuple[Row, ...] = ()
    error: TunesmithError | None = None
    skipping_helps: bool = False
    num_good_rows: int = 0
    num_bad_rows: int = 0
    encoding: str = UTF_8


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """A plan and the device it is for; notes say what reading the data showed."""

    plan: Plan
    hardware: Hardware
    measured_bytes: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def total_bytes(self) -> int:
        """What the run takes, measured or planned."""
        return self.measured_bytes or self.plan.total_bytes

    @property
    def verdict(self) -> str:
        """A verdict of Plan; what was measured fits or does not."""
        if self.measured_bytes is None and self.plan.verdict == "unmeasured":
            return "unmeasured"
        if self.total_bytes > self.plan.available_bytes:
            # As much as that takes rows of the whole context, and nobody knows how long they are.
            unsure = self.measured_bytes is None and self.plan.verdict != "exceeds" and self.plan.certainty == "low"
            return "unmeasured" if unsure else "exceeds"
        return self.plan.verdict if self.measured_bytes is None else "fits"


@dataclass(frozen=True, slots=True)
class Known:
    """What was measured and makes a plan surer; None where it was not."""

    num_rows: int | None = None
    longest_tokens: int | None = None
    measured: Measured = UNMEASURED


@dataclass(frozen=True, slots=True)
class Survey:
    """What lies on this computer: usable models, devices, and whether training is set up."""

    models: tuple[ModelCard, ...]
    devices: tuple[Hardware, ...]
    environment_problem: TunesmithError | None

    @property
    def has_gpu(self) -> bool:
        """Whether there is a GPU to train on."""
        return any(device.device == "cuda" for device in self.devices)


class Latest(QObject):
    """Asks one kind of question; only the newest answer arrives.

    Signals:
        slow: the answer has not come within the time after which a person wonders.
    """

    slow = Signal()

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._ticket = 0
        self._patience = QTimer(self)
        self._patience.setSingleShot(True)
        self._patience.setInterval(LOADING_AFTER_MS)
        self._patience.timeout.connect(self.slow)

    def ask(
        self,
        work: Callable[[], Result],
        done: Callable[[Result], object],
        failed: Callable[[TunesmithError], object] = lambda _error: None,
    ) -> None:
        """Runs `work` on a worker thread, then `done`, or `failed` for an error that is not part of its result."""
        self.forget()
        ticket = self._ticket
        self._patience.start()

        def arrived(answer: Any, hand_over: Callable[[Any], object]) -> None:  # Any: result or error
            if ticket == self._ticket:
                self._patience.stop()
                hand_over(answer)

        Job.start(self, work, lambda result: arrived(result, done), lambda error: arrived(error, failed))

    def forget(self) -> None:
        """Drops an answer that is still to come."""
        self._ticket += 1
        self._patience.stop()


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
        self.checked = UNMEASURED
        self._notes: tuple[str, ...] = ()
        self._wants_suggestion = False
        self._hardware_cache = _HardwareCache()
        self._surveys, self._models, self._datas, self._plans = (Latest(self) for _ in range(4))
        self._models.slow.connect(self.model_slow)
        self._datas.slow.connect(self.data_slow)
        self._plan_timer = self._timer(self._ask_plan)
        self._data_timer = self._timer(self._ask_data)
        form.changed.connect(self._on_changed)

    def refresh(self) -> None:
        """Looks again at everything: the page came to the front. What was measured holds while the data is the same."""
        self._surveys.ask(lambda: take_survey(self._hardware_cache), self._take_survey)
        self._ask_model()
        self._data_timer.start(0)
        self._plan_timer.start()

    def suggest_for_next_model(self) -> None:
        """The person chose a model: settings that suit it on this computer are to follow."""
        self._wants_suggestion = True

    def know_preview(self, answer: dict[str, Any]) -> None:  # Any: JSON values
        """A preview read the rows; what it found holds until model or data change."""
        self.longest_tokens = answer["longest_tokens"]
        self._notes = tuple(answer.get("notes", ()))
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
        """Rows of the data file that can be used, an estimate for a long one."""
        if self.data is None or self.data.sniffed is None:
            return None
        estimate = self.data.sniffed.num_rows_estimate
        if estimate is None or estimate >= NUM_SNIFFED_ROWS:
            return estimate
        return self.data.num_good_rows or estimate

    @property
    def max_tokens(self) -> int | None:
        """What no row can exceed, where the file is small enough to know it."""
        prompt = self._form.spec.data.system_prompt
        return self.data.sniffed.max_tokens(prompt) if self.data and self.data.sniffed else None

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
        if path == "" or section in ("model", "data"):
            self._notes = ()
        if path in ("", "model.path"):
            self._ask_model()
        if path == "" or section == "data":
            if path in ("", DATA, "data.sources[0].columns", ENCODING):
                self.longest_tokens = None
            self._data_timer.start(0 if path in ("", DATA) else DEBOUNCE_MS)
        if path == "" or section in PLAN_SECTIONS or path in ("data.context_length", DATA, "model.dtype"):
            self._forget_check()
        if self._form.problems():
            self._ask_plan()  # at once: the old verdict is about other settings
        else:
            self._plan_timer.start()

    def _forget_check(self) -> None:
        self.checked = UNMEASURED

    def _take_survey(self, survey: Survey) -> None:
        self.survey = survey
        self._form.surroundings.environment_missing = survey.environment_problem is not None
        self.survey_changed.emit()

    def _ask_model(self) -> None:
        path = self._form.value("model.path").strip()
        if not path:
            self._models.forget()
            self._take_model(None)
        elif self.model is None or self.model.path != path or self.model.error:
            self._models.ask(
                lambda: look_at_model(path),
                self._take_model,
                lambda error: self._take_model(ModelFacts(path, error=error)),
            )

    def _take_model(self, model: ModelFacts | None) -> None:
        self.model = model
        self._form.surroundings.model_broken = model is not None and model.error is not None
        self.model_changed.emit()
        self._plan_timer.start()

    def _ask_data(self) -> None:
        data = self._form.spec.data
        path = data.sources[0].path
        if not path.strip():
            self._datas.forget()
            self._take_data(None)
        else:
            self._datas.ask(
                lambda: look_at_data(data),
                self._take_data,
                lambda error: self._take_data(DataFacts(path, error=error)),
            )

    def _take_data(self, data: DataFacts | None) -> None:
        if self.data and data and self.data.path == data.path and self.data.sniffed != data.sniffed:
            self.longest_tokens = None
            self._notes = ()
            self._forget_check()
        self.data = data
        if data is not None and data.error is None:
            self._form.set_value(ENCODING, data.encoding)
        error = data.error if data else None
        self._form.surroundings.data_broken = error is not None
        self._form.surroundings.columns_unknown = error is not None and error.code == "dataset-column-missing"
        self.data_changed.emit()
        self._plan_timer.start()

    def _ask_plan(self) -> None:
        card = self.model.card if self.model else None
        # Without rows the longest example would be the whole context, and the model would be blamed for it.
        if card is None or self._form.surroundings.data_broken or self._form.problems():
            self._plans.forget()
            self._take_plan(None)
            return
        known = Known(self.num_rows, self.longest_tokens or self.max_tokens, self.checked)
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
            facts = replace(facts, notes=self._notes)
        self.plan = facts
        self._form.surroundings.does_not_fit = facts is not None and facts.verdict == "exceeds"
        self.plan_changed.emit()


class _HardwareCache:
    """nvidia-smi takes up to a second: its answer serves for some seconds."""

    def __init__(self) -> None:
        self._found: list[Hardware] = []
        self._at_s = float("-inf")

    def devices(self) -> list[Hardware]:
        """The devices, at most a few seconds old. Called on worker threads."""
        if time.monotonic() - self._at_s > HARDWARE_KEPT_S:
            self._found, self._at_s = detect_hardware(), time.monotonic()
        return self._found


def take_survey(cache: _HardwareCache) -> Survey:
    """Looks at models folder, GPUs and training environment."""
    problem: TunesmithError | None = None
    try:
        environments.training_python()
    except EnvironmentProblem as error:
        problem = error
    models = tuple(list_models(paths.models_dir()))
    return Survey(models, tuple(cache.devices()), problem)


def look_at_model(path: str) -> ModelFacts:
    """Reads a model's card."""
    try:
        folder = local_folder(path)
        return ModelFacts(path, read_model_card(folder)) if folder else ModelFacts(path, is_hub_id=True)
    except TunesmithError as error:
        return ModelFacts(path, error=error)


def look_at_data(data: DataSpec) -> DataFacts:
    """Sniffs a data file and checks its head as the run would; one that is not UTF-8 in the likeliest encoding."""
    facts = _read_head(data)
    actions = facts.error.actions if facts.error else ()
    encoding = next((action.removeprefix(READ_AS) for action in actions if action.startswith(READ_AS)), "")
    if not encoding:
        return facts
    sources = [replace(data.sources[0], encoding=encoding), *data.sources[1:]]
    return _read_head(replace(data, sources=sources))


def _read_head(data: DataSpec) -> DataFacts:
    given = data.sources[0].path
    path = Path(given).expanduser()
    source = replace(data.sources[0], path=str(path))
    sniffed: datafmt.Sniffed | None = None
    head: tuple[Row, ...] = ()
    try:
        sniffed = datafmt.sniff(path, NUM_SNIFFED_ROWS, source.encoding)
        if sniffed.kind not in datafmt.READ_BY_ENGINE:
            head = tuple(head_rows(path, NUM_HEAD_ROWS, lambda _line, _error: None, source.encoding))
        elif sniffed.kind != datafmt.PARQUET:
            sniffed, head = look_at_workbook(path, sniffed)
            if head:
                datafmt.resolve_layout(head, source.format, source.columns, str(path))
        num_good, num_bad = datafmt.check_head(source, data.skip_bad_rows)
    except UserError as error:
        helps = sniffed is not None and _skipping_helps(source)
        return DataFacts(given, sniffed, head, error, helps, encoding=source.encoding)
    except OSError as error:
        return DataFacts(given, sniffed, head, UserError("dataset-parse-error", f"{path}: {error.strerror}."))
    return DataFacts(given, sniffed, head, None, False, num_good, num_bad, source.encoding)


def _skipping_helps(source: SourceSpec) -> bool:
    with contextlib.suppress(UserError):
        datafmt.check_head(source, skip_bad_rows=True)
        return True
    return False


def make_plan(
    spec: RunSpec, card: ModelCard, known: Known, cache: _HardwareCache, suggest: bool
) -> tuple[PlanFacts | None, presets.Changes]:
    """Plans a run on the device that its spec asks for; with `suggest` also says which settings suit that device."""
    device = device_for(spec, cache.devices())
    if device is None:
        return None, {}
    changes: dict[str, Any] = {}
    # The memory ladder ends in a 4-bit base, which needs a GPU.
    if suggest and device.device == "cuda":
        changes = dict(presets.suggest(card, device, spec))
    found = known.measured if known.measured != UNMEASURED else measured.by_run(spec, device)
    with contextlib.suppress(UserError):
        estimate = plan(
            spec,
            device,
            card=card,
            num_rows=known.num_rows,
            longest_tokens=known.longest_tokens,
            step_s=found.step_s,
        )
        return PlanFacts(estimate, device, found.peak_bytes), changes
    return None, changes


def device_for(spec: RunSpec, devices: list[Hardware]) -> Hardware | None:
    """The device that a spec means, or None when there is no such GPU."""
    gpus = [device for device in devices if device.device == "cuda"]
    if spec.hardware.device == "cpu" or (spec.hardware.device == "auto" and not gpus):
        return next((device for device in devices if device.device == "cpu"), None)
    return next((gpu for gpu in gpus if gpu.gpu_index == spec.hardware.gpu_index), None)
