"""How much memory a teacher takes beside the model that learns from it."""

from __future__ import annotations

import contextlib
from pathlib import Path

from tunesmith_core import expert_memory
from tunesmith_core.datafmt.stored import KEPT_TOKENS
from tunesmith_core.errors import TunesmithError
from tunesmith_core.fused_memory import NF4_BYTES, stacked_bytes
from tunesmith_core.model_cards import ModelCard, read_model_card
from tunesmith_core.model_folder import local_folder
from tunesmith_core.objectives import STORED
from tunesmith_core.spec import RunSpec

COMPARED_TOKENS = 256
"""Whose probabilities are compared at once."""

NUMBERS_PER_LOGIT = 8
"""In 32 bits of each token of the vocabulary while two predictions are compared: both as they are and as logarithms,
their mixture, the divergence and two gradients."""

LOGITS_KEPT = 3
"""In the run's number format, of every learned token: the student's, the teacher's and the gradient."""


SOFT_TARGET_BYTES = 12
"""Of a token that was found likely, at each learned token of a micro-batch: its number and its share."""


def soft_target_bytes(spec: RunSpec, tokens: int) -> int:
    """Return what the stored probabilities of a micro-batch take, 0 for runs that don't learn from them."""
    return (KEPT_TOKENS + 1) * SOFT_TARGET_BYTES * tokens if spec.objective.kind in STORED else 0


def parts(spec: RunSpec, card: ModelCard, size: int, tokens: int) -> dict[str, int]:
    """Return by name what a run takes for its teacher and for comparing with it.

    Args:
        spec: the run.
        card: of its base model.
        size: bytes of a number of its format.
        tokens: of a micro-batch.
    """
    logits = LOGITS_KEPT * size * tokens + 4 * NUMBERS_PER_LOGIT * min(tokens, COMPARED_TOKENS)
    found = {"logits": logits * card.vocab_size}
    teacher = _card(spec.teacher.path)
    if teacher is None:
        return found
    linear = teacher.num_linear_parameters
    # What it computes on the way is gone before the gradients come; a layer at a time is less than their activations.
    weights = (teacher.num_parameters - linear) * size
    if spec.teacher.weights == "nf4":
        # One matrix at a time is unpacked to be multiplied with.
        largest = max((rows * columns for rows, columns in teacher.linear_shapes.values()), default=0)
        packed, of_layer = expert_memory.stacked_numbers(teacher)
        weights += round(linear * NF4_BYTES + packed * (stacked_bytes(teacher) - size)) + max(largest, of_layer) * size
    else:
        weights += linear * size
    return {"teacher": weights, **found}


def _card(path: str) -> ModelCard | None:
    """Return the card of a teacher, None while there is none; what is wrong with it is said by `check_teacher`."""
    with contextlib.suppress(TunesmithError):
        folder = local_folder(path) if path.strip() else None
        return read_model_card(Path(folder)) if folder else None
    return None
