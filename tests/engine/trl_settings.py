"""What TRL's trainers are told, so that they train as a run of ours does: one step logged at a time, on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tunesmith_core.spec import RunSpec


def settings_of(spec: RunSpec, out: Path, num_steps: int) -> dict[str, Any]:
    """Return the arguments that the settings of all of TRL's trainers have in common.

    Args:
        spec: of the run beside which TRL trains.
        out: folder that the trainer may write.
        num_steps: updates.
    """
    return {
        "output_dir": str(out),
        "max_steps": num_steps,
        "per_device_train_batch_size": spec.schedule.micro_batch_size,
        "gradient_accumulation_steps": spec.schedule.gradient_accumulation_steps,
        "learning_rate": spec.optimizer.learning_rate,
        "lr_scheduler_type": spec.schedule.scheduler,
        "warmup_steps": spec.schedule.warmup_steps,
        "weight_decay": spec.optimizer.weight_decay,
        "max_grad_norm": spec.optimizer.max_grad_norm,
        "adam_beta2": spec.optimizer.beta2,
        "optim": {"adamw": "adamw_torch"}.get(spec.optimizer.name, spec.optimizer.name),
        "logging_steps": 1,
        "report_to": [],
        "save_strategy": "no",
        "use_cpu": True,
        "bf16": False,
        "activation_checkpointing": False,
        "seed": spec.schedule.seed,
        "disable_tqdm": True,
    }
