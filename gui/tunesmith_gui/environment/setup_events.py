"""What a command of the installer tells in its journal, as typed values.

The events come from another process, perhaps of another version: an unknown type or a missing field gives None and
nothing worse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tunesmith_core.errors import TunesmithError
from tunesmith_core.protocol import Event

STATES = ("waiting", "checking", "ok", "warning", "failed", "unknown")
"""States of a check, in the order in which a row may go through them."""


@dataclass(frozen=True, slots=True)
class Fix:
    """What repairs a failed check.

    Attributes:
        label: words for the button, in English.
        action: name of `tunesmith_core.explain.actions`, "" when not told.
        automatic: whether the installer can do it; else it is a step for the person.
        num_bytes: size of what it downloads, None when that is not known.
    """

    label: str
    action: str = ""
    automatic: bool = True
    needs_network: bool = False
    num_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class CheckEvent:
    """Where one check stands.

    Attributes:
        state: one of STATES.
        code: of `error_codes.CODES`, "" when the check found nothing wrong.
        evidence: the line or value that gave it away.
    """

    id: str
    title: str
    state: str
    message: str = ""
    code: str = ""
    evidence: str = ""
    fix: Fix | None = None


@dataclass(frozen=True, slots=True)
class PlanPart:
    """One thing to install, in bytes; both are 0 for what is there already."""

    name: str
    download_bytes: int = 0
    disk_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PlanEvent:
    """What an installation will take, and from which drive.

    Attributes:
        profile: name of the build of PyTorch.
        sentence: why that one.
        seconds: how long it takes about, None when not known.
    """

    parts: tuple[PlanPart, ...]
    folder: str = ""
    free_bytes: int | None = None
    profile: str = ""
    sentence: str = ""
    seconds: float | None = None

    @property
    def download_bytes(self) -> int:
        """Everything that is fetched."""
        return sum(part.download_bytes for part in self.parts)

    @property
    def disk_bytes(self) -> int:
        """The room that is needed at most."""
        return sum(part.disk_bytes for part in self.parts)


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
class ResultEvent:
    """The last line of a command."""

    ok: bool
    exit_code: int


@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """What stopped a command."""

    error: TunesmithError = field(compare=False)


SetupEvent = CheckEvent | PlanEvent | PhaseEvent | NoteEvent | ProgressEvent | ResultEvent | ErrorEvent
_Values = Mapping[str, Any]  # Any: JSON values


def parse(event: Event) -> SetupEvent | None:
    """Return what an event of the journal tells, or None when it is none that is known here."""
    try:
        return _READERS[event.type](event.data)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _check(values: _Values) -> CheckEvent:
    if values["state"] not in STATES:
        raise ValueError(values["state"])
    return CheckEvent(
        id=str(values["id"]),
        title=str(values.get("title") or values["id"]),
        state=values["state"],
        message=str(values.get("message") or ""),
        code=str(values.get("code") or ""),
        evidence=str(values.get("evidence") or ""),
        fix=_fix(values["fix"]) if values.get("fix") else None,
    )


def _fix(values: _Values) -> Fix:
    return Fix(
        str(values["label"]),
        str(values.get("action") or ""),
        bool(values.get("automatic", True)),
        bool(values.get("needs_network")),
        _whole(values.get("bytes")),
    )


def _plan(values: _Values) -> PlanEvent:
    parts = tuple(
        PlanPart(str(part["name"]), _whole(part.get("download_bytes")) or 0, _whole(part.get("disk_bytes")) or 0)
        for part in values["parts"]
    )
    return PlanEvent(
        parts,
        str(values.get("folder") or ""),
        _whole(values.get("free_bytes")),
        str(values.get("profile") or ""),
        str(values.get("sentence") or ""),
        _number(values.get("seconds")),
    )


def _progress(values: _Values) -> ProgressEvent:
    return ProgressEvent(
        str(values["name"]),
        _whole(values.get("done_bytes")) or 0,
        _whole(values.get("total_bytes")),
        _number(values.get("bytes_per_s")),
        _number(values.get("remaining_s")),
    )


def _phase(values: _Values) -> PhaseEvent:
    return PhaseEvent(str(values["name"]), values.get("state") == "done", _number(values.get("seconds")))


def _note(values: _Values) -> NoteEvent:
    return NoteEvent(str(values["text"]))


def _result(values: _Values) -> ResultEvent:
    return ResultEvent(values["status"] == "finished", int(values.get("exit_code") or 0))


def _error(values: _Values) -> ErrorEvent:
    return ErrorEvent(TunesmithError.from_dict(dict(values)))


_READERS: dict[str, Callable[[_Values], SetupEvent]] = {
    "check": _check,
    "plan": _plan,
    "phase": _phase,
    "log": _note,
    "progress": _progress,
    "result": _result,
    "error": _error,
}


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        return None
    return float(value)


def _whole(value: object) -> int | None:
    number = _number(value)
    return None if number is None else round(number)
