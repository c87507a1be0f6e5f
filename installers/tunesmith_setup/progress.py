"""What the installer tells: phases, notes, how far a download is, what was found; as text, or as events for the window.

`Progress` is the only thing that the parts of the installer talk to. A command that the window started as an operation
writes events into its journal instead of text.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tunesmith_core import terminal
from tunesmith_core.errors import EXIT_STOPPED, BugError, TunesmithError
from tunesmith_core.messages import Message, joined, said
from tunesmith_core.operations.folder import Operation
from tunesmith_core.operations.host import Host, StopWatch, die_with_owner
from tunesmith_core.protocol import Event
from tunesmith_core.setup_messages import Finding, Plan, State

MB = 1_000_000
GIB = 1024**3
MIB = 1024**2

TRACEBACK = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)*", re.MULTILINE)
"""Of a child that failed; the line behind it says what was wrong."""

STATE_WORDS = {
    "ok": Message("ok"),
    "warning": Message("warning"),
    "failed": Message("failed"),
    "unknown": Message("unknown"),
}


def size_text(num_bytes: float) -> str:
    """Return a size for people, such as "5.6 GiB" or "93 MiB"."""
    return f"{num_bytes / GIB:.1f} GiB" if num_bytes >= GIB else f"{num_bytes / MIB:.0f} MiB"


def duration_text(seconds: float) -> str:
    """Return a duration for people, such as "2 min 05 s" or "0.4 s"."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest_s = divmod(round(seconds), 60)
    return f"{minutes} min {rest_s:02d} s"


class Progress:
    """Writes lines to standard output at once and times the phases.

    Attributes:
        timings: what each finished phase took, name and seconds, in order.
        interval_s: how often `progress` is worth calling.
    """

    interval_s = 10.0

    def __init__(self) -> None:
        self.timings: list[tuple[str, float]] = []

    def line(self, text: str = "") -> None:
        """Write one line."""
        terminal.say(text)

    def note(self, text: str) -> None:
        """Write one line that belongs to the current phase."""
        self.line(f"    {said(text)}")

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Announce a phase, and its time when it ends well."""
        self._phase_started(name)
        started = time.monotonic()
        yield
        seconds = time.monotonic() - started
        self.timings.append((name, seconds))
        self._phase_done(name, seconds)

    def _phase_started(self, name: str) -> None:
        self.line(f"==> {said(name)}")

    def _phase_done(self, name: str, seconds: float) -> None:  # noqa: ARG002
        self.note(Message("done in {time}", time=duration_text(seconds)))

    def plan(self, plan: Plan) -> None:
        """Show what will be fetched and written, where to, and how long it takes roughly."""
        self.note(plan.sentence)
        for part in plan.parts:
            on_disk = (
                Message("{size} on disk", size=size_text(part.disk_bytes)) if part.disk_bytes else Message("complete")
            )
            download = Message("{size} to download", size=size_text(part.download_bytes))
            needed = joined([download, on_disk], ", ") if part.download_bytes else on_disk
            self.note(Message("{name}: {needed}", name=Message(part.name), needed=needed))
        self.note(Message("Folder: {folder}", folder=plan.folder))
        needed_most, free = size_text(plan.disk_bytes), size_text(plan.free_bytes)
        self.note(Message("Needs at most {needed}, {free} are free", needed=needed_most, free=free))
        if plan.seconds:
            self.note(Message("About {time}", time=duration_text(plan.seconds)))

    def progress(
        self, name: str, done_bytes: int, total_bytes: int, bytes_per_s: float, remaining_s: float | None
    ) -> None:
        """Show how far a part is; `remaining_s` is None while it can't be told. On a terminal uv draws its own bars."""
        if sys.stderr.isatty():
            return
        left = Message(", {time} left", time=duration_text(remaining_s)) if remaining_s is not None else ""
        self.note(
            Message(
                "{name}: {done} of {total}, {speed:.1f} MB/s{left}",
                name=Message(name),
                done=size_text(done_bytes),
                total=size_text(total_bytes),
                speed=bytes_per_s / MB,
                left=left,
            )
        )

    def check(self, finding: Finding) -> None:
        """Show how a check stands."""
        if finding.state not in (State.WAITING, State.CHECKING):
            named = f" [{finding.code}]" if finding.code else ""
            message = f": {said(finding.message)}" if finding.message else ""
            self.note(f"{said(STATE_WORDS[finding.state]):<8} {said(finding.title)}{message}{named}")
            if finding.fix:
                self.note(f"{'':<8} {said(Message('To fix it: {label}', label=Message(finding.fix.label)))}")

    def error(self, failure: TunesmithError) -> None:
        """Show what stopped the command: evidence, code, cause, next step; as text it goes to standard error."""
        evidence = failure.context if isinstance(failure, BugError) else TRACEBACK.sub("", failure.context or "")
        if evidence:
            terminal.note(evidence.rstrip())
        lines = (
            Message("error[{code}]: {title}", code=failure.code, title=failure.title),
            failure.message,
            Message("hint: {hint}", hint=failure.hint),
        )
        for line in lines:
            terminal.note(line)

    def result(self, exit_code: int) -> None:
        """Tell that the command ended; as text the exit code says it."""

    def answer(self, values: dict[str, Any]) -> None:  # Any: JSON values
        """Give a program the answer."""
        terminal.say_json(values)

    def stopping(self) -> AbstractContextManager[object]:
        """Interrupt the block when somebody asks for it elsewhere; in a terminal Ctrl-C does."""
        return nullcontext()


class EventProgress(Progress):
    """Writes events into the journal of an operation, for the window that started the command."""

    interval_s = 0.5

    def __init__(self, operation: Operation) -> None:
        super().__init__()
        self._host = Host(operation)
        self._failed = False
        self._answer: Any = None  # Any: JSON values

    def line(self, text: str = "") -> None:
        """Write a note; an empty line says nothing."""
        if text:
            self._host.event("log", level="info", text=text)

    def note(self, text: str) -> None:
        """Write a note."""
        self.line(text)

    def _phase_started(self, name: str) -> None:
        self._host.event("phase", name=name, state="started")

    def _phase_done(self, name: str, seconds: float) -> None:
        self._host.event("phase", name=name, state="done", seconds=seconds)

    def plan(self, plan: Plan) -> None:
        """Write what will be fetched and written, where to, and how long it takes roughly."""
        self._host.event("plan", **asdict(plan))

    def progress(
        self, name: str, done_bytes: int, total_bytes: int, bytes_per_s: float, remaining_s: float | None
    ) -> None:
        """Write how far a part is."""
        self._host.event(
            "progress",
            name=name,
            done_bytes=done_bytes,
            total_bytes=total_bytes,
            bytes_per_s=round(bytes_per_s),
            remaining_s=None if remaining_s is None else round(remaining_s, 1),
        )

    def check(self, finding: Finding) -> None:
        """Write how a check stands."""
        self._host.event("check", **asdict(finding))

    def error(self, failure: TunesmithError) -> None:
        """Write what stopped the command."""
        self._failed = True
        self._host.event("error", **failure.to_dict())

    def result(self, exit_code: int) -> None:
        """Write how the command ended, the last event. Faults that a check found are no failure of the check."""
        status = "stopped" if exit_code == EXIT_STOPPED else "failed" if self._failed else "finished"
        self._host.event("result", status=status, exit_code=exit_code, answer=self._answer)
        self._host.close()

    def answer(self, values: dict[str, Any]) -> None:  # Any: JSON values
        """Keep the answer for the result."""
        self._answer = values

    def stopping(self) -> AbstractContextManager[object]:
        """Interrupt the block, as Ctrl-C does, once the window asks for it."""
        return StopWatch(self._host.stop_requested)

    def repeat(self, event: Event) -> None:
        """Tell what the same command tells elsewhere."""
        if event.type in ("log", "phase", "check", "plan", "progress", "error"):
            self._host.event(event.type, **event.data)


class SilentProgress(Progress):
    """Says nothing but errors, for a command that answers in JSON."""

    def line(self, text: str = "") -> None:
        """Write nothing."""


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Declare `--operation` for a command that the window starts."""
    parser.add_argument("--operation", type=Path, help=argparse.SUPPRESS)


def chosen(arguments: argparse.Namespace) -> Progress:
    """Return the progress that a command's arguments ask for, the same one each time.

    Events in the folder of an operation, nothing beside an answer in JSON, or text.
    """
    made: Progress | None = getattr(arguments, "progress", None)
    if made is None:
        if folder := getattr(arguments, "operation", None):
            operation = Operation(folder)
            die_with_owner(operation)
            made = EventProgress(operation)
        else:
            made = SilentProgress() if getattr(arguments, "json", False) else Progress()
        arguments.progress = made
    return made
