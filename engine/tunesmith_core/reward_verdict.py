"""What came of a run that learned from rewards, by the rewards of answers to prompts that it never saw."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tunesmith_core.evaluations import FEWEST_ROWS
from tunesmith_core.messages import Message
from tunesmith_core.next_steps import NextStep
from tunesmith_core.outcome import Interval, Outcome, Verdict
from tunesmith_core.rewards import Numbers, shown

NOTHING, LITTLE = 0.01, 0.10
"""Up to these shares of the larger reward a rise is nothing, or little."""

TURNED = 0.02
"""Share of the highest reward that a later one must lie under it; more where the interval is wider."""

ALL_EQUAL = 0.9
"""With so many prompts whose answers all got the same reward, nothing could be learned."""

RISING = 0.03
"""Share by which the last fifth of the rewards in training lies over the one before it while there is more to learn."""


@dataclass(frozen=True, slots=True)
class Rewarded:
    """What a run has measured.

    Attributes:
        held_out: mean rewards of held-out prompts by step; that of step 0 is the base model's.
        training: rewards.METRICS of the steps.
        num_held_out: prompts, None where that was not told.
        improvement: by how much the reward of a held-out prompt rose; None where nobody can tell.
        evidence: what else is known.
    """

    held_out: Mapping[int, float]
    training: Mapping[int, Numbers]
    num_held_out: int | None
    improvement: Interval | None
    evidence: str

    @property
    def rises(self) -> bool:
        """Whether the reward in training was still rising at the end."""
        rewards = [each["reward"] for _, each in sorted(self.training.items()) if math.isfinite(each["reward"])]
        size = len(rewards) // 5
        if not size:
            return False
        last, before = _mean(rewards[-size:]), _mean(rewards[-2 * size : -size])
        return last > before + RISING * abs(before)

    @property
    def equal_share(self) -> float:
        """The share of prompts whose answers all got the same reward."""
        return _mean([each.get("equal_groups", 0.0) for each in self.training.values()] or [0.0])


def judge_rewards(run: Rewarded) -> Verdict:
    """Say what came of a run."""
    if 0 not in run.held_out or len(run.held_out) < 2:
        return _unmeasured(run)
    rewards = run.held_out
    best_step = max(rewards, key=lambda step: (rewards[step], -step))
    before, best, last = rewards[0], rewards[best_step], rewards[max(rewards)]
    values = {"before": shown(before), "best": shown(best), "after": shown(last), "step": best_step}
    if run.num_held_out is not None and run.num_held_out < FEWEST_ROWS:
        return _too_few(run.num_held_out, values)
    scale, gain = max(abs(before), abs(best)), run.improvement
    noise = max(TURNED * scale, (gain.high - gain.low) / 2 if gain else 0.0)
    if min(best - before, best - last) > noise:
        return _fallen(run, best_step, values)
    share = (last - before) / scale if scale else 0.0
    if gain.high < 0 if gain else share < -TURNED:
        return _worse(run, best_step, values)
    if share <= NOTHING or (gain and gain.low <= 0):
        return _nothing(run, best_step, values, share > NOTHING)
    return _improved(run, best_step, values, share > LITTLE)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _unmeasured(run: Rewarded) -> Verdict:
    sentence = Message("Nobody knows whether the model improved: no held-out prompts were answered before and after.")
    advice = Message("Hold out a share of the prompts and train again. A rising reward in training alone may mislead.")
    return Verdict(Outcome.UNMEASURED, sentence, advice, evidence=run.evidence, next_steps=(NextStep("hold-out"),))


def _too_few(num_prompts: int, values: Mapping[str, object]) -> Verdict:
    sentence = Message(
        "Too few held-out prompts to tell whether the model improved: over {num_prompts} of them the mean reward went "
        "from {before} to {after}, which may be chance.",
        num_prompts=num_prompts,
        **values,
    )
    advice = Message("Hold out more prompts, at least {least}, and train again.", least=FEWEST_ROWS)
    return Verdict(Outcome.TOO_FEW, sentence, advice, next_steps=(NextStep("hold-out"),))


def _fallen(run: Rewarded, best_step: int, values: Mapping[str, object]) -> Verdict:
    sentence = Message(
        "Best at step {step}: the mean reward for held-out prompts rose from {before} to {best} there and has fallen "
        "to {after} since.",
        **values,
    )
    advice = Message("Train until step {step} only, or at a lower learning rate.", **values)
    steps = (NextStep("until-step", best_step), NextStep("lower-rate"))
    return Verdict(Outcome.OVERFITTED, sentence, advice, best_step, run.evidence, steps)


def _worse(run: Rewarded, best_step: int, values: Mapping[str, object]) -> Verdict:
    sentence = Message(
        "The model got worse: the mean reward for held-out prompts fell from {before} to {after}.", **values
    )
    advice = Message("Lower the learning rate, and look at the answers: the reward may favor something else.")
    steps = (NextStep("lower-rate"), NextStep("look-at-rows"))
    return Verdict(Outcome.WORSE, sentence, advice, best_step, run.evidence, steps)


def _nothing(run: Rewarded, best_step: int, values: Mapping[str, object], is_uncertain: bool) -> Verdict:
    sentence = Message("No improvement: the mean reward for held-out prompts was {before} and is {after}.", **values)
    if is_uncertain:
        sentence = Message(
            "No improvement that is certain: the mean reward for held-out prompts went from {before} to {after}, "
            "which may be chance.",
            **values,
        )
    steps: tuple[NextStep, ...] = (NextStep("more-steps"), NextStep("hold-out"))
    advice = Message("Train for more steps, and hold out more prompts to measure it.")
    if run.equal_share >= ALL_EQUAL:
        advice = Message(
            "All answers to a prompt got the same reward for {share} of the prompts, so there was nothing to learn. "
            "Choose prompts that the model gets right sometimes, or a reward that tells answers apart.",
            share=f"{run.equal_share:.0%}",
        )
        steps = (NextStep("look-at-rows"),)
    elif run.rises:
        advice = Message("The reward in training was still rising at the end. Train for more steps.")
        steps = (NextStep("more-steps"),)
    elif not is_uncertain:
        advice = Message("Train for more steps or at a higher learning rate, or let it write more answers per prompt.")
        steps = (NextStep("higher-rate"), NextStep("more-steps"))
    return Verdict(Outcome.NOTHING, sentence, advice, best_step, run.evidence, steps)


def _improved(run: Rewarded, best_step: int, values: Mapping[str, object], is_much: bool) -> Verdict:
    if is_much:
        sentence = Message(
            "Improved a lot: the mean reward for held-out prompts rose from {before} to {after}.", **values
        )
        advice = Message("Read some answers before you rely on it. A reward can be earned without doing the task.")
        return Verdict(Outcome.MUCH, sentence, advice, best_step, run.evidence)
    sentence = Message(
        "Improved a little: the mean reward for held-out prompts rose from {before} to {after}.", **values
    )
    advice = Message("More steps or more prompts may improve it further.")
    if run.rises:
        advice = Message("The reward in training was still rising at the end. Train for more steps.")
    return Verdict(Outcome.LITTLE, sentence, advice, best_step, run.evidence, (NextStep("more-steps"),))
