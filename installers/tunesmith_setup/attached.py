"""Runs a program that the person watches and that must not outlive this one.

An installer that is killed leaves no uv behind that goes on writing into a folder which the next installation removes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from contextlib import ExitStack
from typing import Any

from tunesmith_core.engine_process import die_with_parent
from tunesmith_setup import interruption

NUM_LAST_LINES = 40


def run(command: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """Run a program to its end; what it writes goes where ours goes.

    Returns:
        Its exit code, and its last words on standard error; "" on a terminal, where it may draw as it likes.

    Raises:
        OSError: when it can't be started.
    """
    words: deque[bytes] = deque(maxlen=NUM_LAST_LINES)
    error_output = None if sys.stderr.isatty() else subprocess.PIPE
    options = _options(error_output is None)
    with ExitStack() as stack:
        with interruption.postponed():
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stderr=error_output, **options
            )
            stack.callback(_end, process, _attach(process))
        for line in process.stderr or ():
            words.append(line)
            os.write(2, line)
        code = process.wait()
    return code, b"".join(words).decode("utf-8", errors="replace")


def _end(process: subprocess.Popen[bytes], job: Any) -> None:  # Any: a class that exists on Windows only
    process.kill()
    process.wait()
    if process.stderr:
        process.stderr.close()
    if job:  # pragma: no cover - Windows
        job.close()


if sys.platform == "win32":  # pragma: no cover

    def _options(terminal: bool) -> dict[str, Any]:  # Any: keyword arguments of Popen
        return {} if terminal else {"creationflags": subprocess.CREATE_NO_WINDOW}

    def _attach(process: subprocess.Popen[bytes]) -> Any:  # Any: a class that exists on Windows only
        from tunesmith_core.windows_job import WindowsJob

        job = WindowsJob()
        job.add(int(process._handle))  # type: ignore[attr-defined]
        return job

else:

    def _options(_terminal: bool) -> dict[str, Any]:  # Any: keyword arguments of Popen
        return {"preexec_fn": die_with_parent()}

    def _attach(_process: subprocess.Popen[bytes]) -> Any:  # Any: a class that exists on Windows only
        return None
