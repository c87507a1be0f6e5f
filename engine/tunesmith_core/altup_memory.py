"""What several streams and what is beside attention take of memory: counted from the shapes of weights.

Symbols: d is the hidden size, N the number of streams, r the rank of Laurel; see `tunesmith_engine.altup_shapes`.
"""

from __future__ import annotations

from tunesmith_core.mixer_memory import OF_STREAMS
from tunesmith_core.model_cards import ModelCard

ROUTER_NUMBERS = 5
"""Of a token and each of its d, while coefficients run as they are written: a copy, its factor's product, gradients."""

_LAUREL = ".laurel.linear_left.weight"


def num_streams(card: ModelCard) -> int:
    """Return how many streams pass between layers; 1 for most models."""
    return max((rows for name, (rows, _) in card.linear_shapes.items() if name.endswith(OF_STREAMS)), default=1)


def beside(card: ModelCard, extra: int) -> int:
    """Return the numbers of a token beside the layers' own: streams, their gradients, coefficients, what is embedded.

    Args:
        card: of the model.
        extra: columns of the adapters.
    """
    number, d = num_streams(card), card.hidden_size
    return 0 if number == 1 else 2 * number * d + 2 * (number * number + number) + d + extra


def block(card: ModelCard, extra: int) -> int:
    """Return the numbers of a token in the place that all blocks share: Laurel's, or those at the streams' ends."""
    if num_streams(card) == 1:
        return 0
    rank = max((rows for name, (rows, _) in card.linear_shapes.items() if name.endswith(_LAUREL)), default=0)
    return max(2 * (rank + extra) + 2 * card.hidden_size + extra, 3 * (card.hidden_size + extra))


def tile_bytes(card: ModelCard, size: int) -> int:
    """Return the bytes of a token of an MLP's tile: gates that are cut, and which of them are below."""
    return card.intermediate_size * (size + 1) if num_streams(card) > 1 else 0


def passing_bytes(card: ModelCard, size: int) -> int:
    """Return the bytes of a token that coefficients take while they are computed."""
    return ROUTER_NUMBERS * card.hidden_size * size if num_streams(card) > 1 else 0
