"""A program that the person watches: its words go through, the last are kept, and it does not outlive us."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.processes import kill
from tunesmith_setup import attached

ROOTS = [str(Path(attached.__file__).parents[1]), str(Path(attached.__file__).parents[2] / "engine")]
SLEEP = "import os, sys, time; sys.stderr.write(f'{os.getpid()}\\n'); sys.stderr.flush(); time.sleep(600)"
OWNER = f"import os, sys; sys.path[:0] = {ROOTS!r}; from tunesmith_setup import attached; "
OWNER += f"attached.run([sys.executable, '-c', {SLEEP!r}], dict(os.environ))"


def test_words_go_through_and_the_last_are_kept(capfd: pytest.CaptureFixture[str]) -> None:
    code = "import sys; [sys.stderr.write(f'line {n} ü\\n') for n in range(100)]; sys.exit(7)"
    command = [sys.executable, "-X", "utf8", "-c", code]
    exit_code, words = attached.run(command, dict(os.environ))
    assert exit_code == 7
    assert words.splitlines() == [f"line {number} ü" for number in range(60, 100)]
    assert len(capfd.readouterr().err.splitlines()) == 100


def test_on_a_terminal_it_draws_itself(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert attached.run([sys.executable, "-c", "import sys; sys.stderr.write('bars')"], dict(os.environ)) == (0, "")
    assert capfd.readouterr().err == "bars"


def gone(pid: int) -> bool:
    """Return whether a process ends within some seconds."""
    for _ in range(200):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


@pytest.mark.skipif(
    sys.platform == "win32", reason="reads /proc; the job of Windows is tested with the engine's process"
)
def test_it_dies_with_us() -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], stderr=subprocess.PIPE) as owner:
        assert owner.stderr is not None
        pid = int(owner.stderr.readline())
        kill(owner.pid)
    assert gone(pid)


def test_an_interrupt_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pids: list[int] = []

    def interrupt(_: int, line: bytes) -> int:
        pids.append(int(line))
        raise KeyboardInterrupt

    monkeypatch.setattr(attached.os, "write", interrupt)
    with pytest.raises(KeyboardInterrupt):
        attached.run([sys.executable, "-c", SLEEP], dict(os.environ))
    monkeypatch.undo()
    assert gone(pids[0])
