"""What a command of the installer tells in its journal, as typed values.

The events come from another process, perhaps of another version: an unknown type or a missing field gives None and
nothing worse.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tunesmith_core.errors import TunesmithError
from tunesmith_core.json_values import read
from tunesmith_core.protocol import Event
from tunesmith_core.setup_messages import Finding, Plan


@dataclass(frozen=True, slots=True)
class PhaseEvent:
    """A numbered part of the work began or ended."""

    name: str
    done: bool = False
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class NoteEvent:
    """A line for the log."""

    text: str


@dataclass(frozen=True, slots=True)
class ProgressEvent:
    """How far a long part is, in bytes; None where it can't be told."""

    name: str
    done_bytes: int = 0
    total_bytes: int | None = None
    bytes_per_s: float | None = None
    remaining_s: float | None = None


@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """What stopped a command."""

    error: TunesmithError = field(compare=False)


SetupEvent = Finding | Plan | PhaseEvent | NoteEvent | ProgressEvent | ErrorEvent

_KINDS = {"check": Finding, "plan": Plan, "phase": PhaseEvent, "log": NoteEvent, "progress": ProgressEvent}


def parse(event: Event) -> SetupEvent | None:
    """Return what an event of the journal tells, or None when it is none that is known here."""
    data = event.data
    try:
        if event.type == "error":
            return ErrorEvent(TunesmithError.from_dict(data))
        told: SetupEvent = read(_KINDS[event.type], data | {"done": data.get("state") == "done"})
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return told
