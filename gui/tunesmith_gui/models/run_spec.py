"""What the window does with the spec of a run: values as a person reads them, specs for another try."""

from __future__ import annotations

import copy

from tunesmith_core.spec import RunSpec

_CONTEXT_STEP_TOKENS = 64
_SHORTEST_CONTEXT_TOKENS = 128
_LOWER_RATE = 3


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
        other.hardware.devices = ["cpu"]
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
