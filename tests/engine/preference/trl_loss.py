"""TRL's own computation of preference losses, given the log-probabilities that a model would have found."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import torch
from trl import DPOTrainer
from trl.experimental.cpo.cpo_trainer import CPOTrainer
from trl.experimental.orpo.orpo_trainer import ORPOTrainer

from tunesmith_engine.preference.losses import Strength

DISCOPOP_TEMPERATURE = 0.05


class _Model(torch.nn.Module):
    """Finds the log-probabilities of tokens that it was given."""

    is_gradient_checkpointing = False

    def __init__(self, token_logps: torch.Tensor) -> None:
        super().__init__()
        self.token_logps = token_logps

    def forward(self, **_: object) -> SimpleNamespace:
        same = self.token_logps
        return SimpleNamespace(log_probs=same, entropy=same, mean_logits=same, is_top1=same < 0)


class _Accelerator:
    device = torch.device("cpu")

    @staticmethod
    def gather(values: torch.Tensor) -> torch.Tensor:
        return values

    gather_for_metrics = gather


def dpo(
    name: str, token_logps: torch.Tensor, reference: torch.Tensor, mask: torch.Tensor, strength: Strength
) -> tuple[torch.Tensor, dict[str, float]]:
    """Return TRL's mean loss and metrics.

    Args:
        name: TRL's name of the loss.
        token_logps, reference: of the trained and the reference model, zero where no token is trained, [2 * pairs, T];
            all better answers before all worse ones.
        mask: 1 where a token is trained, [2 * pairs, T].
        strength: its settings.
    """
    trainer: Any = SimpleNamespace(
        model=_Model(token_logps),
        ref_model=_Model(reference),
        accelerator=_Accelerator(),
        args=SimpleNamespace(discopop_tau=DISCOPOP_TEMPERATURE, gradient_checkpointing_kwargs=None),
        beta=strength.beta,
        label_smoothing=strength.smoothing,
        loss_types=[name],
        loss_weights=[1.0],
        f_divergence_type="reverse_kl",
        ld_alpha=None,
        precompute_ref_logps=False,
        aux_loss_enabled=False,
        use_weighting=False,
        _metrics={"train": defaultdict(list)},
        _total_train_tokens=0,
        _tp_size=1,
    )
    # The first token of a row is predicted by nothing.
    whole = torch.cat([torch.zeros(len(mask), 1, dtype=mask.dtype), mask], dim=1)
    inputs = {"input_ids": torch.ones_like(whole), "attention_mask": torch.ones_like(whole), "completion_mask": whole}
    loss = DPOTrainer._compute_loss(trainer, trainer.model, inputs, False)
    return loss, {key: values[0] for key, values in trainer._metrics["train"].items() if key != "num_tokens"}


def simpo(chosen: torch.Tensor, rejected: torch.Tensor, strength: Strength) -> torch.Tensor:
    """Return TRL's SimPO loss of mean log-probabilities, [pairs]."""
    return _cpo("simpo", chosen, rejected, strength)


def cpo(chosen: torch.Tensor, rejected: torch.Tensor, strength: Strength) -> torch.Tensor:
    """Return TRL's CPO loss of log-probabilities without its share of cross-entropy, [pairs]."""
    return _cpo("sigmoid", chosen, rejected, strength)


def _cpo(name: str, chosen: torch.Tensor, rejected: torch.Tensor, strength: Strength) -> torch.Tensor:
    trainer: Any = SimpleNamespace(
        alpha=0.0,
        accelerator=_Accelerator(),
        loss_type=name,
        simpo_gamma=strength.margin,
        beta=strength.beta,
        label_smoothing=strength.smoothing,
    )
    losses: torch.Tensor = CPOTrainer.cpo_loss(trainer, chosen, rejected)[0]
    return losses


def orpo(chosen: torch.Tensor, rejected: torch.Tensor, strength: Strength) -> torch.Tensor:
    """Return TRL's odds ratio loss of mean log-probabilities without its share of cross-entropy, [pairs]."""
    trainer: Any = SimpleNamespace(beta=strength.beta, accelerator=_Accelerator())
    # TRL subtracts it.
    losses: torch.Tensor = -ORPOTrainer.odds_ratio_loss(trainer, chosen, rejected)[0]
    return losses
