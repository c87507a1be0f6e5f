"""Ends processes as a crash would, on both systems."""

from __future__ import annotations

import _thread
import os
import signal
import sys

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
