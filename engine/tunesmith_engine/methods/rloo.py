"""REINFORCE leave-one-out: each answer to a prompt is compared with the mean of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunesmith_core.spec import strength_of
from tunesmith_engine.reinforcement.method import Reinforcement

if TYPE_CHECKING:
    from tunesmith_core.spec import RunSpec
    from tunesmith_engine.reinforcement.advantages import Floats
    from tunesmith_engine.train.loss import Objective

USUAL_SCALE = "none"


class ReinforceLeaveOneOut(Reinforcement):
    """Compares each answer with the others; how far it is from the base model is a part of its reward."""

    def objective(self, spec: RunSpec) -> Objective:
        """Return the loss of the answers of a round."""
        from tunesmith_engine.reinforcement.losses import Clip, clipped
        from tunesmith_engine.reinforcement.objective import PolicyObjective

        settings = spec.objective
        return PolicyObjective(
            clipped,
            "whole",
            average="grpo",
            clip=Clip(settings.clip, settings.clip_high or settings.clip),
            beta=0.0,
            max_tokens=spec.rollouts.max_tokens,
        )

    def beta_of_reward(self, spec: RunSpec) -> float:
        """Return by how much the divergence from the base model lessens a reward."""
        return strength_of(spec)[0]

    def advantages(self, spec: RunSpec, rewards: Floats) -> Floats:
        """Return how much better than the others each answer is."""
        from tunesmith_engine.reinforcement.advantages import leaving_one_out

        scale = spec.objective.reward_scale
        return leaving_one_out(rewards, USUAL_SCALE if scale == "usual" else scale)


METHOD = ReinforceLeaveOneOut()
