"""What runs that learn from rewards tell of their answers, and the sentences about that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tunesmith_core.messages import LISTED, Message, joined
from tunesmith_core.spec_rollouts import LANGUAGE, LENGTH, MODEL, OF_KINDS, PATTERN, PYTHON, SCHEMA, RewardSpec
from tunesmith_core.spec_sections import CHOICE_WORDS

if TYPE_CHECKING:
    from tunesmith_core.spec import RunSpec

OF_ROUNDS = (
    *("reward", "reward_spread", "reward_lowest", "reward_highest", "equal_groups", "answer_tokens", "cut_answers"),
)
"""Told of each step, of the answers that were written in it: mean, standard deviation, lowest and highest of their
rewards; the share of prompts whose answers all got the same; the mean length in tokens; the share of answers that were
cut. TRL's "reward", "reward_std", "frac_reward_zero_std", "completions/mean_length" and "completions/clipped_ratio"."""

OF_UPDATES = ("kl", "entropy", "clip_share")
"""Told of each step, as means over tokens: how far the model is from its base model (Schulman 2020, the estimate k3, of
a few answers where the loss doesn't compare), how undecided it is (minus the log-probability of what it wrote, in
nats), and the share of tokens whose update was clipped."""

METRICS = (*OF_ROUNDS, *OF_UPDATES)

REWARD_HELP = Message(
    "The reward is the mean over answers. In training the model chooses its words at random, for held-out prompts it "
    "takes the most likely ones."
)

Numbers = Mapping[str, float]


def of_event(data: Mapping[str, Any]) -> dict[str, float]:  # Any: JSON values
    """Return the numbers of rewards that an event "step" or "eval" tells; {} of runs that learn from others."""
    if "reward" not in data:
        return {}
    return {name: float(data[name]) for name in METRICS if isinstance(data.get(name), float | int)}


def shown(reward: float) -> str:
    """Return a reward as text."""
    return f"{reward:z.3f}"


def in_brief(numbers: Mapping[str, Any]) -> Message | None:  # Any: JSON values
    """Return how good the answers of a step or evaluation are; None without a reward."""
    reward = numbers.get("reward")
    return Message("reward {reward}", reward=shown(reward)) if isinstance(reward, float | int) else None


def described(rewards: Sequence[RewardSpec]) -> Message:
    """Return what is rewarded, and with which weight where that is not 1."""
    return joined([_described(each) for each in rewards], LISTED)


def repeated(rewards: Sequence[RewardSpec]) -> Message | None:
    """Return what to know where the same is rewarded twice, None where it isn't."""
    known: dict[tuple[object, ...], int] = {}
    for number, reward in enumerate(rewards, 1):
        what = (reward.kind, *(getattr(reward, name) for name, kind in OF_KINDS.items() if kind == reward.kind))
        if what in known:
            return Message(
                "Reward {number} is the same as reward {first}. Both together count like one with the sum of their "
                "weights.",
                number=number,
                first=known[what],
            )
        known[what] = number
    return None


def round_words(spec: RunSpec) -> Message:
    """Return what a run does in each step."""
    schedule, rollouts = spec.schedule, spec.rollouts
    told = Message(
        "Each step: {prompts} prompts, {answers} answers to each, of at most {tokens:,} tokens.",
        prompts=schedule.micro_batch_size * schedule.gradient_accumulation_steps,
        answers=rollouts.group_size,
        tokens=rollouts.max_tokens,
    )
    if rollouts.max_tokens <= spec.data.context_length:
        return told
    note = Message(
        "The context length of {tokens:,} tokens is for the rows of the data. What the model writes may be longer.",
        tokens=spec.data.context_length,
    )
    return joined([told, note])


def _described(reward: RewardSpec) -> Message:
    details = {
        PATTERN: reward.pattern,
        PYTHON: reward.path,
        SCHEMA: reward.schema,
        MODEL: reward.model,
        LANGUAGE: reward.language,
        LENGTH: Message("{shortest} to {longest} tokens", shortest=reward.shortest, longest=reward.longest),
    }
    words = Message(CHOICE_WORDS[reward.kind])
    if reward.kind in details:
        words = Message("{name}: {details}", name=words, details=details[reward.kind])
    return words if reward.weight == 1 else Message("{name} (weight {weight:g})", name=words, weight=reward.weight)
