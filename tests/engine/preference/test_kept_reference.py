"""The base model's log-probabilities once before the first step: the same losses, and a resume to the bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.conftest import after_step, events, step_losses, train
from tests.engine.preference.test_preference_runs import MakeSpec, NewRun, pair_spec
from tunesmith_core.runs import Run
from tunesmith_engine.fused.model import FusedModel
from tunesmith_engine.train import kept_reference
from tunesmith_engine.train.loss_paths import PlainPath

__all__ = ["pair_spec"]
HELD_OUT = {"percent": 25.0, "every_steps": 3}


def _run(kind: str, how: str, kernels: bool, make: MakeSpec, new_run: NewRun) -> Run:
    spec = make(kind, hardware={"kernels": kernels}, evaluation=HELD_OUT)
    spec.objective.reference = how
    return new_run(spec)


@pytest.mark.parametrize("kernels", [True, False], ids=["fused", "plain"])
@pytest.mark.parametrize("kind", ["dpo", "kto"])
def test_losses_are_those_of_a_reference_of_each_step(
    kind: str, kernels: bool, pair_spec: MakeSpec, new_run: NewRun
) -> None:
    each, once = (_run(kind, how, kernels, pair_spec, new_run) for how in ("each-step", "once"))
    assert train(each) == train(once) == 0
    assert step_losses(once) == pytest.approx(step_losses(each), rel=1e-5, abs=1e-6)
    ours, theirs = ([event.data for event in events(run, "eval")] for run in (once, each))
    assert [found["loss"] for found in ours] == pytest.approx([found["loss"] for found in theirs], rel=1e-5)
    assert ours[0]["reward_margin"] == 0.0, "the base model beside itself is rated 0 to the bit"
    assert (once.path / kept_reference.NAME).stat().st_size % 4 == 0
    assert not (each.path / kept_reference.NAME).exists()


@pytest.mark.parametrize("kernels", [True, False], ids=["fused", "plain"])
def test_a_step_asks_the_base_model_nothing(
    kernels: bool, pair_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    owner: Any = FusedModel if kernels else PlainPath
    name = "losses" if kernels else "log_probabilities"
    original: Callable[..., Any] = getattr(owner, name)

    def count(self: Any, what: Any, with_adapter: bool = True) -> Any:
        asked.append("with" if with_adapter else "without")
        return original(self, what, with_adapter)

    monkeypatch.setattr(owner, name, count)
    counts = []
    for how in ("each-step", "once"):
        spec = pair_spec("dpo", hardware={"kernels": kernels}, evaluation={"percent": 0.0})
        spec.objective.reference, spec.schedule.max_steps = how, 12
        asked.clear()
        run = new_run(spec)
        assert train(run) == 0
        num_steps = len(events(run, "step"))
        counts.append(asked.count("without"))
    assert num_steps == 12
    assert counts[0] >= num_steps
    assert 0 < counts[1] < num_steps, "only before the first step"


def test_a_stopped_run_goes_on_to_the_bit_and_damage_is_computed_again(pair_spec: MakeSpec, new_run: NewRun) -> None:
    whole, halves, damaged = (_run("dpo", "once", True, pair_spec, new_run) for _ in range(3))
    assert train(whole) == 0
    for run in (halves, damaged):
        assert train(run, lambda host: after_step(host, 3, host.on_signal)) == 5
    (damaged.path / kept_reference.NAME).write_bytes(b"torn")
    for run in (halves, damaged):
        assert train(run) == 0
        assert step_losses(run) == step_losses(whole)
        adapters = [(each.adapter_path / "adapter_model.safetensors").read_bytes() for each in (run, whole)]
        assert adapters[0] == adapters[1]
