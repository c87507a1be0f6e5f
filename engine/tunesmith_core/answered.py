"""What a model answered to questions of held-out rows, step by step, folded from events `answers`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tunesmith_core.protocol import Event

Told = TypeVar("Told")


@dataclass(slots=True)
class Answered:
    """A question of a held-out row and what is expected.

    Attributes:
        texts: what the model answered, by step; that of step 0 is the base model's.
        right: whether that was right, by step; nothing where it is a matter of wording.
        cuts: tokens at which the texts were cut, by step; 0 where the model ended them.
    """

    prompt: str
    expected: str
    texts: dict[int, str] = field(default_factory=dict)
    right: dict[int, bool] = field(default_factory=dict)
    cuts: dict[int, int] = field(default_factory=dict)

    @property
    def before(self) -> str | None:
        """What the base model answered, None where it was not asked."""
        return self.texts.get(0)

    @property
    def last_step(self) -> int:
        """Step of the newest answer."""
        return max(self.texts, default=0)

    @property
    def now(self) -> str | None:
        """The newest answer of the trained model, None before there is one."""
        return self.texts[self.last_step] if self.last_step else None

    def to_dict(self) -> dict[str, Any]:  # Any: JSON values
        """Return question and answers as JSON values."""
        return {
            "prompt": self.prompt,
            "expected": self.expected,
            "before": self.before,
            "now": self.now,
            "step": self.last_step,
            "right_before": self.right.get(0),
            "right_now": self.right.get(self.last_step) if self.last_step else None,
        }


@dataclass(frozen=True, slots=True)
class RightAnswers:
    """How many answers were right before training and are now, of those that were asked both times."""

    before: int
    now: int
    asked: int


def take_answers(answered: list[Answered], event: Event) -> None:
    """Add the answers of an event to what was answered before."""
    step = event.data.get("step")
    if not isinstance(step, int):
        return
    cuts = event.data.get("cuts") or []
    for place, told in enumerate(event.data.get("answers") or ()):
        prompt, expected, answer = (told.get(name, "") for name in ("prompt", "expected", "answer"))
        known = next((each for each in answered if (each.prompt, each.expected) == (prompt, expected)), None)
        if known is None:
            answered.append(known := Answered(prompt, expected))
        known.texts[step], known.cuts[step] = answer, cuts[place] if place < len(cuts) else 0
        if isinstance(right := told.get("right"), bool):
            known.right[step] = right


def forget_answers(answered: list[Answered], step: int) -> list[Answered]:
    """Return what was answered up to a step."""
    kept = [
        Answered(each.prompt, each.expected, upto(each.texts, step), upto(each.right, step), upto(each.cuts, step))
        for each in answered
    ]
    return [each for each in kept if each.texts]


def upto(told: dict[int, Told], step: int) -> dict[int, Told]:
    """Return what was told up to a step."""
    return {each: value for each, value in told.items() if each <= step}


def right_answers(answered: Sequence[Answered]) -> RightAnswers | None:
    """Count the right answers; None where nobody can tell right from wrong, or nothing was asked both times."""
    step = max((each.last_step for each in answered), default=0)
    both = [(each.right[0], each.right[step]) for each in answered if step and {0, step} <= each.right.keys()]
    if not both:
        return None
    return RightAnswers(sum(before for before, _ in both), sum(now for _, now in both), len(both))
