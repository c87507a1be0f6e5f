"""How much memory the answers of a round take, which the training leaves free for them."""

from __future__ import annotations

from tunesmith_engine.shapes import ModelShape

MOST_ROWS = 128
"""That are answered at once where there is room: a step of decoding takes hardly longer for them than for a few."""

MOST_SHARE = 0.4
"""Of the free memory for the answers; the rest is for the training."""

BYTES_PER_LOGIT = 16
"""Of a row's logits in 16 bits, and in float32 as scores, shares and drawn numbers, see `decode.choose`."""


def bytes_per_row(shape: ModelShape, num_tokens: int, bytes_per_value: int) -> int:
    """Return what one answer takes while it is written.

    Args:
        shape: of the model.
        num_tokens: of prompt and answer.
        bytes_per_value: of the run's number format.
    """
    attention = [layer.attention for layer in shape.layers]
    values = sum(2 * each.num_key_value_heads * each.head_dim * num_tokens for each in attention)
    return values * bytes_per_value + shape.embedding.num_embeddings * BYTES_PER_LOGIT


def rows_at_once(row_bytes: int, free_bytes: int) -> int:
    """Return how many answers are written at once: a power of two, at least one."""
    rows = MOST_ROWS
    while rows > 1 and rows * row_bytes > MOST_SHARE * free_bytes:
        rows //= 2
    return rows
