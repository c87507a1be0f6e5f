"""What is said of a run: where it has led, in one sentence, and what to do next."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tunesmith_core.evaluations import differences
from tunesmith_core.messages import Message
from tunesmith_core.next_steps import NextStep


class Outcome(enum.StrEnum):
    """Where a run has led."""

    UNMEASURED = "unmeasured"
    TOO_FEW = "too-few"
    MUCH = "much"
    LITTLE = "little"
    NOTHING = "nothing"
    OVERFITTED = "overfitted"
    WORSE = "worse"
    DIVERGED = "diverged"
    REPEATED = "repeated"
    LEAKED = "leaked"
    INDEPENDENT = "independent"
    STILL_WRONG = "still-wrong"


DISAPPOINTING = frozenset(Outcome) - {Outcome.MUCH, Outcome.LITTLE, Outcome.UNMEASURED, Outcome.TOO_FEW}
"""What a person should do something about."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % bounds, and the number of rows that it comes from."""

    mean: float
    low: float
    high: float
    rows: int

    @staticmethod
    def of(value: Mapping[str, Any] | None) -> Interval | None:  # Any: JSON values
        """Return the interval of a field of an event, None where there is none."""
        return Interval(value["mean"], value["low"], value["high"], int(value["rows"])) if value else None

    def values(self) -> dict[str, object]:
        """Return what a sentence says of it."""
        low, mean, high = differences(self.low, self.mean, self.high)
        return {"mean": mean, "low": low, "high": high, "rows": self.rows}


@dataclass(frozen=True, slots=True)
class Verdict:
    """One plain sentence about a run, and what to do next.

    Attributes:
        best_step: where the held-out loss was lowest, None where nothing was measured.
        evidence: how certain it is, "" where nobody can tell.
        next_steps: what a person can do about it, the best first.
    """

    outcome: Outcome
    sentence: Message
    advice: Message
    best_step: int | None = None
    evidence: str = ""
    next_steps: tuple[NextStep, ...] = ()

    @property
    def told(self) -> list[str]:
        """What a person is told: the sentence, how certain it is and what to do next."""
        return [text for text in (self.sentence, self.evidence, self.advice) if text]

    def to_dict(self) -> dict[str, Any]:  # Any: JSON values
        """Return the verdict as JSON values."""
        steps = [{"name": step.name, "step": step.step, "label": step.label} for step in self.next_steps]
        return {
            "outcome": self.outcome,
            "sentence": self.sentence,
            "evidence": self.evidence,
            "advice": self.advice,
            "best_step": self.best_step,
            "next_steps": steps,
        }
