"""How blind votes between two models stand, and whether chance alone could have counted them so."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tunesmith_core.messages import Message

LEVEL = 0.05
"""A result that chance gives less often than this counts as a difference."""

FEW_VOTES = 20
"""Up to so many a difference must be large to show."""

_HALVINGS = 60


@dataclass(slots=True)
class Count:
    """Votes between two models.

    Attributes:
        later, earlier: steps after which their weights were saved; 0 for the base model.
        better, worse: votes for the later one, and for the earlier one.
        same, bad: votes that find both the same, or both bad.
    """

    later: int
    earlier: int = 0
    better: int = 0
    worse: int = 0
    same: int = 0
    bad: int = 0

    @property
    def num_decided(self) -> int:
        """How many votes find one better."""
        return self.better + self.worse

    @property
    def num_votes(self) -> int:
        """How many votes there are."""
        return self.num_decided + self.same + self.bad

    @property
    def title(self) -> Message:
        """Who is compared."""
        return Message("Votes on {later} and {earlier}", later=name_of(self.later), earlier=name_of(self.earlier))

    @property
    def sentence(self) -> Message:
        """How the votes stand."""
        if not self.num_decided:
            return Message("No vote found one of them better.")
        low, high = interval(self.better, self.num_decided)
        return Message(
            "{who} was better in {better} of {num} votes (95% interval {low} to {high}).",
            who=Message("Step {step}", step=self.later) if self.earlier else Message("The trained model"),
            better=self.better,
            num=self.num_decided,
            low=f"{low:.0%}",
            high=f"{high:.0%}",
        )

    @property
    def test(self) -> Message | None:
        """What chance would do, None where nothing was decided."""
        if not self.num_decided:
            return None
        p = sign_test(self.better, self.num_decided)
        return Message("Sign test: p {p}.", p="< 0.001" if p < 0.001 else f"= {p:.2g}")

    @property
    def ties(self) -> Message | None:
        """What was left out, None where nothing was."""
        if not self.same + self.bad:
            return None
        return Message("Not counted: {same} the same, {bad} both bad.", same=self.same, bad=self.bad)

    @property
    def meaning(self) -> Message:
        """What the votes tell."""
        if sign_test(self.better, self.num_decided) < LEVEL:
            winner = self.later if self.better > self.worse else self.earlier
            return Message("That is more than chance: {winner} gives better answers.", winner=name_of(winner))
        if self.num_decided <= FEW_VOTES:
            return Message("Too few votes to tell which one is better.")
        return Message("The votes show no clear difference.")

    @property
    def words(self) -> list[Message]:
        """Everything for a person, a sentence each."""
        return [text for text in (self.sentence, self.meaning, self.test, self.ties) if text]

    def to_dict(self) -> dict[str, Any]:  # Any: JSON values
        """Return figures and sentence as JSON values."""
        low, high = interval(self.better, self.num_decided)
        return {
            "later": self.later,
            "earlier": self.earlier,
            "better": self.better,
            "worse": self.worse,
            "same": self.same,
            "bad": self.bad,
            "low": round(low, 6),
            "high": round(high, 6),
            "p": round(sign_test(self.better, self.num_decided), 6),
            "meaning": self.meaning,
        }


def name_of(step: int) -> Message:
    """Return what a model is called by the step after which its weights were saved, 0 for what the run began with."""
    return Message("step {step}", step=step) if step else Message("the model before this run")


def interval(num: int, total: int) -> tuple[float, float]:
    """Return the exact 95 % interval of a share; without any vote it may be anything.

    Clopper, C. J. and Pearson, E. S. (1934), The use of confidence or fiducial limits illustrated in the case of the
    binomial, Biometrika 26, 404-413: the shares with which `num` or more, or `num` or fewer, are as rare as 2.5 %.
    It leaves out one half exactly when `sign_test` is below 5 %, which Wilson's shorter interval does not.
    """
    low = _share_at(lambda share: _at_least(num, total, share) < LEVEL / 2) if num else 0.0
    high = 1.0 - _share_at(lambda rest: _at_least(total - num, total, rest) < LEVEL / 2) if num < total else 1.0
    return low, high


def sign_test(num: int, total: int) -> float:
    """Return how often a fair coin is as far from one half, on either side.

    Dixon, W. J. and Mood, A. M. (1946), The statistical sign test, Journal of the American Statistical Association 41,
    557-566; ties are left out, as they say.
    """
    return min(1.0, 2.0 * _at_least(max(num, total - num), total, 0.5))


def _share_at(is_below: Callable[[float], bool]) -> float:
    """Return the share at which a condition that holds for small ones ends."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return low


def _at_least(num: int, total: int, share: float) -> float:
    """Return how likely at least so many of all are, each with the same probability."""
    ways = math.lgamma(total + 1)
    return math.fsum(
        math.exp(
            ways
            - math.lgamma(each + 1)
            - math.lgamma(total - each + 1)
            + each * math.log(share)
            + (total - each) * math.log1p(-share)
        )
        for each in range(num, total + 1)
    )
