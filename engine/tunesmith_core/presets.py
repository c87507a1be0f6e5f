"""Presets: named sets of settings that go together, and what a memory size asks for.

A preset changes only what it names and leaves model, data and everything else to the person.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tunesmith_core import objectives
from tunesmith_core.hardware import Hardware
from tunesmith_core.model_cards import ModelCard
from tunesmith_core.planner import plan
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_changes import with_changes
from tunesmith_core.trained_parts import FULL, LEARNING_RATE_DIVISOR, LORA

DEFAULT = "balanced"
LEARNING_RATE, EMBEDDING_RATE = "optimizer.learning_rate", "optimizer.embedding_rate"
EFFECTIVE_BATCH_SIZE = 8

Changes = Mapping[str, Any]  # Any: values of settings

PRESETS: dict[str, Changes] = {
    "balanced": {
        "adapter.rank": 16,
        "adapter.alpha": 32.0,
        "optimizer.learning_rate": 2e-4,
        "optimizer.embedding_rate": 0.2,
        "schedule.epochs": 3.0,
        "schedule.max_steps": 0,
        "schedule.scheduler": "linear",
    },
    "fast-try": {
        "adapter.rank": 8,
        "adapter.alpha": 16.0,
        "optimizer.learning_rate": 3e-4,
        "optimizer.embedding_rate": 0.2,
        "schedule.epochs": 1.0,
        "schedule.max_steps": 60,
        "schedule.scheduler": "linear",
    },
    "best-quality": {
        "adapter.rank": 64,
        "adapter.alpha": 64.0,
        "optimizer.learning_rate": 1e-4,
        "optimizer.embedding_rate": 0.2,
        "schedule.epochs": 3.0,
        "schedule.max_steps": 0,
        "schedule.scheduler": "cosine",
    },
}
"""What presets are for SFT; each sets the same settings, so that going from one to another leaves nothing behind."""

DOCUMENTS: Changes = {"data.train_on": "all", "data.overlong": "split"}
"""What continued pretraining sets beside a preset: SFT on texts; every token is learned, and none is cut off."""

DOCUMENTS_DIVISOR = 2
"""By how much the learning rate of reading documents is smaller than that of SFT: 1e-4. Unsloth's notebooks for
continued pretraining take 5e-5, and "LoRA Learns Less and Forgets Less" (Biderman et al. 2024, arXiv:2405.09673) found
2e-4 best for much more text."""

DOCUMENTS_EMBEDDING_RATE = 0.1
"""So that embeddings learn at 1e-5, as in the same notebooks."""

READING, WHOLE = "documents", "full"
METHODS = (*objectives.names(), READING, WHOLE)
"""What presets are told for: the objectives, reading documents, and full fine-tuning."""


def _rung(kind: str, micro_batch_size: int, context_length: int, checkpointing: bool, optimizer: str) -> Changes:
    return {
        "quantization.kind": kind,
        "schedule.micro_batch_size": micro_batch_size,
        "schedule.gradient_accumulation_steps": EFFECTIVE_BATCH_SIZE // micro_batch_size,
        "data.context_length": context_length,
        "hardware.activation_checkpointing": checkpointing,
        "optimizer.name": optimizer,
    }


MEMORY_LADDER: dict[int, Changes] = {
    96: _rung("none", 4, 2048, False, "adamw"),
    24: _rung("none", 1, 2048, True, "adamw"),
    16: _rung("nf4", 2, 2048, True, "adamw"),
    12: _rung("nf4", 1, 2048, True, "adamw"),
    8: _rung("nf4", 1, 512, True, "adamw_8bit"),
}
"""Settings that spare memory by the GiB of the card on which a model of 8 billion parameters gets along with them, from
the most generous to the most sparing. Smaller models get along with more generous ones."""


def _full_rung(micro_batch_size: int, context_length: int, optimizer: str, weights: str) -> Changes:
    checkpointing = micro_batch_size == 1
    return {
        **_rung("none", micro_batch_size, context_length, checkpointing, optimizer),
        "adapter.weights": weights,
    }


FULL_LADDER = (
    _full_rung(4, 2048, "adamw", "float32"),
    _full_rung(1, 2048, "adamw", "float32"),
    _full_rung(1, 2048, "adamw_8bit", "bfloat16"),
    _full_rung(1, 512, "adamw_8bit", "bfloat16"),
)
"""The same for full fine-tuning, from the most generous settings to the most sparing ones."""


def changes_for(objective: str, preset: str, adapter: str = LORA, *, reads: bool = False) -> Changes:
    """Return what a preset sets for an objective and what is trained. Raises KeyError for an unknown preset.

    Args:
        objective: a key of `objective.kind`.
        preset: a key of PRESETS.
        adapter: what is trained.
        reads: whether documents are read.
    """
    changes = PRESETS[preset]
    rate = changes[LEARNING_RATE] / objectives.LEARNING_RATE_DIVISORS.get(objective, 1)
    rate /= (LEARNING_RATE_DIVISOR if adapter == FULL else 1) * (DOCUMENTS_DIVISOR if reads else 1)
    more = {EMBEDDING_RATE: DOCUMENTS_EMBEDDING_RATE} if reads else {}
    return {**changes, LEARNING_RATE: float(f"{rate:.6g}"), **more}


def changes_of_method(method: str, preset: str) -> Changes:
    """Return what a preset sets for one of METHODS, with what makes a run of it."""
    if method == READING:
        return {**DOCUMENTS, **changes_for("sft", preset, reads=True)}
    if method == WHOLE:
        return {"adapter.kind": FULL, **changes_for("sft", preset, FULL)}
    return {"objective.kind": method, **changes_for(method, preset)}


def reads_documents(spec: RunSpec) -> bool:
    """Return whether a spec continues pretraining on documents."""
    values = spec.to_dict()
    return spec.objective.kind == "sft" and all(_value(values, path) == value for path, value in DOCUMENTS.items())


def apply(spec: RunSpec, preset: str) -> RunSpec:
    """Return a copy of a spec with a preset's settings for its objective.

    Raises:
        KeyError: for a name that is not in PRESETS.
    """
    changes = changes_for(spec.objective.kind, preset, spec.adapter.kind, reads=reads_documents(spec))
    return with_changes(spec, changes)


def matching(spec: RunSpec) -> str | None:
    """Return the name of the preset whose settings a spec has, None when it has none's."""
    values = spec.to_dict()
    for name in PRESETS:
        changes = changes_for(spec.objective.kind, name, spec.adapter.kind, reads=reads_documents(spec))
        if all(_value(values, path) == value for path, value in changes.items()):
            return name
    return None


def _value(values: Mapping[str, Any], path: str) -> object:
    section, _, name = path.partition(".")
    value: object = values[section][name]
    return value


def suggest(card: ModelCard, hardware: Hardware, spec: RunSpec | None = None) -> Changes:
    """Return the memory settings for a model on a device: the most generous rung that fits its free memory.

    Where none fits, the most sparing rung is returned; the plan then says by how much it exceeds.
    """
    base = spec or RunSpec()
    ladder = FULL_LADDER if base.adapter.kind == FULL else tuple(MEMORY_LADDER.values())
    for changes in ladder:
        changed = with_changes(base, changes)
        if plan(changed, hardware, card=card).verdict == "fits":
            return changes
    return changes
