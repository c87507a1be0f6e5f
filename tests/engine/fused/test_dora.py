"""DoRA on the fused path: PEFT's loss and gradients, no bit by the memory policy, packed weights, adapter off."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from peft import PeftModel

from tests.engine.fused.test_model import CPU, adapted, compute, fused, num_trained, reference, row_loss, rows
from tunesmith_engine.decode.fused import FusedDecoder
from tunesmith_engine.fused import fp8
from tunesmith_engine.fused.model import FusedModel
from tunesmith_engine.fused.projection import Member, Projection, WeightScratch
from tunesmith_engine.packed.pack import make_packed_batch
from tunesmith_engine.shapes import NotFusableError

FAMILIES = ("llama", "llama-biases", "gemma2", "cohere", "qwen3", "olmo2", "phi3", "mistral")


def with_magnitudes(name: str, **lora: Any) -> PeftModel:
    return adapted(name, use_dora=True, **lora)


@pytest.mark.parametrize("name", FAMILIES)
def test_loss_and_gradients_are_those_of_peft(name: str) -> None:
    model = with_magnitudes(name)
    expected_loss, expected = reference(model, rows())
    twin, loss, gradients = fused(model, rows())
    assert twin.report[0].startswith(f"{len(twin.plan.policies)} of")
    assert torch.isclose(loss.double(), expected_loss, rtol=1e-5)
    assert gradients.keys() == expected.keys()
    assert any("magnitude" in parameter for parameter in gradients)
    for parameter, gradient in gradients.items():
        error = (gradient - expected[parameter]).norm() / expected[parameter].norm().clamp_min(1e-12)
        assert error < 2e-4, (parameter, error)


@pytest.mark.parametrize("name", ["llama", "gemma2"])
@pytest.mark.parametrize("policy", ["mlp", "smart", "full", "offload"])
def test_no_policy_changes_a_bit(name: str, policy: str) -> None:
    _, kept_loss, kept = fused(with_magnitudes(name), rows(), "none")
    _, loss, gradients = fused(with_magnitudes(name), rows(), policy)
    assert torch.equal(loss, kept_loss)
    assert all(torch.equal(gradients[parameter], kept[parameter]) for parameter in kept)


def test_only_some_layers_have_magnitudes() -> None:
    model = with_magnitudes("llama", target_modules=["q_proj", "up_proj", "o_proj"])
    expected_loss, expected = reference(model, rows())
    _, loss, gradients = fused(model, rows())
    assert torch.isclose(loss.double(), expected_loss, rtol=1e-5)
    for parameter, gradient in gradients.items():
        assert torch.allclose(gradient, expected[parameter], rtol=1e-3, atol=1e-6), parameter


def test_the_adapter_switched_off_is_the_base_model() -> None:
    model = with_magnitudes("llama")
    twin, loss, _ = fused(model, rows())
    batch = make_packed_batch(rows(), CPU)
    with model.disable_adapter(), torch.no_grad():
        base = sum(row_loss(model, example) for example in rows())
    assert torch.isclose(twin.loss(batch, with_adapter=False).double(), base, rtol=1e-5)
    assert torch.isclose(twin.loss(batch) / num_trained(rows()), loss)


def test_new_weights_count_from_the_next_refresh_on() -> None:
    model = with_magnitudes("llama")
    twin, _, _ = fused(model, rows())
    twin.arena.weights.mul_(1.1)
    twin.refresh()
    expected, _ = reference(model, rows())
    assert torch.isclose(twin.loss(make_packed_batch(rows(), CPU)).double() / num_trained(rows()), expected, rtol=1e-5)


def test_the_model_has_its_own_weights_again_afterwards() -> None:
    model = with_magnitudes("llama")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    twin, _, _ = fused(model, rows())
    twin.detach()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_answers_come_from_the_same_weights() -> None:
    model = with_magnitudes("llama")
    twin = FusedModel.attach(model, compute(), 64)
    # The decoder compares itself with transformers, and refuses what comes to something else.
    assert FusedDecoder(model, twin.assembly).name == "fused"


def test_four_bit_rows_are_scaled_before_they_are_rounded() -> None:
    bitsandbytes = pytest.importorskip("bitsandbytes")
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    layer = bitsandbytes.nn.Linear4bit(64, 32, bias=True, compute_dtype=torch.float32, quant_type="nf4")
    layer.weight.data = torch.randn(32, 64)
    holder = torch.nn.Sequential(layer.to("cpu"))
    holder(torch.zeros(1, 64))  # packs
    model = get_peft_model(holder, LoraConfig(r=4, target_modules=["0"], use_dora=True))
    module = model.base_model.model[0]
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = torch.randn_like(parameter) * 0.3 + (1.0 if parameter.ndim == 1 else 0.0)
            parameter.grad = torch.zeros_like(parameter)
    x = torch.randn(9, 64, requires_grad=True)
    module.train()
    expected = module(x)
    slope = torch.randn_like(expected)
    expected.backward(slope)
    wanted = {name: p.grad.clone() for name, p in model.named_parameters() if p.requires_grad}
    model.zero_grad(set_to_none=False)

    projection = Projection([Member.of(module)], WeightScratch(CPU, torch.float32), 0, torch.float32)
    wide = torch.zeros(9, 64 + projection.num_extra)
    wide[:, :64] = x.detach()
    out, to_x = torch.empty(9, 32), torch.empty(9, 64)
    with torch.no_grad():
        projection.refresh()
        projection.forward(wide, out)
        assert torch.allclose(out, expected, rtol=1e-4, atol=1e-5)
        gradient = torch.zeros(9, 32 + projection.num_extra)
        gradient[:, :32] = slope
        projection.add_to_magnitudes((slope * out).sum(0), gradient)
        projection.backward(gradient, wide, to_x)
        assert torch.allclose(to_x, x.grad, rtol=1e-4, atol=1e-5)
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                assert torch.allclose(parameter.grad, wanted[name], rtol=1e-3, atol=1e-4), name
        projection.forward(wide, out, with_adapter=False)
        assert torch.allclose(out, layer(x), rtol=1e-5, atol=1e-6)


def test_what_cannot_have_magnitudes_says_so() -> None:
    with pytest.raises(NotFusableError, match="DoRA of the output projection"):
        FusedModel.attach(with_magnitudes("llama", target_modules=["lm_head"]), compute(), 64)
    twin = FusedModel.attach(with_magnitudes("llama"), compute(), 64)
    gpu = type("Gpu", (), {"device": torch.device("cuda"), "dtype": torch.bfloat16})()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(torch.cuda, "get_device_capability", lambda _device: (9, 0))
        assert fp8.problem(gpu, twin.assembly.projections) == "They do not support DoRA."
