"""Odds ratio preference optimization: learns to write the better answer and not the worse one in one run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunesmith_engine.methods import Method

if TYPE_CHECKING:
    from tunesmith_core.spec import RunSpec
    from tunesmith_engine.train.loss import Objective

USUAL_BETA, USUAL_SFT_WEIGHT = 0.1, 1.0
"""Of Hong et al. 2024 (arXiv:2403.07691), whose lambda is called beta here as in TRL."""


class OddsRatioPreferenceOptimization(Method):
    """Learns to write the better answer while the odds of the worse one fall."""

    fused = True

    def objective(self, spec: RunSpec) -> Objective:
        """Return the mean loss of the pairs of a step."""
        from tunesmith_engine.preference import losses
        from tunesmith_engine.preference.objective import PreferenceObjective

        settings = spec.objective
        return PreferenceObjective(
            losses.odds_ratio,
            losses.Strength(settings.beta or USUAL_BETA),
            has_reference=False,
            per_token=True,
            sft_weight=settings.sft_weight or USUAL_SFT_WEIGHT,
        )


METHOD = OddsRatioPreferenceOptimization()
