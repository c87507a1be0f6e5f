"""What the page of runs decides without widgets: differing settings, the CSV of a selection, specs for another try."""

from __future__ import annotations

import copy
import csv
import datetime
import io
from collections.abc import Sequence
from typing import NamedTuple

from tunesmith_core.spec import RunSpec, iter_settings
from tunesmith_gui.models.run_table import RunRow

STATE_GROUPS = ("all", "live", "finished", "stopped", "failed")
"""The chips above the table; "stopped" holds the interrupted runs too."""

_CONTEXT_STEP_TOKENS = 64
_SHORTEST_CONTEXT_TOKENS = 128
_LOWER_RATE = 3


class SettingDifference(NamedTuple):
    """A setting that is not the same in all compared runs; `values` in the order of the runs."""

    path: str
    label: str
    values: tuple[str, ...]


def value_text(value: object) -> str:
    """A setting's value as a person reads it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, (list, tuple)):
        return ", ".join(str(each) for each in value)
    if isinstance(value, dict):
        return ", ".join(f"{key}: {each}" for key, each in value.items())
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def differing_settings(specs: Sequence[RunSpec]) -> list[SettingDifference]:
    """The settings that differ between specs, in the order of the forms."""
    found = []
    for setting in iter_settings():
        values = [setting.get(spec) for spec in specs]
        if any(value != values[0] for value in values):
            texts = tuple(value_text(value) for value in values)
            found.append(SettingDifference(setting.path, setting.declaration.label, texts))
    return found


def runs_csv(rows: Sequence[RunRow]) -> str:
    """The rows as CSV with a header; times in ISO 8601, sizes in bytes."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["id", "name", "state", "model", "data", "step", "best_eval_loss", "duration_s", "created", "size_bytes"]
    )
    for row in rows:
        created = datetime.datetime.fromtimestamp(row.created_at, datetime.UTC).isoformat(timespec="seconds")
        values = [row.id, row.name, row.state.value, row.model, row.data, row.step, row.best_eval_loss]
        writer.writerow([_inert(value) for value in [*values, row.duration_s, created, row.size_bytes]])
    return out.getvalue()


def _inert(value: object) -> object:
    # A spreadsheet runs a text that starts like a formula; a name comes from outside.
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value


class RunContents(NamedTuple):
    """What a deletion takes."""

    num_checkpoints: int
    num_adapters: int
    size_bytes: int


def contents_of(rows: Sequence[RunRow]) -> RunContents:
    """Look into the folders of runs; call it on a worker thread."""
    num_checkpoints = sum(1 for row in rows for _ in (row.path / "checkpoints").glob("step-*"))
    num_adapters = sum((row.path / "adapter").is_dir() for row in rows)
    return RunContents(num_checkpoints, num_adapters, sum(row.size_bytes for row in rows))


def duplicate_spec(spec: RunSpec) -> RunSpec:
    """A copy to start another run from, under a name that is made anew."""
    other = copy.deepcopy(spec)
    other.name = ""
    return other


def micro_batch_one_spec(spec: RunSpec) -> RunSpec | None:
    """A duplicate with micro-batches of one example and the same effective batch size; None when it has them."""
    schedule = spec.schedule
    if schedule.micro_batch_size <= 1:
        return None
    other = duplicate_spec(spec)
    other.schedule.gradient_accumulation_steps = schedule.gradient_accumulation_steps * schedule.micro_batch_size
    other.schedule.micro_batch_size = 1
    return other


def shorter_context_spec(spec: RunSpec) -> RunSpec | None:
    """A duplicate with 3/4 of the context length in whole steps of 64 tokens; None when it is short already."""
    shorter = spec.data.context_length * 3 // 4 // _CONTEXT_STEP_TOKENS * _CONTEXT_STEP_TOKENS
    if shorter < _SHORTEST_CONTEXT_TOKENS:
        return None
    other = duplicate_spec(spec)
    other.data.context_length = shorter
    return other


def checkpointing_spec(spec: RunSpec) -> RunSpec | None:
    """A duplicate with activation checkpointing; None when it is on already."""
    if spec.hardware.activation_checkpointing:
        return None
    other = duplicate_spec(spec)
    other.hardware.activation_checkpointing = True
    return other


def fixed_spec(spec: RunSpec, action: str) -> RunSpec:
    """A duplicate that does what an action of the diagnosis names, as far as a setting can; else a plain one."""
    other = duplicate_spec(spec)
    if action == "use-cpu":
        other.hardware.device = "cpu"
    elif action == "use-pytorch-kernels":
        other.hardware.kernels = False
    elif action == "lower-learning-rate":
        other.optimizer.learning_rate = spec.optimizer.learning_rate / _LOWER_RATE
    return other


def retry_specs(spec: RunSpec) -> dict[str, RunSpec]:
    """What to try after the GPU memory was full, by action id: retry_small, retry_shorter, retry_checkpointing."""
    tries = {
        "retry_small": micro_batch_one_spec(spec),
        "retry_shorter": shorter_context_spec(spec),
        "retry_checkpointing": checkpointing_spec(spec),
    }
    return {action: each for action, each in tries.items() if each is not None}
