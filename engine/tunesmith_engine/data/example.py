"""A training example: token ids and labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

IGNORED_LABEL = -100
"""Label of tokens that do not count for the loss, as PyTorch's cross-entropy has it."""


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """One row as the model will see it.

    Attributes:
        input_ids: int32 of shape [num_tokens].
        labels: int32 of shape [num_tokens]: the token where it counts for the loss, -100 elsewhere; not shifted.
    """

    input_ids: NDArray[np.int32]
    labels: NDArray[np.int32]

    @property
    def num_trained_tokens(self) -> int:
        """Number of tokens that count for the loss; nothing predicts the first token, so it never does."""
        return int(np.count_nonzero(self.labels[1:] != IGNORED_LABEL))
