"""What runs that learn from rewards tell of their answers, and the sentences about that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tunesmith_core.messages import Message

OF_ROUNDS = ("reward", "reward_spread", "equal_groups", "answer_tokens", "cut_answers")
"""Told of each step, of the answers that were written in it: mean and standard deviation of their rewards; the share of
prompts whose answers all got the same; the mean length in tokens; the share of answers that were cut. TRL's "reward",
"reward_std", "frac_reward_zero_std", "completions/mean_length" and "completions/clipped_ratio"."""

OF_UPDATES = ("kl", "entropy", "clip_share")
"""Told of each step, as means over tokens: how far the model is from its base model (Schulman 2020, the estimate k3; 0
where the run doesn't compare), how undecided it is (minus the log-probability of what it wrote, in nats), and the share
of tokens whose update was clipped."""

@dataclass(frozen=True, slots=True)
class Rewards:
    """The mean rewards of held-out prompts, those of the base model and those at the end."""

    before: float
    after: float

    @staticmethod
    def of(series: Mapping[int, Mapping[str, float]]) -> Rewards | None:
        """Return those of the first and last evaluation; None where either is missing."""
        found = [series.get(0, {}), series[max(series)] if series else {}]
        return Rewards(*(each["reward"] for each in found)) if all("reward" in each for each in found) else None

    @property
    def told(self) -> Message:
        """How the reward changed."""
        before, after = f"{self.before:.3f}", f"{self.after:.3f}"
        return Message(
            "The mean reward of answers to held-out prompts went from {before} to {after}.", before=before, after=after
        )


def of_event(data: Mapping[str, Any]) -> dict[str, float]:  # Any: JSON values
    """Return the numbers of rewards that an event "step" or "eval" tells."""
    return {name: float(data[name]) for name in (*OF_ROUNDS, *OF_UPDATES) if isinstance(data.get(name), float | int)}


def in_brief(numbers: Mapping[str, float]) -> Message | None:
    """Return how good the answers of a step or evaluation are; None without numbers."""
    if "reward" not in numbers:
        return None
    return Message("reward {reward}", reward=f"{numbers['reward']:.3f}")
