"""The gated product of an MLP, activation(gate) * up, and its backward pass, which can write the product once more.

Without a gate it is activation(up) alone: `up` is None then, and the numbers that are activated are called the gate's.

Gated linear units are those of Shazeer 2020 (arXiv 2002.05202); the activations are SiLU, exact GELU and its tanh form
(Hendrycks and Gimpel 2016, arXiv 1606.08415), its sigmoid form, ReLU and its square (So et al. 2021, arXiv 2109.08668).
The forward pass rounds where transformers does, in modeling_llama.LlamaMLP: the activation, then the product; the
backward pass computes in float32 and rounds once. With a plain sigmoid it is the output gate of Qwen3-Next's attention.
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


def gate_and_multiply(gate: torch.Tensor, up: torch.Tensor | None, activation: str, out: torch.Tensor) -> None:
    """Write out = activation(gate) * up.

    Args:
        gate, up: [T, width] each, with any stride between rows; up is None where nothing is multiplied.
        activation: as in `MlpShape`, or "sigmoid".
        out: [T, width]; may be gate or up.
    """
    num_rows, width = gate.shape
    if not registry.runs(NAME, gate.device):
        active = _activate_twin(gate, activation).to(gate.dtype)
        if up is None:
            out.copy_(active)
        else:
            torch.mul(active, up, out=out)
    elif num_rows:
        num_blocks = triton.cdiv(width, BLOCK)
        launch(
            _gate_and_multiply,
            (num_rows * num_blocks, 1, 1),
            (gate, up, out),
            (gate.stride(0), 0 if up is None else up.stride(0), out.stride(0)),
            (width, num_blocks, BLOCK, activation),
            num_warps=NUM_WARPS,
        )


def gate_backward(
    gradient: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor | None,
    activation: str,
    out_gate: torch.Tensor,
    out_up: torch.Tensor | None,
    out_hidden: torch.Tensor | None = None,
) -> None:
    """Write the gradients of gate and up, and the product again if wanted, with the bits of `gate_and_multiply`.

    Args:
        gradient: of the product, [T, width], with any stride between rows, as all.
        gate, up, activation: as in `gate_and_multiply`.
        out_gate, out_up: the gradients, [T, width]; may be any of the inputs, each another. out_up is None with up.
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
    active, _ = activate(x, ACTIVATION)
    product = active.to(gate.dtype.element_ty).to(tl.float32)
    if up is not None:
        product = product * tl.load(up + row * up_stride + columns, mask=inside, other=0.0).to(tl.float32)
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
    active, derivative = activate(x, ACTIVATION)
    product = active.to(gate.dtype.element_ty).to(tl.float32)
    to_gate = slope * derivative
    if up is not None:
        factor = tl.load(up + row * up_stride + columns, mask=inside, other=0.0).to(tl.float32)
        product = product * factor
        to_gate = slope * factor * derivative
        tl.store(out_up + row * out_up_stride + columns, (slope * active).to(out_up.dtype.element_ty), mask=inside)
    tl.store(out_gate + row * out_gate_stride + columns, to_gate.to(out_gate.dtype.element_ty), mask=inside)
    if out_hidden is not None:
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
    elif ACTIVATION == "quick_gelu":
        share, slope = _sigmoid(1.702 * x)
        active = x * share
        derivative = share + 1.702 * x * slope
    elif ACTIVATION == "relu":
        derivative = tl.where(x > 0, 1.0, 0.0)
        active = x * derivative
    elif ACTIVATION == "relu2":
        share = tl.where(x > 0, x, 0.0)
        active = x * share
        derivative = 2.0 * share
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
    up: torch.Tensor | None,
    activation: str,
    out_gate: torch.Tensor,
    out_up: torch.Tensor | None,
    out_hidden: torch.Tensor | None,
) -> None:
    active = _activate_twin(gate, activation)
    product = active.to(gate.dtype)
    slope = _wide(gradient)
    if up is not None:
        product, slope = product * up, gradient * _wide(up)
    to_gate = _slope_twin(slope, _wide(gate), activation)
    if out_up is not None:
        torch.mul(gradient, active, out=out_up)
    out_gate.copy_(to_gate)
    if out_hidden is not None:
        out_hidden.copy_(product)


def _slope_twin(slope: torch.Tensor, x: torch.Tensor, activation: str) -> torch.Tensor:
    """Return a gradient times the derivative of the activation."""
    if activation == "silu":
        return torch.ops.aten.silu_backward(slope, x)
    if activation == "quick_gelu":
        share = torch.sigmoid(1.702 * x)
        return slope * (share + 1.702 * x * share * (1 - share))
    if activation.startswith("relu"):
        return slope * (x > 0) if activation == "relu" else slope * 2 * x.relu()
    if activation == "sigmoid":
        return torch.ops.aten.sigmoid_backward(slope, torch.sigmoid(x))
    return torch.ops.aten.gelu_backward(slope, x.contiguous(), approximate=GELU[activation])


def _activate_twin(gate: torch.Tensor, activation: str) -> torch.Tensor:
    """Return the activation in float32 at least."""
    x = _wide(gate)
    if activation == "silu":
        return torch.nn.functional.silu(x)
    if activation == "quick_gelu":
        return x * torch.sigmoid(1.702 * x)
    if activation.startswith("relu"):
        return x.relu() if activation == "relu" else x.relu().square()
    if activation == "sigmoid":
        return torch.sigmoid(x)
    # Between gaps PyTorch takes another error function, with other bits.
    return torch.nn.functional.gelu(x.contiguous(), approximate=GELU[activation])


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
