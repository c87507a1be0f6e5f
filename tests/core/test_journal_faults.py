"""A journal and an inbox on a disk that is full, read-only or failing: events wait in order, and none is torn."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.disk_faults import FaultyDisk, install
from tunesmith_core import protocol
from tunesmith_core.operations.folder import Operation
from tunesmith_core.operations.host import Host
from tunesmith_core.protocol import CommandInbox, JournalReader, JournalWriter, post_command, read_journal

KINDS = ("hello", "phase", "step", "gpu", "checkpoint", "log", "step", "eval", "warning", "result")
KEPT = tuple(kind for kind in KINDS if kind != "gpu")

OnDisk = Callable[..., contextlib.AbstractContextManager[FaultyDisk]]


@pytest.fixture
def on_disk(tmp_path: Path) -> OnDisk:
    @contextlib.contextmanager
    def enter(**faults: Any) -> Iterator[FaultyDisk]:
        disk = FaultyDisk(tmp_path, **faults)
        with pytest.MonkeyPatch.context() as patches:
            install(disk, patches)
            yield disk

    return enter


def _write_all(path: Path) -> JournalWriter:
    writer = JournalWriter(path)
    for number, kind in enumerate(KINDS):
        assert writer.write(kind, number=number, text="x" * 50).seq > 0
    return writer


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES])
def test_a_fault_at_each_call_loses_and_tears_no_event(
    tmp_path: Path, on_disk: OnDisk, number: int, torn: bool
) -> None:
    with on_disk() as disk:
        _write_all(tmp_path / "whole.jsonl").close()
    num_calls = len(disk.calls)
    assert {"open", "write", "fsync"} <= set(disk.calls)
    for first in range(1, num_calls + 1):
        for count in (1, 2, 1000):
            path = tmp_path / f"{first}-{count}.jsonl"
            with on_disk(first=first, count=count, number=number, torn=torn) as disk:
                writer = _write_all(path)
                assert (writer.fault() is not None) == (len(disk.calls) < first + count)
                disk.first = 0
                assert writer.fault() is None
                writer.close()
            reader = JournalReader(path)
            events = reader.read_all()
            assert reader.num_bad_lines == 0
            assert tuple(event.type for event in events if event.type != "gpu") == KEPT
            numbers = [event.seq for event in events]
            assert numbers == sorted(set(numbers))
            assert [event.data["number"] + 1 for event in events] == numbers


def test_the_next_writer_goes_on_where_the_disk_took_only_a_part(tmp_path: Path, on_disk: OnDisk) -> None:
    path = tmp_path / "events.jsonl"
    with on_disk(first=3, count=1000, torn=True) as disk:
        writer = JournalWriter(path)
        writer.write("log", text="whole")
        writer.write("log", text="half of it")
        assert disk.calls[2] == "write"
        writer.close()
    assert not path.read_bytes().endswith(b"\n")
    with on_disk(first=2, count=2) as disk:
        writer = JournalWriter(path)
        writer.write("hello")
        assert writer.fault() is None
        writer.close()
    assert [event.type for event in read_journal(path)] == ["log", "hello"]


def test_what_waits_keeps_within_bounds(tmp_path: Path, on_disk: OnDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MAX_WAITING", 4)
    path = tmp_path / "events.jsonl"
    with on_disk(first=2, count=1 << 20, torn=True) as disk:
        writer = JournalWriter(path)
        writer.write("step", step=1)
        for step in range(2, 8):
            writer.write("gpu", device="cpu")
            writer.write("checkpoint", step=step)
            writer.write("step", step=step)
        disk.first = 0
        writer.write("result")
        writer.close()
    told = [(event.type, event.data.get("step")) for event in read_journal(path)]
    # The first step was in the file in part.
    assert told == [("step", 1), *(("checkpoint", step) for step in range(2, 8)), ("result", None)]


def test_what_no_waiting_cures_is_raised(tmp_path: Path, on_disk: OnDisk) -> None:
    with on_disk(first=1, count=1 << 20, number=errno.ENOENT), pytest.raises(FileNotFoundError):
        JournalWriter(tmp_path / "events.jsonl")


def test_a_closed_journal_takes_nothing(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path / "events.jsonl")
    writer.close()
    writer.close()
    assert writer.fault() is None
    with pytest.raises(ValueError, match="closed"):
        writer.write("hello")


def test_a_journal_that_was_never_opened_is_closed(tmp_path: Path, on_disk: OnDisk) -> None:
    with on_disk(first=1, count=1 << 20, number=errno.EROFS):
        writer = JournalWriter(tmp_path / "events.jsonl")
        writer.write("result")
        writer.close()
    assert not (tmp_path / "events.jsonl").exists()


def test_a_command_that_can_not_be_removed_is_obeyed_once(tmp_path: Path, on_disk: OnDisk) -> None:
    post_command(tmp_path, "stop", mode="save")
    inbox = CommandInbox(tmp_path)
    with on_disk(first=1, count=1 << 20, number=errno.EROFS):
        assert [command.name for command in inbox.poll()] == ["stop"]
        assert inbox.poll() == []
    assert len(os.listdir(tmp_path)) == 1


def test_a_folder_of_commands_that_can_not_be_read_holds_none(tmp_path: Path) -> None:
    (tmp_path / "control").write_text("a file in the way")
    assert CommandInbox(tmp_path / "control").poll() == []


def test_a_host_knows_why_its_events_wait(tmp_path: Path, on_disk: OnDisk) -> None:
    with on_disk(first=2, count=2) as disk, Host(Operation(tmp_path)) as host:
        host.phase("starting")
        fault = host.journal_fault()
        assert fault is not None
        assert fault.errno == disk.number
        assert host.journal_fault() is None
    assert [event.data["name"] for event in read_journal(tmp_path / "events.jsonl")] == ["starting"]
