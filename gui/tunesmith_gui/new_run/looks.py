"""What is found out about model, computer and plan of a new run, on the worker threads of `facts`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunesmith_core import environments, held_out, measured, model_library, model_notes, paths, presets
from tunesmith_core.errors import EnvironmentProblem, TunesmithError, UserError
from tunesmith_core.hardware import Hardware, detect_hardware
from tunesmith_core.measured import Measured, Time
from tunesmith_core.model_cards import ModelCard, list_models, read_model_card
from tunesmith_core.model_folder import local_folder
from tunesmith_core.planner import Plan, plan, warmup_note
from tunesmith_core.spec import RunSpec
from tunesmith_gui.new_run.hub_look import Offered

UNMEASURED, UNTIMED = Measured(), Time()

HARDWARE_KEPT_S = 5.0


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A chosen model: its card, or what is wrong with it; of a hub id what the hub says, once it has answered.

    Attributes:
        context_length: tokens that it is made for, 0 when unknown.
    """

    path: str
    card: ModelCard | None = None
    error: TunesmithError | None = None
    is_hub_id: bool = False
    offered: Offered | None = None
    context_length: int = 0


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """A plan and the device it is for.

    Attributes:
        notes: what a person should know of the settings, and what reading the data showed.
        lengths: how long examples are, as a preview counted them.
        longest_tokens: length of the longest, where it was measured.
        hold_out_percent: share to hold out instead, where too few rows are.
        is_measuring: whether the lengths of examples are being measured, after which it may be another plan.
        are_steps_exact: whether it counts the steps, not about.
        time: what tells how long it takes.
    """

    plan: Plan
    hardware: Hardware
    measured_bytes: int | None = None
    notes: tuple[str, ...] = ()
    lengths: tuple[Mapping[str, int], ...] = ()
    longest_tokens: int | None = None
    time: Time = UNTIMED
    hold_out_percent: float | None = None
    is_measuring: bool = False
    are_steps_exact: bool = True

    def num_longer(self, num_tokens: int) -> int | None:
        """At least how many examples are longer than so many tokens; None where nobody has measured them."""
        if self.longest_tokens is None:
            return None
        if self.longest_tokens <= num_tokens:
            return 0
        return max(1, sum(bar["num_rows"] for bar in self.lengths if bar["from_tokens"] > num_tokens))

    @property
    def total_bytes(self) -> int:
        """What the run takes, measured or planned."""
        return self.measured_bytes or self.plan.total_bytes

    @property
    def verdict(self) -> str:
        """A verdict of Plan; what was measured fits or does not."""
        if self.plan.verdict == "nothing":
            return "nothing"
        if self.measured_bytes is None and self.plan.verdict == "unmeasured":
            return "unmeasured"
        if self.total_bytes > self.plan.available_bytes:
            # As much as that takes rows of the whole context, and nobody knows how long they are.
            unsure = self.measured_bytes is None and self.plan.verdict != "exceeds" and self.plan.certainty == "low"
            return "unmeasured" if unsure else "exceeds"
        return self.plan.verdict if self.measured_bytes is None else "fits"


@dataclass(frozen=True, slots=True)
class Known:
    """What was measured and makes a plan surer; None where it was not.

    Attributes:
        is_counted: whether the number of rows is right, not about right.
    """

    num_rows: int | None = None
    file_rows: tuple[int, ...] = ()
    longest_tokens: int | None = None
    measured: Measured = UNMEASURED
    learns_nothing: bool = False
    row_tokens: float | None = None
    is_counted: bool = True


@dataclass(frozen=True, slots=True)
class Survey:
    """What lies on this computer: usable models, devices, and whether training is set up.

    Attributes:
        earlier: folders of models that earlier runs trained, wherever they are.
    """

    models: tuple[ModelCard, ...]
    devices: tuple[Hardware, ...]
    environment_problem: TunesmithError | None
    earlier: tuple[str, ...] = ()

    @property
    def has_gpu(self) -> bool:
        """Whether there is a GPU to train on."""
        return any(device.device == "cuda" for device in self.devices)


class HardwareCache:
    """nvidia-smi takes up to a second: its answer serves for some seconds."""

    def __init__(self) -> None:
        self._found: list[Hardware] = []
        self._at_s = float("-inf")

    def devices(self) -> list[Hardware]:
        """The devices, at most a few seconds old. Called on worker threads."""
        if time.monotonic() - self._at_s > HARDWARE_KEPT_S:
            self._found, self._at_s = detect_hardware(), time.monotonic()
        return self._found


def take_survey(cache: HardwareCache) -> Survey:
    """Looks at models folder, GPUs and training environment."""
    problem: TunesmithError | None = None
    try:
        environments.training_python()
    except EnvironmentProblem as error:
        problem = error
    models = tuple(list_models(paths.models_dir()))
    earlier: list[str] = []
    with contextlib.suppress(OSError, TunesmithError):
        ours = {card.path.resolve() for card in models}
        found = model_library.folders_of_runs(model_library.base_models())
        earlier = [folder for folder in found if Path(folder).resolve() not in ours]
    return Survey(models, tuple(cache.devices()), problem, tuple(earlier))


def look_at_model(path: str, revision: str = "") -> ModelFacts:
    """Reads a model's card."""
    try:
        folder = local_folder(path, revision)
        if folder is None:
            return ModelFacts(path, is_hub_id=True)
        return ModelFacts(path, read_model_card(folder), context_length=model_library.context_length(folder))
    except TunesmithError as error:
        return ModelFacts(path, error=error)


def make_plan(
    spec: RunSpec, card: ModelCard, known: Known, cache: HardwareCache, suggest: bool
) -> tuple[PlanFacts | None, presets.Changes]:
    """Plans a run on the device that its spec asks for; with `suggest` also says which settings suit that device."""
    device = device_for(spec, cache.devices())
    if device is None:
        return None, {}
    changes: dict[str, Any] = {}
    # The memory ladder ends in a 4-bit base, which is slow on a processor.
    if suggest and device.device == "cuda":
        changes = dict(presets.suggest(card, device, spec))
    found = known.measured if known.measured != UNMEASURED else measured.by_run(spec, device)
    time = measured.time_of(spec, device, card, found, known.num_rows, known.row_tokens)
    with contextlib.suppress(UserError):
        estimate = plan(
            spec,
            device,
            card=card,
            num_rows=known.num_rows,
            file_rows=known.file_rows,
            longest_tokens=known.longest_tokens,
            step_s=time.step_s,
            other_s=time.other_s,
            learns_nothing=known.learns_nothing,
        )
        notes = (
            warmup_note(spec, estimate.total_steps),
            *model_notes.notes(card, spec),
            # The last, above the button that does what it advises.
            held_out.note(spec, known.num_rows, is_exact=known.is_counted),
        )
        told = tuple(note for note in notes if note)
        advised = held_out.advised_percent(spec, known.num_rows)
        facts = PlanFacts(
            estimate,
            device,
            found.peak_bytes,
            told,
            time=time,
            hold_out_percent=advised,
            are_steps_exact=known.is_counted or spec.schedule.max_steps > 0,
        )
        return facts, changes
    return None, changes


def device_for(spec: RunSpec, devices: list[Hardware]) -> Hardware | None:
    """The device that a spec means, or None when there is no such GPU."""
    gpus = [device for device in devices if device.device == "cuda"]
    if spec.hardware.device == "cpu" or (spec.hardware.device == "auto" and not gpus):
        return next((device for device in devices if device.device == "cpu"), None)
    return next((gpu for gpu in gpus if gpu.gpu_index == spec.hardware.gpu_index), None)
