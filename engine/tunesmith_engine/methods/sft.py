"""Supervised fine-tuning and continued pretraining: the cross-entropy of each trained token."""

from __future__ import annotations

from tunesmith_engine.methods import Method


class SupervisedFineTuning(Method):
    """Raises the probability of the next token."""

    fused = True


METHOD = SupervisedFineTuning()
