"""Process reward models: a head that tells of each step of a solution whether it is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunesmith_engine.methods import Method

if TYPE_CHECKING:
    from tunesmith_core.spec import RunSpec
    from tunesmith_engine.train.assembly import Parts
    from tunesmith_engine.train.loss_paths import LossPath


class ProcessRewardModel(Method):
    """Rates the steps of a solution one by one (Uesato et al. 2022, arXiv:2211.14275; Lightman et al. 2023)."""

    writes = False

    def metrics(self, spec: RunSpec) -> tuple[str, ...]:
        """Return the names of what is told of a step beside its loss."""
        del spec
        return ("step_accuracy",)

    def own_path(self, parts: Parts, micro_batch_size: int) -> LossPath:
        """Return the way in which gradients come about."""
        from tunesmith_engine.train.step_path import StepPath

        return StepPath(parts, micro_batch_size)


METHOD = ProcessRewardModel()
