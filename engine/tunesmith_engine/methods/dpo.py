"""Direct preference optimization: pairs of answers, compared with what the base model thinks of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunesmith_core.objectives import ORIGINS
from tunesmith_engine.methods import Method

if TYPE_CHECKING:
    from tunesmith_core.spec import RunSpec
    from tunesmith_engine.train.loss import Objective

ORIGIN = ORIGINS["dpo"]


class DirectPreferenceOptimization(Method):
    """Raises the better answer over the worse one, relative to the base model: with the adapter switched off."""

    fused = True

    def objective(self, spec: RunSpec) -> Objective:
        """Return the mean loss of the pairs of a step."""
        from tunesmith_engine.preference import losses
        from tunesmith_engine.preference.objective import PreferenceObjective

        settings = spec.objective
        return PreferenceObjective(
            losses.DPO_LOSSES[settings.dpo_loss],
            losses.Strength(settings.beta or ORIGIN.beta, settings.label_smoothing),
            has_reference=True,
            per_token=False,
            sft_weight=settings.sft_weight or ORIGIN.sft_weight,
        )


METHOD = DirectPreferenceOptimization()
