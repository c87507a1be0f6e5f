"""Contrastive preference optimization: DPO without a reference model, and learning to write the better answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunesmith_core.spec import strength_of
from tunesmith_engine.methods import Method

if TYPE_CHECKING:
    from tunesmith_core.spec import RunSpec
    from tunesmith_engine.train.loss import Objective


class ContrastivePreferenceOptimization(Method):
    """Raises the better answer over the worse one and learns to write it."""

    fused = True

    def objective(self, spec: RunSpec) -> Objective:
        """Return the mean loss of the pairs of a step."""
        from tunesmith_engine.preference import losses
        from tunesmith_engine.preference.objective import PreferenceObjective

        settings = spec.objective
        beta, sft_weight = strength_of(spec)
        return PreferenceObjective(
            losses.sigmoid,
            losses.Strength(beta, settings.label_smoothing),
            has_reference=False,
            per_token=False,
            sft_weight=sft_weight,
        )


METHOD = ContrastivePreferenceOptimization()
