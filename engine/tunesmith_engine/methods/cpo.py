"""Contrastive preference optimization: DPO without a reference model, and learning to write the better answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunesmith_core.objectives import ORIGINS
from tunesmith_engine.methods import Method

if TYPE_CHECKING:
    from tunesmith_core.spec import RunSpec
    from tunesmith_engine.train.loss import Objective

ORIGIN = ORIGINS["cpo"]


class ContrastivePreferenceOptimization(Method):
    """Raises the better answer over the worse one and learns to write it."""

    fused = True

    def objective(self, spec: RunSpec) -> Objective:
        """Return the mean loss of the pairs of a step."""
        from tunesmith_engine.preference import losses
        from tunesmith_engine.preference.objective import PreferenceObjective

        settings = spec.objective
        return PreferenceObjective(
            losses.sigmoid,
            losses.Strength(settings.beta or ORIGIN.beta, settings.label_smoothing),
            has_reference=False,
            per_token=False,
            sft_weight=settings.sft_weight or ORIGIN.sft_weight,
        )


METHOD = ContrastivePreferenceOptimization()
