"""Reward models: a head that scores answers so that the better one of a pair scores higher, by TRL's RewardTrainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tunesmith_engine.methods import Method

if TYPE_CHECKING:
    from tunesmith_core.spec import RunSpec
    from tunesmith_engine.data import Example
    from tunesmith_engine.train.trl_path import TrlObjective

METRICS = {
    "accuracy": "reward_accuracy",
    "margin": "reward_margin",
    "min_reward": "reward_lowest",
    "mean_reward": "reward_mean",
    "max_reward": "reward_highest",
}
"""Our names of TRL's numbers."""


class RewardModel(Method):
    """Scores a text by a single number, without a unit and a zero: only differences count."""

    writes = False

    def trl(self, spec: RunSpec) -> TrlObjective:
        """Return the objective of Bradley and Terry as TRL has it."""
        from tunesmith_engine.train.trl_path import TrlObjective

        del spec
        return TrlObjective(_classes, _row, METRICS, {"max_length": None, "disable_dropout": False})


def _classes() -> tuple[Any, Any]:
    # Here it trains, and only runs of this kind wait for its import.
    from trl.trainer.reward_config import RewardConfig  # noqa: TID251
    from trl.trainer.reward_trainer import RewardTrainer  # noqa: TID251

    return RewardTrainer, RewardConfig


def _row(example: Example) -> dict[str, Any]:
    assert example.rejected is not None, "its rows are pairs"
    return {"chosen_ids": example.input_ids.tolist(), "rejected_ids": example.rejected.input_ids.tolist()}


METHOD = RewardModel()
