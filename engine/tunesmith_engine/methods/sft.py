"""Supervised fine-tuning and continued pretraining: the cross-entropy of each trained token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunesmith_engine.data import IGNORED_LABEL
from tunesmith_engine.methods import Method

if TYPE_CHECKING:
    import torch
    from peft import PeftModel

    from tunesmith_engine.train.loss import Batch


class SupervisedFineTuning(Method):
    """Raises the probability of the next token."""

    fused = True

    def summed_loss(self, model: PeftModel, batch: Batch, some_positions: bool) -> torch.Tensor:
        """Return the sum of the trained tokens' cross-entropies in nats, and what the model adds for its experts."""
        from torch.nn.functional import cross_entropy

        from tunesmith_engine.train.loss import balances_experts, logits_of, own_summed_loss

        if balances_experts(model):
            return own_summed_loss(model, batch)
        logits = logits_of(model, batch, some_positions)
        return cross_entropy(
            logits.flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORED_LABEL, reduction="sum"
        )


METHOD = SupervisedFineTuning()
