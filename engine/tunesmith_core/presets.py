"""Presets: named sets of settings that go together, and what a memory size asks for.

A preset changes only what it names and leaves model, data and everything else to the person.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tunesmith_core.catalog import ModelCard
from tunesmith_core.hardware import Hardware
from tunesmith_core.planner import plan, with_changes
from tunesmith_core.spec import RunSpec

DEFAULT = "balanced"
CUSTOM = "custom"

Changes = Mapping[str, Any]  # Any: values of settings

PRESETS: dict[str, Changes] = {
    "balanced": {
        "method.rank": 16,
        "method.alpha": 32.0,
        "optimizer.learning_rate": 2e-4,
        "schedule.epochs": 3.0,
        "schedule.max_steps": 0,
        "schedule.scheduler": "linear",
    },
    "fast-try": {
        "method.rank": 8,
        "method.alpha": 16.0,
        "optimizer.learning_rate": 3e-4,
        "schedule.epochs": 1.0,
        "schedule.max_steps": 60,
        "schedule.scheduler": "linear",
    },
    "best-quality": {
        "method.rank": 64,
        "method.alpha": 64.0,
        "optimizer.learning_rate": 1e-4,
        "schedule.epochs": 3.0,
        "schedule.max_steps": 0,
        "schedule.scheduler": "cosine",
    },
}
"""Each preset sets the same settings, so that going from one to another leaves nothing behind."""

MEMORY_LADDER: tuple[tuple[str, Changes], ...] = (
    (
        "24 GB",
        {
            "method.kind": "lora",
            "schedule.micro_batch_size": 4,
            "schedule.gradient_accumulation_steps": 2,
            "data.context_length": 2048,
            "hardware.activation_checkpointing": False,
        },
    ),
    (
        "16 GB",
        {
            "method.kind": "lora",
            "schedule.micro_batch_size": 2,
            "schedule.gradient_accumulation_steps": 4,
            "data.context_length": 2048,
            "hardware.activation_checkpointing": True,
        },
    ),
    (
        "12 GB",
        {
            "method.kind": "qlora",
            "schedule.micro_batch_size": 2,
            "schedule.gradient_accumulation_steps": 4,
            "data.context_length": 2048,
            "hardware.activation_checkpointing": True,
        },
    ),
    (
        "8 GB",
        {
            "method.kind": "qlora",
            "schedule.micro_batch_size": 1,
            "schedule.gradient_accumulation_steps": 8,
            "data.context_length": 1024,
            "hardware.activation_checkpointing": True,
        },
    ),
)
"""Settings that spare memory, from the largest card to the smallest, named by the card they suit for a model of 8
billion parameters. The effective batch size is the same on every rung."""


def apply(spec: RunSpec, preset: str) -> RunSpec:
    """Return a copy of a spec with a preset's settings. Raises KeyError for a name that is not in PRESETS."""
    return with_changes(spec, PRESETS[preset])


def matching(spec: RunSpec) -> str:
    """Return the name of the preset whose settings a spec has, "custom" when it has none's."""
    values = spec.to_dict()
    for name, changes in PRESETS.items():
        if all(_value(values, path) == value for path, value in changes.items()):
            return name
    return CUSTOM


def _value(values: Mapping[str, Any], path: str) -> object:
    section, _, name = path.partition(".")
    value: object = values[section][name]
    return value


def suggest(card: ModelCard, hardware: Hardware, spec: RunSpec | None = None) -> Changes:
    """Return the memory settings for a model on a device: the most generous rung that fits its free memory.

    Where none fits, the most sparing rung is returned; the plan then says by how much it exceeds.
    """
    base = spec or RunSpec()
    for _name, changes in MEMORY_LADDER:
        changed = with_changes(base, changes)
        if plan(changed, hardware, card=card).verdict == "fits":
            return changes
    return MEMORY_LADDER[-1][1]
