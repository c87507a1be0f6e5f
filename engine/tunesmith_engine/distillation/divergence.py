"""How far a model's predictions are from its teacher's, without the probabilities of a whole micro-batch in memory."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from tunesmith_core.teacher_memory import COMPARED_TOKENS


def divergence(student: torch.Tensor, teacher: torch.Tensor, beta: float) -> torch.Tensor:
    """Return the generalized Jensen-Shannon divergence in nats, and at how many tokens both have the same favorite.

    The divergence is TRL's (`GKDTrainer.generalized_jsd_loss`, Agarwal et al. 2024, arXiv:2306.13649): with p the
    teacher's probabilities, q the student's and m = beta p + (1 - beta) q, it is beta KL(p || m) + (1 - beta) KL(q ||
    m). For beta 0 it is KL(p || q), for beta 1 KL(q || p). Its probabilities are computed again in the backward pass.

    Args:
        student: logits, [tokens, vocabulary].
        teacher: the same of the teacher.
        beta: from 0 to 1.

    Returns:
        Both summed over tokens, [2]; float64 for such logits, else float32.
    """
    loss_of = _trl_loss()

    def compared(ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
        ours, theirs = _wide(ours), _wide(theirs)
        loss: torch.Tensor = loss_of(ours, theirs, beta=beta, reduction="sum")
        agreed = (ours.detach().argmax(dim=-1) == theirs.argmax(dim=-1)).sum()
        return torch.stack([loss, agreed.to(loss.dtype)])

    parts = zip(student.split(COMPARED_TOKENS), teacher.split(COMPARED_TOKENS), strict=True)
    found = [
        checkpoint(compared, *part, use_reentrant=False, preserve_rng_state=False)
        if torch.is_grad_enabled()
        else compared(*part)
        for part in parts
    ]
    return torch.stack(found).sum(0)


def _wide(logits: torch.Tensor) -> torch.Tensor:
    return logits if logits.dtype == torch.float64 else logits.float()


def _trl_loss() -> Any:  # Any: a function of TRL
    with warnings.catch_warnings():
        # TRL says that it may change; the installed version is a fixed one.
        warnings.filterwarnings("ignore", message=".*trl.experimental")
        # Here it trains, and only runs of this kind wait for its import.
        from trl.experimental.gkd import GKDTrainer  # noqa: TID251

    return GKDTrainer.generalized_jsd_loss
