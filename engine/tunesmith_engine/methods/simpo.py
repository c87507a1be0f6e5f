"""Simple preference optimization: pairs of answers, rated by the mean log-probability of their tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunesmith_core.spec import strength_of
from tunesmith_engine.methods import Method

if TYPE_CHECKING:
    from tunesmith_core.spec import RunSpec
    from tunesmith_engine.train.loss import Objective


class SimplePreferenceOptimization(Method):
    """Raises the better answer over the worse one by a margin, whatever the base model thinks."""

    fused = True

    def objective(self, spec: RunSpec) -> Objective:
        """Return the mean loss of the pairs of a step."""
        from tunesmith_engine.preference import losses
        from tunesmith_engine.preference.objective import PreferenceObjective

        settings = spec.objective
        beta, sft_weight = strength_of(spec)
        return PreferenceObjective(
            losses.simpo,
            losses.Strength(beta, settings.label_smoothing, settings.margin),
            has_reference=False,
            per_token=True,
            sft_weight=sft_weight,
        )


METHOD = SimplePreferenceOptimization()
