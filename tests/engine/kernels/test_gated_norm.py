"""The gated norm against its formula in float64 and transformers' own module."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from transformers.models.falcon_h1.modeling_falcon_h1 import FalconH1RMSNormGated
from transformers.models.mamba2.modeling_mamba2 import MambaRMSNormGated
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5RMSNormGated

from tests.engine.kernels.conftest import DTYPES, rows
from tests.engine.numerics import REDUCTION, judge, mutants_fail
from tunesmith_engine.kernels.gated_norm import Form, gated_norm, gated_norm_backward
from tunesmith_engine.mixer_shapes import Norm

SIZES = [(3, 4, 128), (2, 9, 24), (1, 1, 1024), (5, 3, 200)]
"""Tokens, heads, and their width: also such that no block is full."""
EPS = 0.3
"""Of about the size of a head's variance, so that it shows."""

PRODUCTS = 2 * REDUCTION
"""The `c` of products of several random numbers: the largest are farther above the mean than those of sums."""

Values = tuple[torch.Tensor, ...]


def _inputs(num_rows: int, num_heads: int, width: int, dtype: torch.dtype, device: torch.device) -> Values:
    gradient, x, gate = (rows(num_rows, num_heads * width, dtype, device, seed=seed) for seed in range(3))
    return gradient, x, gate, rows(1, width, dtype, device, seed=3)[0].contiguous()


def _ours(gradient: torch.Tensor, x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor) -> Values:
    norm = Norm(weight, EPS)
    room = torch.full((3, len(x), x.shape[1] + 5), 7.0, dtype=x.dtype, device=x.device)
    out, to_x, to_gate = room[..., :-5]
    gated_norm(x, gate, norm, out)
    gated_norm_backward(gradient, x, gate, norm, to_x, to_gate)
    assert (room[..., -5:] == 7).all()
    return out, to_x, to_gate


def _by_autograd(
    form: str, gradient: torch.Tensor, x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor
) -> Values:
    heads = [part.detach().unflatten(1, (-1, len(weight))).requires_grad_() for part in (x, gate)]
    if form == "formula":
        normal = heads[0] / (heads[0].square().mean(-1, keepdim=True) + EPS).sqrt()
        out = weight * normal * heads[1] / (1 + torch.exp(-heads[1]))
    else:
        module = Qwen3_5RMSNormGated(len(weight), EPS).to(x.device, x.dtype)
        module.weight.data.copy_(weight)
        out = module(*heads)
    out.backward(gradient.unflatten(1, (-1, len(weight))))
    return tuple(part.flatten(1) for part in (out.detach(), *(head.grad for head in heads)) if part is not None)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_rows", "num_heads", "width"), SIZES)
def test_forward_and_backward(
    device: torch.device, dtype: torch.dtype, num_rows: int, num_heads: int, width: int
) -> None:
    inputs = _inputs(num_rows, num_heads, width, dtype, device)
    exact = _by_autograd("formula", *(part.cpu().double() for part in inputs))
    usual = _by_autograd("transformers", *inputs)
    for name, ours, theirs, oracle in zip(("out", "x", "gate"), _ours(*inputs), usual, exact, strict=True):
        check = partial(_judge, name, theirs, oracle, dtype)
        check(ours)
        mutants_fail(check, ours)


def _judge(name: str, usual: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype, ours: torch.Tensor) -> None:
    judge(name, ours, usual, exact, dtype, PRODUCTS)


def test_a_weight_that_is_stored_less_one(device: torch.device) -> None:
    gradient, x, gate, weight = _inputs(3, 4, 24, torch.float32, device)
    usual = _ours(gradient, x, gate, weight + 1)
    out, to_x, to_gate = (torch.empty_like(x) for _ in range(3))
    norm = Norm(weight, EPS, plus_one=True)
    gated_norm(x, gate, norm, out)
    gated_norm_backward(gradient, x, gate, norm, to_x, to_gate)
    assert all(torch.equal(ours, other) for ours, other in zip((out, to_x, to_gate), usual, strict=True))


def test_in_place_gives_the_same_bits(device: torch.device) -> None:
    gradient, x, gate, weight = _inputs(3, 4, 24, torch.bfloat16, device)
    out, to_x, to_gate = _ours(gradient, x, gate, weight)
    gated_norm_backward(gradient, x, gate, Norm(weight, EPS), gradient, gate)
    assert torch.equal(gradient, to_x)
    assert torch.equal(gate, to_gate)
    gradient, x, gate, weight = _inputs(3, 4, 24, torch.bfloat16, device)
    gated_norm(x, gate, Norm(weight, EPS), x)
    assert torch.equal(x, out)


GROUPS = [(3, 2, 128, True), (2, 3, 200, False), (2, 1, 2500, True)]
"""Tokens, groups with weights of their own, their width, and whether the gate comes before the norm."""


@pytest.mark.parametrize(
    ("dtype", "sizes"),
    [
        *((torch.float32, sizes) for sizes in GROUPS),
        (torch.bfloat16, GROUPS[0]),
        *(pytest.param(dtype, sizes, marks=pytest.mark.long) for dtype in DTYPES for sizes in GROUPS),
    ],
)
def test_groups_with_weights_of_their_own(
    device: torch.device, dtype: torch.dtype, sizes: tuple[int, int, int, bool]
) -> None:
    num_rows, num_groups, width, gate_first = sizes
    gradient, x, gate, _ = inputs = _inputs(num_rows, num_groups, width, dtype, device)
    weight = rows(1, num_groups * width, dtype, device, seed=3)[0].contiguous()
    norm, form = Norm(weight, EPS), Form(width, gate_first)
    out, to_x, to_gate = (torch.empty_like(x) for _ in range(3))
    gated_norm(x, gate, norm, out, form)
    gated_norm_backward(gradient, x, gate, norm, to_x, to_gate, form)
    module: torch.nn.Module = MambaRMSNormGated(len(weight), width, EPS)
    if not gate_first:
        module = FalconH1RMSNormGated(len(weight), EPS, num_groups)
    module.to(device, dtype).weight.data.copy_(weight)
    usual = _of_groups(lambda *parts: module(*(part[None] for part in parts))[0], *inputs[:3])
    exact_weight = weight.cpu().double().view(num_groups, width)

    def formula(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        x, active = (part.unflatten(1, (num_groups, width)) for part in (x, gate * torch.sigmoid(gate)))
        x = x * active if gate_first else x
        normal = exact_weight * x / (x.square().mean(-1, keepdim=True) + EPS).sqrt()
        return (normal if gate_first else normal * active).flatten(1)

    exact = _of_groups(formula, *(part.cpu().double() for part in inputs[:3]))
    for name, ours, theirs, oracle in zip(("out", "x", "gate"), (out, to_x, to_gate), usual, exact, strict=True):
        check = partial(_judge, name, theirs, oracle, dtype)
        check(ours)
        mutants_fail(check, ours)


def _of_groups(
    way: Callable[..., torch.Tensor], gradient: torch.Tensor, x: torch.Tensor, gate: torch.Tensor
) -> Values:
    leaves = [part.detach().clone().requires_grad_() for part in (x, gate)]
    out = way(*leaves)
    return out.detach(), *torch.autograd.grad(out, leaves, gradient)
