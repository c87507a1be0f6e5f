"""What is trained whole beside an adapter, counted from the names and shapes of a model's files."""

from __future__ import annotations

import math

from tunesmith_core.full_memory import ROUNDED_NUMBERS
from tunesmith_core.model_cards import ModelCard
from tunesmith_core.objectives import HEADS
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import ALL_EMBEDDINGS, NEW_EMBEDDINGS
from tunesmith_core.spec_words import trained_embeddings, trained_modules
from tunesmith_core.trained_parts import FULL


def num_saved(spec: RunSpec, card: ModelCard) -> int:
    """Return how many numbers are trained whole beside the adapter."""
    if spec.adapter.kind == FULL or spec.objective.kind in HEADS:
        return 0
    rows = {
        ALL_EMBEDDINGS: card.vocab_size + len(spec.model.new_tokens),
        NEW_EMBEDDINGS: len(spec.model.new_tokens),
    }.get(trained_embeddings(spec), 0)
    tables = rows * card.hidden_size * (1 if card.tied else 2)
    named = (shape for name, shape in card.shapes.items() if _is_named(name, trained_modules(spec)))
    return tables + sum(map(math.prod, named))


def saved_bytes(spec: RunSpec, card: ModelCard, size: int, optimizer_bytes: int, *, fused: bool) -> int:
    """Return the memory of it: weights and gradients in 32 bits, states, and a copy that products read.

    Args:
        size: bytes of a number that is calculated with.
        optimizer_bytes: of the states of a weight.
        fused: whether it runs on the fused path; else a table's gradient exists once more in each format.
    """
    number = num_saved(spec, card)
    if not number:
        return 0
    copy_bytes = size if fused or size < 4 else 0
    largest = number if card.tied else number // 2
    transient = min(ROUNDED_NUMBERS, largest) * size if fused else largest * (size + 4)
    return number * (4 + 4 + optimizer_bytes + copy_bytes) + transient


def _is_named(tensor: str, names: list[str]) -> bool:
    module = tensor.rpartition(".")[0]
    return any(module == name or module.endswith(f".{name}") for name in names)
