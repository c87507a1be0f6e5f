"""The norm of each head times a gate, and its backward pass: y = weight * x / rms(x) * silu(gate).

Qwen3-Next and Qwen3.5 have it behind the gated delta rule (transformers' Qwen3NextRMSNormGated). Mamba 2 has the gate
before the norm, y = weight * u / rms(u) with u = x * silu(gate), in groups that are as wide as many heads and have
weights of their own (MambaRMSNormGated). Kimi Linear has the sigmoid alone in silu's place. The weight is frozen.
Both passes compute in float32 and round once; the backward pass computes the norm again.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.glu import _activate_twin, _slope_twin, activate
from tunesmith_engine.kernels.launch import launch
from tunesmith_engine.kernels.triton_import import jit, tl, triton
from tunesmith_engine.mixer_shapes import Norm

NAME = "gated_norm"
BLOCK = 1024
"""Numbers of a program: as many heads of a token as fit."""
NUM_WARPS = 4
LARGEST_WIDTH = 16384
"""Of a group: so many numbers have room in the registers of a program."""


class Form(NamedTuple):
    """Where the gate stands, and what is done to it.

    Attributes:
        width: of a group; 0 where it is the weight's, which is then the same for all groups.
        gate_first: what is normalised is the product with the gate.
        activation: of the gate, "silu" or "sigmoid".
    """

    width: int = 0
    gate_first: bool = False
    activation: str = "silu"


HEADS = Form()
SIGMOID_HEADS = Form(activation="sigmoid")


def gated_norm(x: torch.Tensor, gate: torch.Tensor, norm: Norm, out: torch.Tensor, form: Form = HEADS) -> None:
    """Write norm(x) * silu(gate), or norm(x * silu(gate)), or the same with a sigmoid.

    Args:
        x, gate: [T, heads * width] each, with any stride between rows, as all below.
        norm: over the width of a head or group; an RMS norm with a weight.
        out: [T, heads * width]; may be x or gate.
        form: of heads or groups.
    """
    if not registry.runs(NAME, x.device):
        width = _width(norm, form)
        x, active = _heads(x, width), _activate_twin(_heads(gate, width), form.activation)
        normal, _ = _normalised(x * active if form.gate_first else x, norm)
        weighted = normal * _weight(norm, normal)
        out.copy_((weighted if form.gate_first else weighted * active).flatten(1))
    elif x.numel():
        sizes = _sizes(x, norm, form)
        launch(
            _gated_norm,
            _grid(x, sizes),
            (x, gate, norm.weight, out),
            (x.stride(0), gate.stride(0), out.stride(0), norm.eps),
            sizes,
            num_warps=_num_warps(sizes),
        )


def gated_norm_backward(
    gradient: torch.Tensor,
    x: torch.Tensor,
    gate: torch.Tensor,
    norm: Norm,
    out: torch.Tensor,
    out_gate: torch.Tensor,
    form: Form = HEADS,
) -> None:
    """Write the gradients of x and gate.

    Args:
        gradient: of the result, [T, heads * width].
        out, out_gate: of the shapes of x and gate; each may be any of the inputs, but not the other.
        others: as in `gated_norm`.
    """
    if not registry.runs(NAME, x.device):
        _backward_twin(gradient, x, gate, norm, out, out_gate, form)
    elif x.numel():
        tensors, sizes = (gradient, x, gate), _sizes(x, norm, form)
        launch(
            _gated_norm_backward,
            _grid(x, sizes),
            (*tensors, norm.weight, out, out_gate),
            (*(tensor.stride(0) for tensor in (*tensors, out, out_gate)), norm.eps),
            sizes,
            num_warps=_num_warps(sizes),
        )


def _width(norm: Norm, form: Form) -> int:
    return form.width or (0 if norm.weight is None else norm.weight.numel())


Sizes = tuple[int, int, int, int, bool, bool, bool, str]


def _sizes(x: torch.Tensor, norm: Norm, form: Form) -> Sizes:
    """Return width, heads, numbers of a head in a program, heads of a program, three facts and the activation.

    The weight is less one; each group has weights of its own; the gate comes first.
    """
    width = _width(norm, form)
    columns = triton.next_power_of_2(width)
    numbers = width, x.shape[1] // width, columns, max(1, BLOCK // columns)
    return *numbers, norm.plus_one, form.width > 0, form.gate_first, form.activation


def _grid(x: torch.Tensor, sizes: Sizes) -> tuple[int, int, int]:
    _, num_heads, _, at_once, *_ = sizes
    return len(x), triton.cdiv(num_heads, at_once), 1


def _num_warps(sizes: Sizes) -> int:
    """Return a warp for each 256 numbers, 4 to 16."""
    return min(16, max(NUM_WARPS, sizes[2] // 256))


# Triton programs, one for some heads of a token


@jit
def _places(WIDTH: tl.constexpr, NUM_HEADS: tl.constexpr, COLUMNS: tl.constexpr, HEADS: tl.constexpr):
    heads = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    columns = tl.arange(0, COLUMNS)
    inside = (heads < NUM_HEADS)[:, None] & (columns < WIDTH)[None, :]
    return heads[:, None] * WIDTH + columns[None, :], columns, inside


@jit
def _factors(weight, places, columns, inside, WIDTH: tl.constexpr, PLUS_ONE: tl.constexpr, OWN: tl.constexpr):
    if OWN:
        factor = tl.load(weight + places, mask=inside, other=0.0).to(tl.float32)
    else:
        factor = tl.load(weight + columns, mask=columns < WIDTH, other=0.0).to(tl.float32)[None, :]
    if PLUS_ONE:
        factor += 1.0
    return factor


@jit
def _gated_norm(
    x, gate, weight, out, x_stride, gate_stride, out_stride, eps,
    WIDTH: tl.constexpr, NUM_HEADS: tl.constexpr, COLUMNS: tl.constexpr, HEADS: tl.constexpr,
    PLUS_ONE: tl.constexpr, OWN: tl.constexpr, GATE_FIRST: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    places, columns, inside = _places(WIDTH, NUM_HEADS, COLUMNS, HEADS)
    values = tl.load(x + row * x_stride + places, mask=inside, other=0.0).to(tl.float32)
    active, _ = activate(tl.load(gate + row * gate_stride + places, mask=inside, other=0.0).to(tl.float32), ACTIVATION)
    if GATE_FIRST:
        values = values * active
    root = tl.rsqrt(tl.sum(values * values, axis=1) / WIDTH + eps)[:, None]
    result = values * root * _factors(weight, places, columns, inside, WIDTH, PLUS_ONE, OWN)
    if not GATE_FIRST:
        result = result * active
    tl.store(out + row * out_stride + places, result.to(out.dtype.element_ty), mask=inside)


@jit
def _gated_norm_backward(
    gradient, x, gate, weight, out, out_gate, gradient_stride, x_stride, gate_stride, out_stride, out_gate_stride, eps,
    WIDTH: tl.constexpr, NUM_HEADS: tl.constexpr, COLUMNS: tl.constexpr, HEADS: tl.constexpr,
    PLUS_ONE: tl.constexpr, OWN: tl.constexpr, GATE_FIRST: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    places, columns, inside = _places(WIDTH, NUM_HEADS, COLUMNS, HEADS)
    numbers = tl.load(x + row * x_stride + places, mask=inside, other=0.0).to(tl.float32)
    z = tl.load(gate + row * gate_stride + places, mask=inside, other=0.0).to(tl.float32)
    active, derivative = activate(z, ACTIVATION)
    values = numbers
    if GATE_FIRST:
        values = numbers * active
    root = tl.rsqrt(tl.sum(values * values, axis=1) / WIDTH + eps)[:, None]
    normal = values * root
    slope = tl.load(gradient + row * gradient_stride + places, mask=inside, other=0.0).to(tl.float32)
    slope = slope * _factors(weight, places, columns, inside, WIDTH, PLUS_ONE, OWN)
    if GATE_FIRST:
        slope = root * (slope - normal * (tl.sum(slope * normal, axis=1) / WIDTH)[:, None])
        to_x, to_gate = slope * active, slope * numbers * derivative
    else:
        to_gate = slope * normal * derivative
        slope = slope * active
        to_x = root * (slope - normal * (tl.sum(slope * normal, axis=1) / WIDTH)[:, None])
    tl.store(out + row * out_stride + places, to_x.to(out.dtype.element_ty), mask=inside)
    tl.store(out_gate + row * out_gate_stride + places, to_gate.to(out_gate.dtype.element_ty), mask=inside)


# The same in PyTorch; float64 stays float64


def _heads(x: torch.Tensor, width: int) -> torch.Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32)).unflatten(1, (-1, width))


def _normalised(values: torch.Tensor, norm: Norm) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the normal heads, [T, heads, width], and their reciprocal roots."""
    root = torch.rsqrt(values.square().mean(-1, keepdim=True) + norm.eps)
    return values * root, root


def _weight(norm: Norm, like: torch.Tensor) -> torch.Tensor:
    weight = like.new_ones(1) if norm.weight is None else norm.weight.detach().to(like.dtype)
    weight = weight.view(-1, like.shape[-1]) if weight.numel() > 1 else weight
    return weight + 1 if norm.plus_one else weight


def _backward_twin(
    gradient: torch.Tensor,
    x: torch.Tensor,
    gate: torch.Tensor,
    norm: Norm,
    out: torch.Tensor,
    out_gate: torch.Tensor,
    form: Form,
) -> None:
    x, z, slope = (_heads(each, _width(norm, form)) for each in (x, gate, gradient))
    active = _activate_twin(z, form.activation)
    normal, root = _normalised(x * active if form.gate_first else x, norm)
    slope = slope * _weight(norm, normal)

    def through(slope: torch.Tensor) -> torch.Tensor:
        return root * (slope - normal * (slope * normal).mean(-1, keepdim=True))

    if form.gate_first:
        slope = through(slope)
        to_x, to_gate = slope * active, _slope_twin(slope * x, z, form.activation)
    else:
        to_x, to_gate = through(slope * active), _slope_twin(slope * normal, z, form.activation)
    out.copy_(to_x.flatten(1))
    out_gate.copy_(to_gate.flatten(1))
