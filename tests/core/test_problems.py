"""The command that writes problems of a task."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tunesmith_core import environments, paths, reward_tasks
from tunesmith_core.cli_operations import say_problems
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.kind import AbsolutePath
from tunesmith_core.operations.kinds.problems import ProblemsSpec, make

HOST: Any = SimpleNamespace()


@pytest.fixture
def installed(home: Path) -> Path:
    """The folder of packages as `tunesmith rewards` leaves it."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    folder = home / "envs" / f"rewards-linux-py{version.replace('.', '')}-1"
    python = environments.environment_python(folder)
    python.parent.mkdir(parents=True)
    python.touch()
    packages = folder / ("Lib" if os.name == "nt" else f"lib/python{version}") / "site-packages"
    packages.mkdir(parents=True)
    (paths.envs_dir() / environments.REWARDS_POINTER).write_text(folder.name)
    return packages


def spec(tmp_path: Path, **values: Any) -> ProblemsSpec:
    return ProblemsSpec(**{"task": "gcd", "target": AbsolutePath(str(tmp_path / "a.jsonl")), **values})


def test_it_says_where_and_how_many(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def problems(packages: str, task: str, level: int, seed: int, num: int) -> Any:
        assert (packages, task, level, seed) == (str(installed), "gcd", 2, 5)
        return ({"prompt": str(n)} for n in range(num))

    monkeypatch.setattr(reward_tasks, "problems", problems)
    found = make(HOST, spec(tmp_path, number=7, held_out=3, level=2, seed=5))
    assert found == {
        "train": str(tmp_path / "a.jsonl"),
        "held_out": str(tmp_path / "a-held-out.jsonl"),
        "num_train": 7,
        "num_held_out": 3,
        "notes": [],
    }
    with pytest.raises(TunesmithError, match=r"a\.jsonl exists already"):
        make(HOST, spec(tmp_path, level=2, seed=5))
    again = make(HOST, spec(tmp_path, held_out=0, level=2, seed=5, overwrite=True))
    assert again["held_out"] == ""


def test_without_the_packages_the_next_step_is_named(home: Path, tmp_path: Path) -> None:
    assert home.is_dir()
    with pytest.raises(TunesmithError) as caught:
        make(HOST, spec(tmp_path))
    assert caught.value.code == "environment-missing"
    assert "tunesmith rewards" in caught.value.hint


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"task": "dance"}, "gcd: Find the greatest common divisor"),
        ({"level": 9}, "1, 2 or 3"),
        ({"number": 0}, "1 to 100,000"),
        ({"held_out": -1}, "1 to 100,000"),
    ],
)
def test_settings_out_of_range_are_named(tmp_path: Path, values: dict[str, Any], words: str) -> None:
    with pytest.raises(TunesmithError) as caught:
        make(HOST, spec(tmp_path, **values))
    assert caught.value.code == "usage"
    assert words in caught.value.message


def test_fewer_problems_than_asked_are_told(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert installed.is_dir()
    monkeypatch.setattr(reward_tasks, "problems", lambda *_: ({"prompt": str(n)} for n in range(12)))
    found = make(HOST, spec(tmp_path, number=500, held_out=100))
    assert (found["num_train"], found["num_held_out"]) == (10, 2)
    assert found["notes"] == [
        "This task has only 12 different problems of this level: 10 to train on and 2 held out. Choose a higher level "
        "for more."
    ]
    hardest = make(HOST, spec(tmp_path, number=500, held_out=100, level=3, overwrite=True))
    assert hardest["notes"][0].endswith("2 held out.")
    say_problems(found | {"held_out": ""})
    told = capsys.readouterr()
    assert told.out == f"10 problems to train on: {tmp_path / 'a.jsonl'}\n"
    assert "only 12 different problems" in told.err


def test_files_are_renamed_with_what_is_held_out(tmp_path: Path) -> None:
    for name in ("a.jsonl", "a-held-out.jsonl"):
        (tmp_path / name).write_text(name)
    answer = {"train": str(tmp_path / "a.jsonl"), "held_out": str(tmp_path / "a-held-out.jsonl"), "num_train": 3}
    found = reward_tasks.renamed(answer, tmp_path / "b.jsonl")
    assert found == answer | {"train": str(tmp_path / "b.jsonl"), "held_out": str(tmp_path / "b-held-out.jsonl")}
    assert (tmp_path / "b-held-out.jsonl").read_text() == "a-held-out.jsonl"
    assert reward_tasks.renamed(found | {"held_out": ""}, tmp_path / "c.jsonl")["held_out"] == ""
