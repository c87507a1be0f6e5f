"""Losses of what a model wrote itself, as pure functions; TRL has the same by name.

All tensors are over the T tokens of some answers; log-probabilities are in nats. Every function returns a loss for each
token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Clip:
    """How far a ratio may move before its token is left alone: between 1 - low and 1 + high."""

    low: float
    high: float


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
    """-min(r A, clip(r) A): PPO, Schulman et al. 2017 (arXiv:1707.06347), eq. 7, with two bounds as in DAPO."""
    ratio = torch.exp(written.log_ratio)
    bounded = ratio.clamp(1 - clip.low, 1 + clip.high)
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
}
"""By TRL's names; those that are clipped alike differ in how tokens are averaged, see `objective`."""
