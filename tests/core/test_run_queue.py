"""Runs that wait for a device: whose turn it is, how little is read for it, and what a waiting run is told."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.core.test_supervisor import Make, Script, kinds, wait_for
from tunesmith_core import devices, files, paths, run_queue, supervisor
from tunesmith_core.locks import FileLock
from tunesmith_core.process_identity import ProcessIdentity, current
from tunesmith_core.protocol import post_command
from tunesmith_core.runs import Run, RunState, create_run
from tunesmith_core.supervisor import Supervisor


@pytest.fixture(autouse=True)
def fast_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "POLL_S", 0.02)


@pytest.fixture
def busy_device(home: Path) -> Iterator[FileLock]:
    lock = run_queue.device_lock(devices.Device(None))
    assert lock.acquire()
    yield lock
    lock.release()


@pytest.mark.parametrize("by_signal", [False, True])
def test_a_stop_in_the_queue_ends_the_run_as_stopped(
    fake_engine: Script, make_spec: Make, busy_device: FileLock, by_signal: bool
) -> None:
    run = create_run(make_spec("q"))
    made = Supervisor(run)
    thread = threading.Thread(target=made.supervise)
    thread.start()
    wait_for(run.lease_path.exists)
    assert run.status().state is RunState.QUEUED
    wait_for(lambda: list(paths.locks_dir().glob("cpu.queue/*")))
    if by_signal:
        made.signalled = "save"
    else:
        post_command(run.control_path, "ping")
        post_command(run.control_path, "stop", mode="discard")
    thread.join()
    assert run.status().state is RunState.STOPPED
    assert "hello" not in kinds(run)
    assert ("ack" in kinds(run)) is not by_signal, "whoever asked is told"
    assert not list((paths.locks_dir() / "cpu.queue").iterdir())


def test_the_oldest_waiting_run_is_first(make_spec: Make) -> None:
    old, young = create_run(make_spec("a")), create_run(make_spec("b"))
    cpu, gpu = devices.Device(None), devices.Device(0)
    first, second, other = (run_queue.Ticket(run, device) for run, device in ((old, cpu), (young, cpu), (young, gpu)))
    second.take(current())
    other.take(current())
    assert second.is_first()
    first.take(current())
    assert (first.is_first(), second.is_first(), other.is_first()) == (True, False, True)
    first.give_back()
    assert second.is_first(), "it has its turn already"
    # Another version of the program must sort them alike.
    assert re.fullmatch(r"\d{13}\.\d{6}-[0-9a-f]{12}\.json", second.path.name)
    assert old.leased("engine") is None


def test_a_dead_or_damaged_ticket_holds_up_nobody(make_spec: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    old, young = create_run(make_spec("a")), create_run(make_spec("b"))
    first, second = (run_queue.Ticket(run, devices.Device(None)) for run in (old, young))
    first.take(ProcessIdentity(1, 0, "x"))
    (first.path.parent / "0-stray.txt").touch()
    assert second.is_first()
    assert not first.path.exists()
    first.path.write_text("{")
    assert second.is_first()
    assert not first.path.exists()
    first.take(current())
    with monkeypatch.context() as held:
        held.setattr(files, "read_json", lambda _path: (_ for _ in ()).throw(PermissionError("held by another")))
        assert not second.is_first(), "one that can't be read for a moment still counts"
        held.setattr(files, "read_json", lambda _path: (_ for _ in ()).throw(FileNotFoundError()))
        assert second.is_first()


def test_waiting_reads_one_ticket_however_many_wait_and_no_run(
    make_spec: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, runs_dir = make_spec("m"), paths.runs_dir()
    tickets = []
    for index in range(300):
        run = Run(runs_dir / f"m-{index:03}")
        run.path.mkdir(parents=True)
        files.atomic_write_json(run.path / "spec.json", spec.to_dict())
        files.atomic_write_json(run.path / "run.json", {"version": 1, "created_at": 1000.0 + index})
        tickets.append(run_queue.Ticket(run, devices.Device(None)))
        tickets[-1].take(current())
    read: list[Path] = []
    read_json = files.read_json
    monkeypatch.setattr(files, "read_json", lambda path: read.append(path) or read_json(path))
    assert [ticket.is_first() for ticket in (tickets[0], tickets[1], tickets[150], tickets[299])] == [
        True,
        False,
        False,
        False,
    ]
    assert read == [tickets[0].path] * 3
    order = []
    for ticket in tickets:
        assert ticket.is_first()
        order.append(ticket)
        ticket.give_back()
    assert order == tickets


def test_a_waiting_run_is_told_what_it_waits_for(make_spec: Make, busy_device: FileLock) -> None:
    holder, old, young = (create_run(make_spec(name)) for name in ("h", "a", "b"))
    gpu, cpu = devices.Device(0), devices.Device(None)
    run_queue.Ticket(old, gpu).take(current())
    first, second = run_queue.Ticket(old, cpu), run_queue.Ticket(young, cpu)
    assert run_queue.place_of(young) is None
    second.take(current())
    assert run_queue.place_of(young) == run_queue.Place("cpu", "", 0), "the holder left no note"
    run_queue.note_holder(cpu, holder)
    first.take(current())
    assert run_queue.place_of(young) == run_queue.Place("cpu", holder.id, 1)
    assert run_queue.place_of(old) == run_queue.Place("cpu", holder.id, 0)
    busy_device.release()
    assert run_queue.place_of(young) == run_queue.Place("cpu", "", 1), "the note of one that is gone counts no more"


def test_who_holds_the_device_is_noted_by_its_supervisor(fake_engine: Script, make_spec: Make) -> None:
    run = create_run(make_spec("h"))
    Supervisor(run).supervise()
    assert files.read_json(paths.locks_dir() / "cpu.holder.json") == {"run": run.id}
