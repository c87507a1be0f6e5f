"""Odds ratio preference optimization: learns to write the better answer and not the worse one in one run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunesmith_core.spec import strength_of
from tunesmith_engine.methods import Method

if TYPE_CHECKING:
    from tunesmith_core.spec import RunSpec
    from tunesmith_engine.train.loss import Objective


class OddsRatioPreferenceOptimization(Method):
    """Learns to write the better answer while the odds of the worse one fall."""

    fused = True

    def objective(self, spec: RunSpec) -> Objective:
        """Return the mean loss of the pairs of a step."""
        from tunesmith_engine.preference import losses
        from tunesmith_engine.preference.objective import PreferenceObjective

        beta, sft_weight = strength_of(spec)
        return PreferenceObjective(
            losses.odds_ratio,
            losses.Strength(beta),
            has_reference=False,
            per_token=True,
            sft_weight=sft_weight,
        )


METHOD = OddsRatioPreferenceOptimization()
