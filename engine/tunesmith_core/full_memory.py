"""What full fine-tuning on the fused path takes of a GPU's memory beside activations, counted from a model's files.

The engine counts the same from the model itself (`tunesmith_engine.fused`); a test holds the two together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tunesmith_core.fused_memory import products_of
from tunesmith_core.model_cards import ModelCard
from tunesmith_core.spec import RunSpec
from tunesmith_core.trained_parts import EMBEDDINGS, OPTIMIZERS_OF_FULL, TRANSIENT_NUMBERS, is_chosen, state_bytes

ROUNDED_NUMBERS = 1 << 24
"""Numbers of a product in 16 bits that are at a time added to gradients in 32 bits."""

Shapes = Mapping[str, Sequence[int]]


def goes_by_layer(spec: RunSpec) -> bool:
    """Return whether each layer's gradients are applied as soon as they are there, so that they never exist whole.

    Clipping needs the norm of all gradients first, and further micro-batches add to all of them.
    """
    return not spec.optimizer.max_grad_norm and spec.schedule.gradient_accumulation_steps == 1


def weight_bytes(spec: RunSpec, card: ModelCard, number: int, size: int, embedding_on_host: bool) -> int:
    """Return the memory of all weights.

    Args:
        spec: of the run.
        card: of the model.
        number: bytes of a number of a weight.
        size: bytes of a number that is calculated with; two products are rounded at a time where that is less.
        embedding_on_host: an embedding that is neither trained nor the head lies in the computer's memory.
    """
    total = card.num_parameters * number
    if embedding_on_host and not (card.tied or is_chosen("model.embed_tokens.weight", (1, 1), spec.adapter.parts)):
        total -= card.vocab_size * card.hidden_size * number
    if number == size:
        return total
    sizes = {"lm_head": card.vocab_size * card.hidden_size}
    for name, rows, columns in products_of(card):
        sizes[name] = max(sizes.get(name, 0), rows * columns)
    behind = {name: sizes.pop(name) for name in ("o_proj", "down_proj") if name in sizes}
    return total + (max(sizes.values()) + max(behind.values(), default=0)) * size


def training_bytes(spec: RunSpec, card: ModelCard, trained: Shapes, number: int, size: int) -> int:
    """Return the memory of gradients and of the optimizer; `number` and `size` as in `weight_bytes`."""
    at_once = _numbers_at_once(trained, card.tied)
    numbers = at_once if goes_by_layer(spec) else sum(map(math.prod, trained.values()))
    beside = min(ROUNDED_NUMBERS, at_once) * size if number != size else 0
    transient = 0
    if spec.optimizer.name in OPTIMIZERS_OF_FULL:
        # These update a matrix as a whole.
        transient = 4 * TRANSIENT_NUMBERS * max(map(math.prod, trained.values()), default=0)
    return numbers * number + beside + state_bytes(spec.optimizer.name, trained) + transient


def _numbers_at_once(trained: Shapes, tied: bool) -> int:
    """Return the numbers of the gradients of one layer, of the head or of the embedding, whichever has most.

    A head that is the embedding has its gradient beside those of every layer.
    """
    groups: dict[str, int] = {}
    kept = 0
    for name, shape in trained.items():
        layer = next((piece for piece in name.split(".") if piece.isdigit()), "")
        if not layer and is_chosen(name, shape, [EMBEDDINGS]) and (tied or "embed" in name):
            if tied:
                kept = max(kept, math.prod(shape))
                continue
            layer = EMBEDDINGS
        groups[layer] = groups.get(layer, 0) + math.prod(shape)
    return kept + max(groups.values(), default=0)
