"""What the command line says of errors, times and the events of a run."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tunesmith_core import terminal
from tunesmith_core.errors import UserError
from tunesmith_core.protocol import Event


def test_an_error_shows_evidence_and_link(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.show_error(UserError("disk-full", "one\ntwo", context="tail", hint="h", link="page"))
    assert capsys.readouterr().err == "error[disk-full]: The disk is full\none\ntwo\n\ntail\n\nhint: h\nsee: page\n"


def test_a_table_is_aligned_whatever_the_letters() -> None:
    rows = terminal.table(["模型", "x"], [["a", "1"], ["abcde", "2"]]).splitlines()
    assert rows == ["模型   x", "a      1", "abcde  2"]


def test_sizes_come_in_the_unit_that_suits_them() -> None:
    assert [terminal.size(2**power * 1.5) for power in (9, 20, 30)] == ["0.8 KiB", "1.5 MiB", "1.5 GiB"]


def test_spans_of_time() -> None:
    assert [terminal.duration(seconds) for seconds in (5, 65, 7500)] == ["5 s", "1 min 05 s", "2 h 05 min"]


def test_progress_is_drawn_in_place_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    progress = terminal.Progress()
    progress.close()
    progress.show(Event(1, 1.0, "setup", {"total_steps": 3}))
    progress.show(Event(2, 2.0, "step", {"step": 1, "loss": 2.0, "step_s": 30.0}))
    progress.show(Event(3, 3.0, "step", {"step": 2, "loss": None}))
    progress.show(Event(4, 4.0, "gpu", {}))
    progress.show(Event(5, 5.0, "eval", {"step": 2, "loss": 1.0}))
    progress.show(Event(6, 6.0, "step", {"step": 3, "loss": 1.0}))
    progress.close()
    first, second = "step 1/3  loss 2.0000  1 min 00 s left", "step 2/3  loss -"
    out = capsys.readouterr().out
    assert out.startswith(
        f"\r{first}\r{second.ljust(len(first))}\r{' ' * len(second)}\rstep 2: evaluation loss 1.0000\n"
    )
    assert out.endswith("\rstep 3/3  loss 1.0000\n")


def test_elsewhere_steps_are_told_rarely(capsys: pytest.CaptureFixture[str]) -> None:
    progress = terminal.Progress()
    for step in range(1, 101):
        progress.show(Event(step, 1000.0 + step, "step", {"step": step, "loss": 1.0}))
    assert 9 <= len(capsys.readouterr().out.splitlines()) <= 11


@pytest.mark.parametrize(
    ("kind", "data", "words"),
    [
        ("phase", {"name": "model"}, "model ..."),
        ("phase", {"name": "model", "done": 3}, ""),
        (
            "phase",
            {"name": "paused", "code": "disk-full", "message": "/runs: no space is left on the disk."},
            "Paused: /runs: no space is left on the disk. The run keeps everything in memory and continues by itself.",
        ),
        ("sample", {"step": 1, "prompt": "a", "text": "b"}, "step 1: 'a' -> 'b'"),
        ("warning", {"code": "x", "message": "m"}, "warning[x]: m"),
        ("stopping", {"mode": "save"}, "stopping ..."),
        ("log", {"level": "info", "text": "a, 4 tokens/s"}, "a, 4 tokens/s"),
    ],
)
def test_events_have_words(kind: str, data: dict[str, Any], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    terminal.Progress().show(Event(1, 0.0, kind, data))
    assert capsys.readouterr().out.strip() == words
