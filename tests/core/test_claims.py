"""On a drive without locks a file stands for one: one holder, never a robbed one, and the dead are no obstacle."""

from __future__ import annotations

import errno
import json
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tunesmith_core import claims, locks, process_identity
from tunesmith_core.locks import FileLock, is_locked


@pytest.fixture
def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drive that answers "no locks available"."""

    def refuse(_: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks, "_lock", refuse)
    monkeypatch.setattr(locks, "_probe", refuse)


def dead_process() -> process_identity.ProcessIdentity:
    """Return the identity of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        identity = process_identity.identify(process.pid)
        assert identity is not None
    return identity


@pytest.mark.usefixtures("without_locks")
def test_one_holds_it_and_the_drive_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "setup.lock"
    with caplog.at_level(logging.WARNING), FileLock(path) as lock:
        assert lock.held
        assert lock.acquire()
        assert is_locked(path)
        assert not FileLock(path).acquire()
    assert "this drive knows no locks" in caplog.text
    assert not lock.held
    assert not is_locked(path)
    assert sorted(item.name for item in tmp_path.iterdir()) == ["setup.lock"]


@pytest.mark.usefixtures("without_locks")
def test_many_at_once_have_one_holder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    del caplog
    held: list[FileLock] = []
    ready = threading.Barrier(8)

    def try_it() -> None:
        lock = FileLock(tmp_path / "setup.lock")
        ready.wait()
        if lock.acquire():
            held.append(lock)

    threads = [threading.Thread(target=try_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(held) == 1


def test_what_a_dead_process_left_is_taken_over(tmp_path: Path) -> None:
    lock = tmp_path / "setup.lock"
    claims.claim_path(lock).write_text(json.dumps(dead_process().to_dict()))
    assert not claims.is_taken(lock)
    assert claims.take(lock)
    assert claims.is_taken(lock)
    os.utime(claims.claim_path(lock), (1, 1))
    assert claims.is_taken(lock), "its process is alive, however old it is"
    assert os.name == "nt" or claims.claim_path(lock).stat().st_mode & 0o7777 == 0o600
    for _ in range(2):
        claims.drop(lock)
        assert list(tmp_path.iterdir()) == []


def test_a_claim_that_names_nobody_is_being_written_or_old(tmp_path: Path) -> None:
    lock = tmp_path / "setup.lock"
    claim = claims.claim_path(lock)
    claim.write_text("{")
    assert not claims.take(lock)
    os.utime(claim, (1, 1))
    assert claims.take(lock)


def test_who_was_faster_is_not_robbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "setup.lock"
    claim = claims.claim_path(lock)
    claim.write_text(json.dumps(process_identity.current().to_dict()))
    with monkeypatch.context() as context:
        # It looked dead, and by the time it is moved another process has taken over.
        context.setattr(claims, "is_taken", lambda _: False)
        assert not claims.take(lock)
    assert claims.is_taken(lock)
    assert not claims._remove_dead(claim)
    assert list(tmp_path.iterdir()) == [claim]


def test_a_claim_that_keeps_coming_back_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "setup.lock"
    claims.claim_path(lock).write_text("{")
    monkeypatch.setattr(claims, "is_taken", lambda _: False)
    removed: list[Path] = []
    monkeypatch.setattr(claims, "_remove_dead", lambda path: not removed.append(path))
    assert not claims.take(lock)
    assert removed == [claims.claim_path(lock)] * 2


def test_a_claim_that_is_gone_meanwhile_is_no_obstacle(tmp_path: Path) -> None:
    assert claims._remove_dead(tmp_path / "gone.claim")
