"""Commands of the installer as child processes: lines, bytes, garbage, crashes, answers, ends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from PySide6.QtCore import QObject, QTimer
from pytestqt.qtbot import QtBot

from tests.gui.environment.conftest import Installer
from tunesmith_core import environments
from tunesmith_gui.environment import setup_task
from tunesmith_gui.environment.setup_events import CheckEvent, NoteEvent, PhaseEvent, ProgressEvent, ResultEvent
from tunesmith_gui.environment.setup_task import SetupEnd, SetupTask

NOTE = {"type": "note", "text": "环境 ready – ok"}
PHASE = {"type": "phase", "name": "Unpack", "state": "started"}
CHECK = {"type": "check", "id": "disk", "title": "Disk", "state": "ok", "message": "fine", "code": None, "fix": None}
RESULT = {"type": "result", "ok": True, "exit_code": 0}


def run(qtbot: QtBot, owner: QObject, *arguments: str) -> tuple[list[object], SetupEnd]:
    """Runs a command to its end; returns the events and the end."""
    events: list[object] = []
    task = SetupTask(*arguments, parent=owner)
    task.happened.connect(events.append)
    with qtbot.waitSignal(task.ended, timeout=15_000) as end:
        task.start()
    return events, end.args[0]


@pytest.mark.parametrize("pace", ["lines", "bytes"])
def test_events_arrive_whole_whatever_the_pace(qtbot: QtBot, installer: Installer, owner: QObject, pace: str) -> None:
    installer.say("doctor", NOTE, PHASE, CHECK, RESULT, pace=pace)
    events, end = run(qtbot, owner, "doctor", "--events")
    assert events == [
        NoteEvent("环境 ready – ok"),
        PhaseEvent("Unpack"),
        CheckEvent("disk", "Disk", "ok", "fine"),
        ResultEvent(True, 0),
    ]
    assert (end.exit_code, end.error, end.cancelled) == (0, None, False)


def test_garbage_and_unknown_types_are_passed_over(qtbot: QtBot, installer: Installer, owner: QObject) -> None:
    noise: list[Any] = ["", "not json", "[1]", '"x"', '{"type": 3}', '{"type": "weather"}', b"\xff\xfe{\x00\n", b"{\n"]
    installer.say("doctor", *noise, {"type": "note"}, NOTE, {"type": "check", "id": "x", "state": "odd"}, RESULT)
    events, end = run(qtbot, owner, "doctor", "--events")
    assert events == [NoteEvent("环境 ready – ok"), ResultEvent(True, 0)]
    assert end.error is None


def test_an_endless_line_is_dropped_and_the_next_one_is_read(
    qtbot: QtBot, installer: Installer, owner: QObject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup_task, "MAX_LINE_BYTES", 1000)
    installer.say("doctor", b"x" * 5000, "", NOTE, RESULT, pace="bytes")
    events, end = run(qtbot, owner, "doctor", "--events")
    assert events == [NoteEvent("环境 ready – ok"), ResultEvent(True, 0)]
    assert end.error is None


def test_an_error_event_is_the_error(qtbot: QtBot, installer: Installer, owner: QObject) -> None:
    error = {"type": "error", "code": "disk-full", "kind": "EnvironmentProblem", "message": "3 GiB free", "hint": "h"}
    installer.say("install", error, {"type": "result", "ok": False, "exit_code": 3}, exit=3)
    _events, end = run(qtbot, owner, "install", "--events")
    assert end.error is not None
    assert (end.error.code, end.error.message, end.exit_code) == ("disk-full", "3 GiB free", 3)


def test_faults_found_are_no_error(qtbot: QtBot, installer: Installer, owner: QObject) -> None:
    installer.say("doctor", CHECK | {"state": "failed"}, {"type": "result", "ok": False, "exit_code": 3}, exit=3)
    events, end = run(qtbot, owner, "doctor", "--events")
    assert len(events) == 2
    assert (end.error, end.exit_code) == (None, 3)


def test_an_end_without_a_result_is_told_with_the_last_words(
    qtbot: QtBot, installer: Installer, owner: QObject
) -> None:
    installer.say("doctor", NOTE, stderr="Segmentation fault 段", exit=139)
    _events, end = run(qtbot, owner, "doctor", "--events")
    assert end.error is not None
    assert "exit code 139" in end.error.message
    assert end.error.context == end.details == "Segmentation fault 段"


def test_a_json_command_answers_with_its_value(qtbot: QtBot, installer: Installer, owner: QObject) -> None:
    installer.say("probe", json.dumps({"system": "linux"}, indent=2))
    events, end = run(qtbot, owner, "probe", "--json")
    assert (events, end.answer, end.error) == ([], {"system": "linux"}, None)
    installer.say("probe", "Traceback", exit=1)
    _events, end = run(qtbot, owner, "probe", "--json")
    assert end.error is not None


def test_a_program_that_is_not_there_is_an_error(
    qtbot: QtBot, installer: Installer, owner: QObject, monkeypatch: pytest.MonkeyPatch
) -> None:
    del installer
    monkeypatch.setattr(environments, "own_command", lambda *_words: ["/no/such/python"])
    _events, end = run(qtbot, owner, "doctor", "--events")
    assert end.error is not None
    assert (end.error.code, end.exit_code) == ("environment-missing", None)


@pytest.mark.parametrize("stubborn", [False, True])
def test_cancel_asks_then_kills(
    qtbot: QtBot, installer: Installer, owner: QObject, monkeypatch: pytest.MonkeyPatch, stubborn: bool
) -> None:
    monkeypatch.setattr(setup_task, "GRACE_MS", 200)
    installer.say("install", NOTE, hang=True, ignore_end=stubborn)
    task = SetupTask("install", "--events", parent=owner)
    with qtbot.waitSignal(task.happened, timeout=15_000):
        task.start()
    with qtbot.waitSignal(task.ended, timeout=15_000) as end, qtbot.waitSignal(task.destroyed, timeout=15_000):
        task.cancel()
        task.cancel()
    assert end.args[0].cancelled
    assert end.args[0].error is None


def test_abandoned_it_is_gone_and_silent(qtbot: QtBot, installer: Installer, owner: QObject) -> None:
    installer.say("install", NOTE, hang=True, ignore_end=True)
    task = SetupTask("install", "--events", parent=owner)
    heard: list[object] = []
    with qtbot.waitSignal(task.happened, timeout=15_000):
        task.start()
    task.ended.connect(heard.append)
    task.abandon()
    qtbot.wait(50)
    assert heard == []
    assert task._process.state() == task._process.ProcessState.NotRunning


def test_a_flood_of_lines_arrives_in_pieces(qtbot: QtBot, installer: Installer, owner: QObject) -> None:
    """The window gets its turn in between: no single call hands over the whole flood."""
    progress = {"type": "progress", "name": "torch", "done_bytes": 5, "total_bytes": 10}
    installer.say("install", *[progress] * 20_000, RESULT)
    turns: list[int] = []
    events: list[object] = []
    task = SetupTask("install", "--events", parent=owner)
    task.happened.connect(events.append)
    timer = QTimer(owner)
    timer.timeout.connect(lambda: turns.append(len(events)))
    timer.start(1)
    with qtbot.waitSignal(task.ended, timeout=15_000):
        task.start()
    timer.stop()
    assert len(events) == 20_001
    assert isinstance(events[0], ProgressEvent)
    assert len({count for count in turns if 0 < count < len(events)}) > 3
