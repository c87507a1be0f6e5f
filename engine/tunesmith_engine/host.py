"""The engine's side of the run folder: journal, heartbeat, sensors, commands and stop requests.

A thread shows a sign of life from the first second, also while PyTorch is imported; it never touches the model.
"""

from __future__ import annotations

import faulthandler
import logging
import statistics
import sys
import threading
import time
from collections import deque
from types import TracebackType
from typing import Any, Self

from tunesmith_core.errors import TunesmithError
from tunesmith_core.protocol import STOP_MODES, Command, CommandInbox, JournalWriter
from tunesmith_core.runs import Run
from tunesmith_engine.sensors import Sensors

HEARTBEAT_S = 1.0
SENSORS_EVERY_BEATS = 2
POLL_INTERVAL_S = 0.1
HANG_MINIMUM_S = 300.0
HANG_MEDIANS = 20
MAX_LOG_CHARS = 2000


class Host:
    """Connects a training process with its run folder; used as a context manager, which begins phase "starting".

    Attributes:
        run: the run folder.
        stop_mode: "save" or "discard" once a stop was asked for, else None.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.stop_mode: str | None = None
        self._journal = JournalWriter(run.journal_path)
        self._inbox = CommandInbox(run.control_path)
        self._waiting: list[Command] = []
        self._signalled = False
        self._last_poll_s = -POLL_INTERVAL_S
        self._sensors = Sensors()
        self._step_seconds: deque[float] = deque(maxlen=50)
        self._last_progress_s: float | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="heartbeat", daemon=True)
        self._log_handler = _JournalLogHandler(self)

    def __enter__(self) -> Self:
        self.phase("starting")
        self._thread.start()
        logging.getLogger().addHandler(self._log_handler)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        logging.getLogger().removeHandler(self._log_handler)
        self._closed.set()
        self._thread.join()
        self._journal.close()

    # Events

    def event(self, kind: str, /, **data: Any) -> None:  # Any: JSON values
        """Append an event to the journal."""
        self._journal.write(kind, **data)

    def phase(self, name: str, done: int = 0, total: int = 0, unit: str = "") -> None:
        """Say which phase begins, or how far it is."""
        self._last_progress_s = None
        self.event("phase", name=name, done=done, total=total, unit=unit)

    def warning(self, code: str, message: str) -> None:
        """Report something that does not end the run, with the catalogue's next step."""
        problem = TunesmithError(code, message)
        self.event("warning", code=code, message=message, hint=problem.hint)

    def progress(self, step_s: float | None = None) -> None:
        """Note that training moves: after a step with its seconds, after any other portion of work without."""
        self._last_progress_s = time.monotonic()
        if step_s is not None:
            self._step_seconds.append(step_s)

    # Commands

    def on_signal(self, *_: object) -> None:
        """Signal handler: stop and save. Only sets a flag, since the interrupted code may hold the journal's lock."""
        self._signalled = True

    def stop_requested(self) -> bool:
        """Look for new commands (at most ten times a second) and return whether the run shall stop.

        Pings and stops are answered here; other commands wait for `take_commands`.
        """
        if self._signalled:
            self._signalled = False
            self._accept_stop("save")
        if time.monotonic() - self._last_poll_s >= POLL_INTERVAL_S:
            self._last_poll_s = time.monotonic()
            for command in self._inbox.poll():
                self._receive(command)
        return self.stop_mode is not None

    def take_commands(self) -> list[Command]:
        """Return the commands that wait for the trainer; each must be answered by `ack`."""
        self.stop_requested()
        waiting, self._waiting = self._waiting, []
        return waiting

    def ack(self, command: Command, ok: bool = True, message: str = "") -> None:
        """Answer a command."""
        self.event("ack", id=command.id, command=command.name, ok=ok, message=message)

    def _receive(self, command: Command) -> None:
        if command.name == "ping":
            self.ack(command)
        elif command.name == "stop":
            mode = command.data.get("mode", "save")
            known = mode in STOP_MODES
            self.ack(command, known, "" if known else f"unknown mode {mode!r}")
            if known:
                self._accept_stop(mode)
        else:
            self._waiting.append(command)

    def _accept_stop(self, mode: str) -> None:
        # A later "discard" may sharpen a "save"; the reverse would bring back what the person gave up.
        if self.stop_mode != "discard" and self.stop_mode != mode:
            self.stop_mode = mode
            self.event("stopping", mode=mode)

    # The heartbeat thread

    def _watch(self) -> None:
        beats = 0
        while True:
            try:
                self.run.heartbeat_path.touch()
                if beats % SENSORS_EVERY_BEATS == 0:
                    self.event("gpu", **self._sensors.read())
                self._check_hang()
            except (OSError, ValueError):
                # A full disk must not kill the sign of life; the training thread meets the same error and reports it.
                pass
            beats += 1
            if self._closed.wait(HEARTBEAT_S):
                return

    def _check_hang(self) -> None:
        if self._last_progress_s is None:
            return
        limit_s = HANG_MINIMUM_S
        if self._step_seconds:
            limit_s = max(limit_s, HANG_MEDIANS * statistics.median(self._step_seconds))
        silent_s = time.monotonic() - self._last_progress_s
        if silent_s > limit_s:
            self._last_progress_s = None
            faulthandler.dump_traceback(file=sys.__stderr__ or sys.stderr, all_threads=True)
            self.warning("engine-hung", f"No step has ended for {silent_s:.0f} s.")


class _JournalLogHandler(logging.Handler):
    """Copies warnings of libraries into the journal."""

    def __init__(self, host: Host) -> None:
        super().__init__(logging.WARNING)
        self._host = host

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record as a `log` event."""
        self._host.event("log", level=record.levelname.lower(), text=record.getMessage()[:MAX_LOG_CHARS])
