"""PiSSA, OLoRA and EVA: PEFT's values and losses, a base model that stays as it is, exact resumes, plain adapters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from peft import EvaConfig, LoraConfig, PeftModel, get_peft_model, initialize_lora_eva_weights
from safetensors.torch import load_file

from tests.engine.conftest import events, step_losses, train
from tests.engine.exact_resume import check_resume
from tests.engine.peft_loop import losses_of
from tests.engine.prepared import prepare
from tunesmith_core import adapter_folders
from tunesmith_core.model_cards import read_model_card
from tunesmith_core.planner import num_adapter_parameters
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_engine.device import choose_compute
from tunesmith_engine.export.trained import find_trained
from tunesmith_engine.model.folder import load_tokenizer
from tunesmith_engine.model.initial_values import _batches
from tunesmith_engine.model.load import load_model

Make = Callable[..., RunSpec]
NewRun = Callable[[RunSpec], Run]
IDS = torch.arange(3, 40)[None]


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model.eval()(input_ids=IDS).logits
    return found


def of_peft(spec: RunSpec, folder: Path) -> PeftModel:
    """Return the adapter as PEFT begins it, which changes the frozen weights of PiSSA and OLoRA."""
    values = spec.adapter.initial_values
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=spec.adapter.rank,
        lora_alpha=spec.adapter.alpha,
        target_modules="all-linear",
        init_lora_weights=values,
        eva_config=EvaConfig(rho=1.0) if values == "eva" else None,
    )
    model = get_peft_model(load_model(folder, choose_compute(spec), False), config)
    if values == "eva":
        rows = prepare(spec, load_tokenizer(folder)).train
        batches = _batches(rows, spec.adapter.rank, torch.device("cpu"), spec.schedule.seed)
        initialize_lora_eva_weights(model, batches, show_progress_bar=False)
    return model


CASES = [("pissa", True)]
MORE = [("eva", True), ("pissa", False), ("olora", True), ("olora", False), ("eva", False)]


@pytest.mark.parametrize(
    ("values", "kernels"), [*CASES, *(pytest.param(*each, marks=pytest.mark.long) for each in MORE)]
)
def test_losses_are_those_of_peft_and_the_adapter_fits_the_base(
    values: str, kernels: bool, tiny_spec: Make, new_run: NewRun, tiny_model: Path
) -> None:
    spec = tiny_spec(method={"initial_values": values}, schedule={"max_steps": 30}, evaluation={"percent": 20})
    spec.optimizer.weight_decay = 0.1 if values == "eva" else 0.0
    spec.hardware.kernels = kernels
    run = new_run(spec)
    assert train(run) == 0
    theirs = losses_of(of_peft(spec, tiny_model), spec, tiny_model)
    assert step_losses(run) == pytest.approx(theirs, rel=5e-3)
    base = load_model(tiny_model, choose_compute(spec), False)
    before = logits(base)
    restored = PeftModel.from_pretrained(base, run.adapter_path)
    ours = find_trained(run, 0).load_whole(tiny_model)
    assert torch.allclose(logits(restored), logits(ours), atol=1e-5)
    assert not torch.allclose(logits(restored), before, atol=1e-2)
    with restored.disable_adapter():
        assert torch.equal(logits(restored), before)
    (setup,) = events(run, "setup")
    assert setup.data["num_trainable_parameters"] == num_adapter_parameters(spec, read_model_card(tiny_model))
    card = (run.adapter_path / "README.md").read_text(encoding="utf-8")
    assert {"pissa": "Meng et al.", "olora": "OLoRA, B", "eva": "Paischer"}[values] in card


@pytest.mark.parametrize("values", ["pissa", pytest.param("olora", marks=pytest.mark.long)])
@pytest.mark.parametrize("more", ["decay", *(pytest.param(each, marks=pytest.mark.long) for each in ("dora", "8-bit"))])
def test_half_of_it_never_moves(values: str, more: str, tiny_spec: Make, new_run: NewRun) -> None:
    spec = tiny_spec(method={"initial_values": values, "dora": more == "dora"}, saving={"every_steps": 1})
    spec.optimizer.weight_decay = 0.0 if more == "8-bit" else 0.5
    spec.optimizer.name = "adamw_8bit" if more == "8-bit" else "adamw"
    run = new_run(spec)
    assert train(run) == 0
    first, last = (find_trained(run, step).load(Path(spec.model.path)) for step in (5, 6))
    later = dict(last.named_parameters())
    moved = 0
    for name, value in first.named_parameters():
        if "lora_A" in name:
            half = len(value) // 2
            assert torch.equal(value[half:], later[name][half:])
            moved += not torch.equal(value[:half], later[name][:half])
        elif "lora_B" in name:
            half = value.shape[1] // 2
            assert torch.equal(value[:, half:], later[name][:, half:])
    assert moved


@pytest.mark.parametrize("kernels", [True, pytest.param(False, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "values",
    [
        "pissa_niter_16",
        pytest.param("olora", marks=pytest.mark.long),
        pytest.param("eva", marks=pytest.mark.long),
    ],
)
def test_a_resume_is_exact(
    values: str, kernels: bool, tiny_spec: Make, new_run: NewRun
) -> None:
    spec = tiny_spec(method={"initial_values": values}, evaluation={"percent": 20})
    spec.hardware.kernels = kernels
    check_resume(spec, new_run)


@pytest.mark.parametrize("format", ["nf4", pytest.param("int8", marks=pytest.mark.long)])
def test_frozen_weights_in_few_bits_stay_as_they_are(
    format: str, tiny_spec: Make, new_run: NewRun, tiny_model: Path
) -> None:
    spec = tiny_spec(method={"initial_values": "pissa"}, schedule={"max_steps": 2})
    spec.quantization.kind = format
    run = new_run(spec)
    assert train(run) == 0
    begun = load_model(tiny_model, choose_compute(spec), format == "nf4", eight_bit=format == "int8")
    before = logits(begun)
    model = PeftModel.from_pretrained(begun, run.adapter_path)
    with model.disable_adapter():
        assert torch.equal(logits(model), before)


def test_a_run_continues_an_adapter_that_began_with_frozen_weights(
    tiny_spec: Make, new_run: NewRun, tmp_path: Path
) -> None:
    spec = tiny_spec(method={"initial_values": "pissa"}, schedule={"max_steps": 2})
    spec.adapter.layers, spec.adapter.rank_pattern = ["1"], ["mlp.*_proj = 3"]
    first = new_run(spec)
    assert train(first) == 0
    later = tiny_spec(method={"initial_values": "pissa"}, schedule={"max_steps": 3})
    later.adapter.start_from = str(first.path)
    adapter_folders.take_settings(later)
    assert later.adapter.rank_pattern == ["mlp.*_proj = 6"]
    whole = new_run(later)
    assert train(whole) == 0
    before, after = (load_file(run.adapter_path / "adapter_model.safetensors") for run in (first, whole))
    assert before.keys() == after.keys()
    # It is one adapter now, no half of which stays.
    moved = [name for name in before if "lora_A" in name and not torch.equal(before[name][-1], after[name][-1])]
    assert moved == [name for name in before if "lora_A" in name]
    assert adapter_folders.lineage(whole.load_spec())


def test_a_rank_beyond_a_layer_is_named(tiny_spec: Make, new_run: NewRun) -> None:
    run = new_run(tiny_spec(method={"initial_values": "olora", "rank": 64}))
    assert train(run) == 2
    assert "adapter.rank: 64 is too high for" in events(run, "error")[-1].data["message"]
