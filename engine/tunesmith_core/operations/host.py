"""The side of the child: its journal, commands and stop requests, and how it ends."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tunesmith_core import files
from tunesmith_core.errors import EXIT_DONE, EXIT_STOPPED, TunesmithError, wrap
from tunesmith_core.operations.folder import Operation
from tunesmith_core.operations.kind import kind_of
from tunesmith_core.operations.limits import Limits, Portions
from tunesmith_core.process_identity import current
from tunesmith_core.protocol import STOP_MODES, Command, CommandInbox, JournalWriter

POLL_INTERVAL_S = 0.1
MAX_LOG_CHARS = 2000
_PR_SET_PDEATHSIG = 1


class Host:
    """Connects a process with the folder of its operation; a context manager.

    Attributes:
        stop_mode: "save" or "discard" once a stop was asked for, else None.
        folder: its own.
        portions: where work on what others made is announced.
        turn: held by the thread that writes events or takes commands.
    """

    def __init__(self, operation: Operation, limits: Limits | None = None) -> None:
        self.stop_mode: str | None = None
        self.folder = operation.path
        self.portions = Portions(operation.portion_path, limits) if limits else Portions()
        self.turn = threading.RLock()
        self._journal = JournalWriter(operation.journal_path)
        self._inbox = CommandInbox(operation.control_path)
        self._waiting: list[Command] = []
        self._signalled = False
        self._last_poll_s = -POLL_INTERVAL_S
        self._log_handler = _JournalLogHandler(self)

    def __enter__(self) -> Self:
        logging.getLogger().addHandler(self._log_handler)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        logging.getLogger().removeHandler(self._log_handler)
        self.close()

    def close(self) -> None:
        """Close the journal."""
        self._journal.close()

    # Events

    def event(self, kind: str, /, **data: Any) -> None:  # Any: JSON values
        """Append an event to the journal."""
        with self.turn:
            self._journal.write(kind, **data)

    def journal_fault(self) -> OSError | None:
        """Try again to write the events that wait in memory; return why they can't be written, None when all are."""
        return self._journal.fault()

    def phase(
        self, name: str, done: int = 0, total: int = 0, unit: str = "", **pace: float | None
    ) -> None:
        """Say which phase begins, or how far it is; `pace` may be rows_per_s and remaining_s."""
        self.event("phase", name=name, done=done, total=total, unit=unit, **pace)

    def warning(self, code: str, message: str) -> None:
        """Report something that does not end the operation, with the catalogue's next step."""
        problem = TunesmithError(code, message)
        self.event("warning", code=code, message=message, hint=problem.hint)

    # Commands

    def on_signal(self, *_: object) -> None:
        """Signal handler: stop and save. Only sets a flag, since the interrupted code may hold the journal's lock."""
        self._signalled = True

    def stop_requested(self) -> bool:
        """Look for new commands (at most ten times a second) and return whether the operation shall stop.

        Pings and stops are answered here; other commands wait for `take_commands`.
        """
        with self.turn:
            if self._signalled:
                self._signalled = False
                self._accept_stop("save")
            if time.monotonic() - self._last_poll_s >= POLL_INTERVAL_S:
                self._last_poll_s = time.monotonic()
                for command in self._inbox.poll():
                    self._receive(command)
            return self.stop_mode is not None

    def take_commands(self) -> list[Command]:
        """Return the commands that wait; each must be answered by `ack`."""
        with self.turn:
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


class _JournalLogHandler(logging.Handler):
    """Copies warnings of libraries into the journal."""

    def __init__(self, host: Host) -> None:
        super().__init__(logging.WARNING)
        self._host = host

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record as a `log` event; of a Python warning without the line of code that it came from."""
        text = record.getMessage()
        text = text.partition("\n")[0] if record.name == "py.warnings" else text
        self._host.event("log", level=record.levelname.lower(), text=text[:MAX_LOG_CHARS])


def serve(
    operation: Operation,
    translate: Callable[[BaseException], TunesmithError] = wrap,
    limits: Limits | None = None,
) -> int:
    """Do the operation of a folder in this process; a stop interrupts it. Main thread only.

    Args:
        operation: its folder.
        translate: makes an error for a person of whatever was raised.
        limits: under which this whole process works from then on.

    Returns:
        The exit code; the journal ends with a result.
    """
    try:
        with Host(operation, limits) as host:
            host.phase("starting")
            with StopWatch(host.stop_requested):
                ended = _perform(host, operation, translate)
            host.event("result", **ended)
            return int(ended["exit_code"])
    except KeyboardInterrupt:
        # Between the work and its result: who asked for the end gets it.
        return EXIT_STOPPED


def _perform(
    host: Host, operation: Operation, translate: Callable[[BaseException], TunesmithError]
) -> dict[str, Any]:  # Any: JSON values
    """Return the fields of the result."""
    answer: Any = None  # Any: JSON values
    try:
        kind = kind_of(operation)
        answer = kind.load_function()(host, kind.spec_from(files.read_json(operation.spec_path)))
        # One that goes step by step returns what it found together with the error of the step that failed.
        failed = isinstance(answer, dict) and "error" in answer
        failure = TunesmithError.from_dict(answer["error"]) if failed else None
    except KeyboardInterrupt:
        return {"status": "stopped", "exit_code": EXIT_STOPPED}
    except Exception as error:
        failure = translate(error)
    if failure is None:
        return {"status": "finished", "exit_code": EXIT_DONE, "answer": answer}
    host.event("error", **failure.to_dict())
    return {"status": "failed", "code": failure.code, "exit_code": failure.exit_code, "answer": answer}


class StopWatch:
    """Interrupts the main thread as Ctrl-C does once a stop is asked for; a context manager of the main thread."""

    def __init__(self, stop_requested: Callable[[], bool]) -> None:
        self._stop_requested = stop_requested
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stop-watch", daemon=True)

    def __enter__(self) -> Self:
        # Who was started in the background by a shell would ignore it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(POLL_INTERVAL_S):
            if self._stop_requested():
                if not self._over.is_set():
                    interrupt_main_thread()
                return


if sys.platform == "win32":  # pragma: no cover

    def interrupt_main_thread() -> None:
        """Raise KeyboardInterrupt in the main thread."""
        import _thread

        _thread.interrupt_main()

else:

    def interrupt_main_thread() -> None:
        """Raise KeyboardInterrupt in the main thread, also when it waits for a child."""
        identity = threading.main_thread().ident
        assert identity is not None  # it has been started
        signal.pthread_kill(identity, signal.SIGINT)


def die_with_owner(operation: Operation) -> None:
    """End this process when the one that started the operation ends; on Windows its job does that."""
    if sys.platform == "linux":  # pragma: no branch - no other system is measured
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    owner = operation.leased("owner")
    # Inside the Windows Subsystem for Linux the owner may be a process of Windows, which can't be asked from there.
    if owner is not None and owner.boot == current().boot and not owner.alive():
        # It died before the kernel was asked to tell.
        os._exit(EXIT_STOPPED)


def main(arguments: list[str]) -> int:
    """Do the operation of the folder in the first argument; return the exit code."""
    operation = Operation(Path(arguments[0]))
    os.umask(files.PRIVATE_UMASK)
    faulthandler.enable()
    die_with_owner(operation)
    limits = None
    # What is wrong with the folder becomes the operation's result, see `_perform`.
    with contextlib.suppress(OSError, ValueError, KeyError):
        limits = kind_of(operation).limits
    return serve(operation, limits=limits)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
