"""The process that scores answers for a whole run: it stays, has limits, and is started again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tunesmith_core import scoring_process
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.kinds.score import ScoreSpec
from tunesmith_core.process_identity import identify
from tunesmith_core.scoring_process import ScoringProcess

ROWS = [{"prompt": "a", "answer": "x", "expected": "", "columns": {}}]


@pytest.fixture
def scoring(home: Path, tmp_path: Path) -> Iterator[Callable[[str], ScoringProcess]]:
    """Score by a Python file of this text."""
    del home
    opened: list[ScoringProcess] = []

    def start(text: str) -> ScoringProcess:
        path = tmp_path / "own.py"
        path.write_text("import os, pathlib, time\n" + text, encoding="utf-8")
        opened.append(ScoringProcess(ScoreSpec("python", str(path))))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


def test_it_stays_and_ends_with_who_asked(scoring: Callable[[str], ScoringProcess]) -> None:
    process = scoring("def reward(prompt, answer, expected):\n    return os.getpid()\n")
    first = process.scores(ROWS)
    begun_s = time.monotonic()
    assert [process.scores(ROWS) for _ in range(3)] == [first] * 3
    assert time.monotonic() - begun_s < 1.0
    (pid,) = first
    assert pid is not None
    assert pid != os.getpid()
    assert identify(int(pid))
    process.close()
    assert not identify(int(pid))
    assert process.scores(ROWS) != first, "it is started again"


def test_a_pattern_is_looked_for_by_a_process_without_a_file(home: Path) -> None:
    del home
    process = ScoringProcess(ScoreSpec("pattern", "^x+$"))
    assert process.scores([{**ROWS[0], "answer": answer} for answer in ("xx", "y")]) == [1.0, 0.0]
    process.close()


AFTER_A_WHILE = """
calls = []
mark = pathlib.Path(__file__).with_name("mark")
def reward(prompt, answer, expected):
    calls.append(1)
    if len(calls) == 2 and ({always} or not mark.exists()):
        mark.touch()
        {fault}
    return len(calls)
"""


def test_one_that_ends_after_a_while_is_started_again(scoring: Callable[[str], ScoringProcess]) -> None:
    process = scoring(AFTER_A_WHILE.format(fault="os._exit(3)", always=False))
    assert [process.scores(ROWS) for _ in range(3)] == [[1.0], [1.0], [2.0]]


def test_one_that_fails_again_is_named(scoring: Callable[[str], ScoringProcess]) -> None:
    process = scoring("calls = []\n" + AFTER_A_WHILE.format(fault="os._exit(3)", always=True).replace("== 2", ">= 2"))
    with pytest.raises(TunesmithError) as caught:
        process.scores(ROWS * 2)
    assert caught.value.code == "foreign-limit"
    assert process.scores(ROWS) == [1.0]
    with pytest.raises(TunesmithError, match="ended its process"):
        process.scores(ROWS * 2)


def test_what_the_file_raises_is_named_at_once(scoring: Callable[[str], ScoringProcess]) -> None:
    process = scoring(AFTER_A_WHILE.format(fault="raise KeyError(1)", always=False))
    assert process.scores(ROWS) == [1.0]
    with pytest.raises(TunesmithError, match=r"own\.py, line 9: KeyError"):
        process.scores(ROWS)


def test_a_process_that_can_not_be_started_is_named(
    scoring: Callable[[str], ScoringProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> Any:
        raise OSError("no process")

    monkeypatch.setattr(scoring_process, "conduct", refuse)
    with pytest.raises(TunesmithError, match="no process"):
        scoring("").scores(ROWS)


def test_a_process_that_was_stopped_is_told(
    scoring: Callable[[str], ScoringProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring_process, "conduct", lambda *_, **__: None)
    with pytest.raises(TunesmithError, match="has ended"):
        scoring("").scores(ROWS)
