"""Runs whose experts lie in the computer's memory are the runs whose experts lie on the device, to the bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engine import causal_types
from tests.engine.conftest import events, result_of, step_losses, train
from tests.engine.exact_resume import goes_on_to_the_bit
from tests.engine.exports import export
from tests.engine.fused.fake_host import FakeHost
from tests.engine.fused.fake_host import host as host
from tests.packed_models import with_experts_in_mxfp4
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_engine.device import choose_compute
from tunesmith_engine.fused.memory import MemoryPlanner
from tunesmith_engine.methods import method_of
from tunesmith_engine.model.expert_places import ExpertPlaces

SETTINGS = {
    "method": {"kind": "qlora", "rank": 4},
    "schedule": {"max_steps": 6, "micro_batch_size": 2, "gradient_accumulation_steps": 2, "seed": 7},
    "evaluation": {"percent": 20.0, "every_steps": 2},
}
SAID = "The experts of 2 of 2 layers are kept in system memory."
NewRun = Callable[[RunSpec], Run]


def spec_of(kind: str, tiny_spec: Callable[..., RunSpec], tiny_model: Path, folder: Path) -> RunSpec:
    spec = tiny_spec(**SETTINGS)
    written = causal_types.write_model(kind, folder / "model", tiny_model, vocab_size=512)
    if kind == "gpt_oss":
        with_experts_in_mxfp4(written)
    spec.model.path = str(written)
    return spec


def little_memory(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let experts leave as they are read, and stay there while the run trains."""
    host.free_bytes = 1 << 20

    def all_layers(planner: MemoryPlanner) -> Iterator[int]:
        yield len(planner._experts.layer_bytes)

    monkeypatch.setattr(MemoryPlanner, "_expert_steps", all_layers)


@pytest.mark.parametrize("kernels", [True, False], ids=["fused", "plain"])
@pytest.mark.parametrize("kind", ["qwen3_moe", "gpt_oss"])
def test_a_run_in_little_memory_is_the_same_and_goes_on(
    kind: str,
    kernels: bool,
    tiny_model: Path,
    tiny_spec: Callable[..., RunSpec],
    new_run: NewRun,
    tmp_path: Path,
    host: FakeHost,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = spec_of(kind, tiny_spec, tiny_model, tmp_path)
    spec.hardware.kernels = kernels
    roomy, whole, halves = (new_run(spec) for _ in range(3))
    assert train(roomy) == 0
    assert host.num_bytes == 0
    little_memory(host, monkeypatch)
    goes_on_to_the_bit(whole, halves)
    assert host.num_bytes > 0
    assert step_losses(whole) == step_losses(roomy)
    weights = [(run.adapter_path / "adapter_model.safetensors").read_bytes() for run in (whole, roomy)]
    assert weights[0] == weights[1]
    (setup,) = events(whole, "setup")
    assert SAID in setup.data["kernels"]
    assert SAID not in events(roomy, "setup")[0].data["kernels"]
    answers = [result_of(run) for run in (whole, roomy)]
    assert answers[0]["eval_loss_after"] == answers[1]["eval_loss_after"]


def test_experts_that_left_while_loading_come_back_where_they_have_room(
    tiny_model: Path, tiny_spec: Callable[..., RunSpec], new_run: NewRun, tmp_path: Path, host: FakeHost
) -> None:
    spec = spec_of("qwen3_moe", tiny_spec, tiny_model, tmp_path)
    folder = Path(spec.model.path)
    host.free_bytes = 1 << 20
    places = ExpertPlaces(method_of("sft").load(folder, spec, choose_compute(spec)), choose_compute(spec).device)
    assert places.num_on_host == 2
    before = host.num_bytes
    run = new_run(spec)
    assert train(run) == 0
    assert host.num_bytes == before
    assert not any("system memory" in line for line in events(run, "setup")[0].data["kernels"])


def test_an_export_is_that_of_a_run_with_experts_on_the_device(
    tiny_model: Path,
    tiny_spec: Callable[..., RunSpec],
    new_run: NewRun,
    tmp_path: Path,
    host: FakeHost,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = new_run(spec_of("qwen3_moe", tiny_spec, tiny_model, tmp_path))
    assert train(run) == 0
    roomy = export(run, tmp_path / "roomy")
    little_memory(host, monkeypatch)
    tight = export(run, tmp_path / "tight")
    assert tight["proof"] == roomy["proof"]
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("roomy", "tight")]
    assert files[0] == files[1]
