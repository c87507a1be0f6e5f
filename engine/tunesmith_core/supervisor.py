"""The supervisor of one run: `python start.py tunesmith_core.supervisor RUN`.

It holds the run's lock, waits for the device, starts the engine, keeps its output within bounds, enforces a stop and
writes the end when the engine could not. It waits on no reader: everything it says is in the run folder.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from types import FrameType
from typing import Any

from tunesmith_core import devices, environments, files, memory_limits, paths, run_queue
from tunesmith_core.capped_log import LOG_CAP_BYTES, clean, tail_of
from tunesmith_core.engine_process import EngineProcess, become_subreaper, kill_leftover
from tunesmith_core.errors import EXIT_STOPPED, EXIT_UNSAVED, TunesmithError, wrap
from tunesmith_core.forced_stop import Force, ForcedStop, Limits
from tunesmith_core.locks import FileLock
from tunesmith_core.messages import Message
from tunesmith_core.process_identity import current
from tunesmith_core.protocol import (
    DISCARD_SIGNAL,
    Event,
    JournalReader,
    JournalWriter,
    pending_commands,
    post_command,
    read_command,
)
from tunesmith_core.runs import QUEUED_PHASE, SUPERVISED, Run, RunStatus, enter, open_run, unsaved
from tunesmith_core.spec_training import WSL
from tunesmith_core.store import Library
from tunesmith_core.wsl.engine import WslEngine
from tunesmith_core.wsl.guest import Guest

logger = logging.getLogger(__name__)

POLL_S = 0.2
MEMORY_SHORT_SHARE = 0.85
LOCK_TRIES = 20
"""How often a taken run lock is tried again: a process that only looks holds it for a moment."""


class Supervisor:
    """Supervises one run from the queue to its end."""

    def __init__(self, run: Run, limits: Limits | None = None, log_cap_bytes: int = LOG_CAP_BYTES) -> None:
        self.run = run
        self.signalled: str | None = None
        self._limits = limits or Limits()
        self._log_cap_bytes = log_cap_bytes
        self._lock = FileLock(run.lock_path)
        self._reader = JournalReader(run.journal_path)
        self._status = RunStatus()
        self._num_kills = 0
        self._reading: dict[str, Any] = {}  # Any: fields of the newest gpu event

    def supervise(self) -> RunStatus:
        """Take the run over, see it through and return its status.

        Raises:
            UserError: `run-busy` when another supervisor works on the run.
        """
        self._take_lock()
        try:
            self._see_through()
        except Exception as error:
            logger.exception("the run could not be seen through")
            self._end_failed(wrap(error))
        finally:
            self._update_index()
            with self._going_on("the lease could not be removed"):
                # One that stays tells the next supervisor that this one died, and which engine it may have left.
                files.remove(self.run.lease_path)
            self._lock.release()
        return self._status

    def _take_lock(self) -> None:
        for _ in range(LOCK_TRIES):
            if self._lock.acquire():
                return
            time.sleep(POLL_S / 4)
        raise TunesmithError("run-busy", "Another process is using the run {run}.", run=self.run.id)

    def _see_through(self) -> None:
        leftover = self.run.leased("engine")
        if leftover and kill_leftover(leftover):
            logger.warning("ended an engine that had lost its supervisor: pid %d", leftover.pid)
        self.run.sweep()
        self._write("phase", name=QUEUED_PHASE)
        device = devices.device_of(self.run.load_spec())
        self.run.lease(supervisor=current(), engine=None)
        files.crashpoint("supervisor.after-lease")
        lock = run_queue.device_lock(device)
        try:
            if self._wait_for(lock, device):
                run_queue.note_holder(device, self.run)
                self._run_engine(device)
        finally:
            lock.release()

    def _wait_for(self, lock: FileLock, device: devices.Device) -> bool:
        """Wait for the device; False when the person stopped the run meanwhile."""
        ticket = run_queue.Ticket(self.run, device)
        ticket.take(current())
        try:
            while not (ticket.is_first() and lock.acquire()):
                if mode := self._take_stop():
                    self._write("stopping", mode=mode)
                    self._write("result", status="stopped", step=self._status.step, artifacts={})
                    return False
                time.sleep(POLL_S)
        finally:
            ticket.give_back()
        return True

    def _take_stop(self) -> str | None:
        """Remove a waiting stop command and return its mode; every other command waits for the engine."""
        if self.signalled:
            return self.signalled
        for path in pending_commands(self.run.control_path):
            command = read_command(path)
            if command and command.name == "stop":
                files.remove(path)
                self._write("ack", id=command.id, command="stop", ok=True, message="")
                return str(command.data.get("mode", "save"))
        return None

    def _run_engine(self, device: devices.Device) -> None:
        self._num_kills = memory_limits.num_kills()
        # What a killed engine left there is no save that is under way.
        forced_stop, leftovers = ForcedStop(self._limits), self.run.saved_files()
        engine = self._start_engine(device)
        try:
            files.crashpoint("supervisor.after-engine-start")
            enforced = self._watch(engine, forced_stop, leftovers)
        finally:
            code = engine.close()
        with self._going_on("the leftovers of the engine could not be swept"):
            self.run.sweep()
        self._follow(forced_stop)
        files.crashpoint("supervisor.before-end")
        if not forced_stop.has_result:
            self._end_without_result(code, forced_stop if enforced else None)

    def _start_engine(self, device: devices.Device) -> EngineProcess | WslEngine:
        log_path, log_cap_bytes = self.run.engine_log_path, self._log_cap_bytes
        spec = self.run.load_spec()
        if spec.hardware.system == WSL:
            run = Run(self.run.path.absolute())
            return WslEngine(run, Guest.load(), log_path=log_path, log_cap_bytes=log_cap_bytes)
        return EngineProcess(
            environments.engine_command("run", "--run-dir", str(self.run.path)),
            folder=self.run.path,
            environment=environments.engine_environment() | device.environment() | SUPERVISED,
            log_path=log_path,
            log_cap_bytes=log_cap_bytes,
        )

    def _watch(
        self, engine: EngineProcess | WslEngine, forced_stop: ForcedStop, leftovers: set[tuple[str, int]]
    ) -> bool:
        """Follow the engine until it has ended; return whether it was made to."""
        leased = passed_on = False
        done = Force.WAIT
        while not engine.ended():
            leased = leased or self._lease_engine(engine)
            if self.signalled and not passed_on:
                self._pass_on_stop(engine, self.signalled)
                passed_on = True
            self._look_for_stop(forced_stop)
            self._follow(forced_stop)
            if forced_stop.mode:
                forced_stop.see_files(self.run.saved_files() - leftovers, time.monotonic())
            force = forced_stop.force(time.monotonic())
            if force > done:
                logger.warning("the engine is made to end: %s", force.name.lower())
                if force is Force.TERMINATE:
                    engine.terminate()
                else:
                    engine.kill()
                done = force
            time.sleep(POLL_S)
        return done is not Force.WAIT

    def _lease_engine(self, engine: EngineProcess | WslEngine) -> bool:
        """Name the engine in the lease; return whether that could be written. An engine trains without it."""
        try:
            self.run.lease(supervisor=current(), engine=engine.identity)
        except OSError:
            return False
        return True

    def _pass_on_stop(self, engine: EngineProcess | WslEngine, mode: str) -> None:
        try:
            post_command(self.run.control_path, "stop", mode=mode)
        except OSError:
            # A disk that takes no command: the engine knows the signal as well.
            engine.terminate()

    @contextmanager
    def _going_on(self, words: str) -> Iterator[None]:
        """Leave undone what a disk refuses: an end that is known already must not become another one."""
        try:
            yield
        except OSError:
            logger.exception(words)

    def _look_for_stop(self, forced_stop: ForcedStop) -> None:
        """See a stop that lies in the control folder: the engine may never take it."""
        for path in pending_commands(self.run.control_path):
            command = read_command(path)
            if command and command.name == "stop":
                forced_stop.ask(str(command.data.get("mode", "save")), time.monotonic())

    def _follow(self, forced_stop: ForcedStop | None = None) -> None:
        while events := self._read():
            for event in events:
                self._status.fold(event)
                self._reading = event.data if event.type == "gpu" else self._reading
                if forced_stop:
                    forced_stop.see(event, time.monotonic())

    def _read(self) -> list[Event]:
        try:
            return self._reader.read()
        except TunesmithError:
            # The engine trains on while the disk gives nothing; what it writes is read once it does.
            return []

    def _end_without_result(self, code: int, enforced: ForcedStop | None) -> None:
        status = self._status
        nothing_lost = enforced and (enforced.mode == "discard" or not enforced.is_unsaved)
        if code == EXIT_STOPPED or nothing_lost:
            self._write("result", status="stopped", step=status.step, artifacts={})
        elif enforced:
            self._end_failed(
                TunesmithError(
                    "engine-hung",
                    "The engine did not stop and was ended. Steps after {last_checkpoint_step} were not saved.",
                    last_checkpoint_step=status.last_checkpoint_step,
                    hint=next_step(status, self._reading),
                )
            )
        elif status.error:
            self._write("result", status="failed", code=status.error.get("code"), step=status.step, artifacts={})
        elif code == EXIT_UNSAVED and self.signalled == "discard":
            # The engine was told by a signal, which knows no mode.
            self._write("result", status="stopped", step=status.step, artifacts={})
        elif code == EXIT_UNSAVED:
            # The disk took the result no more than a checkpoint.
            problem = TunesmithError(status.obstacle or "disk-full", "The disk couldn't be written.")
            self._end_failed(unsaved(problem, status.last_checkpoint_step))
        else:
            # Imported here: a run that ends well does not pay for it.
            from tunesmith_core.explain.failure import explained, printed

            log_path = self.run.engine_log_path
            killed_for_memory = memory_limits.num_kills() > self._num_kills
            failure = engine_error(code, next_step(status, self._reading), killed_for_memory)
            output = printed(log_path)
            failure = explained(failure.with_context(clean(tail_of(log_path))), output)
            if failure.code == "engine-crashed" and memory_limits.speaks_of_memory(output):
                failure = TunesmithError("memory-full", failure.message, context=failure.context, hint=failure.hint)
            self._end_failed(memory_limits.with_limit(failure))

    def _end_failed(self, error: TunesmithError) -> None:
        try:
            self._write("error", **error.to_dict())
            self._write("result", status="failed", code=error.code, step=self._status.step, artifacts={})
        except OSError:
            # A full or read-only disk: without a result the run counts as interrupted, which is the truth.
            logger.exception("the end could not be written")

    def _write(self, kind: str, /, **data: Any) -> None:  # Any: JSON values
        """Append an event; only while no engine lives, for a journal has one writer."""
        with closing(JournalWriter(self.run.journal_path)) as journal:
            journal.write(kind, **data)
        self._follow()

    def _update_index(self) -> None:
        try:
            with closing(Library(paths.library_path())) as library:
                library.refresh(Run(self.run.path.absolute()))
        except Exception:
            # The index can be rebuilt at any time; it must never spoil the end of a run.
            logger.exception("the index could not be updated")


def next_step(status: RunStatus, reading: dict[str, Any]) -> Message:  # Any: fields of a gpu event
    """Return what to do about an engine that is gone, by what it saved and the last memory reading."""
    used, total = reading.get("host_used_bytes"), reading.get("host_total_bytes")
    short, step = bool(used and total and used > MEMORY_SHORT_SHARE * total), status.last_checkpoint_step
    if step and short:
        return Message("Memory was nearly full. Close other programs, then resume from step {step}.", step=step)
    if step:
        return Message("Resume from step {step}.", step=step)
    if short:
        return Message("Memory was nearly full. Close other programs, then start the run again: nothing was saved yet.")
    return Message("Start the run again: no checkpoint was saved yet.")


def engine_error(code: int, hint: str | None = None, killed_for_memory: bool = False) -> TunesmithError:
    """Return what an exit code without a result means (negative: the number of the signal)."""
    if code == -getattr(signal, "SIGKILL", 9):
        if killed_for_memory:
            return TunesmithError(
                "memory-full", "The system ended the training process because memory ran out.", hint=hint
            )
        return TunesmithError(
            "engine-killed", "The system or another program ended the training process (SIGKILL).", hint=hint
        )
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return TunesmithError("engine-crashed", "The training process was ended by {name}.", name=name, hint=hint)
    shown = f"{code:#010x}" if code > 255 else str(code)
    return TunesmithError(
        "engine-crashed",
        "The training process ended with exit code {shown} and without a result.",
        shown=shown,
        hint=hint,
    )


def main(arguments: list[str]) -> int:
    """Supervise the run of the first argument; return the exit code."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    os.umask(files.PRIVATE_UMASK)
    become_subreaper()
    supervisor = Supervisor(enter(open_run(arguments[0])))

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        supervisor.signalled = "discard" if number == DISCARD_SIGNAL else "save"

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    if DISCARD_SIGNAL:  # pragma: no branch - Windows has none
        signal.signal(DISCARD_SIGNAL, stop)
    if hasattr(signal, "SIGHUP"):  # pragma: no branch - Windows has none
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        supervisor.supervise()
    except TunesmithError as error:
        logger.error("%s: %s", error.code, error.message)  # noqa: TRY400 - foreseen, so no traceback
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
