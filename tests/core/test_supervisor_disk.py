"""A supervisor on a disk that can't be written or read for a while: the engine lives, and its end stays what it was."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from tests.core.test_supervisor import QUICK, fast_polling, kinds, supervise, with_signals
from tunesmith_core import files, supervisor
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_core.process_identity import ProcessIdentity
from tunesmith_core.protocol import Event, JournalReader
from tunesmith_core.runs import Run, RunState, create_run
from tunesmith_core.spec import RunSpec
from tunesmith_core.supervisor import Supervisor

Make = Callable[..., RunSpec]
Script = Callable[[dict[str, Any]], None]

__all__ = ["fast_polling", "supervise"]


def test_an_engine_trains_without_a_lease_until_the_disk_takes_one(
    supervise: Callable[..., tuple[Run, Supervisor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    lease, refused = Run.lease, [True, True]

    def reluctant(run: Run, **roles: ProcessIdentity | None) -> None:
        if roles["engine"] and refused and refused.pop():
            raise OSError(errno.ENOSPC, "full")
        lease(run, **roles)

    monkeypatch.setattr(Run, "lease", reluctant)
    run, _ = supervise(["hello"], ["sleep", 0.5], ["result", "finished"])
    assert run.status().state is RunState.FINISHED
    assert not refused


def test_a_disk_that_can_not_be_written_or_read_does_not_change_the_end(
    supervise: Callable[..., tuple[Run, Supervisor]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    read, remove, failures = JournalReader.read, files.remove, [True, True, True]

    def sometimes(reader: JournalReader, max_bytes: int = 1 << 22) -> list[Event]:
        if failures and failures.pop():
            raise EnvironmentProblem("permission-or-antivirus", "gone for a moment")
        return read(reader, max_bytes)

    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, "read-only")

    monkeypatch.setattr(JournalReader, "read", sometimes)
    monkeypatch.setattr(Run, "sweep", lambda _: refuse() if failures != [True, True, True] else None)
    monkeypatch.setattr(files, "remove", lambda path: refuse() if path.name == "lease.json" else remove(path))
    run, _ = supervise(["hello"], ["sleep", 0.3], ["steps", 1], ["result", "finished"])
    monkeypatch.undo()
    assert kinds(run)[-2:] == ["step", "result"]
    assert run.status().state is RunState.FINISHED
    assert "could not be swept" in caplog.text
    assert "lease could not be removed" in caplog.text


@with_signals
def test_a_stop_that_no_file_can_tell_reaches_the_engine_as_a_signal(
    make_spec: Make, fake_engine: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **_named: object) -> str:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(supervisor, "post_command", full)
    fake_engine({"*": [["hello"], ["sleep", 20.0]]})
    run = create_run(make_spec("s"))
    made = Supervisor(run, QUICK)
    made.terminated = True
    made.supervise()
    status = run.status()
    assert status.error is not None
    assert "SIGTERM" in status.error["message"]


def test_an_engine_that_stopped_but_could_not_say_so(supervise: Callable[..., tuple[Run, Supervisor]]) -> None:
    run, _ = supervise(["hello"], ["steps", 2], ["exit", 5])
    assert run.status().state is RunState.STOPPED
    assert run.status().step == 2
