"""The card of an adapter that learned from rewards: its rewards and method, and no loss."""

from __future__ import annotations

from pathlib import Path

from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_rollouts import RewardSpec
from tunesmith_engine.export.adapter_card import adapter_card


def card(before: float | None, after: float | None) -> str:
    spec = RunSpec()
    spec.model.path, spec.objective.kind = "org/model", "grpo"
    spec.rollouts.rewards = [RewardSpec(), RewardSpec(kind="python", path="/home/someone/own.py", weight=0.5)]
    return adapter_card(
        spec,
        model_folder=Path("nowhere"),
        data_hash="0",
        num_train_rows=1,
        num_eval_rows=1,
        system_prompt="",
        step=1,
        eval_loss_before=before,
        eval_loss_after=after,
        preferences=None,
    )


def test_it_tells_rewards_and_no_loss() -> None:
    text = card(-0.25, -0.5)
    assert "Held-out reward: 0.250 before, 0.500 after. The reward is the mean over answers." in text
    assert "- Method: Group relative policy optimization (GRPO), Shao et al. 2024" in text
    assert "- Rewards: Right answer, Your Python file: own.py (weight 0.5)\n" in text
    assert "/home/someone" not in text
    assert "Held-out loss" not in text


def test_what_was_not_measured_is_told() -> None:
    assert "No held-out reward was measured." in card(None, None)
