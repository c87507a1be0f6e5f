"""The tail and the run service on real run folders."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QObject

from tests.gui.run_folders import EVENTS, make_run
from tunesmith_core import launch
from tunesmith_core.devices import Device
from tunesmith_core.locks import FileLock
from tunesmith_core.process_identity import current
from tunesmith_core.run_queue import Place, Ticket, device_lock, note_holder
from tunesmith_core.runs import Run, RunState
from tunesmith_core.spec import RunSpec
from tunesmith_gui.dashboard.model import DashboardModel, pack
from tunesmith_gui.models.run_words import waiting_words
from tunesmith_gui.services.journal_tail import JournalTail
from tunesmith_gui.services.library import sparkline
from tunesmith_gui.shell.activity import progress_words


@pytest.mark.parametrize("pace", [1, 100, 0])
def test_tail_hands_over_what_is_written_while_it_looks(pace: int, tmp_path: Path, qtbot: Any) -> None:
    data = (EVENTS / "happy.jsonl").read_bytes() + (EVENTS / "utf8.jsonl").read_bytes()
    path, model, owner = tmp_path / "events.jsonl", DashboardModel(), QObject()
    tail = JournalTail(owner)
    tail.follow(path, pack, model.apply, pytest.fail)
    pieces = data.splitlines(keepends=True) if pace else [data[i : i + 7] for i in range(0, len(data), 7)]
    with path.open("ab", buffering=0) as file:
        for place, piece in enumerate(pieces):
            file.write(piece)
            if place % (pace or 400) == 0:
                qtbot.wait(5)
    qtbot.waitUntil(lambda: bool(model.samples) and model.samples[-1].text == "您好！", timeout=5000)
    tail.shutdown()
    assert model.status.total_steps == 5
    assert any("模型已加载" in line.text for line in model.log.matching())


def test_tail_tells_of_a_newer_journal_and_goes_on_with_others(tmp_path: Path, qtbot: Any) -> None:
    newer = tmp_path / "newer.jsonl"
    body = b'{"v":2,"seq":1,"t":1,"type":"hello"'
    newer.write_bytes(body + b',"crc":"%08x"}\n' % zlib.crc32(body))
    errors: list[Any] = []
    model, owner = DashboardModel(), QObject()
    tail = JournalTail(owner)
    tail.follow(newer, pack, lambda _batches: None, errors.append)
    tail.follow(EVENTS / "happy.jsonl", pack, model.apply, pytest.fail)
    qtbot.waitUntil(lambda: bool(errors) and len(model.steps) == 30)
    tail.shutdown()
    assert errors[0].code == "protocol-mismatch"


def test_service_finds_a_run_that_others_started_and_tells_of_its_end(context: Any, qtbot: Any) -> None:
    run = make_run("theirs", "crash")
    lock = FileLock(run.lock_path)
    assert lock.acquire()
    context.runs.look()
    qtbot.waitUntil(lambda: [live.step for live in context.runs.live_runs()] == [15], timeout=5000)
    live = context.runs.live_runs()[0]
    assert (live.name, live.num_steps, live.state) == ("theirs", 30, RunState.RUNNING)
    assert live.eta_s
    with qtbot.waitSignal(context.runs.run_ended, timeout=10_000) as ended:
        lock.release()
    assert ended.args == [run.id, "theirs", "interrupted"]
    assert context.runs.live_runs() == []


@pytest.mark.skipif(os.name == "nt", reason="Windows renames no folder that a process works in")
def test_a_run_that_is_renamed_while_it_trains_has_not_ended(context: Any, qtbot: Any) -> None:
    run = make_run("before", "crash")
    lock = FileLock(run.lock_path)
    assert lock.acquire()
    ended: list[str] = []
    context.runs.run_ended.connect(lambda run_id, _name, _state: ended.append(run_id))
    context.runs.look()
    qtbot.waitUntil(lambda: [live.id for live in context.runs.live_runs()] == [run.id], timeout=5000)
    renamed = Run(run.path.rename(run.path.with_name("after")))
    qtbot.waitUntil(lambda: [live.id for live in context.runs.live_runs()] == [renamed.id], timeout=10_000)
    assert ended == []
    with qtbot.waitSignal(context.runs.run_ended, timeout=10_000):
        lock.release()
    assert ended == [renamed.id]


def test_service_leaves_ended_runs_alone(context: Any, qtbot: Any) -> None:
    run = make_run("over", "stop_save")
    context.runs._ended.add(run.id)
    run.lease_path.write_text("{}")
    qtbot.waitUntil(lambda: not context.runs._looking)
    context.runs.look()
    qtbot.waitUntil(lambda: not context.runs._looking)
    assert context.runs.live_runs() == []


def test_service_passes_requests_to_launch_and_tells_of_failures(
    context: Any, qtbot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, Any]] = []
    run = make_run("mine", "crash")
    monkeypatch.setattr(launch, "resume", lambda given: asked.append(("resume", given.id)))
    monkeypatch.setattr(launch, "start", lambda spec: asked.append(("start", spec.name)) or run)
    done: list[str] = []
    context.runs.resume(run.id, done.append)
    context.runs.start(RunSpec(name="again"), done.append)
    qtbot.waitUntil(lambda: len(done) == 2)
    assert sorted(asked) == [("resume", run.id), ("start", "again")]
    with qtbot.waitSignal(context.runs.failed) as failed:
        context.runs.stop(run.id, "save")
    assert failed.args[1].code == "run-not-live"


def test_sparkline_needs_two_losses_and_stays_short() -> None:
    assert sparkline([1.0, None]) == ()
    assert len(sparkline(float(i) for i in range(10_000))) == 48


def test_service_says_what_a_run_waits_for(context: Any, qtbot: Any) -> None:
    first, second = make_run("Busy one"), make_run("next")
    device = Device(None)
    locks = [FileLock(first.lock_path), FileLock(second.lock_path), device_lock(device)]
    assert all(lock.acquire() for lock in locks)
    note_holder(device, first)
    Ticket(second, device).take(current())
    context.runs.look()
    qtbot.waitUntil(lambda: context.runs.place(second.id) == Place("cpu", "Busy one", 0), timeout=5000)
    assert context.runs.place(first.id) is None
    assert context.runs.place("unknown") is None
    waiting = next(run for run in context.runs.live_runs() if run.id == second.id)
    assert progress_words(waiting) == "Waiting for the CPU, in use by “Busy one”"
    for lock in locks:
        lock.release()


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (Place("gpu-1", "", 0), "Waiting for GPU 1"),
        (Place("cpu", "mine", 0), "Waiting for the CPU, in use by “mine”"),
        (Place("gpu-0", "mine", 1), "Waiting for GPU 0, in use by “mine” · number 2 in the queue"),
        (Place("gpu-0", "mine", 2), "Waiting for GPU 0, in use by “mine” · number 3 in the queue"),
    ],
)
def test_waiting_is_told_with_its_cause(place: Place, words: str) -> None:
    assert waiting_words(place) == words
