"""Simple preference optimization: pairs of answers, rated by the mean log-probability of their tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunesmith_core.objectives import ORIGINS
from tunesmith_engine.methods import Method

if TYPE_CHECKING:
    from tunesmith_core.spec import RunSpec
    from tunesmith_engine.train.loss import Objective

ORIGIN = ORIGINS["simpo"]


class SimplePreferenceOptimization(Method):
    """Raises the better answer over the worse one by a margin, whatever the base model thinks."""

    fused = True

    def objective(self, spec: RunSpec) -> Objective:
        """Return the mean loss of the pairs of a step."""
        from tunesmith_engine.preference import losses
        from tunesmith_engine.preference.objective import PreferenceObjective

        settings = spec.objective
        return PreferenceObjective(
            losses.simpo,
            losses.Strength(settings.beta or ORIGIN.beta, settings.label_smoothing, settings.margin),
            has_reference=False,
            per_token=True,
            sft_weight=settings.sft_weight or ORIGIN.sft_weight,
        )


METHOD = SimplePreferenceOptimization()
