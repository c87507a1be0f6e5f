"""What the command line says of runs that lost, skipped or wait for something."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from tests.core.test_cli import spec_file
from tunesmith_core import cli
from tunesmith_core.locks import FileLock
from tunesmith_core.protocol import JournalWriter
from tunesmith_core.runs import create_run
from tunesmith_core.spec import RunSpec

Make = Callable[..., RunSpec]
Script = Callable[[dict[str, Any]], None]

__all__ = ["spec_file"]


def test_an_interrupted_run_says_what_it_lost(make_spec: Make, capsys: pytest.CaptureFixture[str]) -> None:
    run = create_run(make_spec("i"))
    with closing(JournalWriter(run.journal_path)) as journal:
        journal.write("hello")
        journal.write("checkpoint", step=270)
        journal.write("step", step=270)
    for words in ("ended without a result", "Steps after 270 were not saved."):
        assert cli.main(["show", run.id]) == 0
        assert words in capsys.readouterr().err
        with closing(JournalWriter(run.journal_path)) as journal:
            journal.write("step", step=319)


@pytest.mark.parametrize(
    ("code", "words"),
    [("disk-full", "paused: the disk is full"), ("permission-or-antivirus", "paused: the disk can't be written")],
)
def test_runs_and_show_say_what_a_paused_run_waits_for(
    make_spec: Make, capsys: pytest.CaptureFixture[str], code: str, words: str
) -> None:
    run = create_run(make_spec("p"))
    with closing(JournalWriter(run.journal_path)) as journal:
        journal.write("hello")
        journal.write("phase", name="paused", code=code, message="/d takes nothing.")
    with FileLock(run.lock_path):
        assert cli.main(["runs"]) == 0
        assert words in capsys.readouterr().out
        assert cli.main(["show", run.id]) == 0
        told = capsys.readouterr()
    assert f"state:           {words}\n" in told.out
    assert told.err == "Paused: /d takes nothing. The run keeps everything in memory and continues by itself.\n"


def test_rows_that_were_skipped_are_told(
    spec_file: str, capsys: pytest.CaptureFixture[str], fake_engine: Script
) -> None:
    def told(num_skipped: int, num_train: int = 2, num_eval: int = 1) -> str:
        setup = {"num_train_rows": num_train, "num_eval_rows": num_eval, "num_skipped_rows": num_skipped}
        setup["total_steps"] = 1
        fake_engine({"*": [["hello"], ["event", "setup", setup], ["steps", 1], ["result", "finished"]]})
        assert cli.main(["train", spec_file]) == 0
        return capsys.readouterr().out

    assert "Skipped 10 of 13 rows.\n" in told(10)
    assert cli.main(["show", "c-01"]) == 0
    assert "skipped rows:    10 of 13\n" in capsys.readouterr().out
    assert "Skipped" not in told(0)
    assert cli.main(["show", "c-02"]) == 0
    assert "skipped rows" not in capsys.readouterr().out
    assert "Skipped 1,010 of 1,013 rows.\n" in told(1010)
    assert "Skipped 1 of 1 row.\n" in told(1, num_train=0, num_eval=0)
