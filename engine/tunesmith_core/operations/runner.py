"""The one runner: starts an operation, follows it, ends it with everything it started, and explains how it failed."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunesmith_core import files, paths
from tunesmith_core.capped_log import tail_of
from tunesmith_core.engine_process import EngineProcess
from tunesmith_core.errors import BugError, EnvironmentProblem, RunFailure, TunesmithError, wrap
from tunesmith_core.locks import FileLock
from tunesmith_core.messages import Message
from tunesmith_core.operations.folder import Operation, OperationState, OperationStatus
from tunesmith_core.operations.kind import Kind, Place
from tunesmith_core.operations.limits import GIB, Watch
from tunesmith_core.process_identity import current
from tunesmith_core.protocol import Event, JournalReader, post_command

POLL_S = 0.05
CREATE_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an operation ended.

    Attributes:
        state: finished, stopped or failed.
        exit_code: of its process.
        answer: the value that it ended with, None when it did not.
        error: why it failed, None when it did not.
        output: the end of what its process printed.
        in_time: False when it was ended because it was silent for too long.
    """

    state: OperationState
    exit_code: int
    answer: Any = None  # Any: JSON values
    error: TunesmithError | None = None
    output: str = ""
    in_time: bool = True

    def get(self) -> Any:  # Any: JSON values
        """Return the answer. Raises the error of one that failed, KeyboardInterrupt for one that was stopped."""
        if self.error is not None:
            raise self.error
        if self.state is OperationState.STOPPED:
            raise KeyboardInterrupt
        return self.answer


def conduct(
    kind: Kind,
    spec: Any,  # Any: of kind.spec
    *,
    on_event: Callable[[Event], object] = lambda _event: None,
    on_created: Callable[[Operation], object] = lambda _operation: None,
    cancel: threading.Event | None = None,
    command: Callable[[Operation], list[str]] | None = None,
    take: Callable[[Path, Any], Any] = lambda _folder, answer: answer,  # Any: JSON values, what is made of them
    limit_s: float = float("inf"),
) -> Outcome:
    """Do an operation in a child process, to its end; the child dies with the thread that calls this.

    Args:
        kind: what is done.
        spec: what exactly.
        on_event: called with each event of the journal.
        on_created: given its folder, into which commands can be posted until it has ended.
        cancel: once set, the operation is asked to stop, and ended with all its children when it does not.
        command: makes the child's command line; the kind's own when None.
        take: makes the answer of what the child left in its folder and of its own answer, before the folder goes.
        limit_s: how long it may be silent before it is ended.

    Raises:
        TunesmithError: when it can't be started.
        KeyboardInterrupt: after Ctrl-C, which cancels it.
    """
    try:
        operation = _create(kind, spec)
    except OSError as error:
        raise wrap(error) from error
    try:
        on_created(operation)
        words = command(operation) if command else kind.command(operation, spec)
        conductor = _Conductor(kind, operation, on_event, cancel or threading.Event(), limit_s)
        outcome = conductor.see_through(spec, words)
        if outcome.state is OperationState.FINISHED:
            return dataclasses.replace(outcome, answer=take(operation.path, outcome.answer))
        return outcome
    finally:
        shutil.rmtree(operation.path, ignore_errors=True)
        # Not while another operation has its folder there.
        with contextlib.suppress(OSError):
            operation.path.parent.rmdir()


def _create(kind: Kind, spec: Any) -> Operation:  # Any: of kind.spec
    """Make the folder of an operation; remove those whose owner died."""
    parent = paths.tmp_dir() / "operations"
    operation = Operation(parent / f"{kind.name}-{uuid.uuid4().hex[:8]}")
    # Under the lock a folder without an owner is one whose maker died before saying so.
    with FileLock(paths.locks_dir() / "operations.lock").waiting(CREATE_PATIENCE_S):
        for left in map(Operation, list(parent.glob("*"))):
            owner = left.leased("owner")
            if not (owner.alive() if owner else left.lease_path.exists()):
                shutil.rmtree(left.path, ignore_errors=True)
        files.private_folder(operation.control_path)
        operation.lease(owner=current())
    files.atomic_write_json(operation.path / "operation.json", {"version": 1, "kind": kind.name})
    files.atomic_write_json(operation.spec_path, kind.spec_values(spec))
    return operation


class _Conductor:
    """Follows one operation."""

    def __init__(
        self,
        kind: Kind,
        operation: Operation,
        on_event: Callable[[Event], object],
        cancel: threading.Event,
        limit_s: float,
    ) -> None:
        self._kind, self._operation, self._on_event, self._cancel = kind, operation, on_event, cancel
        self._reader = JournalReader(operation.journal_path)
        self._status = OperationStatus()
        self._limit_s = limit_s
        self._deadline = time.monotonic() + limit_s
        self._asked = self._interrupted = False
        self._watch: Watch | None = None

    def see_through(self, spec: Any, command: list[str]) -> Outcome:  # Any: of kind.spec
        """Start the child and return how it ended."""
        log_path, limits = self._operation.path / "output.log", self._kind.limits
        try:
            process = EngineProcess(
                command,
                folder=self._operation.path,
                environment=self._kind.environment(spec),
                log_path=log_path,
                binds_itself=True,
                memory_bytes=limits.loading_memory_bytes + GIB if limits else None,
            )
        except OSError as error:
            raise wrap(error) from error
        if limits:
            self._watch = Watch(self._operation.portion_path, process.identity.pid)
        try:
            while not process.ended() and time.monotonic() < self._deadline and not self._is_over():
                self._step()
            in_time = process.ended() or self._asked
        finally:
            code = process.close()
        self._follow()
        if self._interrupted:
            raise KeyboardInterrupt
        return self._outcome(code, in_time, tail_of(log_path))

    def _step(self) -> None:
        try:
            self._follow()
            time.sleep(POLL_S)
        except KeyboardInterrupt:
            if self._interrupted:
                raise
            self._interrupted = True
            self._cancel.set()
        if self._cancel.is_set() and not self._asked:
            self._asked = True
            self._deadline = time.monotonic() + self._kind.grace_s
            post_command(self._operation.control_path, "stop", mode="discard")

    def _is_over(self) -> bool:
        return self._watch is not None and self._watch.is_over()

    def _follow(self) -> None:
        for event in self._reader.read_all():
            if not self._asked:
                self._deadline = time.monotonic() + self._limit_s
            self._status.fold(event)
            self._on_event(event)

    def _outcome(self, code: int, in_time: bool, output: str) -> Outcome:
        state, error = self._status.state, self._status.error
        if state in (OperationState.FINISHED, OperationState.STOPPED):
            return Outcome(state, code, self._status.answer, output=output)
        if self._asked and error is None:
            return Outcome(OperationState.STOPPED, code, output=output)
        if error is None:
            error = self._error_of_portion(code, output)
        if error is None:
            error = self._explained(code, output) if in_time else self._late(output)
        return Outcome(OperationState.FAILED, code, self._status.answer, error, output, in_time)

    def _error_of_portion(self, code: int, output: str) -> TunesmithError | None:
        """Return what the portion under way did to the process, if one was under way."""
        if self._watch is None:
            return None
        if self._watch.late:
            return self._watch.late.over_time()
        portion = self._watch.portion()
        return portion.crashed(code, output) if portion else None

    def _late(self, output: str) -> TunesmithError:
        return EnvironmentProblem(
            "engine-hung",
            "{operation}: no progress for {seconds} s, so it was stopped.",
            context=output,
            operation=Message(self._kind.title),
            seconds=round(self._limit_s),
        )

    def _explained(self, code: int, output: str) -> TunesmithError:
        # Imported here: one that ends well does not pay for it.
        from tunesmith_core.explain.failure import explained

        message = Message(
            "{operation}: the process ended with exit code {code} and without a result.",
            operation=Message(self._kind.title),
            code=code,
        )
        if self._kind.place is Place.SAME:
            return BugError("bug", message, context=output or None)
        # The hint of the catalogue is for runs; nothing else can be resumed.
        hint = Message("Start it again. If it ends once more, send us the report.")
        return explained(RunFailure("engine-crashed", message, context=output or None, hint=hint), output)
