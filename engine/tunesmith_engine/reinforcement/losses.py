"""Losses of what a model wrote itself, as pure functions; TRL has the same by name.

All tensors are over the T tokens of some answers; log-probabilities are in nats. Every function returns a loss for each
token.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Clip:
    """How far a ratio may move before its token is left alone: between 1 - low and 1 + high.

    Attributes:
        most: what a ratio counts at most, also where it is not left alone; TRL's delta.
    """

    low: float
    high: float
    most: float = math.inf


@dataclass(frozen=True, slots=True)
class Written:
    """What a loss is computed from, each of shape [T].

    Attributes:
        now: log-probabilities, of which the gradient is wanted.
        log_ratio: logarithm of what is compared with the model that wrote it: the token, or its whole answer.
        advantages: of the answer that a token belongs to.
    """

    now: torch.Tensor
    log_ratio: torch.Tensor
    advantages: torch.Tensor


PolicyLoss = Callable[[Written, Clip], torch.Tensor]


def clipped(written: Written, clip: Clip) -> torch.Tensor:
    """-min(r A, clip(r) A): PPO, Schulman et al. 2017 (arXiv:1707.06347), eq. 7, with two bounds as in DAPO.

    A bound for r itself is INTELLECT-2's (arXiv:2505.07291): where A is negative, nothing else bounds a large one.
    """
    ratio = torch.exp(written.log_ratio)
    bounded = ratio.clamp(1 - clip.low, 1 + clip.high)
    if clip.most < math.inf:
        ratio = ratio.clamp(max=clip.most)
    return -torch.min(ratio * written.advantages, bounded * written.advantages)


def cispo(written: Written, clip: Clip) -> torch.Tensor:
    """-sg(min(r, high)) A log p: CISPO, MiniMax 2025 (arXiv:2506.13585), eq. 4; it bounds the ratio itself."""
    ratio = torch.exp(written.log_ratio).clamp(max=clip.high).detach()
    return -ratio * written.advantages * written.now


TEMPERATURE_OF_GOOD, TEMPERATURE_OF_BAD = 1.0, 1.05
"""Of SAPO's gate for positive and negative advantages, as in its paper and TRL."""


def sapo(written: Written, clip: Clip) -> torch.Tensor:  # noqa: ARG001 - it has no bounds
    """-(4/t) sigmoid(t (r - 1)) A: SAPO, Gao et al. 2025 (arXiv:2511.20347), eq. 6."""
    warmth = torch.where(written.advantages > 0, TEMPERATURE_OF_GOOD, TEMPERATURE_OF_BAD)
    gate = torch.sigmoid(warmth * (torch.exp(written.log_ratio) - 1)) * 4 / warmth
    return -gate * written.advantages


GAMMA_OF_GOOD, GAMMA_OF_BAD = (2.0, 3.0), (3.0, 2.0)
"""Exponent and rate of VESPO's weight for advantages from 0 on and below 0, as in TRL."""

LEAST_LOG_WEIGHT, MOST_LOG_WEIGHT = math.log(1e-8), 20.0


def vespo(written: Written, clip: Clip) -> torch.Tensor:  # noqa: ARG001 - it has no bounds
    """-sg(phi(w)) A log p, phi(w) = exp(c) w^k exp(-c w): VESPO (arXiv:2602.10693); w: ratio of the answer."""
    log_weight = written.log_ratio.detach().clamp(LEAST_LOG_WEIGHT, MOST_LOG_WEIGHT)
    is_good = written.advantages >= 0
    exponent, rate = (
        torch.where(is_good, good, bad) for good, bad in zip(GAMMA_OF_GOOD, GAMMA_OF_BAD, strict=True)
    )
    phi = torch.exp(rate + exponent * log_weight - rate * log_weight.exp())
    return -phi * written.advantages * written.now


def is_clipped(written: Written, clip: Clip) -> torch.Tensor:
    """Return 1 for each token that a bound leaves alone, else 0."""
    ratio = torch.exp(written.log_ratio)
    is_low = (ratio < 1 - clip.low) & (written.advantages < 0)
    is_high = (ratio > 1 + clip.high) & (written.advantages > 0)
    return (is_low | is_high).float()


def divergence(now: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """exp(d) - d - 1 with d = reference - now: estimates the KL divergence, never negative (Schulman 2020)."""
    difference = reference - now
    return torch.exp(difference) - difference - 1


POLICY_LOSSES: dict[str, PolicyLoss] = {
    "dapo": clipped,
    "grpo": clipped,
    "dr_grpo": clipped,
    "luspo": clipped,
    "cispo": cispo,
    "sapo": sapo,
    "vespo": vespo,
}
"""By TRL's names; those that are clipped alike differ in how tokens are averaged, see `objective`."""
