"""Ends processes as a crash would, on both systems."""

from __future__ import annotations

import _thread
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

KILLED = signal.SIGTERM if sys.platform == "win32" else -signal.SIGKILL
"""Exit code of a process that `kill` or a crash point ended."""


def kill(pid: int) -> None:
    """End a process at once and without clean-up."""
    os.kill(pid, signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL)


def press_control_c() -> None:
    """Interrupt this process as Ctrl-C does; on Windows a signal can't be sent, it would end the process."""
    if sys.platform == "win32":
        _thread.interrupt_main()
    else:
        os.kill(os.getpid(), signal.SIGINT)


def run_while_read_only(folder: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command while a folder is read-only, also for root; skips the test where a person can't mount."""
    if not shutil.which("unshare"):
        pytest.skip("needs the namespaces of Linux")
    mount = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1"'
    enter = ["unshare", "-rm", "sh", "-c"]
    tried = subprocess.run([*enter, mount, "sh", str(folder)], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"this system mounts nothing for a person: {tried.stderr.strip()[-200:]}")
    return subprocess.run(
        [*enter, f'{mount} && shift && exec "$@"', "sh", str(folder), *command],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
