"""The norm of each head times a gate, and its backward pass: y = weight * x / rms(x) * silu(gate).

Qwen3-Next and Qwen3.5 have it behind the gated delta rule (transformers' Qwen3NextRMSNormGated). The weight is frozen.
Both passes compute in float32 and round once; the backward pass computes the norm again.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.glu import activate
from tunesmith_engine.kernels.launch import launch
from tunesmith_engine.kernels.triton_import import jit, tl, triton
from tunesmith_engine.shapes import Norm

NAME = "gated_norm"
BLOCK = 1024
"""Numbers of a program: as many heads of a token as fit."""
NUM_WARPS = 4


def gated_norm(x: torch.Tensor, gate: torch.Tensor, norm: Norm, out: torch.Tensor) -> None:
    """Write norm(x) * silu(gate).

    Args:
        x, gate: [T, heads * width] each, with any stride between rows, as all below.
        norm: over the width of a head; an RMS norm with a weight.
        out: [T, heads * width]; may be x or gate.
    """
    if not registry.runs(NAME, x.device):
        normal, _ = _normalised(x, norm)
        out.copy_((normal * _weight(norm, normal) * functional.silu(_heads(gate, norm))).flatten(1))
    elif x.numel():
        launch(
            _gated_norm,
            _grid(x, norm),
            (x, gate, norm.weight, out),
            (x.stride(0), gate.stride(0), out.stride(0), norm.eps),
            _sizes(x, norm),
            num_warps=NUM_WARPS,
        )


def gated_norm_backward(
    gradient: torch.Tensor,
    x: torch.Tensor,
    gate: torch.Tensor,
    norm: Norm,
    out: torch.Tensor,
    out_gate: torch.Tensor,
) -> None:
    """Write the gradients of x and gate.

    Args:
        gradient: of the result, [T, heads * width].
        out, out_gate: of the shapes of x and gate; each may be any of the inputs, but not the other.
        others: as in `gated_norm`.
    """
    if not registry.runs(NAME, x.device):
        _backward_twin(gradient, x, gate, norm, out, out_gate)
    elif x.numel():
        tensors = (gradient, x, gate)
        launch(
            _gated_norm_backward,
            _grid(x, norm),
            (*tensors, norm.weight, out, out_gate),
            (*(tensor.stride(0) for tensor in (*tensors, out, out_gate)), norm.eps),
            _sizes(x, norm),
            num_warps=NUM_WARPS,
        )


def _width(norm: Norm) -> int:
    return 0 if norm.weight is None else norm.weight.numel()


def _sizes(x: torch.Tensor, norm: Norm) -> tuple[int, int, int, int, bool]:
    """Return width, heads, numbers of a head in a program, heads of a program, and whether the weight is less one."""
    columns = triton.next_power_of_2(_width(norm))
    return _width(norm), x.shape[1] // _width(norm), columns, max(1, BLOCK // columns), norm.plus_one


def _grid(x: torch.Tensor, norm: Norm) -> tuple[int, int, int]:
    _, num_heads, _, at_once, _ = _sizes(x, norm)
    return len(x), triton.cdiv(num_heads, at_once), 1


# Triton programs, one for some heads of a token


@jit
def _places(WIDTH: tl.constexpr, NUM_HEADS: tl.constexpr, COLUMNS: tl.constexpr, HEADS: tl.constexpr):
    heads = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    columns = tl.arange(0, COLUMNS)
    inside = (heads < NUM_HEADS)[:, None] & (columns < WIDTH)[None, :]
    return heads[:, None] * WIDTH + columns[None, :], columns, inside


@jit
def _normal(x, weight, places, columns, inside, eps, WIDTH: tl.constexpr, PLUS_ONE: tl.constexpr):
    values = tl.load(x + places, mask=inside, other=0.0).to(tl.float32)
    root = tl.rsqrt(tl.sum(values * values, axis=1) / WIDTH + eps)[:, None]
    factor = tl.load(weight + columns, mask=columns < WIDTH, other=0.0).to(tl.float32)
    if PLUS_ONE:
        factor += 1.0
    return values * root, root, factor[None, :]


@jit
def _gated_norm(
    x,
    gate,
    weight,
    out,
    x_stride,
    gate_stride,
    out_stride,
    eps,
    WIDTH: tl.constexpr,
    NUM_HEADS: tl.constexpr,
    COLUMNS: tl.constexpr,
    HEADS: tl.constexpr,
    PLUS_ONE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    places, columns, inside = _places(WIDTH, NUM_HEADS, COLUMNS, HEADS)
    normal, _, factor = _normal(x + row * x_stride, weight, places, columns, inside, eps, WIDTH, PLUS_ONE)
    active, _ = activate(tl.load(gate + row * gate_stride + places, mask=inside, other=0.0).to(tl.float32), "silu")
    tl.store(out + row * out_stride + places, (normal * factor * active).to(out.dtype.element_ty), mask=inside)


@jit
def _gated_norm_backward(
    gradient,
    x,
    gate,
    weight,
    out,
    out_gate,
    gradient_stride,
    x_stride,
    gate_stride,
    out_stride,
    out_gate_stride,
    eps,
    WIDTH: tl.constexpr,
    NUM_HEADS: tl.constexpr,
    COLUMNS: tl.constexpr,
    HEADS: tl.constexpr,
    PLUS_ONE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    places, columns, inside = _places(WIDTH, NUM_HEADS, COLUMNS, HEADS)
    normal, root, factor = _normal(x + row * x_stride, weight, places, columns, inside, eps, WIDTH, PLUS_ONE)
    active, derivative = activate(
        tl.load(gate + row * gate_stride + places, mask=inside, other=0.0).to(tl.float32), "silu"
    )
    slope = tl.load(gradient + row * gradient_stride + places, mask=inside, other=0.0).to(tl.float32) * factor
    to_gate = slope * normal * derivative
    slope = slope * active
    to_x = root * (slope - normal * (tl.sum(slope * normal, axis=1) / WIDTH)[:, None])
    tl.store(out + row * out_stride + places, to_x.to(out.dtype.element_ty), mask=inside)
    tl.store(out_gate + row * out_gate_stride + places, to_gate.to(out_gate.dtype.element_ty), mask=inside)


# The same in PyTorch; float64 stays float64


def _heads(x: torch.Tensor, norm: Norm) -> torch.Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32)).unflatten(1, (-1, _width(norm)))


def _normalised(x: torch.Tensor, norm: Norm) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the normal heads, [T, heads, width], and their reciprocal roots."""
    values = _heads(x, norm)
    root = torch.rsqrt(values.square().mean(-1, keepdim=True) + norm.eps)
    return values * root, root


def _weight(norm: Norm, like: torch.Tensor) -> torch.Tensor:
    weight = like.new_ones(1) if norm.weight is None else norm.weight.detach().to(like.dtype)
    return weight + 1 if norm.plus_one else weight


def _backward_twin(
    gradient: torch.Tensor,
    x: torch.Tensor,
    gate: torch.Tensor,
    norm: Norm,
    out: torch.Tensor,
    out_gate: torch.Tensor,
) -> None:
    normal, root = _normalised(x, norm)
    z = _heads(gate, norm)
    slope = _heads(gradient, norm) * _weight(norm, normal)
    to_gate = torch.ops.aten.silu_backward(slope * normal, z)
    slope = slope * functional.silu(z)
    out.copy_((root * (slope - normal * (slope * normal).mean(-1, keepdim=True))).flatten(1))
    out_gate.copy_(to_gate.flatten(1))
