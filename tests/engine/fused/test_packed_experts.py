"""Experts in 4 bits: packed as they are read, the same numbers on both paths, no pass leaves a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from bitsandbytes.functional import dequantize_4bit
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

from tests.engine import causal_types
from tests.engine.fused import families
from tests.engine.fused.test_model import compute, fused, reference, row_loss, rows
from tests.engine.fused.test_sparse import EXPERTS
from tests.packed_models import with_experts_in_mxfp4
from tunesmith_core.expert_memory import stacked_numbers
from tunesmith_core.model_cards import read_model_card
from tunesmith_engine.fused.recognise import recognise
from tunesmith_engine.model.load import load_model, num_parameters
from tunesmith_engine.model.stacked import packed_stack, stacks
from tunesmith_engine.shapes import SparseShape

SIZES = {"hidden_size": 64, "moe_intermediate_size": 48, "intermediate_size": 32}


def in_four_bits(folder: Path, name: str, *, with_experts: bool = True) -> PeftModel:
    """Return a family's model with its linear layers and experts in 4 bits and random adapters."""
    whole = families.make(name, **SIZES)
    whole.save_pretrained(folder)
    if name == "gpt-oss":
        with_experts_in_mxfp4(folder)
    model = load_model(folder, compute(), four_bit=True)
    assert num_parameters(model) == num_parameters(whole)
    torch.manual_seed(1)
    settings = LoraConfig(
        r=4,
        lora_alpha=6,
        target_modules=["q_proj", "o_proj"],
        target_parameters=EXPERTS if with_experts else None,
        task_type="CAUSAL_LM",
    )
    adapted = get_peft_model(model, settings)
    for parameter in adapted.parameters():
        if parameter.requires_grad:
            parameter.data = torch.randn_like(parameter.data) * 0.1
    return adapted


@pytest.mark.parametrize("name", ["qwen2-moe", "gpt-oss", "gemma4-a4b"])
@pytest.mark.parametrize("with_experts", [True, False], ids=["adapted", "frozen"])
def test_packed_experts_give_what_their_module_gives(tmp_path: Path, name: str, with_experts: bool) -> None:
    model = in_four_bits(tmp_path, name, with_experts=with_experts)
    packed = [packed_stack(module, role) is not None for module in model.modules() for role in stacks(module)]
    assert packed == [True] * 4
    expected_loss, expected = reference(model, rows())
    twin, loss, gradients = fused(model, rows(), "full")
    assert twin.report[0] == "2 of 2 layers run on Tunesmith's own path."
    assert torch.isclose(loss.double(), expected_loss, rtol=1e-5)
    assert any("experts" in parameter for parameter in gradients) == with_experts
    for parameter, gradient in gradients.items():
        assert (gradient - expected[parameter]).norm() < 2e-4 * expected[parameter].norm(), parameter


def test_a_stack_is_what_bitsandbytes_makes_of_it(tmp_path: Path) -> None:
    model = in_four_bits(tmp_path, "qwen2-moe")
    experts = next(module for module in model.modules() if "gate_up_proj" in stacks(module))
    packed = packed_stack(experts, "gate_up_proj")
    assert packed.dtype == torch.uint8
    assert packed.numel() * 2 == packed.quant_state.shape.numel()
    assert torch.equal(experts.gate_up_proj, dequantize_4bit(packed, packed.quant_state))


def test_passes_leave_nothing_behind(tmp_path: Path) -> None:
    """PEFT puts an adapter behind what unpacks the weights, for the time of a pass."""
    model = in_four_bits(tmp_path, "qwen2-moe")
    first, second = (row_loss(model, rows()[0]) for _ in range(2))
    assert torch.equal(first, second)
    steps = [module.parametrizations[role] for module in model.modules() for role in stacks(module)]
    assert [len(step) for step in steps] == [1] * 4


def test_an_adapter_has_the_names_that_it_has_on_whole_weights(tmp_path: Path) -> None:
    model = in_four_bits(tmp_path, "qwen2-moe")
    whole = get_peft_model(families.make("qwen2-moe", **SIZES), model.peft_config["default"])

    def shapes(adapted: PeftModel) -> dict[str, torch.Size]:
        return {name: weight.shape for name, weight in adapted.named_parameters() if "lora_" in name}

    assert shapes(model) == shapes(whole)


def saved(model: Any, folder: Path) -> Path:  # Any: a transformers model
    """Write a model folder that can be loaded and planned for."""
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}")
    return folder


def num_packed(model: torch.nn.Module) -> int:
    """Return how many numbers of a model's stacks are packed."""
    packed = [packed_stack(module, role) for module in model.modules() for role in stacks(module)]
    return sum(weight.quant_state.shape.numel() for weight in packed if weight is not None)


@pytest.mark.parametrize("name", families.marked(families.SPARSE))
def test_what_is_packed_is_what_a_plan_counts(tmp_path: Path, name: str) -> None:
    folder = saved(families.make(name), tmp_path)
    num_of_experts, _ = stacked_numbers(read_model_card(folder))
    assert num_of_experts > 0
    assert num_packed(load_model(folder, compute(), four_bit=True)) == num_of_experts


@pytest.mark.parametrize("kind", ["recurrent_gemma", "zamba", "rwkv"])
def test_weights_of_recurrences_are_not_packed(tmp_path: Path, kind: str) -> None:
    """Gates and rates of three dimensions, which a few wrong bits change for all that follows."""
    folder = saved(AutoModelForCausalLM.from_config(causal_types.make_config(kind)), tmp_path)
    model = load_model(folder, compute(), four_bit=True)
    assert num_packed(model) == 0
    assert any(stacks(module) for module in model.modules())


@pytest.mark.parametrize("name", ["qwen2-moe", "gemma4-a4b"])
def test_recognising_packed_experts_unpacks_none(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, unpacked = in_four_bits(tmp_path, name), []

    def unpack(packed: torch.Tensor, *given: Any) -> torch.Tensor:
        unpacked.extend([packed] if packed.numel() > 1 and len(given[0].shape) == 3 else [])
        return dequantize_4bit(packed, *given)

    monkeypatch.setattr("bitsandbytes.nn.parametrize.F.dequantize_4bit", unpack)
    assert all(isinstance(layer.mlp, SparseShape) for layer in recognise(model).layers)
    assert unpacked == []
