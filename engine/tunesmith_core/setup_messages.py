"""What a command of the installer tells, in its journal, in a terminal and in the window."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """How a thing stands, in the order of a check; "unknown" is what could not be found out, and is never a fault."""

    WAITING = "waiting"
    CHECKING = "checking"
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Fix:
    """What repairs a fault.

    Attributes:
        label: for a button, such as "Reinstall 1 package".
        action: name of `actions.ACTIONS`.
        automatic: whether the installer does it; otherwise it is a step for the person.
        needs_network: whether something has to be fetched.
        bytes: what is fetched at most.
    """

    label: str
    action: str = ""
    automatic: bool = True
    needs_network: bool = False
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found.

    Attributes:
        message: one or two sentences for the person, with the values of this computer.
        code: of error_codes, when something is at fault.
        evidence: more lines, such as the names of damaged files.
        fix: what to do about it, or None.
        id: stable name of the check.
        title: its name for the person.
    """

    state: State
    message: str = ""
    code: str | None = None
    evidence: str = ""
    fix: Fix | None = None
    id: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a plan.

    Attributes:
        name: what it is, for the person.
        download_bytes: what is fetched; 0 when nothing is.
        disk_bytes: what it takes on the disk when it is done.
    """

    name: str
    download_bytes: int = 0
    disk_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """What an installation will do.

    Attributes:
        parts: what is fetched and written.
        folder: where to.
        free_bytes: on its drive.
        seconds: how long it takes, roughly; 0 when it takes no time.
        profile: name of the build of PyTorch.
        sentence: why that one.
    """

    parts: tuple[Part, ...]
    folder: str = ""
    free_bytes: int = 0
    seconds: float = 0.0
    profile: str = ""
    sentence: str = ""

    @property
    def download_bytes(self) -> int:
        """Everything that is fetched."""
        return sum(part.download_bytes for part in self.parts)

    @property
    def disk_bytes(self) -> int:
        """The room that is needed at most meanwhile."""
        return sum(part.disk_bytes for part in self.parts)
