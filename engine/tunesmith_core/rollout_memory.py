"""How much memory the answers of a round take, which the training leaves free for them."""

from __future__ import annotations

from tunesmith_core.model_cards import ModelCard
from tunesmith_core.remembered import remembered_bytes

MOST_ROWS = 128
"""That are answered at once where there is room: a step of decoding takes hardly longer for them than for a few."""

MOST_SHARE = 0.6
"""Of the free memory for the answers; the rest is for the training."""

BYTES_PER_LOGIT = 16
"""Of a row's logits in 16 bits, and in float32 as scores, shares and drawn numbers, see the engine's `choose`."""


def bytes_per_row(remembered_bytes: int, vocab_size: int) -> int:
    """Return what one answer takes while it is written.

    Args:
        remembered_bytes: what all layers remember of its tokens.
        vocab_size: tokens that there are.
    """
    return remembered_bytes + vocab_size * BYTES_PER_LOGIT


def bytes_of_card(card: ModelCard, num_tokens: int, bytes_per_value: int) -> int:
    """Return the same of a model that is not loaded.

    Args:
        card: of the model.
        num_tokens: of prompt and answer.
        bytes_per_value: of the run's number format.
    """
    return bytes_per_row(remembered_bytes(card, num_tokens, bytes_per_value), card.vocab_size)


def rows_at_once(row_bytes: int, free_bytes: int) -> int:
    """Return how many answers are written at once: a power of two, at least one."""
    rows = MOST_ROWS
    while rows > 1 and rows * row_bytes > MOST_SHARE * free_bytes:
        rows //= 2
    return rows


SCORED_ROWS = 4
"""Answers that a reward model reads at once."""

VALUES_PER_TOKEN = 12
"""Times the hidden size: what a layer holds of a token at once without gradients."""


def scoring_bytes(card: ModelCard, num_tokens: int, bytes_per_value: int) -> int:
    """Return what a reward model takes beside its weights while it scores.

    Args:
        card: of the reward model.
        num_tokens: of prompt and answer.
        bytes_per_value: of the run's number format.
    """
    return SCORED_ROWS * num_tokens * VALUES_PER_TOKEN * card.hidden_size * bytes_per_value
