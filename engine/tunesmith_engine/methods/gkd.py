"""Generalized knowledge distillation: the model learns how likely a bigger one finds each next token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tunesmith_engine.methods import Method

if TYPE_CHECKING:
    from pathlib import Path

    from tunesmith_core.spec import RunSpec
    from tunesmith_engine.device import Compute
    from tunesmith_engine.train.assembly import Parts
    from tunesmith_engine.train.loss_paths import LossPath


class KnowledgeDistillation(Method):
    """Learns from a teacher that is loaded beside the model."""

    has_teacher = True

    def load(self, folder: Path, spec: RunSpec, compute: Compute) -> Any:  # Any: PEFT's model
        """Return the base model with its adapter. The teacher is looked at first: what is wrong with it shows soon."""
        from tunesmith_core.teachers import check_teacher

        check_teacher(spec)
        return super().load(folder, spec, compute)

    def metrics(self, spec: RunSpec) -> tuple[str, ...]:
        """Return the names of what is told of a step beside its loss."""
        from tunesmith_core.agreement import METRICS

        del spec
        return METRICS

    def own_path(self, parts: Parts, micro_batch_size: int) -> LossPath:
        """Return the way in which gradients come about."""
        from tunesmith_engine.distillation.path import DistillationPath

        return DistillationPath(parts, micro_batch_size)


METHOD = KnowledgeDistillation()
