"""The engine of a run inside the subsystem, as the supervisor sees it: the same four verbs as a native engine."""

from __future__ import annotations

import contextlib
from pathlib import Path

from tunesmith_core.engine_process import EngineProcess
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_core.runs import Run
from tunesmith_core.wsl import client
from tunesmith_core.wsl.guest import Guest

PID_FILE = "linux.pid"


class WslEngine:
    """An engine that runs inside a distribution; wsl.exe stands for it on this side.

    Attributes:
        identity: of wsl.exe, for the lease.
    """

    def __init__(self, run: Run, guest: Guest, *, log_path: Path, log_cap_bytes: int) -> None:
        """Start it.

        Raises:
            OSError: when wsl.exe can't be started.
            EnvironmentProblem: `wsl-not-usable` when the run folder can't be reached from inside.
        """
        self._guest = guest
        self._pid_path = run.path / PID_FILE
        self._pid_path.unlink(missing_ok=True)
        pid_path = f"{guest.path_of(str(run.path))}/{PID_FILE}"
        command = guest.module_command("tunesmith_core.wsl.relay", guest.path_of(str(run.path)), "--pid-file", pid_path)
        self._process = EngineProcess(
            command,
            folder=run.path,
            environment=client.variables(),
            log_path=log_path,
            log_cap_bytes=log_cap_bytes,
            lifeline=True,
        )
        self.identity = self._process.identity

    def ended(self) -> bool:
        """Return whether wsl.exe has ended."""
        return self._process.ended()

    def terminate(self) -> None:
        """Ask the engine inside to end."""
        self._signal("TERM")

    def kill(self) -> None:
        """End the engine inside and wsl.exe at once."""
        self._signal("KILL")
        self._process.kill()

    def close(self) -> int:
        """End what is left on both sides and return the exit code."""
        self._signal("KILL")
        code = self._process.close()
        self._pid_path.unlink(missing_ok=True)
        return code

    def _signal(self, name: str) -> None:
        # A relay that has not come up yet has no pid; it ends by its lifeline.
        with contextlib.suppress(OSError, ValueError, EnvironmentProblem):
            self._guest.kill(int(self._pid_path.read_text(encoding="ascii")), name)
