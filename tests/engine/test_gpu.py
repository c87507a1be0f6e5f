"""The same engine on a GPU: number formats, 4-bit base, sensors, and a host that never waits inside a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from tests.engine.conftest import after_step, events, result_of, step_losses, train
from tests.engine.prepared import checked
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_engine.fused.model import FusedModel
from tunesmith_engine.methods.sft import SupervisedFineTuning
from tunesmith_engine.proof.prove import prove
from tunesmith_engine.selftest import STEPS, selftest
from tunesmith_engine.sensors import Sensors
from tunesmith_engine.train import assembly as assembly_module
from tunesmith_engine.train import kernel_check

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

NewRun = Callable[[RunSpec], Run]
MakeSpec = Callable[..., RunSpec]

CASES = {
    "bfloat16": {},
    "float32": {"model": {"dtype": "float32"}},
    "float16": {"model": {"dtype": "float16"}},
    "qlora": {"method": {"kind": "qlora"}},
    "dora": {"method": {"dora": True}},
    "dropout": {"method": {"dropout": 0.2}},
    "adamw_8bit": {"optimizer": {"name": "adamw_8bit"}, "method": {"rank": 64}},
    "plain": {"hardware": {"device": "cuda", "kernels": False}},
    "plain qlora": {"hardware": {"device": "cuda", "kernels": False}, "method": {"kind": "qlora"}},
    "checkpointing": {"hardware": {"device": "cuda", "activation_checkpointing": True}, "method": {"dropout": 0.2}},
}


@pytest.fixture(autouse=True)
def _no_waiting_mode_left() -> Iterator[None]:
    yield
    torch.cuda.set_sync_debug_mode("default")


@pytest.fixture(autouse=True)
def _kernels_are_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each test has a data root of its own, so the proof would be made again for each.
    monkeypatch.setattr(kernel_check, "prove", lambda *_: {})


def _on_gpu(tiny_spec: MakeSpec, sections: dict[str, dict[str, object]]) -> RunSpec:
    return tiny_spec(**{"hardware": {"device": "cuda"}, "schedule": {"max_steps": 12}, **sections})


@pytest.mark.parametrize("name", CASES)
def test_run_learns_and_resumes(tiny_spec: MakeSpec, new_run: NewRun, name: str) -> None:
    whole = new_run(_on_gpu(tiny_spec, CASES[name]))
    assert train(whole) == 0, result_of(whole)
    losses = step_losses(whole)
    assert losses[-1] < losses[0]
    assert [e.data["step"] for e in events(whole, "step")] == list(range(1, 13))
    parts = new_run(_on_gpu(tiny_spec, CASES[name]))
    # The step is published one step later than it was made.
    assert train(parts, lambda host: after_step(host, 5, host.on_signal)) == 5
    assert train(parts) == 0
    assert step_losses(parts) == pytest.approx(losses, rel=2e-2)
    assert len(step_losses(parts)) == 12


@pytest.mark.parametrize("name", ["bfloat16", "float32", "float16", "qlora", "dora", "dropout", "plain", "adamw_8bit"])
def test_host_never_waits_inside_a_step(
    tiny_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    update, calls = assembly_module.Assembly.update, {"num": 0}

    def watched(self: object, *arguments: object) -> object:
        calls["num"] += 1
        # The first steps may set things up once: compile kernels, capture graphs.
        torch.cuda.set_sync_debug_mode("error" if calls["num"] > 3 else "default")
        try:
            return update(self, *arguments)  # type: ignore[arg-type]
        finally:
            torch.cuda.set_sync_debug_mode("default")

    monkeypatch.setattr(assembly_module.Assembly, "update", watched)
    run = new_run(_on_gpu(tiny_spec, CASES[name]))
    assert train(run) == 0, (result_of(run), events(run, "error"))
    assert calls["num"] == 12


def test_overflow_in_half_precision_is_survived(tiny_spec: MakeSpec, new_run: NewRun) -> None:
    """The scaler starts too high on purpose and skips until it fits; that is no failure."""
    run = new_run(_on_gpu(tiny_spec, {"model": {"dtype": "float16"}, "schedule": {"max_steps": 20}}))
    assert train(run) == 0
    assert step_losses(run)[-1] < step_losses(run)[0]


def test_old_gpu_gets_float16(tiny_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (7, 5))
    run = new_run(_on_gpu(tiny_spec, {"model": {"dtype": "bfloat16"}}))
    assert train(run) == 0
    assert events(run, "setup")[0].data["dtype"] == "float16"


def test_real_lack_of_memory_ends_on_a_lower_rung(
    tiny_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = SupervisedFineTuning.summed_loss

    def loss(self: SupervisedFineTuning, model: object, batch: object, some_positions: bool) -> torch.Tensor:
        if batch.input_ids.shape[0] > 1:  # type: ignore[attr-defined]
            torch.empty(1 << 50, device="cuda")
        return real(self, model, batch, some_positions)  # type: ignore[arg-type]

    monkeypatch.setattr(SupervisedFineTuning, "summed_loss", loss)
    run = new_run(_on_gpu(tiny_spec, {"hardware": {"device": "cuda", "kernels": False}, "schedule": {"max_steps": 3}}))
    assert train(run) == 0
    assert [e.data["code"] for e in events(run, "warning")] == ["cuda-oom"]


def test_fused_lack_of_memory_ends_on_a_lower_rung(
    tiny_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = FusedModel.loss_and_gradients

    def loss(self: FusedModel, *arguments: object) -> torch.Tensor:
        if any(policy.level == "none" for policy in self.plan.policies):
            torch.empty(1 << 50, device="cuda")
        return real(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(FusedModel, "loss_and_gradients", loss)
    run = new_run(_on_gpu(tiny_spec, {"schedule": {"max_steps": 3}}))
    assert train(run) == 0
    assert {e.data["code"] for e in events(run, "warning")} == {"cuda-oom"}


@pytest.mark.parametrize("name", ["bfloat16", "float32", "float16", "qlora"])
def test_fused_and_plain_runs_learn_the_same(tiny_spec: MakeSpec, new_run: NewRun, name: str) -> None:
    sections = {**CASES[name], "evaluation": {"percent": 25.0}}
    off = {"hardware": {"device": "cuda", "kernels": False}}
    fused, plain = (new_run(_on_gpu(tiny_spec, {**sections, **hardware})) for hardware in ({}, off))
    assert train(fused) == train(plain) == 0, (result_of(fused), result_of(plain))
    assert step_losses(fused) == pytest.approx(step_losses(plain), rel=1e-3 if name == "float32" else 2e-2)
    for field in ("eval_loss_before", "eval_loss_after"):
        assert result_of(fused)[field] == pytest.approx(result_of(plain)[field], rel=2e-2)
    assert not events(fused, "warning")


def test_kernels_are_proven_before_the_first_step(
    tiny_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_check, "prove", prove)
    run = new_run(_on_gpu(tiny_spec, {}))
    assert train(run) == 0
    assert not events(run, "warning")
    assert any(sentence.startswith("Triton kernels: rms_norm") for sentence in events(run, "setup")[0].data["kernels"])


@pytest.mark.parametrize("name", ["bfloat16", "qlora"])
def test_memory_is_as_planned_in_the_trial_and_in_the_steps(tiny_spec: MakeSpec, new_run: NewRun, name: str) -> None:
    run = new_run(_on_gpu(tiny_spec, CASES[name]))
    assert train(run) == 0
    setup = events(run, "setup")[0].data
    # Workspaces of libraries are a fixed number of bytes, which is much for so small a model.
    most = 1.05 * setup["planned_bytes"] + (64 << 20)
    assert 0 < setup["tried_bytes"] <= most
    assert all(event.data["vram_peak_bytes"] <= most for event in events(run, "step"))


@pytest.mark.parametrize("name", ["bfloat16", "qlora", "dora", "checkpointing"])
def test_evaluation_and_samples(tiny_spec: MakeSpec, new_run: NewRun, name: str) -> None:
    evaluation = {"percent": 25.0, "sample_prompts": ["Hi"], "sample_max_tokens": 4}
    run = new_run(_on_gpu(tiny_spec, {**CASES[name], "evaluation": evaluation}))
    assert train(run) == 0
    assert result_of(run)["eval_loss_after"] < result_of(run)["eval_loss_before"]
    assert events(run, "sample")
    assert events(run, "step")[-1].data["vram_peak_bytes"] > 0
    assert events(run, "hello")[0].data["device"] == "cuda:0"


def test_sensors_read_the_gpu() -> None:
    block = torch.ones(1 << 20, device="cuda")
    values = Sensors().read()
    assert values["device"] == "cuda:0"
    assert values["allocated_bytes"] >= block.numel() * 4
    assert values["total_bytes"] > 1 << 30
    assert values["used_by_others_bytes"] >= 0
    assert 0 <= values["utilization_percent"] <= 100
    assert values["temperature_c"] > 0
    assert values["power_w"] > 0


def test_plan_check_and_selftest(tiny_spec: MakeSpec) -> None:
    planned = checked(_on_gpu(tiny_spec, {}))
    assert planned["reserved_bytes"] >= planned["peak_bytes"] > 0
    proved = selftest()
    assert {step["name"]: step["state"] for step in proved["steps"]} == {step.name: "ok" for step in STEPS}
    assert proved["fused_kernels"]
