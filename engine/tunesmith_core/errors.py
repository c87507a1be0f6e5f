"""Errors as values: every failure a person can meet has a stable code, a cause and a next step.

Raise `TunesmithError(code, ...)`: as `OSError` does with its numbers, it becomes the subclass that the code stands for,
which says who can act: the person (`UserError`), a repair (`EnvironmentProblem`), a changed run (`RunFailure`) or us
(`BugError`). A subclass is raised by name only where the place changes who can act. Only the edges (command line,
window, engine host) render or swallow them.
"""

from __future__ import annotations

import errno
import traceback
from collections.abc import Iterable
from typing import Any, ClassVar, Self, cast

from tunesmith_core.error_codes import CODES
from tunesmith_core.json_values import shortened
from tunesmith_core.messages import Message


class TunesmithError(Exception):
    """A failure with a code from `error_codes.CODES`.

    Attributes:
        code: stable kebab-case name of the cause.
        message: what happened, with the values of this very case (path, line, column, number).
        context: longer evidence such as a log tail, or None.
        hint: the next step for this case; the catalogue's general action when none is given.
        link: address of a page that explains more, or None.
        actions: names of `actions.ACTIONS` that help in this case, the best first; none for those of the code.
    """

    exit_code: ClassVar[int] = 1

    def __new__(cls, code: str, /, *_arguments: Any, **_named: Any) -> Self:  # Any: see __init__
        """Make an error of the kind that its code stands for, or of the named one."""
        kind = _kinds()[CODES[code].kind] if cls is TunesmithError and code in CODES else cls
        return cast("Self", super().__new__(kind))

    def __init__(
        self,
        code: str,
        template: str,
        /,
        *,
        context: str | None = None,
        hint: str | None = None,
        link: str | None = None,
        actions: Iterable[str] = (),
        **values: object,
    ) -> None:
        """Say what happened: a template as of `messages.Message` with its values, or a message that is made already."""
        if code not in CODES:
            raise ValueError(f"unknown error code {code!r}: add it to tunesmith_core.error_codes")
        self.code = code
        self.message = Message(template, **values)
        super().__init__(self.message)
        self.context = context
        self.hint = Message(hint or CODES[code].action)
        self.link = link
        self.actions = tuple(actions)

    @property
    def title(self) -> str:
        """The short name of the cause, from the catalogue."""
        return Message(CODES[self.code].title)

    def to_dict(self) -> dict[str, Any]:  # Any: JSON values
        """Return the error as the fields of an `error` event."""
        return {
            "code": self.code,
            "kind": type(self).__name__,
            "title": self.title,
            "message": self.message,
            "context": self.context,
            "hint": self.hint,
            "link": self.link,
            "actions": list(self.actions),
        }

    @staticmethod
    def from_dict(data: dict[str, Any]) -> TunesmithError:
        """Rebuild an error from `to_dict`; a code of a newer version becomes a `BugError` that keeps the text."""
        code = str(data.get("code"))
        kind = _kinds().get(str(data.get("kind")), BugError)
        message = data.get("message") or code
        message = message if isinstance(message, str) else str(message)
        more: dict[str, Any] = {name: data.get(name) for name in ("context", "hint", "link")}  # Any: JSON values
        more["actions"] = map(str, data["actions"]) if isinstance(data.get("actions"), list) else ()
        return kind(code, message, **more) if code in CODES else BugError("bug", message, **more)

    def with_context(self, context: str) -> Self:
        """Attach longer evidence and return the error itself."""
        self.context = context
        return self


class UserError(TunesmithError):
    """The input is at fault; the person can change it."""

    exit_code = 2


class EnvironmentProblem(TunesmithError):
    """The machine or an environment is at fault; repair can change it."""

    exit_code = 3


class RunFailure(TunesmithError):
    """A run that was started in good order failed."""

    exit_code = 4


class BugError(TunesmithError):
    """Our own mistake."""

    exit_code = 1


def _kinds() -> dict[str, type[TunesmithError]]:
    return {kind.__name__: kind for kind in (UserError, EnvironmentProblem, RunFailure, BugError)}


EXIT_DONE = 0
EXIT_STOPPED = 5
EXIT_UNSAVED = 6
"""Of an engine that was stopped and could not save, to its supervisor; no signal or runtime ends a process with it."""


_WINDOWS_NAME_TOO_LONG = 206


def wrap(error: BaseException) -> TunesmithError:
    """Turn any exception into a TunesmithError.

    Operating-system errors with a known meaning (disk full, no permission) get their own code; everything else is a
    `BugError` that carries the traceback as context.
    """
    if isinstance(error, TunesmithError):
        return error
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return TunesmithError("disk-full", "{place}no space is left on the disk.", place=place)
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO):
            return TunesmithError(
                "permission-or-antivirus", "{place}{reason}.", place=place, reason=Message(str(error.strerror))
            )
        if error.errno == errno.ENOMEM:
            return TunesmithError("memory-full", "{place}the system gave no memory.", place=place)
        if error.errno == errno.ENOEXEC:
            return TunesmithError(
                "environment-missing", "{place}the program is damaged and can't be started.", place=place
            )
        if error.errno == errno.ENAMETOOLONG or getattr(error, "winerror", None) == _WINDOWS_NAME_TOO_LONG:
            place = f"{shortened(error.filename)}: " if error.filename else ""
            return TunesmithError("path-too-long", "{place}the path is too long.", place=place)
    context = "".join(traceback.format_exception(error))
    return BugError("bug", "{error}", error=f"{type(error).__name__}: {error}", context=context)
