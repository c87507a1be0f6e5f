"""Norms with the residual addition: the formulas of transformers, rows with strides, results in place of inputs."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from transformers.models.cohere.modeling_cohere import CohereLayerNorm
from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.nemotron.modeling_nemotron import NemotronLayerNorm1P
from transformers.models.olmo2.modeling_olmo2 import Olmo2RMSNorm

from tests.engine.kernels.conftest import DTYPES, rows
from tests.engine.numerics import REDUCTION, judge, mutants_fail
from tunesmith_engine.kernels.rms_norm import add_norm, norm_backward
from tunesmith_engine.mixer_shapes import Norm

EPS = 1e-5
KINDS = {
    "llama": (LlamaRMSNorm, {}),
    "gemma": (Gemma2RMSNorm, {"plus_one": True, "cast_last": True}),
    "olmo": (Olmo2RMSNorm, {"cast_last": True}),
    "cohere": (CohereLayerNorm, {"centred": True, "cast_last": True}),
    "layer_norm": (torch.nn.LayerNorm, {"centred": True, "cast_last": True}),
    "nemotron": (NemotronLayerNorm1P, {"plus_one": True, "centred": True, "cast_last": True}),
}
BIASED = ("layer_norm", "nemotron")
SIZES = [(5, 576, 0), (3, 960, 3), (2, 2880, 8), (1, 3, 0), (7, 33, 1)]


def _weight(width: int, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    return rows(1, width, dtype, device, seed=9)[0].contiguous()


def _norm(kind: str, width: int, device: torch.device, dtype: torch.dtype) -> Norm:
    bias = rows(1, width, dtype, device, seed=10)[0].contiguous() if kind in BIASED else None
    return Norm(_weight(width, device, dtype), EPS, **KINDS[kind][1], bias=bias)


def _module(kind: str, norm: Norm, dtype: torch.dtype) -> torch.nn.Module:
    assert norm.weight is not None
    module = KINDS[kind][0](norm.weight.numel(), eps=EPS)
    module.weight.data = norm.weight.detach().to(dtype)
    if norm.bias is not None:
        module.bias.data = norm.bias.detach().to(dtype)
    return module.requires_grad_(False)


def _exact(kind: str, norm: Norm, x: torch.Tensor) -> torch.Tensor:
    """The plain formulas in float64."""
    assert norm.weight is not None
    factor = norm.weight.cpu().double() + (1 if kind == "gemma" else 0)
    if kind == "nemotron":
        factor = (norm.weight.cpu() + 1).double()
    if kind == "cohere" or norm.bias is not None:
        x = x - x.mean(-1, keepdim=True)
    normal = x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * factor
    return normal if norm.bias is None else normal + norm.bias.cpu().double()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_rows", "width", "offset"), SIZES)
def test_forward_and_backward(
    device: torch.device, kind: str, dtype: torch.dtype, num_rows: int, width: int, offset: int
) -> None:
    make = partial(rows, num_rows, width, dtype, device, offset=offset)
    x, y, gradient, residual, out, total, slope = (make(seed=seed) for seed in range(7))
    norm = _norm(kind, width, device, dtype)
    statistics = add_norm(x, y, norm, out, total, scale=0.3)
    usual_total = x + y * 0.3
    exact_total = x.cpu().double() + y.cpu().double() * 0.3
    judge("total", total, usual_total, exact_total, dtype)
    norm_backward(gradient, total, norm, statistics, slope, residual)

    usual_input = total.detach().clone().requires_grad_()
    exact_input = total.detach().cpu().double().requires_grad_()
    usual = _module(kind, norm, dtype)(usual_input)
    exact = _exact(kind, norm, exact_input)
    usual.backward(gradient)
    exact.backward(gradient.cpu().double())
    judge_out = partial(_judge, "out", usual, exact, dtype, REDUCTION)
    judge_out(out)
    mutants_fail(judge_out, out)
    assert usual_input.grad is not None
    assert exact_input.grad is not None
    exact_slope = exact_input.grad + residual.cpu().double()
    judge_slope = partial(_judge, "slope", usual_input.grad + residual, exact_slope, dtype, REDUCTION)
    judge_slope(slope)
    mutants_fail(judge_slope, slope)


def _judge(
    name: str, usual: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype, c: float, ours: torch.Tensor
) -> None:
    judge(name, ours, usual, exact, dtype, c)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_in_place_gives_the_same_bits(device: torch.device, kind: str, dtype: torch.dtype) -> None:
    norm = _norm(kind, 96, device, dtype)
    x, y, out, total, gradient, residual, slope = (rows(4, 96, dtype, device, seed=seed) for seed in range(7))
    statistics = add_norm(x, y, norm, out, total)
    for replaced in (0, 1):
        inputs = [x.clone(), y.clone()]
        again = torch.empty_like(out)
        found = add_norm(*inputs, norm, again, total=inputs[replaced])
        _same((inputs[replaced], again, found), (total, out, statistics))
        inputs = [x.clone(), y.clone()]
        add_norm(*inputs, norm, inputs[replaced])
        _same((inputs[replaced],), (out,))
    again = torch.empty_like(out)
    _same((add_norm(total, None, norm, again), again), (statistics, out))
    norm_backward(gradient, total, norm, statistics, slope, residual)
    for replaced in (0, 1):
        inputs = [gradient.clone(), residual.clone()]
        norm_backward(inputs[0], total, norm, statistics, inputs[replaced], inputs[1])
        _same((inputs[replaced],), (slope,))


def _same(found: tuple[torch.Tensor, ...], wanted: tuple[torch.Tensor, ...]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one, other)


def test_without_weight_without_residual(device: torch.device) -> None:
    x, gradient = (rows(3, 40, torch.float32, device, seed=seed) for seed in range(2))
    out, slope = torch.empty_like(x), torch.empty_like(x)
    norm = Norm(None, EPS)
    norm_backward(gradient, x, norm, add_norm(x, None, norm, out), slope)
    exact_input = x.cpu().double().requires_grad_()
    exact = _exact("llama", Norm(torch.ones(40), EPS), exact_input)
    exact.backward(gradient.cpu().double())
    assert exact_input.grad is not None
    judge("out", out, exact.float(), exact, torch.float32)
    judge("slope", slope, exact_input.grad.float(), exact_input.grad, torch.float32, REDUCTION)


def test_nothing_is_written_beside_the_rows(device: torch.device) -> None:
    x = rows(3, 40, torch.float32, device, seed=0)
    room = torch.full((3, 64), 7.0, device=device)
    norm = Norm(_weight(40, device, torch.float32), EPS)
    statistics = add_norm(x, None, norm, room[:, 8:48])
    norm_backward(x, x, norm, statistics, room[:, 8:48])
    assert (room[:, :8] == 7).all()
    assert (room[:, 48:] == 7).all()
    assert (room[:, 8:48] != 7).all()


@pytest.mark.long
def test_rows_behind_2_to_the_31_numbers(far_rows: torch.Tensor) -> None:
    norm, near = Norm(None, EPS), far_rows.clone(memory_format=torch.contiguous_format)
    statistics = add_norm(near, near, norm, near)
    assert torch.equal(add_norm(far_rows, far_rows, norm, far_rows), statistics)
    assert torch.equal(far_rows, near)
    norm_backward(near, near, norm, statistics, near)
    norm_backward(far_rows, far_rows, norm, statistics, far_rows)
    assert torch.equal(far_rows, near)


def test_no_rows(device: torch.device) -> None:
    x = torch.empty(0, 16, device=device)
    norm = Norm(_weight(16, device, torch.float32), EPS)
    statistics = add_norm(x, x, norm, x, x)
    assert statistics.shape == (0, 2)
    norm_backward(x, x, norm, statistics, x, x)


@pytest.mark.parametrize("kind", KINDS)
def test_twin_against_finite_differences(implementation: str, kind: str) -> None:
    if implementation != "twin":
        return
    norm = _norm(kind, 6, torch.device("cpu"), torch.float64)

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor) -> torch.Tensor:
            out = torch.empty_like(x)
            ctx.save_for_backward(x, add_norm(x, None, norm, out))
            return out

        @staticmethod
        def backward(ctx: torch.autograd.function.FunctionCtx, gradient: torch.Tensor) -> torch.Tensor:
            x, statistics = ctx.saved_tensors
            slope = torch.empty_like(x)
            norm_backward(gradient, x, norm, statistics, slope)
            return slope

    x = torch.randn(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert torch.autograd.gradcheck(Function.apply, (x,))
