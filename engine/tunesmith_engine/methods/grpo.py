"""Group relative policy optimization: of several answers to a prompt, those with more reward become likelier."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tunesmith_engine.reinforcement.method import Reinforcement

if TYPE_CHECKING:
    from tunesmith_core.spec import RunSpec
    from tunesmith_engine.reinforcement.advantages import Floats
    from tunesmith_engine.train.loss import Objective

USUAL_SCALE = "group"

CISPO_HIGH = 5.0
"""Of the ratio itself, as Khatri et al. 2025 (arXiv:2510.13786) recommend."""


class GroupRelativePolicyOptimization(Reinforcement):
    """Compares the answers to a prompt with their mean."""

    def objective(self, spec: RunSpec) -> Objective:
        """Return the loss of the answers of a round."""
        from tunesmith_engine.reinforcement.losses import POLICY_LOSSES, Clip
        from tunesmith_engine.reinforcement.objective import PolicyObjective

        settings = spec.objective
        kind = settings.policy_loss
        high = settings.clip_high or (CISPO_HIGH if kind == "cispo" else settings.clip)
        return PolicyObjective(
            POLICY_LOSSES[kind],
            "whole" if kind == "vespo" else settings.ratio_of,
            average={"cispo": "dapo", "sapo": "grpo", "vespo": "dapo"}.get(kind, kind),
            clip=Clip(settings.clip, high, settings.clip_most or math.inf),
            beta=settings.beta or 0.0,
            max_tokens=spec.rollouts.max_tokens,
        )

    def advantages(self, spec: RunSpec, rewards: Floats) -> Floats:
        """Return how much better than the others each answer is."""
        from tunesmith_engine.reinforcement.advantages import relative_to_group

        scale = spec.objective.reward_scale
        return relative_to_group(rewards, USUAL_SCALE if scale == "usual" else scale)


METHOD = GroupRelativePolicyOptimization()
