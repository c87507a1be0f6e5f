"""Kahneman-Tversky optimization: single answers, each called good or bad, compared with what the base model thinks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunesmith_core.spec import strength_of
from tunesmith_engine.methods import Method

if TYPE_CHECKING:
    from tunesmith_core.spec import RunSpec
    from tunesmith_engine.train.loss import Objective


class KahnemanTverskyOptimization(Method):
    """Raises good answers and lowers bad ones, relative to the base model: with the adapter switched off."""

    fused = True

    def objective(self, spec: RunSpec) -> Objective:
        """Return the mean loss of the answers of a step."""
        from tunesmith_engine.preference.labeled import LOSSES, LabeledObjective

        settings = spec.objective
        beta, _ = strength_of(spec)
        return LabeledObjective(
            LOSSES[settings.kto_loss],
            beta,
            settings.good_weight,
            settings.bad_weight,
            needs_kl=settings.kto_loss == "kto",
        )


METHOD = KahnemanTverskyOptimization()
