"""Run folders that went wrong: each is one row of the list, and every command says what is wrong with it."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.run_mutations import is_listed, is_unreadable, mutants
from tests.tiny_run import GOOD
from tunesmith_core import cli, launch, paths
from tunesmith_core.errors import BugError
from tunesmith_core.runs import Run

LIMIT_S = 10


class Hang(BaseException):
    """A command took too long."""


@contextmanager
def limited() -> Iterator[None]:
    def stop(_number: int, _frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def judged(words: list[str], run: Run, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command and say what is wrong with how it ended, or nothing."""
    try:
        with limited():
            code = cli.main(words)
    except Hang:
        return "hangs"
    except BaseException as error:
        return f"raises {type(error).__name__}: {error}"
    said = capsys.readouterr()
    if code == BugError.exit_code or "Traceback" in said.err:
        return f"exit {code}: {said.err[-300:]}"
    return misjudged(json.loads(said.out), run) if words[0] == "runs" else ""


def misjudged(rows: list[dict[str, Any]], run: Run) -> str:
    """Say what is wrong with a list of the good run and a mutant."""
    if sorted(row["run"] for row in rows) != sorted([GOOD, run.id] if is_listed(run) else [GOOD]):
        return f"lists {[row['run'] for row in rows]!a}"
    if not all(row["step"] == 3 and row["state"] == "stopped" for row in rows if row["run"] == GOOD):
        return "the good run is not as it was"
    if any(row["state"] != "damaged" for row in rows if row["run"] == run.id and is_unreadable(run)):
        return "is not marked as damaged"
    return ""


def sweep(count: int, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    faults: dict[str, str] = {}
    for what, run in mutants(paths.runs_dir(), count):
        for words in (["runs", "--json"], ["show", "--", run.id], ["resume", "--detach", "--", run.id]):
            if fault := judged(words, run, capsys):
                faults[f"{words[0]}, {what}"] = fault
    return faults


@pytest.fixture
def no_start(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_start_supervisor", lambda _run: None)
    paths.runs_dir().mkdir()


def test_a_bad_run_folder_is_one_row(
    no_start: None, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert sweep(200, capsys) == {}


@pytest.mark.long
def test_five_thousand_bad_run_folders(
    no_start: None, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert sweep(5000, capsys) == {}
