"""Full fine-tuning from the first weight to the folder that anybody loads, and resumed to the bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tests.engine.conftest import after_step, events, result_of, step_losses, train
from tests.engine.prepared import conduct_here
from tunesmith_core.checkpoint_manifest import damage, read_manifest, weight_files
from tunesmith_core.operations.kinds.evaluate import EVALUATE, EvaluateSpec
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_core.trained_parts import FULL
from tunesmith_engine.device import choose_compute
from tunesmith_engine.export.trained import find_trained
from tunesmith_engine.model.full import FullModel, load_full
from tunesmith_engine.model.trained_model import inference_compute, load_trained
from tunesmith_engine.train import checkpoint

NewRun = Callable[[RunSpec], Run]
MakeSpec = Callable[..., RunSpec]

RUN = {
    "schedule": {"max_steps": 8, "micro_batch_size": 2, "gradient_accumulation_steps": 2, "seed": 7},
    "evaluation": {"percent": 40.0, "every_steps": 3, "sample_prompts": ["Hi"], "sample_max_tokens": 3},
    "optimizer": {"learning_rate": 1e-3, "weight_decay": 0.01},
}


def full_spec(make: MakeSpec, optimizer: str = "adamw", weights: str = "float32", **sections: Any) -> RunSpec:
    spec = make(**{**RUN, **sections})
    spec.adapter.kind, spec.adapter.weights, spec.optimizer.name = FULL, weights, optimizer
    return spec


def _weights(run: Run) -> dict[str, torch.Tensor]:
    return load_file(run.model_path / "model.safetensors")


@pytest.mark.parametrize(
    ("optimizer", "weights"),
    [
        ("adamw", "float32"),
        *(
            pytest.param(optimizer, weights, marks=pytest.mark.long)
            for optimizer, weights in (
                *(("adamw", "bfloat16"), ("adamw_8bit", "bfloat16"), ("muon", "bfloat16")),
                *(("adamw_8bit", "float32"), ("muon", "float32")),
                *(("adafactor", "float32"), ("adafactor", "bfloat16")),
            )
        ),
    ],
)
def test_a_stopped_run_goes_on_to_the_same_bits(
    tiny_spec: MakeSpec, new_run: NewRun, optimizer: str, weights: str
) -> None:
    whole, stopped = (new_run(full_spec(tiny_spec, optimizer, weights)) for _ in range(2))
    assert train(whole) == 0
    assert train(stopped, lambda host: after_step(host, 3, host.on_signal)) == 5
    torch.manual_seed(999)
    assert train(stopped) == 0
    assert events(stopped, "hello")[-1].data["resumed_from_step"] == 3
    assert step_losses(stopped) == step_losses(whole)
    for name, weight in _weights(whole).items():
        assert torch.equal(_weights(stopped)[name], weight), name
    compared = [events(run, "comparison")[-1].data["improvement"] for run in (whole, stopped)]
    assert compared[0] == compared[1]
    assert result_of(stopped)["eval_loss_before"] == result_of(whole)["eval_loss_before"]


OTHERS = ("adamw", "adafactor", "muon")
LAYERS = {"schedule": {"max_steps": 8, "micro_batch_size": 3, "gradient_accumulation_steps": 1, "seed": 7}}


@pytest.mark.parametrize("optimizer", ["adamw_8bit", *(pytest.param(o, marks=pytest.mark.long) for o in OTHERS)])
def test_a_run_that_goes_layer_by_layer_goes_on_to_the_same_bits(
    tiny_spec: MakeSpec, new_run: NewRun, optimizer: str
) -> None:
    runs = [new_run(_by_layer(tiny_spec, optimizer)) for _ in range(2)]
    assert train(runs[0]) == 0
    assert train(runs[1], lambda host: after_step(host, 3, host.on_signal)) == 5
    torch.manual_seed(999)
    assert train(runs[1]) == 0
    assert step_losses(runs[1]) == step_losses(runs[0])
    for name, weight in _weights(runs[0]).items():
        assert torch.equal(_weights(runs[1])[name], weight), name
    report = events(runs[0], "setup")[-1].data["kernels"]
    assert any("Each layer is updated as soon as its gradients are known." in line for line in report)


def _by_layer(make: MakeSpec, optimizer: str, **sections: Any) -> RunSpec:
    spec = full_spec(make, optimizer, "bfloat16", **{**LAYERS, **sections})
    spec.optimizer.max_grad_norm = 0.0
    return spec


@pytest.mark.parametrize(
    ("objective", "max_grad_norm"),
    [("sft", 0.0), *(pytest.param(o, 1.0, marks=pytest.mark.long) for o in ("sft", "orpo", "simpo", "cpo"))],
)
def test_thirty_steps_are_those_of_the_plain_path(
    tiny_spec: MakeSpec,
    new_run: NewRun,
    tiny_model: Path,
    tmp_path: Path,
    objective: str,
    max_grad_norm: float,
) -> None:
    sections: dict[str, Any] = {"schedule": {"max_steps": 30, "micro_batch_size": 4, "seed": 7}}
    sections["schedule"]["gradient_accumulation_steps"] = 1
    if objective != "sft":
        sections["data"] = {"path": str(_pairs(tmp_path))}
    found = []
    for kernels in (True, False):
        spec = full_spec(tiny_spec, **sections, hardware={"kernels": kernels})
        spec.objective.kind, spec.optimizer.max_grad_norm = objective, max_grad_norm
        run = new_run(spec)
        assert train(run) == 0
        found.append(run)
    fused, plain = ([event.data for event in events(run, "step")] for run in found)
    for ours, theirs in zip(fused, plain, strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-4)
        assert ours["grad_norm"] == pytest.approx(theirs["grad_norm"], rel=1e-3)
    moved = [_moved(run, tiny_model) for run in found]
    assert float((moved[0] - moved[1]).norm() / moved[1].norm()) < 0.02


def _moved(run: Run, tiny_model: Path) -> torch.Tensor:
    """Return by what all weights have changed, side by side."""
    base = load_file(tiny_model / "model.safetensors")
    return torch.cat([(weight - base[name]).flatten() for name, weight in sorted(_weights(run).items())])


def _pairs(folder: Path) -> Path:
    rows = [{"prompt": f"Question {n}?", "chosen": f"Yes, {n}.", "rejected": "No."} for n in range(16)]
    path = folder / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_run_learns_and_says_what_was_trained(tiny_spec: MakeSpec, new_run: NewRun) -> None:
    run = new_run(full_spec(tiny_spec))
    assert train(run) == 0
    result = result_of(run)
    assert result["eval_loss_after"] < result["eval_loss_before"]
    assert result["artifacts"] == {"adapter": "model"}
    setup = events(run, "setup")[-1].data
    assert setup["num_trainable_parameters"] == setup["num_parameters"]
    assert any("Full fine-tuning of" in line and "AdamW" in line for line in setup["kernels"])
    assert not [event for event in events(run, "warning") if event.data["code"] == "not-fused"]
    first = events(run, "eval")[0].data
    assert first["step"] == 0
    assert events(run, "comparison")[-1].data["improvement"]["low"] > 0
    assert run.adapter_problem(run.status()) is None


def test_the_result_is_a_folder_that_transformers_loads(tiny_spec: MakeSpec, new_run: NewRun, tiny_model: Path) -> None:
    run = new_run(full_spec(tiny_spec))
    assert train(run) == 0
    loaded = dict(AutoModelForCausalLM.from_pretrained(run.model_path).named_parameters())
    saved = load_file(weight_files(run.checkpoints_path / "step-000008")[0])
    base = load_file(tiny_model / "model.safetensors")
    assert {f"base_model.model.{name}" for name in loaded} == saved.keys()
    for name, weight in loaded.items():
        assert torch.equal(weight, saved[f"base_model.model.{name}"]), name
        assert not torch.equal(weight, base[name]), name
    card = (run.model_path / "README.md").read_text(encoding="utf-8")
    assert "own weights fine-tuned" in card
    assert "library_name: transformers" in card
    assert "| Trained weights | float32 |" in card
    assert "Rank" not in card
    assert (run.model_path / "tokenizer.json").is_file()
    told = [path.read_text(encoding="utf-8") for path in run.model_path.iterdir() if path.suffix in (".json", ".md")]
    assert not any(str(tiny_model.parent) in text or str(run.path.parent) in text for text in told)


def test_checkpoints_of_large_weights_lie_in_shards(
    tiny_spec: MakeSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "SHARD_BYTES", 100_000)
    run = new_run(full_spec(tiny_spec))
    assert train(run, lambda host: after_step(host, 3, host.on_signal)) == 5
    folder = run.checkpoints_path / "step-000003"
    shards = weight_files(folder)
    assert len(shards) > 2
    assert damage(folder) == ""
    assert {path.name for path in shards} < set(read_manifest(folder).entries)
    before = {name: weight for path in shards for name, weight in load_file(path).items()}
    assert train(run) == 0
    restored, _ = checkpoint.load(run.checkpoints_path / "step-000008")
    assert restored.adapter.keys() == before.keys()
    shards[1].unlink()
    assert shards[1].name in damage(folder)


def test_only_chosen_parts_change(tiny_spec: MakeSpec, new_run: NewRun, tiny_model: Path) -> None:
    spec = full_spec(tiny_spec)
    spec.adapter.parts = ["norms", "1", "o_proj"]
    run = new_run(spec)
    assert train(run) == 0
    base, made = load_file(tiny_model / "model.safetensors"), _weights(run)
    changed = {name for name, weight in made.items() if not torch.equal(weight, base[name])}
    assert changed == {name for name in base if "norm" in name or ".layers.1." in name or "o_proj" in name}
    assert "embed_tokens" not in "".join(load_file(weight_files(run.checkpoints_path / "step-000008")[0]))


def test_a_part_that_is_not_there_is_named(tiny_spec: MakeSpec, new_run: NewRun) -> None:
    spec = full_spec(tiny_spec)
    spec.adapter.parts = ["norms", "gate"]
    run = new_run(spec)
    assert train(run) == 2
    (error,) = events(run, "error")
    assert error.data["code"] == "trained-parts-missing"
    assert "gate" in error.data["message"]


def test_the_base_model_can_be_asked_and_the_trained_one_comes_back(
    tiny_spec: MakeSpec, new_run: NewRun, tiny_model: Path
) -> None:
    run = new_run(full_spec(tiny_spec))
    assert train(run) == 0
    base = load_file(tiny_model / "model.safetensors")
    for step in (0, 8):
        trained = find_trained(run, step)
        model = load_trained(trained, tiny_model, inference_compute(trained.spec))
        assert isinstance(model, FullModel)
        after = {name: weight.clone() for name, weight in model.get_base_model().named_parameters()}
        for _ in range(2):
            with model.disable_adapter():
                for name, weight in model.get_base_model().named_parameters():
                    assert torch.equal(weight, base[name])
            for name, weight in model.get_base_model().named_parameters():
                assert torch.equal(weight, after[name])
                assert torch.equal(weight, _weights(run)[name])


def test_an_evaluation_compares_with_the_base_model(tiny_spec: MakeSpec, new_run: NewRun) -> None:
    run = new_run(full_spec(tiny_spec))
    assert train(run) == 0
    outcome = conduct_here(
        EVALUATE, EvaluateSpec(str(run.path)), on_event=lambda _: None, take=lambda _folder, answer: answer
    )
    loss = outcome.get()["losses"]
    assert loss["before"] == pytest.approx(result_of(run)["eval_loss_before"], abs=1e-4)
    assert loss["after"] == pytest.approx(result_of(run)["eval_loss_after"], abs=1e-4)


@pytest.mark.parametrize("objective", ["cpo", "orpo", "simpo"])
def test_preferences_without_a_reference_are_learned(
    tiny_spec: MakeSpec, new_run: NewRun, tmp_path: Path, objective: str
) -> None:
    spec = full_spec(tiny_spec, data={"path": str(_pairs(tmp_path))})
    spec.objective.kind = objective
    run = new_run(spec)
    assert train(run) == 0
    steps = [event.data["loss"] for event in events(run, "step")]
    assert steps[-1] < steps[0]
    assert events(run, "comparison")[-1].data["improvement"]["rows"] == 6


def test_activation_checkpointing_changes_no_number(tiny_spec: MakeSpec, new_run: NewRun) -> None:
    runs = [new_run(full_spec(tiny_spec, hardware={"activation_checkpointing": on})) for on in (False, True)]
    assert [train(run) for run in runs] == [0, 0]
    assert step_losses(runs[0]) == pytest.approx(step_losses(runs[1]), rel=1e-6)


def test_weights_in_bfloat16_are_trained_in_bfloat16(tiny_spec: MakeSpec, tiny_model: Path) -> None:
    spec = full_spec(tiny_spec, weights="bfloat16")
    model = load_full(tiny_model, spec, choose_compute(spec))
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}
