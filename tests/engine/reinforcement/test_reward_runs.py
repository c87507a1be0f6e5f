"""Whole runs that learn from rewards: what they learn and say, that they resume to the bit, and what goes wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.conftest import after_step, events, result_of, step_losses, train
from tunesmith_core.rewards import OF_ROUNDS, OF_UPDATES
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_rollouts import RewardSpec

MakeSpec = Callable[..., RunSpec]
NewRun = Callable[[RunSpec], Run]
KINDS = ["grpo", "rloo"]

MANY_E = "def reward(prompt, answer, expected):\n    return sum(letter in 'aeiou' for letter in answer)\n"
"""A reward that even a model of random weights can earn."""


@pytest.fixture
def reward_spec(tiny_spec: MakeSpec, tmp_path: Path) -> MakeSpec:
    """Make a spec of 12 prompts in steps of 4, with four answers to each."""

    def make(kind: str, reward: str = MANY_E, **sections: dict[str, Any]) -> RunSpec:
        data, own = tmp_path / "asked.jsonl", tmp_path / "own.py"
        rows = [{"prompt": f"Add {n} and {n + 1}.", "completion": str(2 * n + 1)} for n in range(12)]
        data.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        own.write_text(reward, encoding="utf-8")
        spec = tiny_spec(**{"data": {"path": str(data)}, **sections})
        spec.objective.kind = kind
        spec.rollouts.group_size, spec.rollouts.max_tokens = 4, 12
        spec.rollouts.rewards = [RewardSpec(kind="python", path=str(own))]
        return spec

    return make


@pytest.mark.parametrize("kernels", [True, False], ids=["fused", "plain"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_run_goes_on_to_the_bit(
    kind: str, kernels: bool, reward_spec: MakeSpec, new_run: NewRun, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = reward_spec(kind, hardware={"kernels": kernels}, evaluation={"percent": 25.0, "every_steps": 2})
    spec.objective.beta, spec.rollouts.updates = 0.05, 2
    whole, halves = new_run(spec), new_run(spec)
    assert train(whole) == 0
    assert train(halves, lambda host: after_step(host, 3, host.on_signal)) == 5
    torch.manual_seed(999)
    assert train(halves) == 0
    assert step_losses(halves) == step_losses(whole)
    weights = [(run.adapter_path / "adapter_model.safetensors").read_bytes() for run in (whole, halves)]
    assert weights[0] == weights[1]
    assert [event.data for event in events(whole, "eval")][-1]["loss"] == result_of(halves)["eval_loss_after"]
    step = events(whole, "step")[-1].data
    assert set(OF_ROUNDS) | set(OF_UPDATES) <= step.keys()
    capsys.readouterr()
