"""Runs by the fused model: the same results as plainly, said in the journal, and all that a run survives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.engine.conftest import after_step, events, result_of, step_losses, train
from tests.engine.prepared import checked
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_engine import __main__ as engine_main
from tunesmith_engine import phases
from tunesmith_engine.data import IGNORED_LABEL, Example
from tunesmith_engine.device import choose_compute
from tunesmith_engine.fused.activations import LayerPolicy
from tunesmith_engine.fused.assembly import Assembly
from tunesmith_engine.fused.model import FusedModel
from tunesmith_engine.host import Host
from tunesmith_engine.model.load import load_model
from tunesmith_engine.model.lora import attach_adapter, trainable
from tunesmith_engine.shapes import NotFusableError
from tunesmith_engine.train import fused_path as fused_path_module
from tunesmith_engine.train import loop as loop_module
from tunesmith_engine.train.fused_path import FusedPath, RowLengths
from tunesmith_engine.train.loss import Totals
from tunesmith_engine.train.optim import Updater

NewRun = Callable[[RunSpec], Run]
MakeSpec = Callable[..., RunSpec]

PLAIN = {"hardware": {"kernels": False}}
EVALUATED = {"evaluation": {"percent": 25.0, "every_steps": 3}}


def setup_of(run: Run) -> dict[str, object]:
    """Return the fields of the last setup event."""
    return events(run, "setup")[-1].data


@pytest.mark.parametrize(
    "method",
    [
        {},
        {"dora": True},
        {"kind": "qlora", "dora": True},
        {"bias": "all"},
        {"kind": "qlora"},
        {"initial_values": "gaussian"},
        {"initial_values": "orthogonal", "rank": 4},
    ],
    ids=str,
)
def test_fused_and_plain_runs_learn_the_same(tiny_spec: MakeSpec, new_run: NewRun, method: dict[str, object]) -> None:
    fused, plain = (new_run(tiny_spec(method=method, **EVALUATED, **sections)) for sections in ({}, PLAIN))
    assert train(fused) == train(plain) == 0, (result_of(fused), result_of(plain))
    assert step_losses(fused) == pytest.approx(step_losses(plain), rel=1e-4)
    for field in ("grad_norm", "tokens"):
        ours, theirs = ([e.data[field] for e in events(run, "step")] for run in (fused, plain))
        assert ours == pytest.approx(theirs, rel=1e-3)
    for field in ("eval_loss_before", "eval_loss_after"):
        assert result_of(fused)[field] == pytest.approx(result_of(plain)[field], rel=1e-4)


def test_a_run_says_what_is_fused(tiny_spec: MakeSpec, new_run: NewRun) -> None:
    run = new_run(tiny_spec())
    assert train(run) == 0
    sentences = " ".join(setup_of(run)["kernels"])  # type: ignore[arg-type]
    assert "2 of 2 layers run on Tunesmith's own path" in sentences
    assert "Attention: " in sentences
    assert "In plain PyTorch: rms_norm" in sentences
    assert not events(run, "warning")


def test_what_is_not_fused_is_a_warning(tiny_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch) -> None:
    partly = new_run(tiny_spec(method={"dropout": 0.1, "dora": True}))
    assert train(partly) == 0
    (warning,) = events(partly, "warning")
    assert warning.data["code"] == "not-fused"
    assert "DoRA with dropout" in warning.data["message"]
    assert warning.data["hint"]

    def recognise(_: object) -> None:
        raise NotFusableError("It has no layers of a known form.")

    monkeypatch.setattr(fused_path_module, "recognise", recognise)
    unknown = new_run(tiny_spec())
    assert train(unknown) == 0
    assert [e.data["message"] for e in events(unknown, "warning")] == ["It has no layers of a known form."]
    assert setup_of(unknown)["kernels"][-1:] == ["The model runs in plain PyTorch. It has no layers of a known form."]


def test_kernels_are_switched_off_by_a_setting_or_the_command(
    tiny_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_setting, by_command = new_run(tiny_spec(**PLAIN)), new_run(tiny_spec())
    assert train(by_setting) == 0
    monkeypatch.setattr(engine_main.signal, "signal", lambda *_: None)
    assert engine_main.main(["run", "--run-dir", str(by_command.path), "--no-kernels"]) == 0
    for run in (by_setting, by_command):
        assert setup_of(run)["kernels"][1:] == ["The model runs in plain PyTorch. The fused kernels are switched off."]
        assert not events(run, "warning")
    assert step_losses(by_setting) == step_losses(by_command)


def test_run_goes_on_without_kernels(tiny_spec: MakeSpec, new_run: NewRun) -> None:
    whole, parts = new_run(tiny_spec()), new_run(tiny_spec())
    assert train(whole) == 0
    assert train(parts, lambda host: after_step(host, 3, host.on_signal)) == 5
    with Host(parts) as host:
        assert phases.run(host, kernels=False) == 0
    (warning,) = events(parts, "warning")
    assert "kernels: fused -> plain" in warning.data["message"]
    assert step_losses(parts) == pytest.approx(step_losses(whole), rel=1e-4)


def test_micro_batches_have_room_for_a_step_and_no_more(tiny_spec: MakeSpec) -> None:
    lengths = RowLengths(longest=100, most_per_step=250)
    assert [lengths.capacity_tokens(size) for size in (1, 2, 3, 8)] == [100, 200, 250, 250]
    assert RowLengths(longest=300, most_per_step=250).capacity_tokens(1) == 300


def test_rows_are_packed_without_padding(tiny_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    real = FusedModel.loss_and_gradients

    def counted(self: FusedModel, batch: object, *arguments: object) -> torch.Tensor:
        sizes.append(batch.num_tokens)  # type: ignore[attr-defined]
        return real(self, batch, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(FusedModel, "loss_and_gradients", counted)
    run = new_run(tiny_spec())
    assert train(run) == 0
    assert sum(sizes) == events(run, "step")[-1].data["tokens"]


def test_plan_check_takes_the_way_of_the_run(tiny_spec: MakeSpec) -> None:
    assert "layers run on Tunesmith's own path" in checked(tiny_spec())["kernels"][0]
    assert checked(tiny_spec(**PLAIN))["kernels"][0].startswith("The model runs in plain PyTorch")


def test_rows_without_a_trained_token_add_nothing(tiny_spec: MakeSpec, tiny_model: Path) -> None:
    spec = tiny_spec()
    compute = choose_compute(spec)
    model = attach_adapter(load_model(tiny_model, compute, False), spec)
    path = FusedPath(model, compute, RowLengths(8, 8), 1)
    updater = Updater(trainable(model), spec.optimizer, compute.device, compute.dtype, path.arena)
    ids = np.arange(1, 9, dtype=np.int32)
    untrained = Example(ids, np.full(8, IGNORED_LABEL, np.int32))
    assert path.add_gradients([untrained], Totals(1, 1), updater).item() == 0.0
    assert path.losses([untrained], Totals(1, 1), True).item() == 0.0
    assert not path.arena.gradients.any()
    assert path.add_gradients([Example(ids, ids)], Totals(1, 7), updater).item() > 1.0
    assert path.arena.gradients.any()


# What goes wrong


def _spoiled(monkeypatch: pytest.MonkeyPatch, spoil: Callable[[FusedModel, int], None]) -> None:
    """Let something happen after each micro-batch; it is told how many there were."""
    real, calls = FusedModel.loss_and_gradients, {"num": 0}

    def then_spoiled(self: FusedModel, *arguments: object) -> torch.Tensor:
        loss = real(self, *arguments)  # type: ignore[arg-type]
        calls["num"] += 1
        spoil(self, calls["num"])
        return loss

    monkeypatch.setattr(FusedModel, "loss_and_gradients", then_spoiled)


def _full() -> torch.OutOfMemoryError:
    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def test_lack_of_memory_costs_activations_first_and_changes_no_bit(
    tiny_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = new_run(tiny_spec())
    assert train(plain) == 0

    def spoil(fused: FusedModel, _: int) -> None:
        if any(policy.level != "full" for policy in fused.plan.policies):
            raise _full()

    _spoiled(monkeypatch, spoil)
    run = new_run(tiny_spec())
    assert train(run, lambda host: after_step(host, 2, host.on_signal)) == 5
    messages = [e.data["message"] for e in events(run, "warning")]
    assert messages
    assert not any("micro-batches" in message for message in messages)
    assert {e.data["code"] for e in events(run, "warning")} == {"cuda-oom"}
    # The resumed run stays on its rung.
    assert train(run) == 0
    assert len(events(run, "warning")) == len(messages)
    assert step_losses(run) == step_losses(plain)


def test_then_it_costs_tokens_and_at_last_the_run(
    tiny_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = new_run(tiny_spec())
    assert train(plain) == 0
    longest: list[int] = []

    def spoil(fused: FusedModel, _: int) -> None:
        longest.append(fused.plan.capacity_tokens)
        if fused.plan.capacity_tokens > longest[0] / 2:
            raise _full()

    _spoiled(monkeypatch, spoil)
    run = new_run(tiny_spec())
    assert train(run) == 0
    assert "micro-batches of 1" in events(run, "warning")[-1].data["message"]
    assert step_losses(run) == pytest.approx(step_losses(plain), rel=1e-4)

    def never(*_: object) -> None:
        raise _full()

    _spoiled(monkeypatch, never)
    failing = new_run(tiny_spec())
    assert train(failing) == 4
    assert result_of(failing)["code"] == "cuda-oom"
    assert not events(failing, "step")


def test_lack_of_memory_while_the_buffers_are_made_makes_them_smaller(
    tiny_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, sizes = FusedPath.__init__, []

    def init(self: FusedPath, *arguments: object, **options: object) -> None:
        sizes.append(arguments[3])
        if arguments[3] != 1:
            raise _full()
        real(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(FusedPath, "__init__", init)
    run = new_run(tiny_spec(schedule={"micro_batch_size": 4}))
    assert train(run) == 0
    assert sizes == [4, 2, 1]
    assert [e.data["message"].partition(":")[0] for e in events(run, "warning")] == ["Before the first step"] * 2
    assert setup_of(run)["micro_batch_size"] == 1


def test_retried_step_applies_no_half_step(
    tiny_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = new_run(tiny_spec())
    assert train(plain) == 0

    def spoil(_: FusedModel, num_calls: int) -> None:
        if num_calls == 6:
            raise _full()

    _spoiled(monkeypatch, spoil)
    run = new_run(tiny_spec())
    assert train(run) == 0
    assert len(events(run, "warning")) == 1
    assert step_losses(run) == step_losses(plain)


def test_rung_whose_buffers_do_not_fit_is_left_for_the_next(
    tiny_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = new_run(tiny_spec())
    assert train(plain) == 0

    def spoil(fused: FusedModel, _: int) -> None:
        if fused.plan.policies[0].level == "none":
            raise _full()

    real = Assembly.build

    def build(self: Assembly, policies: Sequence[LayerPolicy], *arguments: int) -> object:
        if policies[0].level in ("mlp", "smart"):
            raise _full()
        return real(self, policies, *arguments)

    _spoiled(monkeypatch, spoil)
    monkeypatch.setattr(Assembly, "build", build)
    run = new_run(tiny_spec())
    assert train(run) == 0
    assert len(events(run, "warning")) == 1
    assert step_losses(run) == step_losses(plain)


def test_samples_get_the_memory_of_activations_where_it_is_short(
    tiny_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluation = {"percent": 0.0, "sample_prompts": ["Hi"], "sample_max_tokens": 3, "sample_every_steps": 2}
    plain = new_run(tiny_spec(evaluation=evaluation))
    assert train(plain) == 0
    real_generate = loop_module.generate

    def generate(model: object, *arguments: object, **named: object) -> str:
        if fused[-1].plan.capacity_tokens > 64:
            raise _full()
        return real_generate(model, *arguments, **named)  # type: ignore[arg-type]

    fused: list[FusedModel] = []
    _spoiled(monkeypatch, lambda model, _: fused.append(model))
    monkeypatch.setattr(loop_module, "generate", generate)
    run = new_run(tiny_spec(evaluation=evaluation))
    assert train(run) == 0
    texts = [[e.data["text"] for e in events(each, "sample")] for each in (run, plain)]
    assert texts[0] == texts[1]
    assert not events(run, "warning")
    assert step_losses(run) == step_losses(plain)


@pytest.mark.parametrize("optimizer", ["adamw", "adamw_8bit"])
def test_single_nan_is_skipped_with_a_warning(
    tiny_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch, optimizer: str
) -> None:
    def spoil(fused: FusedModel, num_calls: int) -> None:
        if num_calls == 1:
            fused.arena.gradients[3] = float("nan")

    _spoiled(monkeypatch, spoil)
    run = new_run(tiny_spec(optimizer={"name": optimizer}, schedule={"warmup_steps": 0}))
    assert train(run) == 0
    steps = [e.data for e in events(run, "step")]
    assert [step["grad_norm"] is None for step in steps] == [True] + [False] * 5
    assert all(step["loss"] is not None for step in steps)
