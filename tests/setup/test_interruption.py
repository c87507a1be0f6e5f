"""Asking the installer to end, at the moments at which Python would lose it or leave a child behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import press_control_c
from tunesmith_core.protocol import read_journal
from tunesmith_setup import attached, interruption

REPOSITORY = Path(__file__).resolve().parents[2]
ROOTS = [str(REPOSITORY / name) for name in ("installers", "engine", "assets")]
# Nothing wakes a waiting call of Windows but a real Ctrl-C.
WAIT = "[time.sleep(0.1) for _ in range(600)]" if sys.platform == "win32" else "os.read(os.pipe()[0], 1)"
ASKED_IN_A_CALLBACK = f"""
import os, signal, sys, time
sys.path[:0] = {ROOTS!r}
from tunesmith_setup import __main__ as command_line
from tunesmith_setup.installation import install

class Callback:
    def __del__(self):
        signal.raise_signal(signal.SIGTERM)

def installation(*_, **__):
    Callback()
    print("went on", flush=True)
    {WAIT}
    return 0

install.install = installation
sys.exit(command_line.main(["install", "--training-only", "--operation", sys.argv[-1]]))
"""


@pytest.fixture
def control_c_works() -> Iterator[None]:
    """Make Ctrl-C interrupt this process, also when a shell started the tests in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_request_that_a_callback_dropped_is_made_again(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-c", ASKED_IN_A_CALLBACK, str(tmp_path)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert answer.stdout.startswith("went on\n")
    assert answer.returncode == 5, answer.stderr
    assert read_journal(tmp_path / "events.jsonl")[-1].data["status"] == "stopped"
    assert "Traceback" not in answer.stderr


def test_other_errors_of_callbacks_are_shown_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    class Callback:
        def __del__(self) -> None:
            raise ValueError("told")

    shown: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: shown.append(str(dropped.exc_value)))
    with interruption.heard():
        Callback()
    assert shown == ["told"]


def test_a_request_whose_work_is_done_meanwhile_ends_nothing() -> None:
    class Callback:
        def __del__(self) -> None:
            raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGTERM), sys.unraisablehook
    with interruption.heard():
        Callback()
    assert (signal.getsignal(signal.SIGTERM), sys.unraisablehook) == before


@pytest.mark.usefixtures("control_c_works")
def test_an_interruption_is_postponed_to_the_end_of_a_block() -> None:
    done = []

    def work() -> None:
        with interruption.postponed():
            press_control_c()
            done.append("after it")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["after it"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no processes that are there before they are started")
@pytest.mark.usefixtures("control_c_works")
def test_an_interruption_while_a_child_starts_ends_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    children = []

    class Popen(subprocess.Popen[bytes]):
        def _execute_child(self, *arguments: object) -> None:  # type: ignore[misc]
            super()._execute_child(*arguments)  # type: ignore[misc]
            children.append(self)
            press_control_c()

    monkeypatch.setattr(subprocess, "Popen", Popen)
    with pytest.raises(KeyboardInterrupt):
        attached.run([sys.executable, "-c", "import time; time.sleep(600)"], dict(os.environ))
    assert children[0].returncode == -signal.SIGKILL
