"""Full fine-tuning: which weights of a model are trained, told by their names and shapes, and what that takes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tunesmith_core.adapter_kinds import KINDS
from tunesmith_core.adapter_shapes import NO_LAYER

LORA, FULL = "lora", "full"
"""What is trained: an adapter beside the model, or the model's own weights."""

ALL, EMBEDDINGS, NORMS, LAYERS = "all", "embeddings", "norms", "layers"

OF_FULL = frozenset({"adapter.parts", "adapter.weights"})
OF_LORA = frozenset(
    {
        *("quantization.kind", "hardware.kernels", "hardware.fp8_weights"),
        *("optimizer.lora_plus_ratio", "optimizer.embedding_rate"),
    }
)
"""Settings that matter for one of both only, beside all others of the section "adapter", which are for LoRA."""

OPTIMIZERS_OF_FULL = frozenset({"adafactor", "muon"})

OBJECTIVES = frozenset({"cpo", "kd", "orpo", "sft", "simpo"})
"""What full fine-tuning can train for: objectives that compare nothing with the base model, which it changes."""

LEARNING_RATE_DIVISOR = 10
"""By how much the learning rate of full fine-tuning is smaller than LoRA's: 2e-5, as Alpaca (Taori et al. 2023) and
Tulu 2 (Ivison et al. 2023, arXiv:2311.10702) took. "LoRA Without Regret" (Schulman 2025) measured the factor 10."""

BLOCK_BYTES = 4 / 256
"""Of the scale that a block of 8-bit states has, for each weight."""

TRANSIENT_WEIGHTS = 1 << 22
"""So many weights are updated at once, in 32 bits."""

TRANSIENT_NUMBERS = 8
"""Numbers of 32 bits beside each of these."""


def matters(adapter: str, path: str) -> bool:
    """Return whether a setting of a dotted path has an effect with an `adapter.kind`."""
    if path == "adapter.kind":
        return True
    if adapter == FULL:
        return path in OF_FULL or not (path.startswith("adapter.") or path in OF_LORA)
    if path in OF_FULL or adapter not in KINDS:
        return path not in OF_FULL
    section, _, name = path.partition(".")
    if section == "adapter":
        return name in KINDS[adapter].settings | {"target_modules"}
    return path not in OF_LORA or (path == "quantization.kind" and KINDS[adapter].takes_quantized)


def is_chosen(name: str, shape: Sequence[int], parts: str | Sequence[str]) -> bool:
    """Return whether a weight is trained.

    Args:
        name: as in the model's files, such as model.layers.3.mlp.up_proj.weight.
        shape: of it.
        parts: "all", or some of "embeddings" (with the head), "norms", "layers" (everything else), numbers of layers as
            3 or 0-7, and names of modules such as up_proj.
    """
    return parts == ALL or any(_is_in(name, shape, part.strip()) for part in parts)


def _is_in(name: str, shape: Sequence[int], part: str) -> bool:
    pieces = name.split(".")
    if part in (EMBEDDINGS, NORMS, LAYERS):
        return _kind_of(name, shape) == part
    if is_named(part):
        return part in pieces
    first, _, last = part.partition("-")
    number = next((int(piece) for piece in pieces if piece.isdigit()), -1)
    return int(first) <= number <= int(last or first)


def is_named(part: str) -> bool:
    """Return whether a part of a model is the name of a module, and no kind of weights and no number of a layer."""
    first, dash, last = part.strip().partition("-")
    is_number = first.isdigit() and (last.isdigit() if dash else not last)
    return not is_number and part.strip() not in (EMBEDDINGS, NORMS, LAYERS)


def _kind_of(name: str, shape: Sequence[int]) -> str:
    if any(part in name for part in NO_LAYER):
        return EMBEDDINGS
    return NORMS if len(shape) == 1 and not name.endswith("bias") else LAYERS


def state_bytes(optimizer: str, shapes: Mapping[str, Sequence[int]]) -> int:
    """Return the bytes of an optimizer's states of weights, by their names and shapes."""
    return round(sum(_states_of(optimizer, name, shape) for name, shape in shapes.items()))


def _states_of(optimizer: str, name: str, shape: Sequence[int]) -> float:
    size = math.prod(shape)
    match optimizer:
        case "adamw_8bit":
            return size * 2 * (1 + BLOCK_BYTES)
        case "adafactor":
            # One number a row and one a column.
            return 4 * (size / shape[-1] + size / shape[-2]) if len(shape) > 1 else 4 * size
        case "muon":
            return size * (4 if by_muon(name, shape) else 8)
        case _:
            return size * 8


def by_muon(name: str, shape: Sequence[int]) -> bool:
    """Return whether Muon updates a weight; AdamW does those that are no matrix, embeddings and heads."""
    return len(shape) == 2 and _kind_of(name, shape) == LAYERS
