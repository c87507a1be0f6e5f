"""What the person reads: sizes, durations, phases with their times."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import pytest

from tests.hostile_text import HOSTILE, STEERING
from tunesmith_core.errors import BugError, EnvironmentProblem
from tunesmith_core.operations.folder import Operation
from tunesmith_core.protocol import Event, post_command, read_journal
from tunesmith_core.setup_messages import Finding, Fix, Part, Plan, State
from tunesmith_setup import progress as reporting
from tunesmith_setup.progress import EventProgress, Progress, SilentProgress, duration_text, size_text


@pytest.mark.parametrize(
    ("num_bytes", "text"), [(0, "0 MiB"), (97_517_568, "93 MiB"), (1024**3, "1.0 GiB"), (6_012_954_214, "5.6 GiB")]
)
def test_sizes_are_binary_units(num_bytes: int, text: str) -> None:
    assert size_text(num_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.44, "0.4 s"), (59.94, "59.9 s"), (60, "1 min 00 s"), (125.4, "2 min 05 s")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_a_phase_is_announced_and_timed(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    with progress.phase("Launcher environment"):
        progress.note("a note")
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["==> Launcher environment", "    a note"]
    assert lines[2].startswith("    done in ")
    assert [name for name, _ in progress.timings] == ["Launcher environment"]


def test_a_failed_phase_is_not_called_done(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    with pytest.raises(ValueError, match="broken"), progress.phase("Example"):
        raise ValueError("broken")
    assert capsys.readouterr().out == "==> Example\n"
    assert progress.timings == []


PARTS = (Part("training", 2_600_000_000, 5_700_000_000), Part("launcher", 0, 0))
PLAN = Plan(PARTS, str(Path("/data")), 10 * 1024**3, 125, "cu124", "RTX 3060, driver 552: CUDA 12.4")
FAILURE = EnvironmentProblem("disk-full", "/data: 9 GiB are needed.", context="the last lines\n", hint="Free some.")

FULL = EnvironmentProblem("disk-full", "full")


def tell_everything(progress: Progress) -> None:
    """Call every method once and twice where it has two forms."""
    with progress.phase("Training environment"):
        progress.note("a note")
        progress.line()
        progress.plan(PLAN)
        progress.progress("download", 512 * 1024**2, 1024**3, 20e6, 26.84)
        progress.progress("download", 0, 1024**3, 0, None)
        named = {"id": "disk", "title": "Room on the drive"}
        progress.check(Finding(State.CHECKING, **named))
        progress.check(Finding(State.OK, **named))
        fix = Fix("Free the download cache", "free-disk", bytes=5)
        progress.check(Finding(State.FAILED, "1 GiB free", "disk-full", "/data", fix, **named))
    progress.error(FAILURE)
    progress.error(FULL)
    progress.result(3)


def test_text_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    tell_everything(Progress())
    written = capsys.readouterr()
    lines = written.out.splitlines()
    assert lines[-1].startswith("    done in ")
    assert lines[1:-1] == [
        "    a note",
        "",
        "    RTX 3060, driver 552: CUDA 12.4",
        "    training: 2.4 GiB to download, 5.3 GiB on disk",
        "    launcher: complete",
        f"    Folder: {Path('/data')}",
        "    Needs at most 5.3 GiB, 10.0 GiB are free",
        "    About 2 min 05 s",
        "    download: 512 MiB of 1.0 GiB, 20.0 MB/s, 26.8 s left",
        "    download: 0 MiB of 1.0 GiB, 0.0 MB/s",
        "    ok       Room on the drive",
        "    failed   Room on the drive: 1 GiB free [disk-full]",
        "             To fix it: Free the download cache",
    ]
    assert written.err.splitlines() == [
        "the last lines",
        "error[disk-full]: The disk is full",
        "/data: 9 GiB are needed.",
        "hint: Free some.",
        "error[disk-full]: The disk is full",
        "full",
        f"hint: {FULL.hint}",
    ]


def test_a_plan_of_nothing_takes_no_time(capsys: pytest.CaptureFixture[str]) -> None:
    Progress().plan(Plan((Part("training", 0, 0),), "/data", 0, 0, "cpu", "No NVIDIA GPU: CPU"))
    assert "roughly" not in capsys.readouterr().out


def test_a_terminal_shows_the_bars_of_uv_instead(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporting.sys.stderr, "isatty", lambda: True)
    Progress().progress("download", 1, 2, 1.0, 1.0)
    assert capsys.readouterr().out == ""


def test_an_operation_gets_events(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    operation = Operation(tmp_path)
    progress = EventProgress(operation)
    tell_everything(progress)
    assert capsys.readouterr() == ("", "")
    assert 2 * progress.interval_s <= 1 < 10 * Progress.interval_s <= 100, "a bar moves each second, text seldom"
    events = read_journal(operation.journal_path)
    assert [event.type for event in events[:4]] == ["phase", "log", "plan", "progress"]
    assert events[0].data == {"name": "Training environment", "state": "started"}
    assert events[1].data == {"level": "info", "text": "a note"}
    assert events[2].data["parts"][0] == {
        "name": "training",
        "download_bytes": 2_600_000_000,
        "disk_bytes": 5_700_000_000,
    }
    assert (events[2].data["folder"], events[2].data["seconds"]) == (str(Path("/data")), 125)
    assert (events[3].data["bytes_per_s"], events[3].data["remaining_s"]) == (20_000_000, 26.8)
    assert events[4].data["remaining_s"] is None
    assert events[7].data == {
        "id": "disk",
        "title": "Room on the drive",
        "state": "failed",
        "message": "1 GiB free",
        "code": "disk-full",
        "evidence": "/data",
        "fix": {
            "label": "Free the download cache",
            "action": "free-disk",
            "automatic": True,
            "needs_network": False,
            "bytes": 5,
        },
    }
    assert events[8].data["state"] == "done"
    assert events[8].data["seconds"] >= 0
    assert events[9].data == FAILURE.to_dict()
    assert events[-1].data == {"status": "failed", "exit_code": 3, "answer": None}


def test_an_answer_and_a_stop_are_in_the_result(tmp_path: Path) -> None:
    progress = EventProgress(Operation(tmp_path))
    progress.answer({"system": "linux"})
    progress.result(0)
    EventProgress(Operation(tmp_path)).result(5)
    ends = [event.data for event in read_journal(tmp_path / "events.jsonl")]
    assert ends[0] == {"status": "finished", "exit_code": 0, "answer": {"system": "linux"}}
    assert ends[1]["status"] == "stopped"


def test_what_the_same_command_tells_elsewhere_is_repeated(tmp_path: Path) -> None:
    progress = EventProgress(Operation(tmp_path))
    progress.repeat(Event(1, 0.0, "log", {"text": "inside"}))
    progress.repeat(Event(2, 0.0, "result", {"status": "finished"}))
    progress.result(0)
    assert [event.type for event in read_journal(tmp_path / "events.jsonl")] == ["log", "result"]


def test_the_window_stops_a_command_through_its_folder(tmp_path: Path) -> None:
    operation = Operation(tmp_path)
    progress = EventProgress(operation)
    post_command(operation.control_path, "stop", mode="discard")
    with pytest.raises(KeyboardInterrupt), progress.stopping():
        time.sleep(10)
    progress.result(5)


def test_the_arguments_choose_text_or_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "die_with_owner", lambda _operation: None)
    parser = argparse.ArgumentParser()
    reporting.add_argument(parser)
    arguments = parser.parse_args(["--operation", str(tmp_path)])
    assert isinstance(reporting.chosen(arguments), EventProgress)
    assert reporting.chosen(arguments) is reporting.chosen(arguments)
    reporting.chosen(arguments).result(0)
    assert type(reporting.chosen(parser.parse_args([]))) is Progress
    assert type(reporting.chosen(argparse.Namespace())) is Progress
    assert isinstance(reporting.chosen(argparse.Namespace(json=True)), SilentProgress)


def test_beside_json_only_errors_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    tell_everything(SilentProgress())
    written = capsys.readouterr()
    assert written.out == ""
    assert "[disk-full]" in written.err


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_whatever_a_computer_is_called_is_told_as_letters(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    with progress.phase(text):
        progress.note(text)
    progress.check(Finding(State.FAILED, text, "disk-full", fix=Fix(text, "repair"), id="gpu", title=text))
    progress.plan(Plan((Part(text, 1, 1),), text, 1, 1, text, text))
    progress.progress(text, 1, 2, 1.0, None)
    progress.error(EnvironmentProblem("disk-full", text, context=text, hint=text))
    progress.error(BugError("bug", text, context=text))
    progress.answer({text: text})
    said = capsys.readouterr()
    assert said.out
    assert said.err
    assert not STEERING.search(said.out + said.err)
