"""One command of the installer or doctor from its start to its end, folded from its events: phase, progress, log."""

from __future__ import annotations

from enum import StrEnum

from tunesmith_core.errors import TunesmithError
from tunesmith_core.setup_messages import Finding, Plan
from tunesmith_gui.environment.setup_events import (
    ErrorEvent,
    NoteEvent,
    PhaseEvent,
    ProgressEvent,
    SetupEvent,
)
from tunesmith_gui.models.log_lines import LogLine, LogLines
from tunesmith_gui.tr import core_text, duration, fill, number, size, translate

MAX_CHARS = 2000
"""A line of the log is cut here."""


class Command(StrEnum):
    """What a command is for."""

    PROBE = "probe"
    CHECK = "check"
    FULL_CHECK = "full-check"
    PLAN = "plan"
    INSTALL = "install"
    REPAIR = "repair"
    ROLL_BACK = "roll-back"
    WSL = "wsl"

    @property
    def changes(self) -> bool:
        """Whether it changes what is installed, so that the person started it and may cancel it."""
        return self in (Command.INSTALL, Command.REPAIR, Command.ROLL_BACK, Command.WSL)


class Stage(StrEnum):
    """Where a command stands."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Activity:
    """What is known about one command.

    Attributes:
        phase: the part that goes on, "" before the first and after the end.
        doing: what is done within the phase, "" when that was not told.
        progress: the newest progress of the phase, None while there is none.
        cancelling: the person asked to end it.
        log: everything it said.
    """

    def __init__(self, command: Command, *, detail: str = "") -> None:
        self.command = command
        self.detail = detail
        self.stage = Stage.RUNNING
        self.phase = ""
        self.doing = ""
        self.progress: ProgressEvent | None = None
        self.error: TunesmithError | None = None
        self.cancelling = False
        self.log = LogLines()

    @property
    def running(self) -> bool:
        """Whether it goes on."""
        return self.stage is Stage.RUNNING

    def apply(self, event: SetupEvent, now_s: float) -> None:
        """Take in an event that arrived at a time in seconds since 1970."""
        if not self.running:
            return
        if isinstance(event, PhaseEvent):
            self._take_phase(event, now_s)
        elif isinstance(event, ProgressEvent):
            self.progress, self.doing = event, event.name
        elif isinstance(event, NoteEvent):
            self.note(event.text, now_s)
        elif isinstance(event, Finding) and event.state == "checking":
            self.progress, self.doing = None, event.title
        elif isinstance(event, Finding) and event.state != "waiting":
            level = {"failed": "error", "warning": "warning"}.get(event.state, "info")
            self.note(f"{event.title}: {event.state}. {event.message}".rstrip(), now_s, level)
        elif isinstance(event, Plan):
            for part in event.parts:
                self.note(f"{part.name}: {size(part.download_bytes)}, {size(part.disk_bytes)}", now_s)
        elif isinstance(event, ErrorEvent):
            self.error = event.error
            self.note(f"{event.error.title} [{event.error.code}]: {event.error.message}", now_s, "error")

    def note(self, text: str, now_s: float, level: str = "info") -> None:
        """Put lines into the log."""
        lines = [LogLine(now_s, level, line[:MAX_CHARS]) for line in text.splitlines() if line.strip()]
        self.log.extend(lines)

    def end(self, error: TunesmithError | None, *, cancelled: bool) -> None:
        """The process ended."""
        if not self.running:
            return
        self.error = None if cancelled else error
        self.stage = Stage.CANCELLED if cancelled else Stage.FAILED if error is not None else Stage.DONE
        self.phase, self.doing, self.progress = "", "", None

    def _take_phase(self, event: PhaseEvent, now_s: float) -> None:
        self.progress, self.doing = None, ""
        if event.done:
            self.phase = ""
            took = f" ({duration(event.seconds)})" if event.seconds is not None else ""
            self.note(f"{event.name}{took}", now_s)
        else:
            self.phase = event.name
            self.note(f"{event.name} …", now_s)

    @property
    def share(self) -> float | None:
        """How far the present part is, 0 to 1; None when nobody knows."""
        if self.progress is None or not self.progress.total_bytes:
            return None
        return min(self.progress.done_bytes / self.progress.total_bytes, 1.0)

    @property
    def title(self) -> str:
        """What is being done, in a few words."""
        words = {
            Command.PROBE: translate("Setup", "Looking at this computer"),
            Command.CHECK: translate("Setup", "Checking"),
            Command.FULL_CHECK: translate("Setup", "Checking every file"),
            Command.PLAN: translate("Setup", "Planning the installation"),
            Command.INSTALL: translate("Setup", "Installing the training environment"),
            Command.REPAIR: translate("Setup", "Repairing"),
            Command.ROLL_BACK: translate("Setup", "Rolling back to the previous environment"),
            Command.WSL: translate("Setup", "Setting up the Windows Subsystem for Linux"),
        }
        return words[self.command]

    @property
    def outcome(self) -> str:
        """How it ended, in a sentence; "" while it goes on."""
        if self.stage is Stage.CANCELLED:
            return translate("Setup", "Canceled. Downloads are kept, and the environment in use did not change.")
        if self.stage is Stage.FAILED:
            return core_text(self.error.title) if self.error else translate("Setup", "It did not succeed.")
        if self.stage is Stage.DONE:
            return {
                Command.INSTALL: translate("Setup", "Installed and tested on this computer."),
                Command.REPAIR: translate("Setup", "Repaired and checked."),
                Command.ROLL_BACK: translate("Setup", "The previous environment is in use again."),
                Command.WSL: translate("Setup", "WSL is ready: choose it under Hardware for a run."),
            }.get(self.command, "")
        return ""

    def progress_words(self) -> str:
        """Share, part, speed and remaining time in one line, each where it is known; "" after the end."""
        if not self.running:
            return ""
        if self.cancelling:
            return translate("Setup", "Canceling…")
        parts = []
        if self.share is not None:
            parts.append(f"{number(self.share * 100)}%")
        now = self.progress
        name = self.doing or self.phase
        parts.append(core_text(name) if name else translate("Setup", "Working…"))
        if now and now.bytes_per_s:
            parts.append(fill(translate("Setup", "%1 MB/s"), number(now.bytes_per_s / 1e6, 1)))
        if now and now.remaining_s is not None:
            parts.append(fill(translate("Setup", "%1 left"), duration(now.remaining_s)))
        return "  ·  ".join(parts)
