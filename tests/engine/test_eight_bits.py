"""A base model of 8 bits: its layers are what bitsandbytes makes of them, it learns, answers, and is exported whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from tests.engine.conftest import events, train
from tests.engine.fused.test_model import compute
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_engine.model.load import load_model, num_parameters
from tunesmith_engine.model.lora import attach_adapter

Make = Callable[..., RunSpec]


def test_linear_layers_have_eight_bits_and_adapters_as_many_as_without(tiny_model: Path, tiny_spec: Make) -> None:
    from bitsandbytes.nn import Linear8bitLt

    spec, ids = tiny_spec(), torch.arange(3, 20)[None]
    whole = load_model(tiny_model, compute(), False)
    eight = load_model(tiny_model, compute(), False, eight_bit=True)
    assert num_parameters(eight) == num_parameters(whole)
    layers = {name: each for name, each in eight.named_modules() if isinstance(each, Linear8bitLt)}
    assert layers
    assert "lm_head" not in layers
    for name, layer in layers.items():
        exact = whole.get_submodule(name).weight
        scale = exact.abs().amax(1, keepdim=True) / 127
        stored = layer.weight.data.float() * scale
        # Half a step, and what numbers and scales lose on their way through 16 bits.
        assert float(((stored - exact).abs() / scale).max()) <= 0.5 + 2 * 127 / 2**11
    expected, found = whole(input_ids=ids).logits, eight(input_ids=ids).logits
    assert float((found - expected).norm() / expected.norm()) < 0.05
    adapted = [set(attach_adapter(model, spec).state_dict()) for model in (whole, eight)]
    assert len({frozenset(name for name in names if "lora_" in name) for names in adapted}) == 1


def test_a_run_learns_tells_its_path_and_samples(tiny_spec: Make, new_run: Callable[[RunSpec], Run]) -> None:
    spec = tiny_spec(
        schedule={"max_steps": 12}, evaluation={"percent": 20, "sample_prompts": ["Hi"], "sample_max_tokens": 3}
    )
    spec.quantization.kind = "int8"
    run = new_run(spec)
    assert train(run) == 0
    losses = [event.data["loss"] for event in events(run, "eval")]
    assert losses[-1] < losses[0] - 0.1
    (setup,) = events(run, "setup")
    assert setup.data["kernels"][1:] == ["The model runs in plain PyTorch. No fused kernel reads 8-bit weights."]
    assert not events(run, "warning")
    assert events(run, "sample")
    with safe_open(run.adapter_path / "adapter_model.safetensors", "pt") as adapter:
        names = list(adapter.keys())
        assert all(adapter.get_tensor(name).dtype == torch.float32 for name in names)
    assert all("lora_" in name for name in names)


@pytest.mark.parametrize("kind", ["nf4", "int8"])
def test_the_card_names_the_method(kind: str, tiny_spec: Make, new_run: Callable[[RunSpec], Run]) -> None:
    spec = tiny_spec(schedule={"max_steps": 1})
    spec.quantization.kind = kind
    run = new_run(spec)
    assert train(run) == 0
    card = (run.adapter_path / "README.md").read_text(encoding="utf-8")
    assert ("QLoRA" in card) == (kind == "nf4")
