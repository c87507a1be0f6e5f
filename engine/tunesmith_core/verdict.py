"""What a run's own measurements say: did the model improve on rows that it never saw?"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from tunesmith_core.messages import Message

RISEN = 0.02
"""Share of the lowest loss that a later one must lie above it: less is the noise of one evaluation."""

NOTHING, LITTLE = 0.01, 0.10
"""Up to these shares of the first loss a fall is nothing, or little."""


class Outcome(enum.StrEnum):
    """Where a run has led."""

    UNMEASURED = "unmeasured"
    MUCH = "much"
    LITTLE = "little"
    NOTHING = "nothing"
    OVERFITTED = "overfitted"
    WORSE = "worse"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One plain sentence about a run, and what to do next.

    Attributes:
        best_step: where the held-out loss was lowest, None where nothing was measured.
    """

    outcome: Outcome
    sentence: Message
    advice: Message
    best_step: int | None = None


def judge(losses: Mapping[int, float]) -> Verdict:
    """Compare the held-out losses of a run.

    Args:
        losses: in nats per trained token, by step; that of step 0 is the base model's.
    """
    if 0 not in losses or len(losses) == 1:
        return Verdict(
            Outcome.UNMEASURED,
            Message("Nobody knows whether the model improved: no held-out rows were measured before and after."),
            Message("Hold out a share of the rows and train again. A falling training loss alone may be memorizing."),
        )
    best_step = min(losses, key=lambda step: (losses[step], step))
    before, best, last = losses[0], losses[best_step], losses[max(losses)]
    values = {"before": f"{before:.3f}", "best": f"{best:.3f}", "after": f"{last:.3f}", "step": best_step}
    if last > best * (1 + RISEN):
        return _risen(best_step, values)
    outcome, sentence, advice = _fallen((before - last) / before if before > 0 else 0.0, values)
    return Verdict(outcome, sentence, advice, best_step)


def _risen(best_step: int, values: dict[str, object]) -> Verdict:
    if not best_step:
        return Verdict(
            Outcome.WORSE,
            Message("The model got worse: the held-out loss rose from {before} to {after}.", **values),
            Message("Lower the learning rate, and look at the rows: answers may not belong to their questions."),
            best_step,
        )
    return Verdict(
        Outcome.OVERFITTED,
        Message(
            "Overfitting since step {step}: the held-out loss fell from {before} to {best} there and has risen to "
            "{after} since.",
            **values,
        ),
        Message("Train until step {step} only, or on more rows.", **values),
        best_step,
    )


def _fallen(share: float, values: dict[str, object]) -> tuple[Outcome, Message, Message]:
    if share <= NOTHING:
        return (
            Outcome.NOTHING,
            Message("No improvement: the held-out loss was {before} and is {after}.", **values),
            Message("Train for more steps or at a higher learning rate, and look at what is learned of the rows."),
        )
    if share <= LITTLE:
        return (
            Outcome.LITTLE,
            Message("Improved a little: the held-out loss fell from {before} to {after}.", **values),
            Message("More epochs or more rows may improve it further."),
        )
    return (
        Outcome.MUCH,
        Message("Improved a lot: the held-out loss fell from {before} to {after}.", **values),
        Message("Ask it something that is not among the rows before you rely on it."),
    )
