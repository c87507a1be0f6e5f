"""What goes wrong with rewards is named while it happens: nothing to learn from, or something else than the task."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from tunesmith_core.messages import Message

NUM_STEPS = 5
"""A state must last so long before a person is told."""

NUM_EQUAL_STEPS = 3
"""Steps without anything to learn are told sooner: whoever has set up a wrong reward waits for nothing."""

FAR = 0.5
"""Nats per token between the model and its base model: so far, it has left the language of its base model."""

MANY_CUT, LONGER = 0.5, 2.0
"""So many answers are cut, and answers are so many times as long as in the first steps."""


class Watch:
    """Looks at the numbers of each step; every warning is given once."""

    def __init__(self) -> None:
        self._last: deque[Mapping[str, float]] = deque(maxlen=NUM_STEPS)
        self._first_tokens: list[float] = []
        self._told: set[str] = set()

    def look(self, numbers: Mapping[str, float]) -> list[Message]:
        """Take the numbers of a step and return what a person should know now."""
        if len(self._first_tokens) < NUM_STEPS:
            self._first_tokens.append(numbers["answer_tokens"])
        self._last.append(numbers)
        found = {"equal": self._equal()}
        if len(self._last) == NUM_STEPS:
            found |= {"far": self._far(), "long": self._long()}
        news = [(name, words) for name, words in found.items() if words and name not in self._told]
        self._told |= {name for name, _ in news}
        return [words for _, words in news]

    def _equal(self) -> Message | None:
        last = list(self._last)[-NUM_EQUAL_STEPS:]
        if len(last) < NUM_EQUAL_STEPS or any(each["equal_groups"] < 1.0 for each in last):
            return None
        return Message(
            "All answers to a prompt got the same reward for {steps} steps, {reward} on average, so nothing is "
            "learned. The task is too hard or too easy for the model, or the reward does not tell answers apart.",
            steps=NUM_EQUAL_STEPS,
            reward=f"{sum(each['reward'] for each in last) / len(last):.3g}",
        )

    def _far(self) -> Message | None:
        if self._mean("kl") < FAR:
            return None
        return Message(
            "The model moves far away from where it began: {kl} nats per token. It may be exploiting the reward. A "
            "lower learning rate or a higher beta holds it back.",
            kl=f"{self._mean('kl'):.2f}",
        )

    def _long(self) -> Message | None:
        first = sum(self._first_tokens) / len(self._first_tokens)
        if self._mean("cut_answers") < MANY_CUT or self._mean("answer_tokens") < LONGER * first:
            return None
        return Message(
            "Answers grow longer and longer, and {share} of them are cut. The reward may favor length. A reward for "
            "length counteracts that.",
            share=f"{self._mean('cut_answers'):.0%}",
        )

    def _mean(self, name: str) -> float:
        return sum(each.get(name, 0.0) for each in self._last) / len(self._last)
