"""A supervisor on a disk that can't be written or read for a while: the engine lives, and its end stays what it was."""

from __future__ import annotations

import errno
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.core.test_supervisor import QUICK, fast_polling, kinds, supervise, with_signals
from tunesmith_core import files, supervisor
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_core.process_identity import ProcessIdentity
from tunesmith_core.protocol import DISCARD_SIGNAL, Event, JournalReader
from tunesmith_core.runs import Run, RunState, create_run, unsaved
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
    made.signalled = "save"
    made.supervise()
    status = run.status()
    assert status.error is not None
    assert "SIGTERM" in status.error["message"]


def test_an_engine_that_stopped_but_could_not_say_so(supervise: Callable[..., tuple[Run, Supervisor]]) -> None:
    run, _ = supervise(["hello"], ["steps", 2], ["exit", 5])
    assert run.status().state is RunState.STOPPED
    assert run.status().step == 2


@pytest.mark.parametrize(
    ("actions", "words", "hint"),
    [
        ([["checkpoint"], ["steps", 2]], "Steps after 2 were not saved.", "Free some space, then resume the run."),
        ([], "Nothing was saved.", "Free some space, then start the run again."),
    ],
)
def test_a_stop_that_could_not_save_nor_say_so_is_a_failure(
    supervise: Callable[..., tuple[Run, Supervisor]], actions: list[Any], words: str, hint: str
) -> None:
    run, _ = supervise(["hello"], ["steps", 2], *actions, ["exit", 6])
    status = run.status()
    assert status.state is RunState.FAILED
    assert status.error is not None
    assert (status.error["code"], status.error["hint"]) == ("disk-full", hint)
    assert status.error["message"].endswith(words)


@with_signals
def test_a_discard_that_came_by_a_signal_loses_nothing_that_was_wanted(
    make_spec: Make, fake_engine: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "post_command", lambda *_, **_named: None)
    fake_engine({"*": [["hello"], ["steps", 2], ["exit", 6]]})
    run = create_run(make_spec("s"))
    made = Supervisor(run, QUICK)
    made.signalled = "discard"
    made.supervise()
    assert (run.status().state, run.status().error) == (RunState.STOPPED, None)


@with_signals
@pytest.mark.parametrize("mode", ["save", "discard"])
def test_the_signals_that_ask_for_an_end_are_listened_to(
    make_spec: Make, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    handlers: dict[int, Any] = {}
    monkeypatch.setattr(supervisor.signal, "signal", handlers.__setitem__)
    monkeypatch.setattr(supervisor, "become_subreaper", lambda: None)
    monkeypatch.setattr(supervisor.os, "umask", lambda mask: mask)
    monkeypatch.setattr(supervisor, "enter", lambda run: run)
    asked: list[str | None] = []

    def signalled(made: Supervisor) -> None:
        for number in (DISCARD_SIGNAL,) if mode == "discard" else (signal.SIGTERM, signal.SIGINT):
            made.signalled = None
            handlers[number](number, None)
            asked.append(made.signalled)

    monkeypatch.setattr(Supervisor, "supervise", signalled)
    assert supervisor.main([str(create_run(make_spec("s")).path)]) == 0
    assert set(asked) == {mode}
    assert handlers[signal.SIGHUP] == signal.SIG_IGN, "a terminal that is closed ends nothing"


def test_the_end_of_a_run_that_could_not_save_fits_its_disk() -> None:
    problem = EnvironmentProblem("permission-or-antivirus", "It is read-only.")
    told = [unsaved(problem, *steps) for steps in ((270, 319), (319, 319), (0, 3))]
    assert [error.message for error in told] == [
        "It is read-only. Steps after 270 were not saved.",
        "It is read-only. Step 319 is saved, but the adapter isn't.",
        "It is read-only. Nothing was saved.",
    ]
    assert [error.hint for error in told] == [
        "Make the folder writable, then resume the run.",
        "Make the folder writable, then resume the run.",
        "Make the folder writable, then start the run again.",
    ]
    assert {error.code for error in told} == {problem.code}
