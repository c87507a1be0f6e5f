"""Locks die with their holder; a process is known by pid, start and boot."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tunesmith_core import locks, process_identity
from tunesmith_core.locks import FileLock, is_locked
from tunesmith_core.process_identity import ProcessIdentity, current, identify

ENGINE = Path(process_identity.__file__).parents[1]
HOLD = "import sys, time; from pathlib import Path; from tunesmith_core.locks import FileLock; lock = FileLock(Path(sys.argv[1])); sys.stdout.write(str(lock.acquire())); sys.stdout.flush(); time.sleep(60)"  # fmt: skip  # noqa: E501


def test_one_holds_it_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.lock"
    assert not is_locked(path)
    with FileLock(path) as lock:
        assert lock.held
        assert lock.acquire()
        assert is_locked(path)
        assert not FileLock(path).acquire()
        with pytest.raises(BlockingIOError, match=r"a\.lock"), FileLock(path):
            pass
    assert not lock.held
    assert not is_locked(path)
    lock.release()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_a_lock_file_is_its_owners(tmp_path: Path) -> None:
    with FileLock(tmp_path / "a.lock"):
        assert (tmp_path / "a.lock").stat().st_mode & 0o7777 == 0o600


def test_looking_and_being_refused_leave_nothing_open(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"

    def next_descriptor() -> int:
        descriptor = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
        os.close(descriptor)
        return descriptor

    with FileLock(path):
        before = next_descriptor()
        assert is_locked(path)
        assert not FileLock(path).acquire()
        assert next_descriptor() == before
    assert not is_locked(path)
    assert next_descriptor() < before


def test_waiting_looks_now_and_then_and_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, path = 0.0, tmp_path / "a.lock"

    def sleep(seconds: float) -> None:
        nonlocal now_s
        assert 0 < seconds <= 1
        now_s += seconds

    monkeypatch.setattr(locks.time, "monotonic", lambda: now_s)
    monkeypatch.setattr(locks.time, "sleep", sleep)
    with FileLock(path), pytest.raises(TimeoutError, match=r"a\.lock is locked"), FileLock(path).waiting(3):
        pass
    assert 3 < now_s <= 4
    other = FileLock(path)
    with other.waiting(0):
        assert other.held
    assert not other.held


def test_two_that_only_look_do_not_see_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.lock"
    path.touch()
    seen = []
    probe = locks._probe

    def look_twice(descriptor: int) -> None:
        probe(descriptor)
        if not seen:
            seen.append(None)
            seen[0] = is_locked(path)

    monkeypatch.setattr(locks, "_probe", look_twice)
    assert not is_locked(path)
    assert seen == [False]


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], env={**os.environ, "PYTHONPATH": str(ENGINE)}, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.read(4) == b"True"
        assert is_locked(path)
        holder.kill()
        holder.wait()
        assert not is_locked(path)


def test_a_reused_pid_is_another_process() -> None:
    me = current()
    assert me.alive()
    assert ProcessIdentity.from_dict(me.to_dict()) == me
    assert not ProcessIdentity(me.pid, me.start + 1, me.boot).alive()
    assert not ProcessIdentity(me.pid, me.start, "another boot").alive()


@pytest.mark.parametrize(
    ("key", "value", "is_one"),
    [
        ("pid", 0, True),
        ("pid", 2**32 - 1, True),
        ("pid", 2**32, False),
        ("pid", -1, False),
        ("pid", True, False),
        ("pid", 1.0, False),
        ("start", 0, True),
        ("start", 2**64 - 1, True),
        ("start", 2**64, False),
        ("start", -1, False),
        ("boot", 3, False),
        ("boot", "", True),
    ],
)
def test_only_what_a_system_can_tell_is_an_identity(key: str, value: object, is_one: bool) -> None:
    values = {"pid": 7, "start": 8, "boot": "b", key: value}
    if is_one:
        assert ProcessIdentity.from_dict(values).to_dict() == values
    else:
        with pytest.raises(ValueError, match="no process"):
            ProcessIdentity.from_dict(values)


@pytest.mark.skipif(sys.platform == "win32", reason="reads /proc")
def test_the_start_is_told_in_ticks_since_the_computer_started() -> None:
    uptime_s = float(Path("/proc/uptime").read_text().split()[0])
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        identity = identify(child.pid)
        later_s = float(Path("/proc/uptime").read_text().split()[0])
    assert identity is not None
    assert uptime_s - 1 <= identity.start / os.sysconf("SC_CLK_TCK") <= later_s + 1


def test_a_zombie_does_not_run() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    deadline = time.monotonic() + 10
    while identify(child.pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert identify(child.pid) is None
    child.wait()
    assert identify(child.pid) is None


@pytest.mark.skipif(sys.platform == "win32", reason="reads /proc")
def test_a_name_with_spaces_and_parentheses_does_not_mislead(tmp_path: Path) -> None:
    strange = tmp_path / "a) R (b"
    strange.symlink_to("/bin/sleep")
    child = subprocess.Popen([strange, "60"])
    try:
        identity = identify(child.pid)
        assert identity is not None
        assert identity.start >= current().start
    finally:
        child.kill()
        child.wait()
