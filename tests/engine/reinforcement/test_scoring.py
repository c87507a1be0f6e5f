"""Every kind of reward: what it gives for good and bad answers, and what it can't be used for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.spec_rollouts import RewardSpec
from tunesmith_engine.reinforcement import scoring
from tunesmith_engine.reinforcement.scoring import Answered, Scorer

CALL = json.dumps({"name": "search", "arguments": {"query": "cats"}})

CASES: list[tuple[str, dict[str, Any], str, str, float]] = [
    ("right", {}, "So it is 42.", "42", 1.0),
    ("right", {}, "So it is 41.", "42", 0.0),
    ("exact", {}, "Paris", "paris.", 1.0),
    ("exact", {}, "It is Paris", "Paris", 0.0),
    ("number", {}, "12 and 30 make 42", "#### 42", 1.0),
    ("number", {}, "no idea", "42", 0.0),
    ("pattern", {"pattern": r"<answer>.+</answer>"}, "<answer>4</answer>", "", 1.0),
    ("pattern", {"pattern": r"<answer>.+</answer>"}, "<answer></answer>", "", 0.0),
    ("json", {}, '{"a": [1, 2]}', "", 1.0),
    ("json", {}, "{a: 1}", "", 0.0),
    ("language", {"language": "de"}, "Das ist ein schöner Tag, und ich gehe mit dem Hund spazieren.", "", 1.0),
    ("language", {"language": "de"}, "This is a nice day and I walk the dog.", "", 0.0),
    ("language", {"language": "en"}, "", "", 0.0),
    ("tool-call", {}, CALL, "", 1.0),
    ("tool-call", {}, f"Let me look. <tool_call>{CALL}</tool_call>", "", 1.0),
    ("tool-call", {}, f"<tool_call>{CALL}</tool_call><tool_call>oh</tool_call>", "", 0.0),
    ("tool-call", {}, '{"name": "search", "arguments": "cats"}', "", 0.0),
    ("tool-call", {}, "[1]", "", 0.0),
]


@pytest.mark.parametrize(("kind", "settings", "text", "expected", "reward"), CASES)
def test_a_reward_of_each_kind(kind: str, settings: dict[str, Any], text: str, expected: str, reward: float) -> None:
    in_data = ["1", "7", "42"] if kind == "right" else [expected]
    scorer = Scorer([RewardSpec(kind=kind, weight=2.0, **settings)], in_data)
    assert scorer.scores([Answered("Q", text, expected, 5)]).tolist() == [2.0 * reward]


@pytest.mark.parametrize(("num_tokens", "reward"), [(0, 0.0), (5, 0.5), (10, 1.0), (20, 1.0), (30, 0.5), (50, 0.0)])
def test_a_length_within_bounds_is_rewarded_in_full(num_tokens: int, reward: float) -> None:
    scorer = Scorer([RewardSpec(kind="length", shortest=10, longest=20)], [])
    assert scorer.scores([Answered("Q", "text", "", num_tokens)]).tolist() == [pytest.approx(reward)]


def test_rewards_add_up_by_their_weights(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text("def reward(prompt, answer, expected):\n    return len(prompt) + len(answer) + len(expected)\n")
    rewards = [RewardSpec(kind="exact"), RewardSpec(kind="json", weight=-0.5), RewardSpec(kind="python", path=str(own))]
    scorer = Scorer(rewards, ["7", "8"])
    answers = [Answered("Q?", "7", "7", 1), Answered("Q?", "seven", "8", 1)]
    assert scorer.scores(answers).tolist() == [1.0 - 0.5 + 4.0, 0.0 + 8.0]


@pytest.mark.parametrize("kind", ["right", "exact", "number"])
def test_data_without_answers_has_nothing_to_compare_with(kind: str) -> None:
    with pytest.raises(UserError, match=r"rollouts\.rewards\[1\]: the data has no answers") as error:
        Scorer([RewardSpec(kind="json"), RewardSpec(kind=kind)], ["", ""])
    assert error.value.code == "reward-failed"


def test_a_file_that_takes_too_long_is_to_blame_and_not_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def takes_long(_process: object, _rows: object) -> None:
        raise TunesmithError("foreign-limit", "own.py: your reward took longer than 2 s.")

    monkeypatch.setattr(scoring.ScoringProcess, "scores", takes_long)
    with pytest.raises(UserError, match=r"own\.py: your reward took longer than 2 s") as caught:
        Scorer([RewardSpec(kind="python", path="own.py")], []).scores([Answered("Q", "A", "", 1)])
    assert caught.value.code == "reward-failed"


def test_a_pattern_that_can_not_be_read_is_named() -> None:
    scorer = Scorer([RewardSpec(kind="pattern", pattern="(")], [])
    with pytest.raises(UserError, match=r"rollouts\.rewards\[0\]\.pattern: \( is not a regular expression"):
        scorer.scores([Answered("Q", "A", "", 1)])
