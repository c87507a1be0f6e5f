"""Kinds of adapters beside LoRA: PEFT's losses, exact resumes, sizes as planned, adapters and merged models alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import (
    DeloraConfig,
    IA3Config,
    LoHaConfig,
    LoKrConfig,
    MissConfig,
    OFTConfig,
    PeftConfig,
    PeftModel,
    RandLoraConfig,
    VeraConfig,
    get_peft_model,
)
from transformers import AutoModelForCausalLM

from tests.engine.conftest import events, step_losses, train
from tests.engine.exact_resume import check_resume
from tests.engine.exports import export
from tests.engine.peft_loop import losses_of
from tests.packed_models import FORMATS, repack
from tests.tiny_model import build_tiny_model
from tunesmith_core.adapter_kinds import KINDS
from tunesmith_core.model_cards import read_model_card
from tunesmith_core.planner import num_adapter_parameters
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_engine.device import choose_compute
from tunesmith_engine.model.load import load_model
from tunesmith_engine.model.lora import attach_adapter, trainable

Make = Callable[..., RunSpec]
NewRun = Callable[[RunSpec], Run]
IDS = torch.arange(3, 40)[None]
LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
CONFIGS: dict[str, Callable[[], PeftConfig]] = {
    "oft": lambda: OFTConfig(r=0, oft_block_size=4, target_modules=LINEAR),
    "vera": lambda: VeraConfig(r=4, target_modules=LINEAR),
    "ia3": lambda: IA3Config(target_modules=LINEAR, feedforward_modules=["down_proj"]),
    "loha": lambda: LoHaConfig(r=4, alpha=8.0, target_modules=LINEAR),
    "lokr": lambda: LoKrConfig(r=4, alpha=8.0, target_modules=LINEAR),
    "randlora": lambda: RandLoraConfig(r=4, randlora_alpha=8.0, randlora_dropout=0.0, target_modules=LINEAR),
    "miss": lambda: MissConfig(r=4, target_modules=LINEAR),
    "delora": lambda: DeloraConfig(r=4, target_modules=LINEAR),
}


def some(usual: str) -> list[Any]:
    """Return all kinds, those that are not usual for long tests."""
    return [kind if kind == usual else pytest.param(kind, marks=pytest.mark.long) for kind in KINDS]


def spec_of(tiny_spec: Make, kind: str, **sections: Any) -> RunSpec:
    spec = tiny_spec(**sections)
    spec.adapter.kind = kind
    return spec


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model.eval()(input_ids=IDS).logits
    return found


def with_biases(folder: Path) -> Path:
    """Write a model whose biases are not zero: IA3 scales them as well."""
    model = AutoModelForCausalLM.from_pretrained(build_tiny_model(folder, attention_bias=True))
    generator = torch.Generator().manual_seed(0)
    for name, value in model.named_parameters():
        if name.endswith("bias"):
            value.data = torch.randn(value.shape, generator=generator)
    model.save_pretrained(folder)
    return folder


def test_every_kind_is_here() -> None:
    assert CONFIGS.keys() == KINDS.keys()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layers", [[], ["1"]], ids=str)
def test_its_size_is_planned(kind: str, layers: list[str], tiny_spec: Make, tiny_model: Path) -> None:
    spec = spec_of(tiny_spec, kind, method={"rank": 6})
    spec.adapter.layers = layers if "layers" in KINDS[kind].settings else []
    model = attach_adapter(load_model(tiny_model, choose_compute(spec), False), spec)
    made = sum(each.numel() for each in trainable(model).values())
    assert num_adapter_parameters(spec, read_model_card(tiny_model)) == made


def kept_bytes(kind: str, spec: RunSpec, folder: Path) -> int:
    """Return what a forward pass keeps beside parameters and buffers."""
    spec.adapter.kind = kind
    model = attach_adapter(load_model(folder, choose_compute(spec), False), spec).train()
    own = {each.untyped_storage().data_ptr() for each in (*model.parameters(), *model.buffers())}
    kept: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = model(input_ids=torch.arange(2)[None]).logits.sum()
    assert loss.requires_grad
    return sum(tensor.untyped_storage().nbytes() for place, tensor in kept.items() if place not in own)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_step_keeps_of_weights_is_planned(kind: str, tiny_spec: Make, tiny_model: Path) -> None:
    spec = tiny_spec()
    more = kept_bytes(kind, spec, tiny_model) - kept_bytes("lora", spec, tiny_model)
    # The blocks of OFT are small where a model is not tiny.
    assert more / read_model_card(tiny_model).num_linear_parameters <= KINDS[kind].kept_bytes + 1


@pytest.mark.parametrize("kind", some("loha"))
def test_losses_are_those_of_peft(kind: str, tiny_spec: Make, new_run: NewRun, tiny_model: Path) -> None:
    spec = spec_of(tiny_spec, kind, schedule={"max_steps": 30})
    run = new_run(spec)
    assert train(run) == 0
    base = load_model(tiny_model, choose_compute(spec), False)
    torch.manual_seed(spec.schedule.seed)
    theirs = losses_of(get_peft_model(base, CONFIGS[kind]()), spec, tiny_model)
    assert step_losses(run) == pytest.approx(theirs, rel=2e-4)
    assert theirs[-1] < theirs[0]
    (setup,) = events(run, "setup")
    said = " ".join(setup.data["kernels"])
    assert f"Adapters ({KINDS[kind].title}): " in said
    assert f"No fused kernel computes {KINDS[kind].title}." in said
    assert not events(run, "warning")
    assert str(KINDS[kind]) in (run.adapter_path / "README.md").read_text(encoding="utf-8")


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_resume_is_exact(kind: str, tiny_spec: Make, new_run: NewRun) -> None:
    check_resume(spec_of(tiny_spec, kind, method={"dropout": 0.1}, evaluation={"percent": 20}), new_run)


@pytest.mark.parametrize("kind", some("ia3"))
def test_adapter_and_merged_model_agree(
    kind: str, tiny_spec: Make, new_run: NewRun, tmp_path: Path
) -> None:
    folder = with_biases(tmp_path / "biased")
    spec = spec_of(tiny_spec, kind, saving={"every_steps": 3})
    spec.model.path, spec.optimizer.learning_rate = str(folder), 5e-2
    run = new_run(spec)
    assert train(run) == 0
    base = load_model(folder, choose_compute(spec), False)
    before = logits(base)
    trained = PeftModel.from_pretrained(base, run.adapter_path)
    expected = logits(trained)
    assert not torch.allclose(expected, before, atol=1e-3)
    with trained.disable_adapter():
        assert torch.equal(logits(trained), before)
    export(run, tmp_path / "merged")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype=torch.float32)
    # What is written has 16 bits.
    assert torch.allclose(logits(merged), expected, atol=5e-3)
    export(run, tmp_path / "of-step", checkpoint=3)


@pytest.mark.long
@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.takes_quantized])
def test_it_takes_four_bits(kind: str, tiny_spec: Make, new_run: NewRun) -> None:
    spec = spec_of(tiny_spec, kind, schedule={"max_steps": 2})
    spec.quantization.kind = "nf4"
    assert train(new_run(spec)) == 0


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_bigger_model_teaches_it_and_it_answers(
    kind: str, tiny_spec: Make, new_run: NewRun, tmp_path: Path
) -> None:
    spec = spec_of(tiny_spec, kind, schedule={"max_steps": 3}, evaluation={"sample_max_tokens": 4})
    spec.objective.kind, spec.evaluation.sample_prompts = "gkd", ["Who?"]
    spec.teacher.path, spec.teacher.own_answers = str(build_tiny_model(tmp_path / "bigger", seed=7)), 0.5
    spec.teacher.max_tokens = 4
    run = new_run(spec)
    assert train(run) == 0
    assert all(loss > 0 for loss in step_losses(run))
    assert events(run, "sample")


@pytest.mark.long
@pytest.mark.parametrize(("kind", "values"), [("oft", "default"), ("vera", "default"), ("lora", "pissa")])
def test_a_base_that_comes_quantized(
    kind: str, values: str, tiny_spec: Make, new_run: NewRun, tiny_model: Path, tmp_path: Path
) -> None:
    repack(tiny_model, tmp_path / "Tiny-1-AWQ", *FORMATS["awq"])
    spec = spec_of(tiny_spec, kind)
    spec.model.path, spec.adapter.initial_values = str(tmp_path / "Tiny-1-AWQ"), values
    run = new_run(spec)
    assert train(run) == 0
    assert export(run, tmp_path / "merged")["proof"]["agreement"] == 1


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_it_runs_in_bfloat16_and_learns_preferences(
    kind: str, tiny_spec: Make, new_run: NewRun, tmp_path: Path
) -> None:
    rows = tmp_path / "pairs.jsonl"
    rows.write_text('{"prompt": "Who?", "chosen": "Me.", "rejected": "You."}\n' * 8, encoding="utf-8")
    spec = spec_of(tiny_spec, kind, schedule={"max_steps": 3})
    spec.objective.kind, spec.model.dtype, spec.data.sources[0].path = "dpo", "bfloat16", str(rows)
    run = new_run(spec)
    assert train(run) == 0
    assert step_losses(run)[0] == pytest.approx(0.693, abs=0.02)
    assert step_losses(run)[-1] < step_losses(run)[0] - 5e-4
