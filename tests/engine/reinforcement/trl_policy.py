"""TRL's own computation of advantages and of the losses of what a model wrote, given the numbers that it would have."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import torch
from trl import GRPOTrainer, RLOOTrainer


class _Accelerator:
    device = torch.device("cpu")
    num_processes = 1

    @staticmethod
    def gather(values: torch.Tensor) -> torch.Tensor:
        return values

    gather_for_metrics = gather

    @staticmethod
    def reduce(values: torch.Tensor, reduction: str) -> torch.Tensor:
        assert reduction == "sum"
        return values


def _inputs(mask: torch.Tensor, **more: torch.Tensor) -> dict[str, torch.Tensor]:
    ids = torch.ones_like(mask)
    prompt = ids[:, :1]
    return {
        "prompt_ids": prompt,
        "prompt_mask": prompt,
        "completion_ids": ids,
        "completion_mask": mask,
        "num_items_in_batch": mask.sum(),
        **more,
    }


def grpo(
    loss: str,
    level: str,
    clip: tuple[float, float],
    beta: float,
    max_tokens: int,
    now: torch.Tensor,
    inputs: dict[str, torch.Tensor],
    delta: float | None = None,
) -> tuple[torch.Tensor, dict[str, float]]:
    """Return TRL's loss and metrics of log-probabilities [answers, T]; `inputs` has mask, advantages and others."""
    trainer: Any = SimpleNamespace(
        accelerator=_Accelerator(),
        get_gamma_weights=GRPOTrainer.get_gamma_weights,
        aux_loss_enabled=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        importance_sampling_level=level,
        beta=beta,
        epsilon_low=clip[0],
        epsilon_high=clip[1],
        loss_type=loss,
        max_completion_length=max_tokens,
        use_vllm=False,
        current_gradient_accumulation_steps=1,
        _entropy_bonus_enabled=False,
        model=SimpleNamespace(training=True),
        args=SimpleNamespace(
            use_bias_correction_kl=False,
            delta=delta,
            vespo_k_pos=2.0,
            vespo_lambda_pos=3.0,
            vespo_k_neg=3.0,
            vespo_lambda_neg=2.0,
            sapo_temperature_pos=1.0,
            sapo_temperature_neg=1.05,
            steps_per_generation=1,
        ),
        _metrics={"train": defaultdict(list)},
        _get_per_token_logps_and_entropies=lambda *_args, **_kwargs: (now, -now.detach(), None),
    )
    mask = inputs.pop("mask")
    value = GRPOTrainer._compute_loss(trainer, None, _inputs(mask, **inputs))
    return value, {key: values[0] for key, values in trainer._metrics["train"].items()}


def rloo(
    clip: tuple[float, float], now: torch.Tensor, inputs: dict[str, torch.Tensor]
) -> tuple[torch.Tensor, dict[str, float]]:
    """Return the same of RLOO; `inputs` has mask, advantages and the log-probabilities of whole answers before."""
    trainer: Any = SimpleNamespace(
        accelerator=_Accelerator(),
        get_gamma_weights=GRPOTrainer.get_gamma_weights,
        aux_loss_enabled=False,
        epsilon_low=clip[0],
        epsilon_high=clip[1],
        model=SimpleNamespace(training=True),
        _metrics={"train": defaultdict(list)},
        _get_per_token_logps_and_entropies=lambda *_args, **_kwargs: (now, -now.detach(), None),
    )
    mask = inputs.pop("mask")
    value = RLOOTrainer._compute_loss(trainer, None, _inputs(mask, **inputs))
    return value, {key: values[0] for key, values in trainer._metrics["train"].items()}


