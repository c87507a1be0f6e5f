"""What answers are worth: every kind of reward as a function of answers and what is expected of them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from tunesmith_core import environments
from tunesmith_core import spec_rollouts as kinds
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.messages import Message
from tunesmith_core.operations.kinds.score import ScoreSpec
from tunesmith_core.scoring_process import ScoringProcess
from tunesmith_core.spec_rollouts import NEED_ANSWERS, NEED_PACKAGES, RewardSpec
from tunesmith_engine.evaluation.metrics import exact_match, json_valid, right_or_wrong
from tunesmith_engine.evaluation.numbers import number_match
from tunesmith_engine.reinforcement.advantages import Floats

_TOOL_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
MOST_SHOWN = 60
"""Characters of an answer in an error."""


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer to score.

    Attributes:
        prompt: for a person to read.
        text: what the model wrote.
        expected: the answer in the data, "" where there is none.
        num_tokens: of the answer.
        columns: other columns of its row in the data.
        tokens: of prompt and answer as a whole chat, as a reward model reads it.
    """

    prompt: str
    text: str
    expected: str
    num_tokens: int
    columns: Mapping[str, Any] = field(default_factory=dict)  # Any: JSON values
    tokens: Sequence[int] = ()


Reward = Callable[[Sequence[Answered]], list[float]]


class Scorer:
    """Scores answers by the rewards of a run."""

    def __init__(
        self,
        rewards: Sequence[RewardSpec],
        expected: Sequence[str],
        models: Mapping[int, Reward] = MappingProxyType({}),
    ) -> None:
        """Choose how each reward is computed.

        Args:
            rewards: of the run.
            expected: answers in the data, which decide what is right.
            models: scores of reward models by the place of their reward.

        Raises:
            UserError: `reward-failed` where a reward can't be computed for this data.
        """
        self._weights = np.array([reward.weight for reward in rewards])
        self._rewards = [
            models.get(number) or _reward_of(reward, number, expected)
            for number, reward in enumerate(rewards)
        ]

    def scores(self, answers: Sequence[Answered]) -> Floats:
        """Return the sum of the weighted rewards of each answer, [answers].

        Raises:
            UserError: `reward-failed`, or `foreign-limit` for a file or pattern that takes too long.
        """
        found = np.array([reward(answers) for reward in self._rewards], dtype=np.float64)
        return np.asarray(self._weights @ found, dtype=np.float64)


def _reward_of(reward: RewardSpec, number: int, expected: Sequence[str]) -> Reward:
    place = f"rollouts.rewards[{number}]"
    if reward.kind in NEED_ANSWERS and not any(expected):
        raise TunesmithError(
            "reward-failed",
            "{place}: the data has no answers that could be compared with. Choose another reward.",
            place=place,
        )
    if reward.kind == kinds.RIGHT:
        return _compared(_right(place, expected))
    simple: dict[str, Reward] = {
        kinds.EXACT: _compared(exact_match),
        kinds.NUMBER: _compared(number_match),
        kinds.JSON: _compared(json_valid),
        kinds.TOOL_CALL: lambda answers: [tool_call_valid(each.text) for each in answers],
        kinds.LENGTH: lambda answers: [
            within(each.num_tokens, reward.shortest, reward.longest) for each in answers
        ],
        kinds.LANGUAGE: lambda answers: [speaks(each.text, reward.language) for each in answers],
    }
    return simple[reward.kind] if reward.kind in simple else _judged(reward, place)


def _right(place: str, expected: Sequence[str]) -> Callable[[str, str], float]:
    is_right = right_or_wrong([text for text in expected if text])
    if is_right is None:
        raise TunesmithError(
            "reward-failed",
            "{place}: whether an answer is right is a matter of wording in this data: the answers are sentences or "
            "longer texts. Choose another reward.",
            place=place,
        )
    return is_right


def _compared(score: Callable[[str, str], float]) -> Reward:
    return lambda answers: [float(score(each.text, each.expected)) for each in answers]


def within(num_tokens: int, shortest: int, longest: int) -> float:
    """Return 1 for a length within bounds, less in proportion for a shorter one, none from twice the longest on."""
    if num_tokens < shortest:
        return num_tokens / shortest
    return max(0.0, min(1.0, 2.0 - num_tokens / longest))


def speaks(text: str, language: str) -> float:
    """Return 1 for a text in a language, as its letters and words tell."""
    from py3langid import classify

    return float(bool(text.strip()) and str(classify(text)[0]) == language)


def tool_call_valid(text: str) -> float:
    """Return 1 where all tool calls of an answer, at least one, are JSON with a name and an object of arguments."""
    calls = _TOOL_CALL.findall(text) or [text]
    return float(all(map(_is_call, calls)))


def _is_call(text: str) -> bool:
    try:
        call: Any = json.loads(text)  # Any: JSON values
    except (ValueError, RecursionError):
        return False
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return False
    return isinstance(call.get("arguments", call.get("parameters")), dict)


def _judged(reward: RewardSpec, place: str) -> Reward:
    """Return what scores in a limited process, see `judges`."""
    source = {kinds.PATTERN: reward.pattern, kinds.PYTHON: reward.path, kinds.SCHEMA: reward.schema}.get(
        reward.kind, ""
    )
    packages = str(environments.rewards_packages()) if reward.kind in NEED_PACKAGES else ""
    process = ScoringProcess(ScoreSpec(reward.kind, source, packages))

    def scores(answers: Sequence[Answered]) -> list[float]:
        rows = [
            {"prompt": each.prompt, "answer": each.text, "expected": each.expected, "columns": dict(each.columns)}
            for each in answers
        ]
        try:
            return _finite(process.scores(rows), answers, source)
        except UserError as error:
            if reward.kind != kinds.PATTERN and error.code == "foreign-limit":
                # The rows are not to blame.
                raise TunesmithError("reward-failed", error.message) from error
            if reward.kind != kinds.PATTERN:
                raise
            raise _of_pattern(error, f"{place}.pattern", source) from error

    return scores


def _of_pattern(error: UserError, place: str, pattern: str) -> TunesmithError:
    """Return what is wrong with a pattern, with its setting."""
    message, hint = error.message, error.hint
    if error.code == "foreign-limit":
        message = Message("The pattern {pattern} takes too much time or memory for one answer.", pattern=pattern)
        hint = Message("Write it without a repetition inside a repetition, such as (a+)+.")
    words = Message("{place}: {problem}", place=place, problem=message)
    return TunesmithError("reward-failed", words, hint=hint)


def _finite(values: Sequence[float | None], answers: Sequence[Answered], source: str) -> list[float]:
    for value, answer in zip(values, answers, strict=True):
        if value is None or not math.isfinite(value):
            raise TunesmithError(
                "reward-failed",
                "{path}: the reward of an answer is not a finite number. The answer begins: {text}",
                path=source,
                text=repr(answer.text[:MOST_SHOWN]),
            )
    return [float(value) for value in values if value is not None]
