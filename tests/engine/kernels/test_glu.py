"""The gated product: the activations of transformers, rows with strides, results in place of inputs."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from transformers.activations import ACT2FN

from tests.engine.kernels.conftest import DTYPES, rows
from tests.engine.numerics import REDUCTION, judge, mutants_fail
from tunesmith_engine.kernels.glu import gate_and_multiply, gate_backward

ACTIVATIONS = {
    "silu": "silu",
    "gelu": "gelu",
    "gelu_tanh": "gelu_pytorch_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "relu2": "relu2",
    "sigmoid": "sigmoid",
}
SIZES = [(3, 576, 0), (2, 2880, 8), (1, 1, 0), (5, 33, 1)]


def _exact(gate: torch.Tensor, up: torch.Tensor, activation: str) -> torch.Tensor:
    """The plain formulas in float64."""
    if activation == "silu":
        return gate / (1 + torch.exp(-gate)) * up
    if activation == "quick_gelu":
        return gate / (1 + torch.exp(-1.702 * gate)) * up
    if activation.startswith("relu"):
        return gate.clamp_min(0) ** (2 if activation == "relu2" else 1) * up
    if activation == "sigmoid":
        return up / (1 + torch.exp(-gate))
    if activation == "gelu":
        return gate * 0.5 * (1 + torch.erf(gate / 2**0.5)) * up
    return gate * 0.5 * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (gate + 0.044715 * gate**3))) * up


def _transformers(gate: torch.Tensor, up: torch.Tensor, activation: str) -> torch.Tensor:
    return ACT2FN[ACTIVATIONS[activation]](gate) * up


def _results(
    gradient: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, activation: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return product, gradient of gate, gradient of up."""
    out, out_gate, out_up, hidden = (torch.empty_like(gate) for _ in range(4))
    gate_and_multiply(gate, up, activation, out)
    gate_backward(gradient, gate, up, activation, out_gate, out_up, hidden)
    assert torch.equal(hidden, out)
    return out, out_gate, out_up


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_rows", "width", "offset"), SIZES)
def test_forward_and_backward(
    device: torch.device, activation: str, dtype: torch.dtype, num_rows: int, width: int, offset: int
) -> None:
    gradient, gate, up = (rows(num_rows, width, dtype, device, seed=seed, offset=offset) for seed in range(3))
    gate *= 4
    found = _results(gradient, gate, up, activation)
    wanted = []
    for form, where, wide in ((_transformers, device, dtype), (_exact, torch.device("cpu"), torch.float64)):
        inputs = [x.detach().to(where, wide).requires_grad_() for x in (gate, up)]
        product = form(*inputs, activation)
        product.backward(gradient.to(where, wide))
        wanted.append((product, *(x.grad for x in inputs)))
    # The exponential of a GPU is good to a few steps of float32.
    c = REDUCTION if dtype == torch.float32 else 1.0
    for name, ours, usual, exact in zip(("product", "gate", "up"), found, *wanted, strict=True):
        check = partial(_judge, name, usual, exact, dtype, c)
        check(ours)
        mutants_fail(check, ours)


def _judge(
    name: str, usual: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype, c: float, ours: torch.Tensor
) -> None:
    judge(name, ours, usual, exact, dtype, c)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_without_a_gate_it_is_the_product_with_one(device: torch.device, activation: str, dtype: torch.dtype) -> None:
    gradient, x = (rows(3, 576, dtype, device, seed=seed, offset=3) for seed in range(2))
    out, slope, wanted, wanted_slope, hidden = (torch.empty_like(x) for _ in range(5))
    ones = torch.ones_like(x)
    gate_and_multiply(x, ones, activation, wanted)
    gate_backward(gradient, x, ones, activation, wanted_slope, torch.empty_like(x))
    gate_and_multiply(x, None, activation, out)
    gate_backward(gradient, x, None, activation, slope, None, hidden)
    assert torch.equal(out, wanted)
    assert torch.equal(hidden, wanted)
    assert torch.equal(slope, wanted_slope)
    inputs = [gradient.clone(), x.clone()]
    gate_backward(inputs[0], inputs[1], None, activation, inputs[1], None, inputs[0])
    assert torch.equal(inputs[0], wanted)
    assert torch.equal(inputs[1], wanted_slope)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_in_place_gives_the_same_bits(device: torch.device, activation: str, dtype: torch.dtype) -> None:
    gradient, gate, up = (rows(3, 96, dtype, device, seed=seed) for seed in range(3))
    out, out_gate, out_up = _results(gradient, gate, up, activation)
    for replaced in (0, 1):
        inputs = [gate.clone(), up.clone()]
        gate_and_multiply(*inputs, activation, inputs[replaced])
        assert torch.equal(inputs[replaced], out)
    # As in a run: gate and up beside each other in one buffer, the product with room for adapters behind it.
    merged, hidden = torch.cat([gate, up], dim=1), torch.nn.functional.pad(gradient, (0, 16), value=7.0)
    halves = merged[:, :96], merged[:, 96:]
    gate_backward(hidden[:, :96], *halves, activation, *halves, out_hidden=hidden[:, :96])
    assert torch.equal(merged, torch.cat([out_gate, out_up], dim=1))
    assert torch.equal(hidden[:, :96], out)
    assert (hidden[:, 96:] == 7).all()


@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_tanh", "quick_gelu"])
def test_large_values_stay_finite(device: torch.device, activation: str) -> None:
    gate = torch.tensor([[-60000.0, -200.0, -20.0, 0.0, 20.0, 200.0, 60000.0]], device=device).half()
    one = torch.ones_like(gate)
    positive = gate.clamp(min=0)
    step = torch.tensor([[0, 0, 0, 0.5, 1, 1, 1]], device=device).half()
    for ours, wanted in zip(_results(one, gate, one, activation), (positive, step, positive), strict=True):
        torch.testing.assert_close(ours, wanted, rtol=0, atol=1e-6)


@pytest.mark.long
def test_rows_behind_2_to_the_31_numbers(far_rows: torch.Tensor) -> None:
    near = far_rows.clone(memory_format=torch.contiguous_format)
    for x in (near, far_rows):
        gate_and_multiply(x, x, "silu", x)
    assert torch.equal(far_rows, near)
    for x in (near, far_rows):
        gate_backward(x, x, x, "silu", torch.empty_like(near), x)
    assert torch.equal(far_rows, near)


def test_no_rows(device: torch.device) -> None:
    x = torch.empty(0, 16, device=device)
    gate_and_multiply(x, x, "silu", x)
    gate_backward(x, x, x, "silu", x, x)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_twin_against_finite_differences(implementation: str, activation: str) -> None:
    if implementation != "twin":
        return

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: torch.autograd.function.FunctionCtx, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(gate, up)
            out = torch.empty_like(gate)
            gate_and_multiply(gate, up, activation, out)
            return out

        @staticmethod
        def backward(ctx: torch.autograd.function.FunctionCtx, gradient: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return _results(gradient, *ctx.saved_tensors, activation)[1:]

    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(3, 5, dtype=torch.float64, generator=generator).requires_grad_() for _ in range(2)]
    assert torch.autograd.gradcheck(Function.apply, inputs)
