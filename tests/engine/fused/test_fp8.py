"""Products in 8 bits: as near as three bits of mantissa allow, and only for models that bear them.

The CPU multiplies what the rounding leaves; a GPU is asked where it has such products.
"""

from __future__ import annotations

import math

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn

from tests.engine.fused.test_model import CPU, adapted, compute, num_trained, rows
from tunesmith_engine.device import Compute
from tunesmith_engine.fused import fp8
from tunesmith_engine.fused.fp8 import Fp8Projection, Quality, problem
from tunesmith_engine.fused.model import FusedModel
from tunesmith_engine.fused.projection import Member, Projection, WeightScratch
from tunesmith_engine.packed.pack import make_packed_batch

ROUNDING = 2.0**-3 / math.sqrt(12 * 1.5 / math.log(2))
"""Relative error of one rounding to e4m3: see tests/engine/kernels/test_fp8.py."""
BOTH = 2**0.5 * ROUNDING
CAPACITY = 64


@pytest.fixture
def has_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the CPU pass for a device with 8-bit products."""
    monkeypatch.setattr(fp8, "problem", lambda *_: None)


@pytest.fixture
def exact() -> Projection:
    """Return a projection of two layers, with a bias and adapters, as a model has it."""
    torch.manual_seed(0)
    layers = nn.ModuleDict({"first": nn.Linear(96, 64), "second": nn.Linear(96, 32, bias=False)})
    model = get_peft_model(layers, LoraConfig(r=4, lora_alpha=6, target_modules=["first", "second"]))
    modules = [model.base_model.model[name] for name in layers]
    for parameter in model.parameters():
        parameter.data = torch.randn_like(parameter) * 0.3
        parameter.grad = torch.zeros_like(parameter)
    for module in modules:
        module.base_layer.requires_grad_(False)
    return Projection([Member.of(module) for module in modules], WeightScratch(CPU, torch.float32), 0, torch.float32)


def share(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Return the length of the difference as a share of the length of what is wanted."""
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


def test_products_err_by_two_roundings(exact: Projection) -> None:
    rounded = Fp8Projection(exact)
    x, gradient = torch.randn(200, 96), torch.randn(200, 96)
    weight = exact.frozen_weight().double()
    out, to_x = torch.empty(200, 96), torch.empty(200, 96)
    rounded.forward(x, out, with_adapter=False)
    bias = torch.cat([exact.members[0].bias, torch.zeros(32)]).double()
    assert 0.8 * BOTH < share(out - bias, x.double() @ weight.t()) < 1.25 * BOTH
    rounded.input_gradient(gradient, to_x)
    adapters = gradient.double() @ exact.beside.double() @ exact.below.double()
    assert 0.8 * BOTH < share(to_x - adapters, gradient.double() @ weight) < 1.25 * BOTH


def test_a_row_with_small_numbers_is_as_exact_as_one_with_large_ones(exact: Projection) -> None:
    rounded, x = Fp8Projection(exact), torch.randn(64, 96)
    exact.members[0].bias.zero_()
    rounded.refresh()
    x[::2] *= 1e-6
    out = torch.empty(64, 96)
    rounded.forward(x, out, with_adapter=False)
    assert share(out[::2], x[::2].double() @ exact.frozen_weight().double().t()) < 1.25 * BOTH


def test_adapters_are_not_rounded(exact: Projection) -> None:
    rounded = Fp8Projection(exact)
    x, gradient = torch.randn(50, 96), torch.randn(50, 96)
    plain, with_adapter = torch.empty(50, 96), torch.empty(50, 96)
    rounded.forward(x, plain, with_adapter=False)
    rounded.forward(x, with_adapter)
    wanted = torch.cat([s.b @ (s.a @ x.t()) * s.scale for s in (m.adapter for m in exact.members)]).t()
    assert share(with_adapter - plain, wanted) < 1e-5

    rounded.backward(gradient, x, torch.empty(50, 96))
    adapters = [member.adapter for member in exact.members]
    found = [p.grad.clone() for adapter in adapters for p in (adapter.a, adapter.b)]
    for adapter in adapters:
        adapter.a.grad.zero_(), adapter.b.grad.zero_()
    wide_x, wide = torch.zeros(50, 96 + exact.num_extra), torch.zeros(50, 96 + exact.num_extra)
    wide_x[:, :96], wide[:, :96] = x, gradient
    exact.shrink(wide_x)
    exact.backward(wide, wide_x, None)
    for ours, parameter in zip(found, (p for a in adapters for p in (a.a, a.b)), strict=True):
        assert share(ours, parameter.grad) < 1e-5


def test_wide_buffers_take_the_same_numbers(exact: Projection) -> None:
    rounded, x = Fp8Projection(exact), torch.randn(20, 160)
    narrow, wide = torch.empty(20, 96), torch.full((20, 128), 7.0)
    rounded.forward(x[:, :96].contiguous(), narrow)
    rounded.forward(x, wide[:, :96])
    assert share(wide[:, :96], narrow) < 1e-6
    assert (wide[:, 96:] == 7).all()


@pytest.mark.usefixtures("has_products")
@pytest.mark.parametrize("name", ["llama-biases", "qwen2", "gemma2", "cohere"])
def test_a_model_that_bears_it_is_near_to_the_exact_one(name: str) -> None:
    batch, number = make_packed_batch(rows(), CPU), num_trained(rows())
    losses, gradients = [], []
    for wanted in (False, True):
        twin = FusedModel.attach(adapted(name), compute(), CAPACITY, fp8=wanted)
        losses.append(twin.loss_and_gradients(batch, number))
        gradients.append(twin.arena.gradients.double().clone())
        report = [sentence for sentence in twin.report if sentence.startswith("8-bit products are on")]
        assert len(report) == wanted, twin.report
    assert share(losses[1], losses[0]) < fp8.MOST_LOSS_SHARE
    # It was really rounded, and not by more than a chain of a dozen products makes.
    assert 0.3 * BOTH < share(gradients[1], gradients[0]) < 12**0.5 * 2 * BOTH


@pytest.mark.usefixtures("has_products")
def test_a_model_with_huge_activations_is_refused_and_stays_exact() -> None:
    batch, number = make_packed_batch(rows(), CPU), num_trained(rows())
    found = []
    for wanted in (False, True):
        model = adapted("llama")
        for layer in model.get_base_model().model.layers:
            # One input outweighs all others by more than e4m3 spans; its weights are so small that it hardly counts.
            layer.post_attention_layernorm.weight.data[3] = 3e6
            for module in (layer.mlp.gate_proj, layer.mlp.up_proj):
                module.base_layer.weight.data[:, 3] *= 1e-6
                module.lora_A["default"].weight.data[:, 3] *= 1e-6
        twin = FusedModel.attach(model, compute(), CAPACITY, fp8=wanted)
        found.append((twin.loss_and_gradients(batch, number), twin.arena.gradients.clone()))
    (sentence,) = [sentence for sentence in twin.report if sentence.startswith("8-bit products are off")]
    assert "change this model too much" in sentence
    assert sentence in twin.notes
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])


@pytest.mark.usefixtures("has_products")
def test_the_test_leaves_no_gradient_and_no_random_number_behind() -> None:
    model = adapted("llama")
    before = torch.get_rng_state()
    twin = FusedModel.attach(model, compute(), CAPACITY, fp8=True)
    assert torch.equal(torch.get_rng_state(), before)
    assert not twin.arena.gradients.any()


@pytest.mark.usefixtures("has_products")
def test_weights_are_given_back() -> None:
    model = adapted("qwen2")
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    twin = FusedModel.attach(model, compute(), CAPACITY, fp8=True)
    twin.detach()
    for name, value in model.state_dict().items():
        assert torch.equal(value, weights[name])


def test_the_cpu_says_that_it_has_no_such_products() -> None:
    twin = FusedModel.attach(adapted("llama"), compute(), CAPACITY, fp8=True)
    assert "8-bit products are off. The CPU does not support them." in twin.report


@pytest.mark.parametrize(
    ("capability", "dtype", "words"),
    [
        ((8, 6), torch.bfloat16, "this GPU has 8.6"),
        ((8, 9), torch.float16, "bfloat16"),
        ((9, 0), torch.bfloat16, "PyTorch"),
    ],
)
def test_older_gpus_and_other_formats_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], dtype: torch.dtype, words: str
) -> None:
    if torch.cuda.is_available():
        pytest.skip("on a GPU the last of these works")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(torch, "ones", lambda *_, **__: _raise())
    found = problem(Compute(torch.device("cuda"), dtype, "GPU", 1), [])
    assert found is not None
    assert words in found


def _raise() -> torch.Tensor:
    raise RuntimeError("Row-wise scaling is not supported on this device\nwith a long explanation")


@pytest.mark.parametrize(
    ("loss_share", "cosine", "suffices"),
    [
        (0.009, 0.981, True),
        (0.011, 0.999, False),
        (0.0, 0.979, False),
        (float("nan"), 1.0, False),
        (0, float("nan"), False),
    ],
)
def test_both_figures_must_suffice(loss_share: float, cosine: float, suffices: bool) -> None:
    assert Quality(loss_share, cosine).suffices == suffices


def _gpu_has_products() -> bool:
    return torch.cuda.is_available() and torch.cuda.get_device_capability() >= fp8.CAPABILITY


@pytest.mark.skipif(not _gpu_has_products(), reason="needs a GPU with 8-bit tensor cores")
@pytest.mark.parametrize(("tokens", "inputs", "outputs"), [(64, 128, 256), (333, 4096, 6144), (1, 14336, 4096)])
def test_the_gpu_multiplies_what_the_rounding_leaves(tokens: int, inputs: int, outputs: int) -> None:
    device = torch.device("cuda")
    left = fp8.Fp8Rows.of(torch.randn(tokens, inputs + 64, device=device, dtype=torch.bfloat16)[:, :inputs])
    right = fp8.Fp8Rows.of(torch.randn(outputs, inputs, device=device, dtype=torch.bfloat16) * 0.02)
    out = torch.empty(tokens, outputs + 64, device=device, dtype=torch.bfloat16)[:, :outputs]
    fp8.product(left, right, out)
    wanted = (left.values.double() * left.scales) @ (right.values.double() * right.scales).t()
    # bfloat16 rounds the result, and sums in tensor cores have 14 bits or more.
    assert share(out, wanted) < 2.0**-8
