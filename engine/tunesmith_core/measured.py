"""What was measured of a run's memory and pace, by a plan check or by a finished run of the same settings."""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from tunesmith_core import files
from tunesmith_core.adapter_ranks import adapts_experts
from tunesmith_core.errors import TunesmithError
from tunesmith_core.hardware import Hardware
from tunesmith_core.model_cards import ModelCard
from tunesmith_core.objectives import DISTILLATION, REINFORCEMENT
from tunesmith_core.planner import num_adapter_parameters
from tunesmith_core.protocol import Event, read_journal
from tunesmith_core.runs import Run, iter_runs
from tunesmith_core.spec import RunSpec
from tunesmith_core.trained_parts import FULL

NEAR = 1.25
"""A run tells the pace of another where its work and its batches are larger or smaller by this factor at most, so that
the estimate is within about a third of the truth: what is computed takes time by the work, what is launched by the
batch."""

ADAPTER_WORK = 3.5
"""How many frozen weights take as long as one of an adapter, whose products are thin: by SmolLM2 135M on a CPU
(2026-11-29), where adapters of rank 16 on all linear layers took 13 % longer than on queries and values alone, and
those of rank 64 and 128 took 30 % and 87 % longer than those of rank 16."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Numbers of a plan that need no estimate; None where nothing was measured.

    Attributes:
        peak_bytes: memory of the device at its highest.
        step_s: time of an update.
        other_s: time of a run that no update took: loading, evaluations, answers, saving.
    """

    peak_bytes: int | None = None
    step_s: float | None = None
    other_s: float | None = None


@dataclass(frozen=True, slots=True)
class Time:
    """What is known of how long a run takes; None where nothing tells it.

    Attributes:
        step_s: time of an update.
        other_s: as in `Measured`.
        run: name of another run by whose pace it is told, "" for none.
    """

    step_s: float | None = None
    other_s: float | None = None
    run: str = ""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast an earlier run that is alike trained here.

    Attributes:
        run: its name.
        row_tokens: tokens of its rows, on average.
        other_s: as in `Measured`.
    """

    run: str
    tokens_per_s: float
    row_tokens: float
    other_s: float

    def step_s(self, spec: RunSpec, num_rows: int | None, row_tokens: float | None) -> float:
        """Return the time of an update; rows whose tokens nobody has counted are taken for as long as those were."""
        rows = _rows_per_step(spec)
        return min(rows, num_rows or rows) * (row_tokens or self.row_tokens) / self.tokens_per_s


def by_check(result: Mapping[str, Any], spec: RunSpec) -> Measured:  # Any: JSON values
    """Return what one real step of the longest rows took."""
    step_s = result.get("step_s")
    parts = spec.schedule.gradient_accumulation_steps
    return Measured(int(result.get("reserved_bytes") or result["peak_bytes"]), step_s * parts if step_s else None)


def by_run(spec: RunSpec, hardware: Hardware) -> Measured:
    """Return what the newest finished run of these settings and data took on this device. Called on worker threads.

    A run takes spare memory to be faster, so a peak beyond what is free now says nothing about the next one.
    """
    wanted = spec.to_dict() | {"name": ""}
    for run in reversed(list(iter_runs())):
        if not _is_of(run, wanted, spec):
            continue
        events = list(read_journal(run.journal_path))
        if _finished_on(events, hardware.device, hardware.name):
            memory = "reserved_bytes" if hardware.device == "cuda" else "process_bytes"
            peak_bytes = max((event.data.get(memory) or 0 for event in events if event.type == "gpu"), default=0)
            steps_s = [event.data["step_s"] for event in events if event.type == "step" and event.data.get("step_s")]
            return Measured(
                peak_bytes if 0 < peak_bytes <= hardware.free_bytes else None,
                statistics.median(steps_s) if steps_s else None,
                _other_s(events),
            )
    return Measured()


def time_of(
    spec: RunSpec,
    hardware: Hardware,
    card: ModelCard,
    found: Measured,
    num_rows: int | None,
    row_tokens: float | None,
) -> Time:
    """Return how long a run takes, by itself or by another run that is alike.

    Args:
        spec: the run.
        hardware: the device that it will use.
        card: of its model.
        found: what was measured of these settings.
        num_rows: rows of the data, if known.
        row_tokens: their tokens on average, if known.
    """
    if found.step_s:
        return Time(found.step_s, found.other_s)
    pace = pace_of(spec, hardware, card, row_tokens)
    return Time(pace.step_s(spec, num_rows, row_tokens), pace.other_s, pace.run) if pace else Time()


def pace_of(spec: RunSpec, hardware: Hardware, card: ModelCard, row_tokens: float | None) -> Pace | None:
    """Return the pace of the newest finished run on this device that is alike. Called on worker threads.

    Alike is one whose settings, work for each token and tokens of a micro-batch make it about as fast: see `NEAR`.
    Where nobody has counted the tokens of the rows, it must have trained the same data.
    """
    for run in reversed(list(iter_runs())):
        try:
            other = run.load_spec()
        except TunesmithError:
            continue
        if _method(other, card) != _method(spec, card) or not _is_near(_work(other, card), _work(spec, card)):
            continue
        if row_tokens is None and other.data != spec.data:
            continue
        with contextlib.suppress(OSError):
            size = run.journal_path.stat().st_size
            told = _told_pace(run.journal_path, size, _rows_per_step(other), hardware.device, hardware.name)
            if told is not None:
                pace = Pace(other.name or run.id, *told)
                if _is_near(
                    other.schedule.micro_batch_size * pace.row_tokens,
                    spec.schedule.micro_batch_size * (row_tokens or pace.row_tokens),
                ):
                    return pace
    return None


def _is_near(one: float, other: float) -> bool:
    return max(one, other) <= NEAR * min(one, other)


@lru_cache(maxsize=64)
def _told_pace(
    journal: Path, _num_bytes: int, rows_per_step: int, device: str, name: str
) -> tuple[float, float, float] | None:
    """Return tokens per second, tokens per row and the time beside updates by the journal of a finished run.

    It is read once for each size.
    """
    events = list(read_journal(journal))
    steps = [event.data for event in events if event.type == "step"]
    rates = [step["tokens_per_s"] for step in steps if step.get("tokens_per_s")]
    num_tokens = max((step.get("tokens") or 0 for step in steps), default=0)
    if not rates or not num_tokens or not _finished_on(events, device, name):
        return None
    rows = min(_rows_of(events) or math.inf, rows_per_step) * len(steps)
    return statistics.median(rates), num_tokens / rows, _other_s(events)


def _other_s(events: list[Event]) -> float:
    """Return the seconds since a run was last started that no update took."""
    other_s = 0.0
    for event in events:
        if event.type == "hello":
            other_s = 0.0
        elif event.type == "step":
            other_s -= event.data.get("step_s") or 0.0
        elif event.type == "result":
            other_s += event.data.get("seconds") or 0.0
    return max(0.0, other_s)


def _method(spec: RunSpec, card: ModelCard) -> tuple[object, ...]:
    """What decides how fast a token is trained, beside the size of an adapter and of the batches."""
    objective, hardware = spec.objective, spec.hardware
    model = spec.model.path, spec.model.dtype, spec.quantization.kind
    what = objective.kind, objective.reference
    how = hardware.system, hardware.kernels, hardware.fp8_weights, hardware.activation_checkpointing
    where = len(hardware.devices), hardware.cpu_threads
    written = spec.rollouts if objective.kind in REINFORCEMENT else None
    taught = spec.teacher if objective.kind in DISTILLATION else None
    return *model, *what, *how, *where, written, taught, *_trained(spec, card)


def _trained(spec: RunSpec, card: ModelCard) -> tuple[object, ...]:
    """What of that which is trained costs time, whatever its size."""
    adapter = spec.adapter
    if adapter.kind == FULL:
        return adapter.kind, adapter.parts, adapter.weights, spec.optimizer.name
    # Experts compute with adapters of their own in another way.
    experts = (adapter.target_modules, adapts_experts(adapter)) if card.expert_shapes else ()
    beside = adapter.bias, adapter.embeddings, adapter.modules_to_save
    return adapter.kind, adapter.layers, adapter.dora, adapter.dropout > 0, *beside, experts


def _work(spec: RunSpec, card: ModelCard) -> float:
    """Return how much work a token is, in frozen weights; of full fine-tuning what is trained tells it."""
    adapter = 0 if spec.adapter.kind == FULL else num_adapter_parameters(spec, card)
    return card.num_parameters + ADAPTER_WORK * adapter


def _rows_per_step(spec: RunSpec) -> int:
    return spec.schedule.micro_batch_size * spec.schedule.gradient_accumulation_steps


def _rows_of(events: list[Event]) -> int:
    return max((event.data.get("num_train_rows") or 0 for event in events if event.type == "setup"), default=0)


def _is_of(run: Run, wanted: Mapping[str, Any], spec: RunSpec) -> bool:  # Any: JSON values
    try:
        is_newer = any(Path(each.path).expanduser().stat().st_mtime > run.created_at for each in spec.data.sources)
        return not is_newer and files.read_json(run.spec_path) | {"name": ""} == wanted
    except (OSError, ValueError, TypeError):
        return False


def _finished_on(events: list[Event], device: str, name: str) -> bool:
    hellos = [event.data for event in events if event.type == "hello"]
    is_here = all(
        str(hello.get("device")).startswith(device) and (device == "cpu" or hello.get("device_name") == name)
        for hello in hellos
    )
    return is_here and any(event.data.get("status") == "finished" for event in events if event.type == "result")
