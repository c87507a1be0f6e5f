"""How often a model that learns from a bigger one has the same favorite among the next tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tunesmith_core.messages import Message

METRICS = ("agreement",)
"""Told of each step and evaluation: the share of learned tokens at which both models find the same token likeliest."""

DIVERGENCE_HELP = Message(
    "The loss is the divergence between the model and the bigger one in nats per token. At 0 both would say the same."
)

Numbers = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Shares of held-out tokens: of the base model and at the end."""

    before: float
    after: float

    @staticmethod
    def of(series: Mapping[int, Numbers]) -> Agreement | None:
        """Return those of the first and last evaluation; None where either is missing."""
        found = [series.get(0, {}), series[max(series)] if series else {}]
        shares = [each["agreement"] for each in found if "agreement" in each]
        return Agreement(*shares) if len(shares) == len(found) else None

    @property
    def told(self) -> Message:
        """How often both models agree."""
        return Message(
            "At {after} of the held-out tokens the model would write the same as the bigger one (before training: "
            "{before}).",
            after=f"{self.after:.0%}",
            before=f"{self.before:.0%}",
        )


def of_event(data: Mapping[str, Any]) -> dict[str, float]:  # Any: JSON values
    """Return what an event "step" or "eval" tells of the teacher; {} of runs without one."""
    return {name: float(data[name]) for name in METRICS if isinstance(data.get(name), float | int)}
