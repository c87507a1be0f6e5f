"""What preference methods minimise of a micro-batch, and the numbers that tell how well preferences are followed."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tunesmith_core.preferences import METRICS
from tunesmith_engine.preference.losses import Loss, Pairs, Strength


@dataclass(frozen=True, slots=True)
class PreferenceObjective:
    """The mean loss of the pairs of a step, and a share of the better answers' own cross-entropy.

    Attributes:
        loss: of each pair.
        strength: its settings.
        has_reference: whether log-probabilities are compared with those of the model without its adapter.
        per_token: whether rewards are means over tokens.
        sft_weight: factor of the mean cross-entropy of the better answers' tokens.
    """

    loss: Loss
    strength: Strength
    has_reference: bool
    per_token: bool
    sft_weight: float

    metrics = METRICS

    def __call__(
        self,
        sums: torch.Tensor,
        reference: torch.Tensor | None,
        num_tokens: torch.Tensor,
        num_pairs_of_step: int,
        num_chosen_tokens_of_step: int,
    ) -> torch.Tensor:
        """Return the share of a micro-batch in the step's loss and in each of `metrics`, float32 [1 + metrics].

        Args:
            sums: log-probabilities of the answers in nats, each better one before its worse one, [2 * pairs].
            reference: those of the reference model; None without one.
            num_tokens: trained tokens of the answers.
            num_pairs_of_step, num_chosen_tokens_of_step: of all micro-batches of the step.
        """
        ratios = sums if reference is None else sums - reference
        (chosen, rejected), (chosen_tokens, rejected_tokens) = ratios.view(-1, 2).T, num_tokens.view(-1, 2).T
        pairs = Pairs(chosen, rejected, chosen_tokens, rejected_tokens)
        loss = self.loss(pairs, self.strength).sum() / num_pairs_of_step
        if self.sft_weight:
            loss = loss - self.sft_weight * sums[::2].sum() / num_chosen_tokens_of_step
        with torch.no_grad():
            per = num_tokens if self.per_token else 1.0
            better, worse = (self.strength.beta * ratios / per).view(-1, 2).T
            seen = (better, worse, better - worse, (better > worse).float(), *(sums / per).view(-1, 2).T)
            means = torch.stack([each.sum() for each in seen]) / num_pairs_of_step
        return torch.cat([loss.reshape(1), means])
