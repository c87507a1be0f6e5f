"""What the command line says of errors, times and the events of a run."""

from __future__ import annotations

import errno
import io
import sys
from typing import Any

import pytest

from tunesmith_core import terminal
from tunesmith_core.errors import EnvironmentProblem, UserError
from tunesmith_core.messages import said
from tunesmith_core.protocol import Event


def test_an_error_shows_evidence_and_link(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.show_error(EnvironmentProblem("disk-full", "one\ntwo", context="tail", hint="h", link="page"))
    assert capsys.readouterr().err == "error[disk-full]: The disk is full\none\ntwo\n\ntail\n\nhint: h\nsee: page\n"


def test_an_error_about_a_file_shows_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.show_error(UserError("model-files-missing-or-corrupt", "one", context="Traceback ...", hint="h"))
    assert capsys.readouterr().err == "error[model-files-missing-or-corrupt]: The model can't be read\none\nhint: h\n"


def test_a_table_is_aligned_whatever_the_letters() -> None:
    rows = terminal.table(["模型", "x"], [["a", "1"], ["abcde", "2"]]).splitlines()
    assert rows == ["模型   x", "a      1", "abcde  2"]


def test_sizes_come_in_the_unit_that_suits_them() -> None:
    assert [terminal.size(2**power * 1.5) for power in (9, 20, 30)] == ["768 B", "2 MiB", "1.5 GiB"]
    assert [terminal.size(2**power) for power in (20, 30)] == ["1 MiB", "1.0 GiB"]
    assert (terminal.gib(2**30 * 1.256), terminal.number(1.5), terminal.number(None)) == ("1.26 GiB", "1.500", "-")


def test_what_is_said_arrives_at_once_in_any_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = {"stdout": io.BytesIO(), "stderr": io.BytesIO()}
    for name, end in streams.items():
        monkeypatch.setattr(sys, name, io.TextIOWrapper(end, encoding="ascii"))
    monkeypatch.setattr(sys, "platform", "linux")
    terminal.prepare()
    arrived = streams["stdout"]
    for speak, text in (
        (lambda: terminal.say("a 名"), "a \\u540d\n"),
        (lambda: terminal.say_json({"名": 1}), '{\n  "\\u540d": 1\n}\n'),
        (lambda: terminal.say_event(Event(1, 2.0, "x", {"a": "名"})), '{"seq":1,"t":2.0,"type":"x","a":"\\u540d"}\n'),
    ):
        before = len(arrived.getvalue())
        speak()
        assert arrived.getvalue()[before:].decode().replace("\r", "") == text
    terminal.note("b 名")
    assert streams["stderr"].getvalue().strip() == b"b \\u540d"
    terminal.show_error(UserError("disk-full", "x"))
    assert b"error[disk-full]" in streams["stderr"].getvalue()


def test_json_keeps_the_letters_of_people(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.say_json({"名": "字"})
    terminal.say_event(Event(1, 2.0, "x", {"a": "名"}))
    assert capsys.readouterr().out == '{\n  "名": "字"\n}\n{"seq":1,"t":2.0,"type":"x","a":"名"}\n'


def test_a_stream_that_can_not_be_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(sys, "stderr", object())
    terminal.prepare()


@pytest.mark.parametrize(
    ("error", "platform", "has_left"),
    [
        (BrokenPipeError(), "linux", True),
        (BrokenPipeError(), "win32", True),
        (OSError(errno.EINVAL, "x"), "win32", True),
        (OSError(errno.EINVAL, "x"), "linux", False),
        (OSError(errno.EINVAL, "x", "file"), "win32", False),
        (OSError(errno.EIO, "x"), "win32", False),
        (ValueError(), "win32", False),
    ],
)
def test_a_reader_that_has_left_is_told_from_other_errors(
    monkeypatch: pytest.MonkeyPatch, error: Exception, platform: str, has_left: bool
) -> None:
    monkeypatch.setattr(terminal.sys, "platform", platform)
    assert terminal.reader_has_left(error) == has_left


def test_spans_of_time() -> None:
    spans = {-3: "0 s", 0: "0 s", 0.0434: "0.043 s", 0.25: "0.25 s", 0.999: "1 s"}
    spans |= {5: "5 s", 59.4: "59 s", 60: "1 min 00 s", 65: "1 min 05 s", 3599: "59 min 59 s"}
    spans |= {3600: "1 h 00 min", 7500: "2 h 05 min", 90_000: "25 h 00 min"}
    assert {seconds: terminal.duration(seconds) for seconds in spans} == spans
    chinese = [said(terminal.duration(each), "zh_CN") for each in (5, 1223, 7500)]
    assert chinese == ["5 秒", "20 分 23 秒", "2 小时 05 分"]


@pytest.mark.parametrize("to_error", [False, True])
def test_progress_is_drawn_in_place_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, to_error: bool
) -> None:
    monkeypatch.setattr(sys.stderr if to_error else sys.stdout, "isatty", lambda: True, raising=False)
    progress = terminal.Progress(to_error=to_error)
    progress.close()
    progress.show(Event(1, 1.0, "setup", {"total_steps": 3}))
    progress.show(Event(2, 2.0, "step", {"step": 1, "loss": 2.0, "step_s": 30.0}))
    progress.show(Event(3, 3.0, "step", {"step": 2, "loss": None}))
    progress.show(Event(4, 4.0, "gpu", {}))
    progress.show(Event(5, 5.0, "eval", {"step": 2, "loss": 1.0}))
    progress.show(Event(6, 6.0, "step", {"step": 3, "loss": 1.0}))
    progress.close()
    first, second = "step 1/3  loss 2.000  1 min 00 s left", "step 2/3  loss -"
    told = capsys.readouterr()
    out, other = (told.err, told.out) if to_error else (told.out, told.err)
    assert other == ""
    assert out.startswith(
        f"\r{first}\r{second.ljust(len(first))}\r{' ' * len(second)}\rstep 2: evaluation loss 1.000\n"
    )
    assert out.endswith("\rstep 3/3  loss 1.000\n")


def test_elsewhere_steps_are_told_rarely(capsys: pytest.CaptureFixture[str]) -> None:
    progress = terminal.Progress()
    for step in range(1, 101):
        progress.show(Event(step, 1000.0 + step, "step", {"step": step, "loss": 1.0}))
    told = [line.split()[1] for line in capsys.readouterr().out.splitlines()]
    assert told == ["1/?", "11/?", "21/?", "31/?", "41/?", "51/?", "61/?", "71/?", "81/?", "91/?"]
    progress.show(Event(101, 1100.0, "setup", {"total_steps": 102}))
    for step in (101, 102):
        progress.show(Event(step, 1101.0, "step", {"step": step, "loss": 1.0, "step_s": 2.0}))
    assert capsys.readouterr().out == "step 101/102  loss 1.000  2 s left\nstep 102/102  loss 1.000\n"
    progress.show(Event(103, 1111.0, "step", {"loss": 1.0, "step_s": 2.0}))
    assert capsys.readouterr().out == "step None/102  loss 1.000  3 min 24 s left\n"


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
