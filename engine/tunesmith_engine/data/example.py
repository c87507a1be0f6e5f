"""A training example: token ids and labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

IGNORED_LABEL = -100
"""Label of tokens that do not count for the loss, as PyTorch's cross-entropy has it."""

LEAST_SHARED = 1 / 16
"""Share of a pair's tokens that a common beginning must have. Less isn't worth the copies that attention then wants."""


@dataclass(frozen=True, slots=True, eq=False)
class Sampled:
    """What is known of an answer that the model wrote itself.

    Attributes:
        advantage: how much better than others to the same prompt it is.
        log_probabilities: of its tokens when they were written, float32 [trained tokens]; None where it is trained by
            the very model that wrote it.
    """

    advantage: float
    log_probabilities: NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class SoftTargets:
    """How likely the model should find some tokens at each trained place (Hinton et al. 2015, arXiv:1503.02531).

    Attributes:
        counts: how many tokens have a share at each place, int32 [trained tokens]; the written one is the first of
            them, with a share that may be 0.
        ids: these tokens, those of one place behind those of the place before, int32 [sum of counts].
        shares: of them, which sum to 1 at each place, float32 [sum of counts].
        most: the largest count of all rows that are used together.
    """

    counts: NDArray[np.int32]
    ids: NDArray[np.int32]
    shares: NDArray[np.float32]
    most: int = 0

    def first(self, num_places: int) -> SoftTargets:
        """Return those of the first places."""
        num = int(self.counts[:num_places].sum())
        return SoftTargets(self.counts[:num_places], self.ids[:num], self.shares[:num], self.most)


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """One row as the model will see it.

    Attributes:
        input_ids: int32 of shape [num_tokens].
        labels: int32 of shape [num_tokens]: the token where it counts for the loss, -100 elsewhere; not shifted.
        rejected: the worse answer to the same question where a run learns from pairs.
        reference: log-probabilities of the trained tokens by the base model, float32 [trained tokens], where they are
            kept.
        is_bad: whether people called the answer a bad one, where a run learns from labels.
        sampled: where the model wrote the answer itself.
        soft: what a bigger model found likely at each trained token, where a run learns from that.
    """

    input_ids: NDArray[np.int32]
    labels: NDArray[np.int32]
    rejected: Example | None = None
    is_bad: bool = False
    reference: NDArray[np.float32] | None = None
    sampled: Sampled | None = None
    soft: SoftTargets | None = None

    @property
    def sequences(self) -> tuple[Example, ...]:
        """What passes through the model: the row itself, and of a pair the worse answer behind it."""
        return (self,) if self.rejected is None else (self, self.rejected)

    @property
    def num_tokens(self) -> int:
        """Number of tokens that pass through the model."""
        return sum(len(sequence.input_ids) for sequence in self.sequences)

    @property
    def num_shared_tokens(self) -> int:
        """Number of tokens with which both answers of a pair begin, none of which predicts a token to learn."""
        if self.rejected is None:
            return 0
        length = min(len(self.input_ids), len(self.rejected.input_ids))
        ends = self.input_ids[:length] != self.rejected.input_ids[:length]
        for sequence in self.sequences:
            ends[:-1] |= sequence.labels[1:length] != IGNORED_LABEL
        shared = int(ends.argmax()) if ends.any() else length - 1
        return shared if shared >= LEAST_SHARED * self.num_tokens else 0

    @property
    def num_computed_tokens(self) -> int:
        """Number of tokens that pass through the fused model: what both answers of a pair begin with does so once."""
        return self.num_tokens - self.num_shared_tokens

    @property
    def num_trained_tokens(self) -> int:
        """Number of tokens to learn, of a pair those of the better answer; nothing predicts the first token."""
        return int(np.count_nonzero(self.labels[1:] != IGNORED_LABEL))
