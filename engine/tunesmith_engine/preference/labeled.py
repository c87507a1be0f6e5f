"""Losses of single answers that people called good or bad, and the answers by which KTO knows how far a model moved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tunesmith_core.preferences import LABEL_METRICS
from tunesmith_engine.data.example import IGNORED_LABEL, Example

LabeledLoss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, float], torch.Tensor]
"""Of ratios [answers], which of them are good [answers], the KL [] and beta: the loss of each answer."""


def kto(ratios: torch.Tensor, are_good: torch.Tensor, kl: torch.Tensor, beta: float) -> torch.Tensor:
    """1 - sigmoid(beta (r - z)), and of bad answers 1 - sigmoid(beta (z - r)), where z is the KL divergence.

    KTO, Ethayarajh et al. 2024 (arXiv:2402.01306), eq. 7 and 8.
    """
    above = ratios - kl
    return torch.sigmoid(-beta * torch.where(are_good, above, -above))


def apo_zero_unpaired(ratios: torch.Tensor, are_good: torch.Tensor, kl: torch.Tensor, beta: float) -> torch.Tensor:
    """1 - sigmoid(beta r), and of bad answers sigmoid(beta r): APO-zero, D'Oosterlinck et al. 2024 (arXiv:2408.06266),
    eq. 7, of single answers as TRL has it."""
    return kto(ratios, are_good, torch.zeros_like(kl), beta)


LOSSES: dict[str, LabeledLoss] = {each.__name__: each for each in (kto, apo_zero_unpaired)}
"""By the names that TRL and a spec have for them."""


@dataclass(frozen=True, slots=True)
class LabeledObjective:
    """The mean loss of the answers of a step, each by the weight of its side.

    Attributes:
        loss: of each answer.
        beta: how closely the model stays to its reference.
        good_weight, bad_weight: factors of the losses of good and of bad answers.
        needs_kl: whether the loss compares answers with how far the model has moved on others.
    """

    loss: LabeledLoss
    beta: float
    good_weight: float
    bad_weight: float
    needs_kl: bool

    metrics = LABEL_METRICS
    has_reference = True

    def __call__(
        self,
        sums: torch.Tensor,
        reference: torch.Tensor,
        are_good: torch.Tensor,
        num_answers_of_step: int,
        num_good_of_step: int,
        kl_of_step: torch.Tensor | None,
    ) -> torch.Tensor:
        """Return the share of a micro-batch in the step's loss and in each of `metrics`, float32 [1 + metrics].

        Means over good and over bad answers are NaN where a step has none of them.

        Args:
            sums: log-probabilities of the answers in nats, [answers].
            reference: those of the reference model.
            are_good: which answers are good, bool [answers].
            num_answers_of_step, num_good_of_step: of all micro-batches of the step.
            kl_of_step: the KL divergence from the reference in nats, 0-dim; None for 0.
        """
        kl = sums.new_zeros(()) if kl_of_step is None else kl_of_step.to(sums.dtype)
        ratios = sums - reference
        weights = torch.where(are_good, self.good_weight, self.bad_weight).to(sums.dtype)
        loss = (weights * self.loss(ratios, are_good, kl, self.beta)).sum() / num_answers_of_step
        with torch.no_grad():
            of_side = (are_good, num_good_of_step), (~are_good, num_answers_of_step - num_good_of_step)
            reward_good, reward_bad, logp_good, logp_bad = (
                (values * side).sum() / sums.new_tensor(num)
                for values in (self.beta * ratios, sums)
                for side, num in of_side
            )
            are_right = torch.where(are_good, ratios > kl, ratios < kl).sum() / num_answers_of_step
            seen = (reward_good, reward_bad, reward_good - reward_bad, are_right, logp_good, logp_bad)
            means = torch.stack([*seen, kl * (len(sums) / num_answers_of_step)])
        return torch.cat([loss.reshape(1), means.to(loss.dtype)])


def mismatched(rows: Sequence[Example], longest: int) -> list[Example]:
    """Return the question of each row with the answer of the row before it, of the first row with the last answer.

    By these the KL divergence from the reference is estimated, as the paper and TRL do.

    Args:
        rows: of a step, or all that are held out.
        longest: tokens at which such a row is cut: those of the longest row of the run, for which there is room.
    """
    found = []
    for row, other in zip(rows, [*rows[-1:], *rows[:-1]], strict=True):
        trained = np.flatnonzero(other.labels != IGNORED_LABEL)
        answer = other.input_ids[trained[0] : trained[-1] + 1]
        prompt = row.input_ids[: np.flatnonzero(row.labels != IGNORED_LABEL)[0]]
        ids = np.concatenate([prompt, answer])[:longest]
        labels = np.concatenate([np.full_like(prompt, IGNORED_LABEL), answer])[:longest]
        found.append(Example(ids, labels))
    return found
