"""Direct preference optimization: pairs of answers, compared with what the base model thinks of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunesmith_core.spec import strength_of
from tunesmith_engine.methods import Method

if TYPE_CHECKING:
    from tunesmith_core.spec import RunSpec
    from tunesmith_engine.train.loss import Objective


class DirectPreferenceOptimization(Method):
    """Raises the better answer over the worse one, relative to the base model: with the adapter switched off."""

    fused = True

    def objective(self, spec: RunSpec) -> Objective:
        """Return the mean loss of the pairs of a step."""
        from tunesmith_engine.preference import losses
        from tunesmith_engine.preference.objective import PreferenceObjective

        settings = spec.objective
        beta, sft_weight = strength_of(spec)
        return PreferenceObjective(
            losses.DPO_LOSSES[settings.dpo_loss],
            losses.Strength(beta, settings.label_smoothing),
            has_reference=True,
            per_token=False,
            sft_weight=sft_weight,
        )


METHOD = DirectPreferenceOptimization()
