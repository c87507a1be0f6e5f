"""Knowledge distillation from stored probabilities: at every token, what a bigger model found likely when it wrote it.

The loss is the mean over trained tokens of KL(p || q) = sum p (log p - log q), where q are the model's probabilities
and p is (1 - w) times the stored ones, made to sum to 1 (see `data/stored.py`), plus w for the token that was written
(Hinton et al. 2015, arXiv:1503.02531, at a temperature of 1). Its gradient over the logits is q - p.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunesmith_engine.methods import Method

if TYPE_CHECKING:
    import torch

    from tunesmith_engine.model.full import TrainedModel
    from tunesmith_engine.train.loss import Batch


class StoredDistillation(Method):
    """Moves the model's probabilities to the stored ones; no bigger model is loaded."""

    fused = True

    def summed_loss(self, model: TrainedModel, batch: Batch, some_positions: bool) -> torch.Tensor:
        """Return the divergence summed over the trained tokens, with what the model adds for its experts."""
        from tunesmith_engine.train.loss import learned_logits

        assert batch.soft is not None, "every row of such a run has soft targets"
        logits, balance = learned_logits(model, batch, some_positions)
        ids, shares = batch.soft.ids, batch.soft.shares
        log_q = logits.log_softmax(-1).gather(1, ids)
        return shares.xlogy(shares).sum() - (shares * log_q).sum() + balance * len(ids)


METHOD = StoredDistillation()
