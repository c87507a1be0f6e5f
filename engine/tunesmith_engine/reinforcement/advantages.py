"""How much better than the others each answer to a prompt is, as pure functions of rewards of shape [prompts, answers].

An answer that nobody can score has NaN for its reward and 0 for its advantage; the others are compared without it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST_SPREAD = 1e-4
"""Added to a spread before it divides, as in TRL."""


def spread_of_groups(rewards: Floats) -> Floats:
    """Return the standard deviation of each group, with n - 1, [prompts]; 0 for fewer than two rewards."""
    return np.array([_spread(group) for group in rewards])


def relative_to_group(rewards: Floats, divided_by: str) -> Floats:
    """Return rewards less the mean of their group: GRPO, Shao et al. 2024 (arXiv:2402.03300), eq. 3 for outcomes.

    Args:
        rewards: [prompts, answers].
        divided_by: "group" as there; "batch", Hu et al. 2025 (arXiv:2501.03262); "none", Dr. GRPO, Liu et al. 2025
            (arXiv:2503.20783).
    """
    counts = np.maximum(1, np.isfinite(rewards).sum(axis=1, keepdims=True))
    advantages = rewards - np.nansum(rewards, axis=1, keepdims=True) / counts
    if divided_by == "group":
        advantages = advantages / (spread_of_groups(rewards)[:, None] + LEAST_SPREAD)
    elif divided_by == "batch":
        advantages = advantages / (_spread(rewards) + LEAST_SPREAD)
    return np.nan_to_num(advantages, nan=0.0)


def leaving_one_out(rewards: Floats, divided_by: str) -> Floats:
    """Return rewards less the mean of the others of their group: RLOO, Ahmadian et al. 2024 (arXiv:2402.14740), eq. 9.

    Args:
        rewards: [prompts, answers].
        divided_by: "batch" standardizes the advantages of all answers; "none" leaves them.
    """
    others = np.isfinite(rewards).sum(axis=1, keepdims=True) - 1
    sums = np.nansum(rewards, axis=1, keepdims=True)
    advantages = np.where(others > 0, rewards - (sums - rewards) / np.maximum(1, others), np.nan)
    if divided_by == "batch" and np.isfinite(advantages).any():
        advantages = (advantages - np.nanmean(advantages)) / (_spread(advantages) + LEAST_SPREAD)
    return np.nan_to_num(advantages, nan=0.0)


def _spread(values: Floats) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.std(ddof=1)) if len(finite) > 1 else 0.0
