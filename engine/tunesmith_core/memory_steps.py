"""Ways to use less memory, least harm first, for the planner, for a retry and for an engine that ran out of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tunesmith_core.messages import Message
from tunesmith_core.objectives import DISTILLATION
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_changes import with_changes
from tunesmith_core.trained_parts import FULL, LEARNING_RATE_DIVISOR, LORA, matters

SHORTEST_CONTEXT_TOKENS = 256
CONTEXT_MULTIPLE = 64
SMALLEST_RANK = 4

Changes = Mapping[str, Any]  # Any: values of settings


@dataclass(frozen=True, slots=True)
class MemoryStep:
    """One way to use less memory.

    Attributes:
        name: for programs.
        words: what is used after it, as a template with the step's first changed value; follows "use" or "retry with".
        changes: setting path such as "data.context_length" to its new value; empty when nothing is left to take.
        by_engine: whether a run out of memory may take it without asking, because it learns the same either way.
    """

    name: str
    words: str
    changes: Callable[[RunSpec], Changes]
    by_engine: bool = False

    def label(self, changes: Changes) -> Message:
        """Return the words for these changes."""
        return Message(self.words, value=next(iter(changes.values())))

    def take(self, spec: RunSpec) -> RunSpec | None:
        """Return a copy of a spec after this step; None when nothing is left to take."""
        changes = self.changes(spec)
        return with_changes(spec, changes) if changes else None


def _micro_batches_of_one(spec: RunSpec) -> Changes:
    schedule = spec.schedule
    if schedule.micro_batch_size <= 1:
        return {}
    rows = schedule.micro_batch_size * schedule.gradient_accumulation_steps
    return {"schedule.micro_batch_size": 1, "schedule.gradient_accumulation_steps": rows}


def _activation_checkpointing(spec: RunSpec) -> Changes:
    return {} if spec.hardware.activation_checkpointing else {"hardware.activation_checkpointing": True}


def _shorter_context(spec: RunSpec) -> Changes:
    shorter = spec.data.context_length * 3 // 4 // CONTEXT_MULTIPLE * CONTEXT_MULTIPLE
    return {"data.context_length": shorter} if shorter >= SHORTEST_CONTEXT_TOKENS else {}


def _four_bit_base(spec: RunSpec) -> Changes:
    # Four bits need a GPU.
    possible = matters(spec.adapter.kind, "quantization.kind") and spec.adapter.initial_values != "orthogonal"
    possible = possible and spec.quantization.kind != "nf4" and spec.hardware.devices != ["cpu"]
    return {"quantization.kind": "nf4"} if possible else {}


def _four_bit_teacher(spec: RunSpec) -> Changes:
    possible = spec.objective.kind in DISTILLATION and spec.teacher.weights != "nf4"
    return {"teacher.weights": "nf4"} if possible and spec.hardware.devices != ["cpu"] else {}


def _lower_rank(spec: RunSpec) -> Changes:
    lower = max(SMALLEST_RANK, spec.adapter.rank // 2)
    has_rank = matters(spec.adapter.kind, "adapter.rank")
    return {"adapter.rank": lower} if has_rank and lower < spec.adapter.rank else {}


def _eight_bit_states(spec: RunSpec) -> Changes:
    is_large = spec.adapter.kind == FULL and spec.optimizer.name == "adamw"
    return {"optimizer.name": "adamw_8bit"} if is_large else {}


def _layer_by_layer(spec: RunSpec) -> Changes:
    possible = spec.adapter.kind == FULL and spec.hardware.kernels and spec.schedule.gradient_accumulation_steps == 1
    return {"optimizer.max_grad_norm": 0.0} if possible and spec.optimizer.max_grad_norm else {}


def _bfloat16_weights(spec: RunSpec) -> Changes:
    is_large = spec.adapter.kind == FULL and spec.adapter.weights == "float32"
    possible = is_large and spec.model.dtype in ("auto", "bfloat16")
    return {"adapter.weights": "bfloat16"} if possible else {}


def _adapter_instead(spec: RunSpec) -> Changes:
    if spec.adapter.kind != FULL:
        return {}
    rate = float(f"{min(1.0, spec.optimizer.learning_rate * LEARNING_RATE_DIVISOR):.6g}")
    other = {} if spec.optimizer.name.startswith("adamw") else {"optimizer.name": "adamw"}
    return {"adapter.kind": LORA, "optimizer.learning_rate": rate, **other}


MICRO_BATCH = MemoryStep("micro-batch", "micro-batches of {value}", _micro_batches_of_one, by_engine=True)
FEWER_ACTIVATIONS = MemoryStep(
    "activation-checkpointing", "activation checkpointing", _activation_checkpointing, by_engine=True
)

MEMORY_STEPS = (
    MICRO_BATCH,
    FEWER_ACTIVATIONS,
    MemoryStep("eight-bit-states", "AdamW with 8-bit states", _eight_bit_states),
    MemoryStep("layer-by-layer", "no gradient clipping, with updates layer by layer", _layer_by_layer),
    MemoryStep("bfloat16-weights", "trained weights in bfloat16", _bfloat16_weights),
    MemoryStep("four-bit-teacher", "a 4-bit teacher", _four_bit_teacher),
    MemoryStep("context", "{value:,} tokens", _shorter_context),
    MemoryStep("four-bit", "a 4-bit base (QLoRA)", _four_bit_base),
    MemoryStep("rank", "rank {value}", _lower_rank),
    MemoryStep("adapter", "LoRA instead of full fine-tuning", _adapter_instead),
)
"""Least harm first: the first two only take time, then examples are cut, then weights rounded, then less is learned."""


def steps_left(spec: RunSpec) -> list[MemoryStep]:
    """Return the steps that still change a spec."""
    return [step for step in MEMORY_STEPS if step.changes(spec)]
