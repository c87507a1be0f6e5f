"""A run from its first import to its result: model, data, training, saving. Every failure becomes an error event."""

from __future__ import annotations

import logging
import os
import platform
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tunesmith_core
from tunesmith_core import terminal, unquantized
from tunesmith_core.base_model import BaseModel
from tunesmith_core.errors import EXIT_DONE, EXIT_STOPPED, EXIT_UNSAVED, BugError, TunesmithError
from tunesmith_core.messages import Message
from tunesmith_core.objectives import uses
from tunesmith_core.protocol import PROTOCOL
from tunesmith_core.runs import FIRST_SAVED_STEP
from tunesmith_core.spec_changes import check_resumable
from tunesmith_engine.failures import translate
from tunesmith_engine.host import Host
from tunesmith_engine.patience import write_end
from tunesmith_engine.preparation import Preparation
from tunesmith_engine.stop_watch import PATIENCE_S, End, StopWatch

if TYPE_CHECKING:
    from tunesmith_core.checkpoint_manifest import Manifest
    from tunesmith_core.spec import RunSpec
    from tunesmith_engine.train.checkpoint import Checkpoints, Snapshot
    from tunesmith_engine.train.conductor import Conductor
    from tunesmith_engine.train.loop import Loop

ASKING_BASE = Message("Asking the reference")
"""Phase in which what it says of all rows is computed."""

_EXIT_CODES = {"finished": EXIT_DONE, "stopped": EXIT_STOPPED, "failed": EXIT_UNSAVED}
"""By the status of an outcome. One that failed without an exception could not be saved."""


def run(host: Host, kernels: bool = True, leave: Callable[[int], object] | None = None) -> int:
    """Train the run of a host and return the exit code; the result event is written in every case.

    Args:
        host: the run.
        kernels: False trains without fused kernels, whatever the run's settings.
        leave: ends the process with an exit code, so that a stop need not wait for what is computed, see `stop_watch`;
            with None it does.
    """
    started_s = time.monotonic()

    def conclude(end: End) -> int:
        try:
            outcome = end()
        except Exception as error:
            failure = translate(error)
            if isinstance(failure, BugError) and failure.context:
                terminal.note(failure.context.rstrip())
            host.event("error", **failure.to_dict())
            host.event("result", status="failed", code=failure.code, seconds=round(time.monotonic() - started_s, 3))
            write_end(host)
            return failure.exit_code
        host.event("result", **{"seconds": round(time.monotonic() - started_s, 3), **outcome})
        write_end(host)
        return _EXIT_CODES[outcome["status"]]

    with StopWatch(host, lambda: _stopped_early(host), conclude, leave) as watch:
        return conclude(lambda: _run(host, kernels, watch))


def _stopped_early(host: Host) -> dict[str, Any]:  # Any: JSON values
    """Return the fields of the result event of a run that was stopped before its first step, or before the next one."""
    run = host.run
    artifacts = {"adapter": run.adapter_path.name} if run.adapter_path.is_dir() else {}
    return {"status": "stopped", "code": None, "step": run.status().step, "artifacts": artifacts}


def _run(host: Host, kernels: bool, watch: StopWatch) -> dict[str, Any]:  # Any: JSON values
    """Go through the phases and return the fields of the result event."""
    with watch.at_rest():
        ready = _make_ready(host, kernels, watch)
    if ready is None:
        return _stopped_early(host)
    loop, conductor = ready
    from tunesmith_engine.model.other_weights import settled

    def end_here() -> dict[str, Any]:
        # A look at the base model switches the adapter off, and only what is switched on is checked after its export.
        loop.parts.model.enable_adapter_layers()
        with settled(loop.parts.model):
            return conductor.finish()

    watch.end, watch.patience_s = end_here, PATIENCE_S
    loop.train(conductor)
    return conductor.finish()


def _make_ready(host: Host, kernels: bool, watch: StopWatch) -> tuple[Loop, Conductor] | None:
    """Go through the phases before the first step; None after a stop."""
    spec = host.run.load_spec()
    spec.hardware.kernels &= kernels
    # Beside the child that prepares the data, PyTorch is loaded here.
    with Preparation(spec, lambda fields: host.phase("data", **fields)) as preparation:
        return _assemble(host, spec, preparation, watch)


def _assemble(
    host: Host, spec: RunSpec, preparation: Preparation, watch: StopWatch
) -> tuple[Loop, Conductor] | None:
    import torch

    from tunesmith_engine.device import choose_compute
    from tunesmith_engine.train import checkpoint

    compute = choose_compute(spec)
    checkpoints = checkpoint.Checkpoints(host.run.checkpoints_path, spec.saving.keep, spec, host.run.created_at)
    snapshot, manifest = _newest_of(checkpoints, host)
    host.event(
        "hello",
        protocol=PROTOCOL,
        version=tunesmith_core.__version__,
        python=platform.python_version(),
        torch=torch.__version__,
        device=str(compute.device),
        device_name=compute.name,
        pid=os.getpid(),
        resumed_from_step=snapshot.step if snapshot else None,
        threads=compute.num_threads,
    )
    changes = check_resumable(manifest.spec, spec) if manifest else []
    preparation.fingerprint = manifest.fingerprint if manifest else {}
    host.phase("model")
    # It misses an optional package by which it could download kernels; nobody need hear of that.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    from tunesmith_engine.model.folder import model_folder
    from tunesmith_engine.train.assembly import make_parts
    from tunesmith_engine.train.conductor import Conductor
    from tunesmith_engine.train.loop import Loop

    def enter(phase: str) -> bool:
        if not host.stop_requested():
            host.phase(phase)
        return host.stop_mode is None

    folder = model_folder(spec.model)
    checkpoints.base_model = base_model = BaseModel(folder, manifest.base_model if manifest else None)
    changes += base_model.check()
    parts = make_parts(spec, compute, preparation, enter=enter, should_stop=host.stop_requested, folder=folder)
    if parts is None or host.stop_requested():
        return None

    def interrupted() -> bool:
        host.progress()
        return host.stop_requested()

    loop = Loop(parts, host.warning, watch.at_rest, interrupted, host.event)
    conductor = Conductor(host, parts, checkpoints, loop)
    if snapshot and manifest:
        conductor.restore(snapshot, manifest.fingerprint, changes)
    else:
        loop.begin()
    loop.try_out()
    if not _has_reference(host, spec, loop, base_model):
        return None
    _emit_setup(host, loop)
    return loop, conductor


def _has_reference(host: Host, spec: RunSpec, loop: Loop, base_model: BaseModel) -> bool:
    """Have the base model asked once where a run wants that; return False after a stop."""
    if spec.objective.reference != "once" or not uses(spec.objective.kind, "objective.reference"):
        return True

    def told(done: int, total: int) -> bool:
        host.phase(ASKING_BASE, done, total, "rows")
        return host.stop_requested()

    notes = {name: note.sampled for name, note in base_model.notes.items()}
    return loop.keep_reference(host.run.path, told, notes)


def _newest_of(checkpoints: Checkpoints, host: Host) -> tuple[Snapshot, Manifest] | tuple[None, None]:
    """Return the newest sound checkpoint, or nothing for a run that begins.

    Raises:
        UserError: `run-nothing-to-resume` for a run that has begun already: its first step would be over what is there.
    """
    from tunesmith_engine.train.checkpoint import QUARANTINE_PREFIX, load

    if resumed := checkpoints.recover(host.warning):
        return load(resumed)
    run, step = host.run, host.run.status().step
    if step > FIRST_SAVED_STEP or run.adapter_path.exists() or any(run.checkpoints_path.glob(f"{QUARANTINE_PREFIX}*")):
        raise TunesmithError(
            "run-nothing-to-resume",
            "The run {run} reached step {step}, but none of its checkpoints can be used.",
            run=run.id,
            step=step,
        )
    return None, None


def _emit_setup(host: Host, loop: Loop) -> None:
    parts = loop.parts
    host.event(
        "setup",
        total_steps=loop.plan.total_steps,
        steps_per_epoch=loop.plan.steps_per_epoch,
        **parts.method.report(parts),
        dtype=parts.compute.dtype_name,
        micro_batch_size=loop.ladder.micro_batch_size,
        gradient_accumulation_steps=parts.spec.schedule.gradient_accumulation_steps,
        kernels=[*_base_note(loop), *parts.method.described(parts.model, parts.spec), *loop.path.report],
        planned_bytes=loop.path.plan_bytes if loop.tried_bytes is not None else None,
        tried_bytes=loop.tried_bytes,
    )
    for code, message in parts.method.left_out(parts.model, parts.spec):
        host.warning(code, message)


def _base_note(loop: Loop) -> list[str]:
    note = unquantized.note(loop.parts.folder, loop.parts.spec)
    return [note] if note else []
