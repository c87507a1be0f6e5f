"""Runs that train an adapter further: whole runs, what they are compared with, resume, exports and wrong adapters."""

from __future__ import annotations

import copy
import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

from tests.engine.conftest import after_step, events, result_of, step_losses, train
from tests.engine.preference.test_preference_runs import pair_spec
from tests.engine.preference.test_trl_runs import (
    BATCH_SIZE,
    NUM_STEPS,
    oracle_log,
    write_labels,
    write_pairs,
)
from tests.engine.reinforcement.test_reward_runs import reward_spec
from tunesmith_core import adapter_folders, preflight
from tunesmith_core.errors import TunesmithError
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_engine.device import choose_compute
from tunesmith_engine.export.trained import find_trained
from tunesmith_engine.model.load import load_model
from tunesmith_engine.model.lora import attach_adapter, compare_with_others, trainable
from tunesmith_engine.model.other_weights import asked_with, before_run, reference_of, settled, start_of
from tunesmith_engine.model.trained_model import inference_compute, load_trained

__all__ = ["pair_spec", "reward_spec"]
MakeSpec = Callable[..., RunSpec]
NewRun = Callable[[RunSpec], Run]
HELD_OUT = {"percent": 25.0, "every_steps": 2}
KINDS: dict[str, dict[str, Any]] = {
    "lora": {},
    "dora": {"use_dora": True},
    "rslora": {"use_rslora": True, "rank_pattern": {"q_proj": 2}, "alpha_pattern": {"q_proj": 3}},
    "bias": {"bias": "all"},
}


def make_adapter(model: Path, folder: Path, *, scale: float = 0.05, seed: int = 7, **settings: Any) -> Path:
    """Write an adapter that changes what a model predicts, as plain PEFT writes it."""
    spec = RunSpec()
    spec.model.path, spec.hardware.devices = str(model), ["cpu"]
    base = load_model(model, choose_compute(spec), False)
    config = LoraConfig(
        **{"r": 4, "lora_alpha": 8, "target_modules": "all-linear", "task_type": "CAUSAL_LM", **settings}
    )
    torch.manual_seed(seed)
    adapted = get_peft_model(base, config)
    for parameter in trainable(adapted).values():
        parameter.data += scale * torch.randn(parameter.shape)
    adapted.save_pretrained(folder)
    return folder


def continued(spec: RunSpec, folder: Path) -> RunSpec:
    """Let a run start from an adapter."""
    spec.adapter.start_from = str(folder)
    adapter_folders.take_settings(spec)
    return spec


def weights_of(run: Run) -> dict[str, torch.Tensor]:
    """Return the weights of the adapter that a run has made."""
    return load_file(run.adapter_path / adapter_folders.WEIGHTS)


FUSED_OR_PLAIN = [pytest.param(True, id="fused"), pytest.param(False, id="plain", marks=pytest.mark.long)]


@pytest.mark.long
@pytest.mark.parametrize("kernels", [True, False], ids=["fused", "plain"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_begins_where_its_adapter_ended_and_says_so(
    kind: str, kernels: bool, tiny_spec: MakeSpec, new_run: NewRun, tiny_model: Path, tmp_path: Path
) -> None:
    folder = make_adapter(tiny_model, tmp_path / "before", **KINDS[kind])
    sections = {"hardware": {"kernels": kernels}, "evaluation": HELD_OUT}
    run = new_run(continued(tiny_spec(**sections, optimizer={"learning_rate": 1e-12}), folder))
    shutil.rmtree(folder)
    assert train(run) == 0
    first, *_, last = (event.data["loss"] for event in events(run, "eval"))
    assert first == pytest.approx(last, rel=1e-6), "what came before is the adapter, not the base model"
    base = new_run(tiny_spec(**sections))
    assert train(base) == 0
    assert abs(events(base, "eval")[0].data["loss"] - first) > 1e-3
    exported, given = weights_of(run), load_file(run.path / "start" / adapter_folders.WEIGHTS)
    assert exported.keys() == given.keys(), "one adapter, not one on another"
    assert all(torch.allclose(exported[name], given[name].float(), atol=1e-6) for name in given)
    spec = run.load_spec()
    assert adapter_folders.lineage(spec) == "before"
    assert "Continues the adapter: before" in (run.adapter_path / "README.md").read_text(encoding="utf-8")
    compared = events(run, "comparison")
    assert not compared or abs(compared[-1].data["improvement"]["mean"]) < 1e-5
    # Plain PEFT reads the one adapter back.
    loaded = PeftModel.from_pretrained(load_model(tiny_model, choose_compute(spec), False), str(run.adapter_path))
    assert len(loaded.peft_config) == 1


@pytest.mark.parametrize("kernels", FUSED_OR_PLAIN)
@pytest.mark.parametrize("kind", ["dpo", *(pytest.param(k, marks=pytest.mark.long) for k in ("sft", "kto", "grpo"))])
def test_a_stopped_run_goes_on_to_the_bit(
    kind: str,
    kernels: bool,
    tiny_spec: MakeSpec,
    pair_spec: MakeSpec,
    reward_spec: MakeSpec,
    new_run: NewRun,
    tiny_model: Path,
    tmp_path: Path,
) -> None:
    folder = make_adapter(tiny_model, tmp_path / "before")
    sections: dict[str, Any] = {"hardware": {"kernels": kernels}, "evaluation": HELD_OUT}
    if kind == "sft":
        spec = tiny_spec(**sections)
    else:
        spec = (reward_spec if kind == "grpo" else pair_spec)(kind, **sections)
        spec.objective.beta = 0.1
    whole, halves = (new_run(continued(spec, folder)) for _ in range(2))
    assert train(whole) == 0
    assert train(halves, lambda host: after_step(host, 3, host.on_signal)) == 5
    shutil.rmtree(folder)
    torch.manual_seed(999)
    assert train(halves) == 0
    assert step_losses(halves) == step_losses(whole)
    first = [events(run, "eval")[0].data["loss"] for run in (whole, halves)]
    assert first[0] == first[1]
    files = [(run.adapter_path / adapter_folders.WEIGHTS).read_bytes() for run in (whole, halves)]
    assert files[0] == files[1]


@pytest.mark.long
@pytest.mark.parametrize("how", ["each-step", "once"])
@pytest.mark.parametrize("other", [False, True], ids=["start", "other"])
def test_fused_agrees_with_plain_and_rates_the_start_0(
    other: bool, how: str, pair_spec: MakeSpec, new_run: NewRun, tiny_model: Path, tmp_path: Path
) -> None:
    folder = make_adapter(tiny_model, tmp_path / "before")
    reference = make_adapter(tiny_model, tmp_path / "other", seed=8, r=2, lora_alpha=6, target_modules=["q_proj"])
    runs = []
    for kernels in (True, False):
        spec = continued(pair_spec("dpo", hardware={"kernels": kernels}, evaluation=HELD_OUT), folder)
        spec.objective.reference = how
        spec.objective.reference_adapter = str(reference) if other else ""
        runs.append(new_run(spec))
        assert train(runs[-1]) == 0
    fused, plain = runs
    assert step_losses(fused) == pytest.approx(step_losses(plain), rel=1e-5, abs=1e-6)
    margins = [events(run, "eval")[0].data["reward_margin"] for run in runs]
    assert margins[0] == pytest.approx(margins[1], rel=1e-3, abs=1e-6)
    assert (margins[0] == 0.0) is not other, "a model beside itself is rated 0 to the bit"
    if other:
        assert adapter_folders.reference_name(fused.load_spec()) == "other"


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("kind", "other"),
    [("dpo", False), pytest.param("dpo", True, marks=pytest.mark.long)],
    ids=["start", "other"],
)
def test_thirty_steps_are_those_of_trl(
    kind: str,
    other: bool,
    tiny_spec: MakeSpec,
    new_run: NewRun,
    tiny_model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """TRL itself copies the adapter that a model comes with and takes the copy for the reference."""
    data = tmp_path / "pairs.jsonl"
    write_pairs(data)
    spec = tiny_spec(
        data={"path": str(data)},
        optimizer={"learning_rate": 5e-3, "weight_decay": 0.1, "max_grad_norm": 1.0},
        schedule={"max_steps": NUM_STEPS, "micro_batch_size": BATCH_SIZE, "gradient_accumulation_steps": 1, "seed": 5},
    )
    spec.objective.kind = kind
    continued(spec, make_adapter(tiny_model, tmp_path / "before"))
    theirs = None
    if other:
        folder = make_adapter(tiny_model, tmp_path / "other", seed=8, r=2, lora_alpha=6)
        spec.objective.reference_adapter = str(folder)
        theirs = PeftModel.from_pretrained(
            load_model(tiny_model, choose_compute(spec), False), str(folder)
        ).merge_and_unload()
    run = new_run(spec)
    assert train(run) == 0
    log = oracle_log(kind, spec, tiny_model, tmp_path / "oracle", theirs)
    capsys.readouterr()
    ours = [event.data for event in events(run, "step")]
    assert len(ours) == len(log) == NUM_STEPS
    assert [step["loss"] for step in ours] == pytest.approx([step["loss"] for step in log], rel=2e-4, abs=2e-5)
    norms = [step["grad_norm"] for step in log]
    assert [step["grad_norm"] for step in ours] == pytest.approx(norms, rel=5e-3, abs=1e-4)
    margins = [step["rewards/margins"] for step in log]
    assert [step["reward_margin"] for step in ours] == pytest.approx(margins, rel=1e-3, abs=2e-3)
    if not other:
        assert ours[0]["loss"] == pytest.approx(0.693147, abs=1e-4), "the reference is the start"


def test_what_a_run_has_trained_answers_beside_what_it_began_with(
    tiny_spec: MakeSpec, new_run: NewRun, tiny_model: Path, tmp_path: Path
) -> None:
    folder = make_adapter(tiny_model, tmp_path / "before")
    run = new_run(continued(tiny_spec(saving={"every_steps": 2}), folder))
    assert train(run) == 0
    trained = find_trained(run, 0)
    model: Any = load_trained(trained, tiny_model, inference_compute(trained.spec, "cpu"))
    names, given = trainable(model), load_file(folder / adapter_folders.WEIGHTS)
    name = next(name for name in names if ".lora_A." in name)
    in_file = name.replace(".default", "")
    now = names[name].detach().clone()
    with before_run(model):
        assert torch.equal(names[name], given[in_file])
    assert torch.equal(names[name], now)
    assert not torch.equal(now, given[in_file])
    # Exports read checkpoints, too, on a base model without weights.
    for step in (0, 4):
        loaded = find_trained(run, step).load(tiny_model)
        assert all(bool(value.isfinite().all()) for value in trainable(loaded).values())


@pytest.mark.long
@pytest.mark.parametrize("settings", [{}, {"use_dora": True}], ids=["lora", "dora"])
def test_the_reference_drops_nothing(
    settings: dict[str, Any], pair_spec: MakeSpec, new_run: NewRun, tiny_model: Path, tmp_path: Path
) -> None:
    """With a learning rate of nothing, the reference is the model itself where that drops nothing."""
    folder = make_adapter(tiny_model, tmp_path / "before", **settings)
    for kernels in (True, False):
        spec = continued(pair_spec("dpo", hardware={"kernels": kernels}, optimizer={"learning_rate": 1e-12}), folder)
        spec.adapter.dropout = 0.5
        each, once = spec, copy.deepcopy(spec)
        once.objective.reference = "once"
        runs = [new_run(each), new_run(once)]
        assert [train(run) for run in runs] == [0, 0]
        assert step_losses(runs[0]) == pytest.approx(step_losses(runs[1]), rel=1e-5)
        assert max(abs(loss - 0.693147) for loss in step_losses(runs[0])) > 1e-3, "the trained one drops"


@pytest.mark.long
@pytest.mark.parametrize("kernels", [True, False], ids=["fused", "plain"])
def test_modules_that_were_trained_whole_go_on(
    kernels: bool, tiny_spec: MakeSpec, new_run: NewRun, tiny_model: Path, tmp_path: Path
) -> None:
    folder = make_adapter(tiny_model, tmp_path / "before", modules_to_save=["lm_head"])
    run = new_run(continued(tiny_spec(hardware={"kernels": kernels}, evaluation=HELD_OUT), folder))
    assert train(run) == 0
    assert weights_of(run).keys() == load_file(folder / adapter_folders.WEIGHTS).keys()


def test_an_end_beside_a_step_finds_the_trained_weights(
    tiny_spec: MakeSpec, tiny_model: Path, tmp_path: Path
) -> None:
    spec = continued(tiny_spec(), make_adapter(tiny_model, tmp_path / "before"))
    adapted = attach_adapter(load_model(tiny_model, choose_compute(spec), False), spec)
    compare_with_others(adapted, spec)
    start = start_of(adapted)
    assert start is not None
    assert reference_of(adapted) is start
    parameters = trainable(adapted)
    name, parameter = next(iter(parameters.items()))
    parameter.data = parameter.data + 1
    trained = parameter.detach().clone()
    with asked_with(adapted, start):
        assert torch.equal(parameter, start[name])
        seen: list[torch.Tensor] = []

        def end() -> None:
            with settled(adapted):
                seen.append(parameter.detach().clone())

        thread = threading.Thread(target=end)
        thread.start()
        thread.join()
        assert torch.equal(seen[0], trained)
        assert torch.equal(parameter, start[name]), "an end that fails leaves everything as it was"
    assert torch.equal(parameter, trained)


def _spoil(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    path = folder / adapter_folders.WEIGHTS
    weights = load_file(path)
    change(weights)
    save_file(weights, path)


def _nan(weights: dict[str, torch.Tensor]) -> None:
    next(iter(weights.values()))[0, 0] = torch.nan


@pytest.mark.parametrize("which", ["nan", pytest.param("lost", marks=pytest.mark.long)])
def test_weights_that_only_loading_finds_wrong(
    which: str, tiny_spec: MakeSpec, new_run: NewRun, tiny_model: Path, tmp_path: Path
) -> None:
    folder = make_adapter(tiny_model, tmp_path / "before")
    _spoil(folder, _nan if which == "nan" else lambda weights: weights.pop(sorted(weights)[0]))
    run = new_run(continued(tiny_spec(), folder))
    assert train(run) == 2
    assert result_of(run)["code"] == "adapter-unfit"
    assert "is missing, NaN or infinite" in events(run, "error")[-1].data["message"]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["dpo", "kto", "grpo", "rloo"])
def test_a_new_adapter_may_be_compared_with_another(
    kind: str, pair_spec: MakeSpec, reward_spec: MakeSpec, new_run: NewRun, tiny_model: Path, tmp_path: Path
) -> None:
    reference = make_adapter(tiny_model, tmp_path / "other", r=2)
    losses = []
    for named in ("", str(reference)):
        spec = (reward_spec if kind in ("grpo", "rloo") else pair_spec)(kind, evaluation=HELD_OUT)
        spec.objective.reference_adapter, spec.objective.beta = named, 0.1
        spec.schedule.max_steps = 2
        run = new_run(spec)
        assert train(run) == 0
        losses.append(step_losses(run))
    assert losses[0] != losses[1]


@pytest.mark.long
def test_a_reference_without_room_is_named(
    pair_spec: MakeSpec, new_run: NewRun, tiny_model: Path, tmp_path: Path
) -> None:
    spec = pair_spec("dpo")
    spec.objective.reference_adapter = str(make_adapter(tiny_model, tmp_path / "other", r=8))
    with pytest.raises(TunesmithError, match="its rank 8 is above that of the trained adapter, 4"):
        preflight.adapter_folders.check_adapters(spec, {})
    run = new_run(spec)
    assert train(run) == 2
    assert result_of(run)["code"] == "adapter-unfit"


@pytest.mark.long
def test_labels_and_documents_lead_on(tiny_spec: MakeSpec, new_run: NewRun, tmp_path: Path) -> None:
    texts = tmp_path / "texts.jsonl"
    texts.write_text("\n".join(json.dumps({"text": f"Number {n} is read."}) for n in range(8)), encoding="utf-8")
    read = new_run(tiny_spec(data={"path": str(texts)}))
    assert train(read) == 0
    first = continued(tiny_spec(), read.path)
    first.name = "examples"
    taught = new_run(first)
    assert train(taught) == 0
    labels = tmp_path / "labels.jsonl"
    write_labels(labels)
    spec = continued(tiny_spec(data={"path": str(labels)}), taught.adapter_path)
    spec.objective.kind = "kto"
    last = new_run(spec)
    assert train(last) == 0
    assert adapter_folders.lineage(last.load_spec()) == f"{read.id} → examples"
