"""Losses of pairs of answers as pure functions of log-probabilities, each with its paper; TRL has the same by name.

A log-probability is the sum over the trained tokens of an answer, in nats; a ratio is that of the trained model less
that of the reference model. Every function takes and returns tensors of shape [pairs]. Autograd gives their slopes,
which are the weights of the answers' tokens in the cross-entropy kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn.functional import logsigmoid


@dataclass(frozen=True, slots=True)
class Pairs:
    """What a loss is computed from, each of shape [pairs].

    Attributes:
        chosen, rejected: ratios where there is a reference model, else log-probabilities.
        chosen_tokens, rejected_tokens: trained tokens of the answers.
    """

    chosen: torch.Tensor
    rejected: torch.Tensor
    chosen_tokens: torch.Tensor
    rejected_tokens: torch.Tensor

    @property
    def difference(self) -> torch.Tensor:
        """By how much the better answer is above the worse one."""
        return self.chosen - self.rejected

    @property
    def difference_per_token(self) -> torch.Tensor:
        """The same of the means over their tokens."""
        return self.chosen / self.chosen_tokens - self.rejected / self.rejected_tokens


@dataclass(frozen=True, slots=True)
class Strength:
    """How strictly preferences are followed.

    Attributes:
        beta: factor of a difference; of IPO the tau.
        smoothing: share of pairs that are expected to be labeled the wrong way round.
        margin: by which SimPO wants the better answer to be above the worse one, as a reward.
    """

    beta: float
    smoothing: float = 0.0
    margin: float = 0.0


Loss = Callable[[Pairs, Strength], torch.Tensor]


def _logistic(difference: torch.Tensor, strength: Strength) -> torch.Tensor:
    scaled = strength.beta * difference
    return -(1 - strength.smoothing) * logsigmoid(scaled) - strength.smoothing * logsigmoid(-scaled)


def sigmoid(pairs: Pairs, strength: Strength) -> torch.Tensor:
    """-log sigmoid(beta d): DPO, Rafailov et al. 2023 (arXiv:2305.18290), with the smoothing of cDPO, Mitchell 2023."""
    return _logistic(pairs.difference, strength)


def sigmoid_norm(pairs: Pairs, strength: Strength) -> torch.Tensor:
    """DPO of the means over the tokens, as in Tulu 3, Lambert et al. 2024 (arXiv:2411.15124)."""
    return _logistic(pairs.difference_per_token, strength)


def hinge(pairs: Pairs, strength: Strength) -> torch.Tensor:
    """max(0, 1 - beta d): SLiC, Zhao et al. 2023 (arXiv:2305.10425), as Liu et al. 2023 (arXiv:2309.06657) have it."""
    return torch.relu(1 - strength.beta * pairs.difference)


def ipo(pairs: Pairs, strength: Strength) -> torch.Tensor:
    """(d - 1 / (2 tau))^2 of the means over the tokens: IPO, Azar et al. 2023 (arXiv:2310.12036), eq. 17."""
    return (pairs.difference_per_token - 1 / (2 * strength.beta)) ** 2


def exo_pair(pairs: Pairs, strength: Strength) -> torch.Tensor:
    """KL from the model's preference to the smoothed label: EXO, Ji et al. 2024 (arXiv:2402.00856), eq. 16."""
    scaled = strength.beta * pairs.difference
    for_chosen = torch.sigmoid(scaled) * (logsigmoid(scaled) - math.log1p(-strength.smoothing))
    return for_chosen + torch.sigmoid(-scaled) * (logsigmoid(-scaled) - math.log(strength.smoothing))


def nca_pair(pairs: Pairs, strength: Strength) -> torch.Tensor:
    """Each answer against chance, not against the other: NCA, Chen et al. 2024 (arXiv:2402.05369)."""
    chosen, rejected = strength.beta * pairs.chosen, strength.beta * pairs.rejected
    return -logsigmoid(chosen) - 0.5 * logsigmoid(-chosen) - 0.5 * logsigmoid(-rejected)


def robust(pairs: Pairs, strength: Strength) -> torch.Tensor:
    """An unbiased estimate of DPO's loss under wrong labels: Chowdhury et al. 2024 (arXiv:2403.00409)."""
    scaled, wrong = strength.beta * pairs.difference, strength.smoothing
    return (-(1 - wrong) * logsigmoid(scaled) + wrong * logsigmoid(-scaled)) / (1 - 2 * wrong)


def bco_pair(pairs: Pairs, strength: Strength) -> torch.Tensor:
    """Better or worse as a class of each answer: BCO, Jung et al. 2024 (arXiv:2404.04656), without its shift."""
    return -logsigmoid(strength.beta * pairs.chosen) - logsigmoid(-strength.beta * pairs.rejected)


def sppo_hard(pairs: Pairs, strength: Strength) -> torch.Tensor:
    """Ratios drawn to +-1 / (2 beta): SPPO, Wu et al. 2024 (arXiv:2405.00675), eq. 4.7 with certain preferences."""
    return (pairs.chosen - 0.5 / strength.beta) ** 2 + (pairs.rejected + 0.5 / strength.beta) ** 2


def apo_zero(pairs: Pairs, strength: Strength) -> torch.Tensor:
    """For chosen answers better than the model's: APO-zero, D'Oosterlinck et al. 2024 (arXiv:2408.06266), eq. 7."""
    return 1 - torch.sigmoid(strength.beta * pairs.chosen) + torch.sigmoid(strength.beta * pairs.rejected)


def apo_down(pairs: Pairs, strength: Strength) -> torch.Tensor:
    """For chosen answers worse than the model's: APO-down, D'Oosterlinck et al. 2024 (arXiv:2408.06266), eq. 8."""
    return torch.sigmoid(strength.beta * pairs.chosen) + 1 - torch.sigmoid(strength.beta * pairs.difference)


DISCOPOP_TEMPERATURE = 0.05
"""As found by Lu et al. 2024 (arXiv:2406.08414) and taken by TRL."""


def discopop(pairs: Pairs, strength: Strength) -> torch.Tensor:
    """A mix of logistic and exponential loss found by a model: DiscoPOP, Lu et al. 2024 (arXiv:2406.08414), eq. 5."""
    scaled = strength.beta * pairs.difference
    share = torch.sigmoid(scaled / DISCOPOP_TEMPERATURE)
    return -logsigmoid(scaled) * (1 - share) + torch.exp(-scaled) * share


def simpo(pairs: Pairs, strength: Strength) -> torch.Tensor:
    """-log sigmoid(beta d - margin) of the means over the tokens: SimPO, Meng et al. 2024 (arXiv:2405.14734), eq. 6."""
    return _logistic(pairs.difference_per_token - strength.margin / strength.beta, strength)


def odds_ratio(pairs: Pairs, strength: Strength) -> torch.Tensor:
    """-beta log sigmoid(log odds ratio) of the means over the tokens: ORPO, Hong et al. 2024 (arXiv:2403.07691), eq. 7.

    The odds of a mean log-probability m are e^m / (1 - e^m).
    """
    chosen, rejected = pairs.chosen / pairs.chosen_tokens, pairs.rejected / pairs.rejected_tokens
    log_odds = chosen - rejected - (_log_complement(chosen) - _log_complement(rejected))
    return -strength.beta * logsigmoid(log_odds)


def _log_complement(log_probability: torch.Tensor) -> torch.Tensor:
    """Return log(1 - e^x) for x < 0 without a loss of digits: Maechler 2012, "Accurately computing log(1 - exp(-|a|))".

    A probability that rounds to 1 counts as the one before it, whose odds are finite.
    """
    x = log_probability.clamp(max=-torch.finfo(log_probability.dtype).eps)
    near_one = x > -math.log(2)
    # Each side of a `where` must be finite, or its slope is NaN.
    by_expm1 = torch.log(-torch.expm1(x.where(near_one, x.new_tensor(-0.5))))
    by_log1p = torch.log1p(-torch.exp(x.where(~near_one, x.new_tensor(-1.0))))
    return torch.where(near_one, by_expm1, by_log1p)


DPO_LOSSES: dict[str, Loss] = {
    each.__name__: each
    for each in (
        *(sigmoid, sigmoid_norm, hinge, ipo, exo_pair, nca_pair, robust, bco_pair, sppo_hard),
        *(apo_zero, apo_down, discopop),
    )
}
"""The losses of DPO by the names that TRL and a spec have for them."""
