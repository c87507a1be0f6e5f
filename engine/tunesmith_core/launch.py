"""Starting, resuming, stopping and following runs: what the window and the command line share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tunesmith_core import environments, files, paths, preflight
from tunesmith_core.base_model import BaseModel
from tunesmith_core.capped_log import clean, tail_of
from tunesmith_core.checkpoint_manifest import newest_noted
from tunesmith_core.error_codes import CODES
from tunesmith_core.errors import EnvironmentProblem, TunesmithError, UserError, wrap
from tunesmith_core.model_folder import local_folder
from tunesmith_core.protocol import DISCARD_SIGNAL, STOP_MODES, Event, JournalReader, pending_commands, post_command
from tunesmith_core.runs import (
    CHECKPOINT_MANIFEST,
    FIRST_SAVED_STEP,
    Run,
    RunState,
    RunStatus,
    create_run,
    settle,
    silenced,
)
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_changes import check_resumable

LEASE_WAIT_S = 30.0
ENDING_WAIT_S = 5.0
POLL_S = 0.1

_supervisors: list[subprocess.Popen[bytes]] = []
"""Supervisors that this process started; they outlive it, but as long as it lives it must reap them."""


def start(spec: RunSpec) -> Run:
    """Check a spec, create its run and start a supervisor; return as soon as that works on the run.

    Raises:
        TunesmithError: the first problem that `preflight.check` finds; then nothing was created.
        EnvironmentProblem: when the run folder can't be written.
        BugError: when the supervisor did not come up.
    """
    preflight.check(spec)
    try:
        run = create_run(spec)
    except OSError as error:
        raise wrap(error) from error
    files.crashpoint("launch.after-create")
    _start_supervisor(run)
    return run


def resume(run: Run) -> None:
    """Continue an ended run from its newest checkpoint, in the background.

    Raises:
        UserError: `run-busy` while it is going, `run-nothing-to-resume` when it is finished or lost all checkpoints,
            `resume-refused` when it was edited so that they don't fit it, `base-model-differs` when its base model
            changed.
        TunesmithError: what `preflight.check` finds.
    """
    status = run.status()
    if not status.state.live:
        _wait_until(lambda: not run.is_supervised(), ENDING_WAIT_S)
    if run.is_supervised():
        raise TunesmithError("run-busy", "The run {run} is still in progress.", run=run.id)
    if status.state is RunState.FINISHED:
        raise TunesmithError("run-nothing-to-resume", "The run {run} is finished.", run=run.id)
    if status.step > FIRST_SAVED_STEP and not has_checkpoint(run):
        raise TunesmithError(
            "run-nothing-to-resume",
            "The run {run} reached step {step} but has no complete checkpoint.",
            run=run.id,
            step=status.step,
        )
    spec = _with_moved_model(run)
    saved = newest_noted(run.checkpoints_path)
    if saved and saved.spec:
        check_resumable(saved.spec, spec)
    preflight.check(spec)
    if saved and (folder := local_folder(spec.model.path, spec.model.revision)):
        # The engine looks closer. What it refuses has begun, and ends as a failure.
        BaseModel(folder, saved.base_model).check_samples()
    for stale in pending_commands(run.control_path):
        # Commands to the run's former life, such as the stop that ended it.
        files.remove(stale)
    _start_supervisor(run)


def _with_moved_model(run: Run) -> RunSpec:
    """Return a run's spec, with the model where it is now when it went with the data root; that lasts.

    Raises:
        UserError: when the spec can't be read. EnvironmentProblem: when it can't be written.
    """
    spec = run.load_spec()
    path = Path(spec.model.path)
    moved = paths.models_dir() / path.name
    if path.parent.name == moved.parent.name and path.is_absolute() and not path.exists() and moved.exists():
        spec.model.path = str(moved)
        try:
            files.atomic_write_json(run.spec_path, spec.to_dict())
        except OSError as error:
            raise wrap(error) from error
    return spec


def has_checkpoint(run: Run) -> bool:
    """Return whether a run holds a checkpoint that was completely written; its content is checked by the engine."""
    return any(run.checkpoints_path.glob(f"step-*/{CHECKPOINT_MANIFEST}"))


def send(run: Run, command: str, /, **arguments: Any) -> str:  # Any: JSON values
    """Drop a command for a going run and return its id, by which the journal's `ack` answers.

    Raises:
        UserError: `run-not-live` when nobody works on the run. EnvironmentProblem when the folder can't be written.
    """
    if not run.is_supervised():
        raise _not_live(run, command)
    try:
        return post_command(run.control_path, command, **arguments)
    except OSError as error:
        raise wrap(error) from error


def _not_live(run: Run, command: str) -> TunesmithError:
    """Return why a run that nobody works on takes no command; resuming is no advice for one that can't be."""
    if command == "stop":
        return TunesmithError(
            "run-not-live",
            "The run {run} has ended. There is nothing to stop.",
            hint="The list of runs shows which are in progress.",
            run=run.id,
        )
    if run.status().state is RunState.FINISHED:
        return TunesmithError(
            "run-not-live", "The run {run} is finished.", hint=CODES["run-nothing-to-resume"].action, run=run.id
        )
    return TunesmithError("run-not-live", "The run {run} is not in progress.", run=run.id)


def stop(run: Run, mode: str = "save") -> str:
    """Ask a run to stop within 10 s: "save" keeps all whole steps, "discard" does not save. See `send` for the errors.

    Where the disk takes no command, a signal asks; then the result is "".
    """
    if mode not in STOP_MODES:
        raise ValueError(f"unknown stop mode {mode!r}")
    try:
        return send(run, "stop", mode=mode)
    except EnvironmentProblem:
        supervisor = run.supervisor()
        if sys.platform == "win32" or not supervisor or not supervisor.alive():
            raise
        os.kill(supervisor.pid, DISCARD_SIGNAL if mode == "discard" else signal.SIGTERM)
        return ""


def wait(run: Run, on_event: Callable[[Event], None] | None = None, offset: int = 0) -> RunStatus:
    """Follow a run's journal until nobody works on it any more, and return where it stands.

    Args:
        run: the run to follow.
        on_event: called with each event behind `offset`.
        offset: byte of the journal from which events are passed on, for runs that were resumed.
    """
    status = RunStatus()
    if offset:
        for event in JournalReader(run.journal_path).read_all():
            status.fold(event)
    reader = JournalReader(run.journal_path, offset)
    while True:
        # Asked before reading: what the last owner wrote is then surely read.
        supervised = run.is_supervised()
        events = reader.read_all()
        if supervised and not events and (silence := silenced(run, status, time.time())):
            events = [silence]
        for event in events:
            status.fold(event)
            if on_event:
                on_event(event)
        if not supervised and not run.path.exists():
            raise TunesmithError("run-not-found", "{path} was moved, renamed or deleted.", path=run.path)
        if not supervised:
            return settle(run, status)
        time.sleep(POLL_S)


def _start_supervisor(run: Run) -> None:
    _supervisors[:] = [process for process in _supervisors if process.poll() is None]
    command = environments.own_command("tunesmith_core.supervisor", str(run.path))
    before = run.supervisor()
    files.make_private(run.path)
    try:
        with files.open_file(run.supervisor_log_path, "ab") as log:
            process = _spawn(command, run.path, log.fileno())
    except OSError as error:
        raise wrap(error) from error
    _supervisors.append(process)
    # A new lease is awaited, not one of this pid: on Windows a venv's python.exe starts the real one as its child.
    if _wait_until(lambda: run.supervisor() != before or process.poll() is not None, LEASE_WAIT_S):
        # A run that was over at once has no lease any more, but its supervisor did its work.
        if run.supervisor() == before and process.returncode:
            raise _early_end(run, process.returncode)
        return
    process.kill()
    raise TunesmithError(
        "permission-or-antivirus",
        "The supervisor of the run {run} did not come up within {lease_wait_s:g} s.",
        run=run.id,
        lease_wait_s=LEASE_WAIT_S,
    )


def _early_end(run: Run, code: int) -> TunesmithError:
    if code == UserError.exit_code:
        return TunesmithError("run-busy", "Another process is using the run {run}.", run=run.id)
    log = clean(tail_of(run.supervisor_log_path))
    return TunesmithError(
        "bug",
        "The supervisor of {run} ended at once with exit code {code}.",
        context=log,
        run=run.id,
        code=code,
    )


def _spawn(command: list[str], folder: Path, log: int) -> subprocess.Popen[bytes]:
    if sys.platform == "win32":  # pragma: no cover
        flags = subprocess.CREATE_NO_WINDOW | subprocess.CREATE_NEW_PROCESS_GROUP
        try:
            return _popen(command, folder, log, creationflags=flags | subprocess.CREATE_BREAKAWAY_FROM_JOB)
        except OSError:
            # A job that forbids breaking away, such as a terminal's: the run then ends with it.
            return _popen(command, folder, log, creationflags=flags)
    return _popen(command, folder, log, start_new_session=True)


def _popen(command: list[str], folder: Path, log: int, **options: Any) -> subprocess.Popen[bytes]:  # Any: of Popen
    return subprocess.Popen(
        command,
        cwd=folder,
        env=dict(os.environ) | {paths.HOME_VARIABLE: str(paths.data_root())},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        close_fds=True,
        **options,
    )


def _wait_until(condition: Callable[[], bool], limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S / 5)
    return True
