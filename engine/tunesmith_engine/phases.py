"""A run from its first import to its result: model, data, training, saving. Every failure becomes an error event."""

from __future__ import annotations

import logging
import os
import platform
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tunesmith_core
from tunesmith_core.errors import EXIT_DONE, EXIT_STOPPED, BugError
from tunesmith_core.protocol import PROTOCOL
from tunesmith_engine.failures import translate
from tunesmith_engine.host import Host

if TYPE_CHECKING:
    from tunesmith_engine.train.trainer import Trainer


def run(host: Host, kernels: bool = True) -> int:
    """Train the run of a host and return the exit code; the result event is written in every case.

    Args:
        host: the run.
        kernels: False trains without fused kernels, whatever the run's settings.
    """
    started_s = time.monotonic()
    try:
        outcome = _run(host, kernels)
    except Exception as error:
        failure = translate(error)
        if isinstance(failure, BugError) and failure.context:
            sys.stderr.write(failure.context)
        host.event("error", **failure.to_dict())
        host.event("result", status="failed", code=failure.code, seconds=round(time.monotonic() - started_s, 3))
        return failure.exit_code
    host.event("result", **{"seconds": round(time.monotonic() - started_s, 3), **outcome})
    return EXIT_DONE if outcome["status"] == "finished" else EXIT_STOPPED


def _run(host: Host, kernels: bool) -> dict[str, Any]:  # Any: JSON values
    """Go through the phases and return the fields of the result event."""
    spec = host.run.load_spec()
    spec.hardware.kernels &= kernels
    import torch

    from tunesmith_engine.device import choose_compute
    from tunesmith_engine.train import checkpoint

    compute = choose_compute(spec)
    checkpoints = checkpoint.Checkpoints(
        host.run.checkpoints_path, spec.saving.keep, checkpoint.config_hash(spec.to_dict())
    )
    resumed = checkpoints.recover(host.warning)
    snapshot, manifest = checkpoint.load(resumed) if resumed else (None, {})
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
    stopped: dict[str, Any] = {
        "status": "stopped",
        "code": None,
        "step": snapshot.step if snapshot else 0,
        "artifacts": {"adapter": host.run.adapter_path.name} if host.run.adapter_path.is_dir() else {},
    }
    host.phase("model")
    # It misses an optional package by which it could download kernels; nobody need hear of that.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    from tunesmith_engine.build import build_trainer

    built = build_trainer(host, spec, compute, checkpoints)
    if built is None:
        return stopped
    trainer, folder = built
    if snapshot:
        trainer.restore(snapshot, manifest)
    trainer.try_out()
    _emit_setup(trainer)
    host.phase("training", trainer.progress.step, trainer.plan.total_steps, "steps")
    trainer.train()
    return _finish(trainer, folder)


def _emit_setup(trainer: Trainer) -> None:
    from tunesmith_engine.model.load import num_parameters

    spec, data = trainer.spec, trainer.data
    trainer.host.event(
        "setup",
        total_steps=trainer.plan.total_steps,
        steps_per_epoch=trainer.plan.steps_per_epoch,
        num_train_rows=len(data.train),
        num_eval_rows=len(data.eval),
        num_skipped_rows=data.stats.num_skipped_rows,
        num_truncated_rows=data.stats.num_truncated_rows,
        num_trained_tokens=data.stats.num_trained_tokens,
        num_parameters=num_parameters(trainer.model.get_base_model()),
        num_trainable_parameters=sum(parameter.numel() for parameter in trainer.parameters.values()),
        dtype=trainer.compute.dtype_name,
        micro_batch_size=trainer.ladder.micro_batch_size,
        gradient_accumulation_steps=spec.schedule.gradient_accumulation_steps,
        kernels=trainer.path.report,
        planned_bytes=trainer.path.plan_bytes if trainer.tried_bytes is not None else None,
        tried_bytes=trainer.tried_bytes,
    )


def _finish(trainer: Trainer, folder: Path) -> dict[str, Any]:  # Any: JSON values
    """Save what the run has made and return the fields of the result event."""
    from tunesmith_engine.export.adapter import export_adapter
    from tunesmith_engine.export.adapter_card import adapter_card

    host, progress = trainer.host, trainer.progress
    artifacts = {}
    if host.stop_mode != "discard":
        host.phase("saving")
        trainer.save()
        card = adapter_card(
            trainer.spec,
            model_folder=folder,
            data_hash=trainer.data_hash,
            num_train_rows=len(trainer.data.train),
            num_eval_rows=len(trainer.data.eval),
            step=progress.step,
            eval_loss_before=progress.eval_loss_before,
            eval_loss_after=progress.eval_loss,
        )
        export_adapter(trainer.model, trainer.tokenizer, card, host.run.adapter_path, host.run.path / "tmp")
        artifacts["adapter"] = host.run.adapter_path.name
    return {
        "status": "stopped" if host.stop_mode else "finished",
        "code": None,
        "step": progress.step,
        "seconds": trainer.seconds(),
        "artifacts": artifacts,
        "eval_loss_before": progress.eval_loss_before,
        "eval_loss_after": progress.eval_loss,
    }
