"""A person's own file of a reward, looked at without running it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tunesmith_core import judges, reward_files
from tunesmith_core.errors import TunesmithError
from tunesmith_core.rewards import repeated
from tunesmith_core.spec_rollouts import RewardSpec

NO_FUNCTION = r"own\.py: there is no function reward\(prompt, answer, expected\)"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def reward(:\n", r"own\.py, line 1: "),
        ("\n\nif True:\nprint(1)\n", r"own\.py, line 4: "),
        ("", NO_FUNCTION),
        ("def score(a, b, c):\n    reward = 1\n    return reward\n", NO_FUNCTION),
        ("class A:\n    def reward(self, a, b, c): ...\n", NO_FUNCTION),
        ("import os\ndef reward(answer, *, more=1):\n    return 1\n", r"own\.py, line 2: reward must take at least"),
    ],
)
def test_what_a_run_would_find_first_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "own.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TunesmithError, match=words) as caught:
        reward_files.check(str(path))
    assert caught.value.code == "reward-failed"
    with pytest.raises(TunesmithError, match=r"missing\.py: No such file"):
        reward_files.check(str(tmp_path / "missing.py"))


@pytest.mark.parametrize(
    "text",
    [
        "def reward(a, b, c): return 1\n",
        "reward = lambda *all: 1\n",
        "if 1:\n    def reward(a, b, c): return 1\nelse:\n    def reward(a): return 1\n",
        "from mine import reward\n",
        "from mine import score as reward\n",
        "from mine import *\n",
        "globals()['reward'] = print\n",
        "import f\n@f.wrapped\ndef reward(a): return 1\n",
        "def reward(*all): return 1\n",
        "x = 1" + "+1" * 5000 + "\n",
        "#" * reward_files.MOST_BYTES + "\n",
    ],
)
def test_what_only_running_it_can_tell_is_left_to_the_run(tmp_path: Path, text: str) -> None:
    path = tmp_path / "own.py"
    path.write_text(text, encoding="utf-8")
    reward_files.check(str(path))


def test_the_example_can_be_used_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "reward.py"
    path.write_text(reward_files.EXAMPLE, encoding="utf-8")
    reward_files.check(str(path))
    judge = judges.own_file(str(path))
    rows = [{"prompt": "1 + 1?", "answer": answer, "expected": "2", "columns": {"level": 1}} for answer in ("2", "3")]
    assert [judge(row) for row in rows] == [1.0, 0.0]


def test_the_same_reward_twice_gets_a_word() -> None:
    right, short = RewardSpec(), RewardSpec(kind="length", longest=9)
    assert repeated([right, short, RewardSpec(kind="length")]) is None
    assert repeated([right, short, RewardSpec(kind="length", longest=9, weight=2, path="unused")]) == (
        "Reward 3 is the same as reward 2. Both together count like one with the sum of their weights."
    )
