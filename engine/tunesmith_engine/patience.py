"""Waits out a disk that can't be written: what was to be saved stays in memory until it can be saved."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tunesmith_core import files
from tunesmith_core.errors import TunesmithError, wrap
from tunesmith_engine.failures import as_os_error
from tunesmith_engine.host import Host

FIRST_PAUSE_S = 1.0
MAX_PAUSE_S = 30.0
POLL_S = 0.1
MOST_RENAMES = 3
"""safetensors writes beside its target by a path from the root; it is not found where a person renames the run's folder
just then, and is at once by the next attempt."""

Result = TypeVar("Result")


class Unsaved(Exception):
    """A stop came while the disk couldn't be written.

    Attributes:
        problem: why not.
    """

    def __init__(self, problem: TunesmithError) -> None:
        super().__init__(problem.message)
        self.problem = problem


def outlast(host: Host, work: Callable[[], Result]) -> Result:
    """Do work that writes, and while the disk refuses it, pause the run and try again.

    A stop ends the wait: one that discards at once, one that saves after a last attempt.

    Raises:
        Unsaved: when a stop was asked for and the disk still refuses.
        Exception: whatever else the work raises.
    """
    paused = False
    pause_s = FIRST_PAUSE_S
    num_renames = 0
    while True:
        try:
            result = work()
        except Exception as error:
            if num_renames < MOST_RENAMES and _is_missing(error):
                num_renames += 1
                continue
            problem = disk_problem(error, host.run.path)
            if problem is None:
                raise
            if host.stop_requested():
                raise Unsaved(problem) from error
        else:
            if paused:
                host.end_pause()
            return result
        host.pause(problem)
        paused = True
        _wait(host, pause_s)
        pause_s = min(2 * pause_s, MAX_PAUSE_S)
        if host.stop_mode == "discard":
            raise Unsaved(problem)


def _is_missing(error: Exception) -> bool:
    found = as_os_error(error)
    return found is not None and found.errno == errno.ENOENT


def write_out(host: Host) -> bool:
    """Write the events that wait for the disk and return whether there were any. Pauses and raises as `outlast`."""
    if host.journal_fault() is None:
        return False
    outlast(host, lambda: _write_out(host))
    return True


def _write_out(host: Host) -> None:
    if fault := host.journal_fault():
        raise fault


def write_end(host: Host) -> None:
    """Wait until the journal holds the result, behind which no pause can be told; a stop ends that too."""
    pause_s = FIRST_PAUSE_S
    while host.journal_fault() and host.stop_mode is None:
        host.rest()
        _wait(host, pause_s)
        pause_s = min(2 * pause_s, MAX_PAUSE_S)


def disk_problem(error: Exception, folder: Path) -> TunesmithError | None:
    """Return what keeps a folder from being written, for a person; None for an error that waiting doesn't cure."""
    if isinstance(error, TunesmithError):
        return error if error.code == "disk-full" else None
    fault = as_os_error(error)
    if fault is None or fault.errno not in files.DISK_FAULTS:
        return None
    # The engine names files from the run's folder; a person has to find the disk.
    fault.filename = str(Path(fault.filename or folder).absolute())
    return wrap(fault)


def _wait(host: Host, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while (left_s := deadline - time.monotonic()) > 0 and not host.stop_requested():
        time.sleep(min(left_s, POLL_S))
