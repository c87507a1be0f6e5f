"""The gated product of an MLP, activation(gate) * up, and its backward pass, which can write the product once more.

Gated linear units are those of Shazeer 2020 (arXiv 2002.05202); the activations are SiLU, exact GELU and its tanh form
(Hendrycks and Gimpel 2016, arXiv 1606.08415). The forward pass rounds where transformers does, in
modeling_llama.LlamaMLP: the activation, then the product; the backward pass computes in float32 and rounds once. With
a plain sigmoid it is the output gate of Qwen3-Next's attention.
"""

from __future__ import annotations

import torch

from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.launch import launch
from tunesmith_engine.kernels.triton_import import jit, tl, triton

NAME = "glu"
BLOCK = 1024
"""Columns of a program: a load of 16 bytes a thread and tensor in the 16-bit formats."""
NUM_WARPS = 4
GELU = {"gelu": "none", "gelu_tanh": "tanh"}
"""PyTorch's names."""


def gate_and_multiply(gate: torch.Tensor, up: torch.Tensor, activation: str, out: torch.Tensor) -> None:
    """Write out = activation(gate) * up.

    Args:
        gate, up: [T, width] each, with any stride between rows.
        activation: "silu", "gelu" (exact), "gelu_tanh" or "sigmoid".
        out: [T, width]; may be gate or up.
    """
    num_rows, width = gate.shape
    if not registry.runs(NAME, gate.device):
        torch.mul(_activate_twin(gate, activation).to(gate.dtype), up, out=out)
    elif num_rows:
        num_blocks = triton.cdiv(width, BLOCK)
        launch(
            _gate_and_multiply,
            (num_rows * num_blocks, 1, 1),
            (gate, up, out),
            (gate.stride(0), up.stride(0), out.stride(0)),
            (width, num_blocks, BLOCK, activation),
            num_warps=NUM_WARPS,
        )


def gate_backward(
    gradient: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    activation: str,
    out_gate: torch.Tensor,
    out_up: torch.Tensor,
    out_hidden: torch.Tensor | None = None,
) -> None:
    """Write the gradients of gate and up, and the product again if wanted, with the bits of `gate_and_multiply`.

    Args:
        gradient: of the product, [T, width], with any stride between rows, as all.
        gate, up, activation: as in `gate_and_multiply`.
        out_gate, out_up: the gradients, [T, width]; may be any of the inputs, each another.
        out_hidden: the product, [T, width]; may be `gradient`. None: it is not written.
    """
    num_rows, width = gate.shape
    if not registry.runs(NAME, gate.device):
        _gate_backward_twin(gradient, gate, up, activation, out_gate, out_up, out_hidden)
    elif num_rows:
        num_blocks = triton.cdiv(width, BLOCK)
        tensors = (gradient, gate, up, out_gate, out_up, out_hidden)
        launch(
            _gate_backward,
            (num_rows * num_blocks, 1, 1),
            tensors,
            [0 if tensor is None else tensor.stride(0) for tensor in tensors],
            (width, num_blocks, BLOCK, activation),
            num_warps=NUM_WARPS,
        )


# Triton programs


@jit
def _gate_and_multiply(
    gate,
    up,
    out,
    gate_stride,
    up_stride,
    out_stride,
    WIDTH: tl.constexpr,
    NUM_BLOCKS: tl.constexpr,
    BLOCK: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    row = (tl.program_id(0) // NUM_BLOCKS).to(tl.int64)
    columns = tl.program_id(0) % NUM_BLOCKS * BLOCK + tl.arange(0, BLOCK)
    inside = columns < WIDTH
    x = tl.load(gate + row * gate_stride + columns, mask=inside, other=0.0).to(tl.float32)
    factor = tl.load(up + row * up_stride + columns, mask=inside, other=0.0).to(tl.float32)
    active, _ = activate(x, ACTIVATION)
    product = active.to(gate.dtype.element_ty).to(tl.float32) * factor
    tl.store(out + row * out_stride + columns, product.to(out.dtype.element_ty), mask=inside)


@jit
def _gate_backward(
    gradient,
    gate,
    up,
    out_gate,
    out_up,
    out_hidden,
    gradient_stride,
    gate_stride,
    up_stride,
    out_gate_stride,
    out_up_stride,
    out_hidden_stride,
    WIDTH: tl.constexpr,
    NUM_BLOCKS: tl.constexpr,
    BLOCK: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    row = (tl.program_id(0) // NUM_BLOCKS).to(tl.int64)
    columns = tl.program_id(0) % NUM_BLOCKS * BLOCK + tl.arange(0, BLOCK)
    inside = columns < WIDTH
    slope = tl.load(gradient + row * gradient_stride + columns, mask=inside, other=0.0).to(tl.float32)
    x = tl.load(gate + row * gate_stride + columns, mask=inside, other=0.0).to(tl.float32)
    factor = tl.load(up + row * up_stride + columns, mask=inside, other=0.0).to(tl.float32)
    active, derivative = activate(x, ACTIVATION)
    to_gate = (slope * factor * derivative).to(out_gate.dtype.element_ty)
    tl.store(out_gate + row * out_gate_stride + columns, to_gate, mask=inside)
    tl.store(out_up + row * out_up_stride + columns, (slope * active).to(out_up.dtype.element_ty), mask=inside)
    if out_hidden is not None:
        product = active.to(gate.dtype.element_ty).to(tl.float32) * factor
        tl.store(out_hidden + row * out_hidden_stride + columns, product.to(out_hidden.dtype.element_ty), mask=inside)


@jit
def activate(x, ACTIVATION: tl.constexpr):
    """Return the activation and its derivative."""
    if ACTIVATION == "gelu":
        share = 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))
        active = x * share
        derivative = share + x * 0.3989422804014327 * tl.exp(-0.5 * x * x)
    elif ACTIVATION == "silu":
        share, slope = _sigmoid(x)
        active = x * share
        derivative = share + x * slope
    elif ACTIVATION == "sigmoid":
        active, derivative = _sigmoid(x)
    else:
        # (1 + tanh(z)) / 2 is the sigmoid of 2 z, with z = sqrt(2 / pi) (x + 0.044715 x^3).
        square = x * x
        share, slope = _sigmoid(1.5957691216057308 * x * (1.0 + 0.044715 * square))
        active = x * share
        derivative = share + x * slope * 1.5957691216057308 * (1.0 + 0.134145 * square)
    return active, derivative


@jit
def _sigmoid(z):
    """Return the sigmoid and its derivative, without overflow and without the difference of close numbers."""
    small = tl.exp(-tl.abs(z))
    inverse = 1.0 / (1.0 + small)
    return tl.where(z >= 0, inverse, small * inverse), small * inverse * inverse


# The same in PyTorch; float64 stays float64


def _gate_backward_twin(
    gradient: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    activation: str,
    out_gate: torch.Tensor,
    out_up: torch.Tensor,
    out_hidden: torch.Tensor | None,
) -> None:
    x = _wide(gate)
    active = _activate_twin(gate, activation)
    product = None if out_hidden is None else active.to(gate.dtype) * up
    slope = gradient * _wide(up)
    if activation == "silu":
        to_gate = torch.ops.aten.silu_backward(slope, x)
    elif activation == "sigmoid":
        to_gate = torch.ops.aten.sigmoid_backward(slope, active)
    else:
        to_gate = torch.ops.aten.gelu_backward(slope, x.contiguous(), approximate=GELU[activation])
    torch.mul(gradient, active, out=out_up)
    out_gate.copy_(to_gate)
    if out_hidden is not None and product is not None:
        out_hidden.copy_(product)


def _activate_twin(gate: torch.Tensor, activation: str) -> torch.Tensor:
    """Return the activation in float32 at least."""
    x = _wide(gate)
    if activation == "silu":
        return torch.nn.functional.silu(x)
    if activation == "sigmoid":
        return torch.sigmoid(x)
    # Between gaps PyTorch takes another error function, with other bits.
    return torch.nn.functional.gelu(x.contiguous(), approximate=GELU[activation])


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
