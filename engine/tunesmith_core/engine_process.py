"""The engine as a process tree: started in its own group, drained into a capped log, ended as a whole.

It must not outlive its supervisor. On Linux the kernel kills the engine when the thread that started it dies (so
start it from the main thread), and processes that leave the group come back to the supervisor, which is their
subreaper. On Windows a job does both.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from tunesmith_core.capped_log import LOG_CAP_BYTES, CappedLog, copy_pipe
from tunesmith_core.errors import TunesmithError
from tunesmith_core.process_identity import ProcessIdentity, identify

logger = logging.getLogger(__name__)

DRAIN_S = 5.0
"""How long the rest of the output may take once the whole tree is gone."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_is_subreaper = False
"""Whether new children of this process can only be an engine's. In a window they may be supervisors of runs."""


class EngineProcess:
    """A started engine.

    Attributes:
        identity: pid and start time, for the lease.
    """

    def __init__(
        self,
        command: list[str],
        *,
        folder: Path,
        environment: dict[str, str],
        log_path: Path,
        log_cap_bytes: int = LOG_CAP_BYTES,
        lifeline: bool = False,
        binds_itself: bool = False,
        memory_bytes: int | None = None,
    ) -> None:
        """Start the command.

        Args:
            command: program and arguments.
            folder: where it runs.
            environment: all its variables.
            log_path: file for its output.
            log_cap_bytes: size that the file keeps to.
            lifeline: leave its standard input open exactly as long as this process lives.
            binds_itself: it asks the kernel by itself to die with this thread: between fork and exec of a process with
                many threads, such as the window, no code of ours may run.
            memory_bytes: on Windows what each process of the tree may use; elsewhere a child limits itself.

        Raises:
            EnvironmentProblem: `environment-missing` when its program is gone. OSError for any other fault.
        """
        self._binds_itself = binds_itself
        self._memory_bytes = memory_bytes
        self._log = CappedLog(log_path, log_cap_bytes)
        self._siblings = child_pids()
        self._stdin = subprocess.PIPE if lifeline else subprocess.DEVNULL
        try:
            self._process = self._start(command, folder, environment)
        except BaseException as error:
            self._log.close()
            if isinstance(error, FileNotFoundError) and not Path(command[0]).exists():
                raise TunesmithError("environment-missing", "{path} is gone.", path=command[0]) from error
            raise
        # A process that is gone already has no identity any more; its pid alone is never taken for alive.
        self.identity = identify(self._process.pid) or ProcessIdentity(self._process.pid, 0, "")
        assert self._process.stdout is not None
        self._reader = threading.Thread(
            target=copy_pipe, args=(self._process.stdout, self._log, self._report), name="engine-log", daemon=True
        )
        self._reader.start()

    @staticmethod
    def _report(error: OSError) -> None:
        logger.warning("the engine's log can't be written: %s", error)

    if sys.platform == "win32":  # pragma: no cover

        def _start(self, command: list[str], folder: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
            from tunesmith_core.windows_job import WindowsJob

            self._job = WindowsJob(self._memory_bytes)
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=self._stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                creationflags=subprocess.CREATE_NO_WINDOW | subprocess.CREATE_NEW_PROCESS_GROUP,
            )
            self._job.add(int(process._handle))  # type: ignore[attr-defined]
            return process

        def ended(self) -> bool:
            """Return whether the engine itself has ended."""
            return self._process.poll() is not None

        def terminate(self) -> None:
            """Ask the whole tree to end; Windows has no gentle way without a console."""
            self._job.terminate()

        def kill(self) -> None:
            """End the whole tree at once."""
            self._job.terminate()

    else:

        def _start(self, command: list[str], folder: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=self._stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=None if self._binds_itself else die_with_parent(),
            )

        def ended(self) -> bool:
            """Return whether the engine itself has ended; it stays unreaped so that its group can't be mistaken."""
            if self._process.returncode is not None:
                return True
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

        def terminate(self) -> None:
            """Ask the whole group to end."""
            self._signal_group(signal.SIGTERM)

        def kill(self) -> None:
            """End the whole group at once."""
            self._signal_group(signal.SIGKILL)

        def _signal_group(self, number: signal.Signals) -> None:
            if self._process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, number)

        def _kill_adopted(self) -> None:
            # Each one that dies may hand us its own children, so look again until none is new.
            while adopted := child_pids() - self._siblings:
                for pid in adopted:
                    with contextlib.suppress(ProcessLookupError, ChildProcessError):
                        os.kill(pid, signal.SIGKILL)
                        os.waitpid(pid, 0)

    def close(self) -> int:
        """End what is left of the tree, drain the log and return the engine's exit code (negative: its signal)."""
        self.kill()
        code = self._process.wait()
        if self._process.stdin:
            self._process.stdin.close()
        if sys.platform == "win32":  # pragma: no cover
            self._job.close()
        elif _is_subreaper:
            self._kill_adopted()
        self._reader.join(DRAIN_S)
        if self._reader.is_alive():  # pragma: no cover - a process that even the subreaper could not reach
            logger.warning("something still holds the engine's output open")
            return code
        assert self._process.stdout is not None
        self._process.stdout.close()
        try:
            self._log.close()
        except OSError as error:
            self._report(error)
        return code


def become_subreaper() -> None:
    """Make processes that lose their parent our children, so that none of the engine's can slip away (Linux)."""
    global _is_subreaper
    if sys.platform == "linux":  # pragma: no branch - no other system is measured
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        _is_subreaper = True


def die_with_parent() -> Callable[[], None]:
    """Return what a forked child does before it becomes the engine."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl if sys.platform == "linux" else None
    parent = os.getpid()

    def prepare() -> None:  # pragma: no cover - runs between fork and exec, where no tracer follows
        if prctl:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return prepare


def child_pids() -> set[int]:
    """Return the children of this process's main thread, own and adopted; empty where the system has no such list."""
    try:
        return {int(word) for word in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}
    except OSError:  # pragma: no cover - a kernel without this list
        return set()


def kill_leftover(identity: ProcessIdentity) -> bool:
    """End the group of an engine whose supervisor is gone; return whether there was one. Never touches a reused pid."""
    if identity.pid < 2 or not identity.alive():
        return False
    with contextlib.suppress(OSError):
        if sys.platform == "win32":  # pragma: no cover
            os.kill(identity.pid, signal.SIGTERM)
        else:
            os.killpg(identity.pid, signal.SIGKILL)
    return True
