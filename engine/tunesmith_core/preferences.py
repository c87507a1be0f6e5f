"""How well held-out pairs, or good and bad answers, are told apart before training and after, and what to say of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tunesmith_core.messages import Message, joined

METRICS = ("reward_chosen", "reward_rejected", "reward_margin", "reward_accuracy", "logp_chosen", "logp_rejected")
"""Means over pairs that runs tell of each step and evaluation: TRL's "rewards/chosen", "rewards/rejected",
"rewards/margins", "rewards/accuracies", "logps/chosen" and "logps/rejected". Where a loss takes means over tokens, so
do these."""

LABEL_METRICS = (*METRICS, "kl")
"""Of labeled answers: the same with means over the good and the bad ones, the accuracy as the share that is rated on
the right side of what the model has moved on other answers; and that, TRL's "kl" in nats."""

RATED = ("reward_margin", "reward_accuracy")
"""Those of a reward model, whose answers have scores and no log-probabilities."""

UNTRAINED_REWARD = 1e-3
"""A model that is compared with itself rates every answer 0, up to rounding."""

DISPLACED, LEAST_FALL = 0.5, 0.5
"""By this share of itself, and by so many nats, the log-probability of the better answers falls before a person is
told. In sums and in means over tokens alike the share is a perplexity to the power of 1.5."""

GUESSING = 0.5
"""Share of pairs that is told apart by chance."""

Numbers = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Preferences:
    """The METRICS of held-out pairs, or those that are RATED: of the base model and at the end."""

    before: Numbers
    after: Numbers

    @staticmethod
    def of(series: Mapping[int, Numbers]) -> Preferences | None:
        """Return those of the first and last evaluation; None where the base model's or any number is missing."""
        found = [series.get(0, {}), series[max(series)] if series else {}]
        return Preferences(*found) if all(map(are_whole, found)) else None

    @property
    def are_scores(self) -> bool:
        """Whether a reward model rates the answers, and none writes them."""
        return self.after.keys() == set(RATED)

    @property
    def is_relative(self) -> bool:
        """Whether rewards are relative to the base model, which then has none itself."""
        return are_untrained(self.before)

    @property
    def are_labels(self) -> bool:
        """Whether they are of single answers that are labeled good or bad, and not of pairs."""
        return "kl" in self.after

    @property
    def are_learned(self) -> bool:
        """Whether more pairs are told apart than before, or the same ones by more."""
        if self.are_labels:
            # How many are rated on the right side depends on how many there are of each.
            return self.after["reward_margin"] > 0
        if self.is_relative:
            return self.after["reward_accuracy"] > 0.5
        return any(self.after[name] > self.before[name] for name in ("reward_accuracy", "reward_margin"))

    @property
    def _tells_margins(self) -> bool:
        """Whether the number of pairs is the same as before, and what changed is by how much the better one leads."""
        before, after = (share(each["reward_accuracy"]) for each in (self.before, self.after))
        low, high = (each["reward_margin"] for each in (self.before, self.after))
        return self.are_scores and before == after and 0 <= low < high and self.after["reward_accuracy"] >= GUESSING

    @property
    def told_apart(self) -> Message:
        """In how many pairs the better answer is preferred."""
        before, after = (share(each["reward_accuracy"]) for each in (self.before, self.after))
        low, high = (each["reward_margin"] for each in (self.before, self.after))
        if self._tells_margins:
            return Message(
                "In {after} of the held-out pairs the better answer scores higher, as before. Its score is now higher "
                "by {high}, before by {low} (on average).",
                after=after,
                low=f"{low:.2f}",
                high=f"{high:.2f}",
            )
        if self.are_scores:
            told = Message(
                "In {after} of the held-out pairs the better answer scores higher (before: {before}, guessing: 50%).",
                before=before,
                after=after,
            )
            if before == after:
                told = Message(
                    "In {after} of the held-out pairs the better answer scores higher, as before (guessing: 50%).",
                    after=after,
                )
            is_worse = self.after["reward_accuracy"] < GUESSING and after != share(GUESSING)
            return joined([told, Message("That is worse than guessing.")]) if is_worse else told
        if self.are_labels:
            return Message(
                "Of the held-out answers the model rates {after} on the right side: good ones up, bad ones down, "
                "compared with the reference.",
                after=after,
            )
        if self.is_relative:
            return Message(
                "In {after} of the held-out pairs the model leans more toward the better answer than its "
                "reference does.",
                after=after,
            )
        return Message(
            "On held-out pairs the model now prefers the better answer in {after} (before: {before}).",
            before=before,
            after=after,
        )

    @property
    def margin(self) -> Message | None:
        """By how much the better answers are preferred; None where `told_apart` says it."""
        if self._tells_margins:
            return None
        before, after = (f"{each['reward_margin']:z.2f}" for each in (self.before, self.after))
        if self.are_labels:
            return Message(
                "The reward margin, by how much it rates good answers above bad ones, is {after}.", after=after
            )
        if self.is_relative:
            return Message(
                "The reward margin, by how much it rates the better answer above the worse one, is {after}.",
                after=after,
            )
        return Message(
            "The reward margin, by how much it rates the better answer above the worse one, went from {before} to "
            "{after}.",
            before=before,
            after=after,
        )

    @property
    def displacement(self) -> Message | None:
        """What to know where the better answers became much less likely, as preferring them does not rule out.

        Razin et al. 2024, "Unintentional Unalignment: Likelihood Displacement in Direct Preference Optimization"
        (arXiv:2410.08847): what both answers lose goes to others, which may mean the opposite.
        """
        if self.are_scores:
            return None
        before, after = (each["logp_chosen"] for each in (self.before, self.after))
        if before - after <= max(DISPLACED * abs(before), LEAST_FALL):
            return None
        if self.are_labels:
            return Message(
                "Caution: good answers became much less likely, too. Their log-probability fell from {before} to "
                "{after}, so the model may write something that is neither. A lower learning rate or a higher weight "
                "of good answers counteracts that.",
                before=f"{before:.1f}",
                after=f"{after:.1f}",
            )
        return Message(
            "Caution: the better answers became much less likely, too. Their log-probability fell from {before} to "
            "{after}, so the model may write something that is neither answer. A lower learning rate or a weight of "
            "the SFT loss counteracts that.",
            before=f"{before:.1f}",
            after=f"{after:.1f}",
        )


def of_event(data: Mapping[str, Any]) -> dict[str, float]:  # Any: JSON values
    """Return those of the LABEL_METRICS that an event "step" or "eval" tells."""
    return {name: float(data[name]) for name in LABEL_METRICS if isinstance(data.get(name), float | int)}


def in_brief(numbers: Numbers) -> Message | None:
    """Return how well pairs are told apart; None without numbers, and of a model that is compared with itself."""
    numbers = of_event(numbers)
    if not are_whole(numbers) or are_untrained(numbers):
        return None
    if "kl" in numbers:
        return Message(
            "rated on the right side {share}  margin {margin}",
            share=share(numbers["reward_accuracy"]),
            margin=f"{numbers['reward_margin']:.2f}",
        )
    return Message(
        "better answer preferred {share}  margin {margin}",
        share=share(numbers["reward_accuracy"]),
        margin=f"{numbers['reward_margin']:.2f}",
    )


def are_untrained(numbers: Numbers) -> bool:
    """Return whether a model was compared with itself, which tells no pair apart and says nothing."""
    return numbers.keys() != set(RATED) and max(abs(numbers[name]) for name in METRICS[:2]) < UNTRAINED_REWARD


def are_whole(numbers: Numbers) -> bool:
    """Return whether numbers are all that a run tells of its pairs."""
    return numbers.keys() in (set(METRICS), set(LABEL_METRICS), set(RATED))


def share(accuracy: float) -> str:
    """Return a share of pairs as text."""
    return f"{accuracy:.0%}"
