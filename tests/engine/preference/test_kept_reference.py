"""The base model's log-probabilities once before the first step: the same losses, and a resume to the bit."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine.conftest import after_step, events, step_losses, train
from tests.engine.preference.test_preference_runs import MakeSpec, NewRun, pair_spec
from tunesmith_core import paths
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_engine.fused.model import FusedModel
from tunesmith_engine.train import kept_reference, reference_cache
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


def _asked(spec: RunSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch) -> tuple[int, Run]:
    """Return how often a run asked its reference, and the run."""
    count = 0
    original = FusedModel.reference_losses

    def counted(self: Any, batch: Any) -> Any:
        nonlocal count
        count += 1
        return original(self, batch)

    with monkeypatch.context() as patched:
        patched.setattr(FusedModel, "reference_losses", counted)
        run = new_run(spec)
        assert train(run) == 0
    return count, run


def test_another_run_of_the_same_rows_asks_the_reference_nothing(
    pair_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = pair_spec("dpo", evaluation={"percent": 0.0})
    spec.objective.reference, spec.schedule.max_steps = "once", 2
    asked, first = _asked(spec, new_run, monkeypatch)
    assert asked
    spec.objective.beta, spec.optimizer.learning_rate, spec.adapter.rank = 0.3, 1e-3, 8
    asked, second = _asked(spec, new_run, monkeypatch)
    assert not asked
    held = [(run.path / kept_reference.NAME).read_bytes() for run in (first, second)]
    assert held[0] == held[1]
    (entry,) = (paths.cache_dir() / "references").iterdir()
    entry.write_bytes(entry.read_bytes()[:-1] + b"!")
    asked, third = _asked(spec, new_run, monkeypatch)
    assert asked, "a damaged entry is computed again"
    assert (third.path / kept_reference.NAME).read_bytes() == held[0]
    spec.data.train_on = "all"
    asked, _ = _asked(spec, new_run, monkeypatch)
    assert asked, "other rows"
    assert len(list((paths.cache_dir() / "references").iterdir())) == 2


def test_kept_references_have_a_bound(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = paths.cache_dir() / "references"
    monkeypatch.setattr(reference_cache, "MOST_BYTES", 3000)
    monkeypatch.setattr(reference_cache, "LEAST_FREE_BYTES", 0)
    for number in range(4):
        reference_cache.keep(f"{number}", np.full(200, number, "<f4").tobytes())
        path = folder / f"{number}.f32"
        os.utime(path, (number + 1, number + 1))
    kept = sorted(path.name for path in folder.iterdir())
    assert kept == ["1.f32", "2.f32", "3.f32"]
    values = reference_cache.fetch("1", 200)
    assert values is not None
    assert set(values) == {1.0}
    assert reference_cache.fetch("1", 199) is None
    reference_cache.keep("4", np.full(200, 4, "<f4").tobytes())
    assert (folder / "1.f32").exists(), "it was used last"
    reference_cache.keep("5", np.full(900, 5, "<f4").tobytes())
    assert not (folder / "5.f32").exists(), "too large for all of it"
    monkeypatch.setattr(reference_cache, "LEAST_FREE_BYTES", 1 << 62)
    reference_cache.keep("6", b"1234")
    assert not (folder / "6.f32").exists()
    assert home.is_dir()
