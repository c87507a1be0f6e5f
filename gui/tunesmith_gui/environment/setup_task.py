"""One command of `tunesmith_setup` as a child process: probe, check, repair, install, with its lines as events.

These commands survive being ended at any moment, and an installation without a window that shows it would be a secret:
so QProcess is right here, and the command ends with the program. Runs go through `core.launch` instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QObject, QProcess, QProcessEnvironment, QTimer, Signal

from tunesmith_core import environments
from tunesmith_core.errors import BugError, EnvironmentProblem, TunesmithError
from tunesmith_gui.environment.setup_events import ErrorEvent, ResultEvent, parse_line

GRACE_MS = 5000
"""What a command gets to end by itself before it is killed."""

MAX_LINE_BYTES = 1 << 20
MAX_ANSWER_BYTES = 8 << 20
MAX_STDERR_BYTES = 64 << 10
MODULE = "tunesmith_setup"
EVENTS_FLAG = "--events"


@dataclass(frozen=True, slots=True)
class SetupEnd:
    """How a command ended.

    Attributes:
        exit_code: None when it could not be started, was cancelled or crashed.
        error: what stopped it, None when nothing did.
        answer: the JSON value that a command without events printed.
        details: the end of what it wrote to standard error.
    """

    exit_code: int | None
    cancelled: bool = False
    error: TunesmithError | None = None
    answer: Any = None  # Any: JSON values
    details: str = ""


class SetupTask(QObject):
    """Runs `tunesmith_setup ARGUMENTS` once and deletes itself after its end.

    With `--events` among the arguments each line of standard output is an event; without, the whole of it is one JSON
    value, the answer.

    Signals:
        happened: a SetupEvent.
        ended: a SetupEnd, once, the last signal; also after `cancel`.
    """

    happened = Signal(object)
    ended = Signal(object)

    def __init__(self, *arguments: str, parent: QObject, variables: Mapping[str, str] | None = None) -> None:
        super().__init__(parent)
        self._command = environments.own_command(MODULE, *arguments)
        self._has_events = EVENTS_FLAG in arguments
        self._variables = dict(variables or {})
        self._out = bytearray()
        self._skipping = False
        self._err = bytearray()
        self._error: TunesmithError | None = None
        self._result: ResultEvent | None = None
        self._cancelled = self._over = False
        self._process = QProcess(self)
        self._grace = QTimer(self)
        self._grace.setSingleShot(True)
        self._grace.setInterval(GRACE_MS)
        self._grace.timeout.connect(self._process.kill)

    def start(self) -> None:
        """Begins."""
        process = self._process
        variables = QProcessEnvironment.systemEnvironment()
        for name, value in self._variables.items():
            variables.insert(name, value)
        process.setProcessEnvironment(variables)
        process.setStandardInputFile(QProcess.nullDevice())
        process.readyReadStandardOutput.connect(self._read_output)
        process.readyReadStandardError.connect(self._read_errors)
        process.finished.connect(self._on_finished)
        process.errorOccurred.connect(self._on_process_error)
        process.start(self._command[0], self._command[1:])

    def cancel(self) -> None:
        """Asks the command to end, and kills it when it does not."""
        if self._over or self._cancelled:
            return
        self._cancelled = True
        self._process.terminate()
        self._grace.start()

    def abandon(self) -> None:
        """Ends the command at once, without a further signal: the program is closing."""
        self._over = True
        self._grace.stop()
        self._process.kill()
        self._process.waitForFinished(GRACE_MS)

    def _read_output(self) -> None:
        self._out += self._process.readAllStandardOutput().data()
        if not self._has_events:
            del self._out[MAX_ANSWER_BYTES:]
            return
        *lines, rest = bytes(self._out).split(b"\n")
        self._out = bytearray(rest)
        for line in lines:
            if self._skipping:
                self._skipping = False
            else:
                self._take_line(line)
        if len(rest) > MAX_LINE_BYTES:  # no line of ours is that long
            self._out.clear()
            self._skipping = True

    def _take_line(self, line: bytes) -> None:
        event = parse_line(line)
        if event is None or self._over:
            return
        if isinstance(event, ErrorEvent):
            self._error = event.error
        elif isinstance(event, ResultEvent):
            self._result = event
        self.happened.emit(event)

    def _read_errors(self) -> None:
        self._err += self._process.readAllStandardError().data()
        del self._err[:-MAX_STDERR_BYTES]

    def _on_process_error(self, error: QProcess.ProcessError) -> None:
        if error == QProcess.ProcessError.FailedToStart:
            words = f"{self._command[0]} could not be started: {self._process.errorString()}."
            self._end(SetupEnd(None, error=EnvironmentProblem("environment-missing", words)))

    def _on_finished(self, exit_code: int, status: QProcess.ExitStatus) -> None:
        self._read_output()
        self._read_errors()
        if self._has_events and self._out:
            self._take_line(bytes(self._out))
        details = bytes(self._err).decode("utf-8", "replace")
        if self._cancelled:
            self._end(SetupEnd(None, cancelled=True, details=details))
            return
        crashed = status == QProcess.ExitStatus.CrashExit
        error, answer = self._error, None
        if not self._has_events and error is None and not crashed:
            answer, error = self._read_answer(exit_code, details)
        elif error is None and (crashed or self._result is None):
            error = _crash(exit_code, details)
        self._end(SetupEnd(None if crashed else exit_code, error=error, answer=answer, details=details))

    def _read_answer(self, exit_code: int, details: str) -> tuple[Any, TunesmithError | None]:  # Any: JSON values
        try:
            return json.loads(self._out.decode("utf-8", "replace")), None
        except ValueError:
            return None, _crash(exit_code, details)

    def _end(self, end: SetupEnd) -> None:
        if self._over:
            return
        self._over = True
        self._grace.stop()
        self.ended.emit(end)
        self.deleteLater()


def _crash(exit_code: int, details: str) -> BugError:
    words = f"The installer ended with exit code {exit_code} and gave no result."
    return BugError("bug", words, context=details or None)
