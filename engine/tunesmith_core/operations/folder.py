"""The folder of an operation, and where it stands as its journal tells."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunesmith_core import files
from tunesmith_core.errors import TunesmithError
from tunesmith_core.process_identity import ProcessIdentity
from tunesmith_core.protocol import Event


class OperationState(enum.StrEnum):
    """Where an operation stands."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Operation:
    """A folder that whoever starts a child process shares with it."""

    path: Path

    @property
    def id(self) -> str:
        """Name of the folder, also of the working folder."""
        return self.path.name or self.path.absolute().name

    @property
    def journal_path(self) -> Path:
        """The journal."""
        return self.path / "events.jsonl"

    @property
    def control_path(self) -> Path:
        """The folder for command files."""
        return self.path / "control"

    @property
    def spec_path(self) -> Path:
        """What shall be done, frozen."""
        return self.path / "spec.json"

    @property
    def portion_path(self) -> Path:
        """Which portion of work on what others made is under way, see `limits`."""
        return self.path / "portion"

    @property
    def lease_path(self) -> Path:
        """Who works on it."""
        return self.path / "lease.json"

    def leased(self, role: str) -> ProcessIdentity | None:
        """Return the process that the lease names for a role, alive or not; None when there is no readable lease."""
        try:
            return ProcessIdentity.from_dict(files.read_json(self.lease_path)[role])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def lease(self, **roles: ProcessIdentity | None) -> None:
        """Say who works on it. Raises OSError when the folder can't be written."""
        files.atomic_write_json(self.lease_path, {role: who.to_dict() if who else None for role, who in roles.items()})


@dataclass(slots=True)
class OperationStatus:
    """What the journal of an operation says about it.

    Attributes:
        phase: what it is doing, in its own words.
        share: how much of the phase is done, 0 to 1; None when that can't be told.
        answer: the value that it ended with.
    """

    state: OperationState = OperationState.STARTING
    phase: str = ""
    share: float | None = None
    answer: Any = None  # Any: JSON values
    error: TunesmithError | None = None

    def fold(self, event: Event) -> None:
        """Take one event into account; events of one journal come in order."""
        data = event.data
        match event.type:
            case "phase":
                self.phase = str(data.get("name") or "")
                self._move(data.get("done"), data.get("total"))
            case "progress":
                self.phase = str(data.get("name") or self.phase)
                self._move(data.get("done_bytes"), data.get("total_bytes"))
            case "stopping":
                self.state = OperationState.STOPPING
            case "error":
                self.error = TunesmithError.from_dict(data)
            case "result":
                ended = {state.value: state for state in (OperationState.FINISHED, OperationState.STOPPED)}
                self.state = ended.get(str(data.get("status")), OperationState.FAILED)
                self.phase, self.share, self.answer = "", None, data.get("answer")

    def _move(self, done: object, total: object) -> None:
        if self.state is OperationState.STARTING:
            self.state = OperationState.RUNNING
        known = isinstance(done, int | float) and isinstance(total, int | float) and total > 0
        self.share = min(max(done / total, 0.0), 1.0) if known else None  # type: ignore[operator]
