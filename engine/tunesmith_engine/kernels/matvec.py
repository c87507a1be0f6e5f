"""Products of one row with a matrix: what decoding a single answer consists of, bound by reading the weights once.

A program computes four outputs side by side, so that the row is read once for four rows of the matrix. Everything is
one-dimensional and written out: of tensors with two dimensions Triton's versions lay loads out differently, and then
exchange them between threads.
"""

from __future__ import annotations

import torch

from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.glu import activate, gate_and_multiply
from tunesmith_engine.kernels.launch import launch
from tunesmith_engine.kernels.triton_import import jit, tl, triton

NAME = "matvec"
OUTPUTS = 4
"""Of a program; one for matrices with few rows, such as adapters, for a GPU has more multiprocessors."""
FEW_ROWS = 512
BLOCK, EXACT_BLOCK = 1024, 512
"""Numbers of one turn: a load of 16 bytes a thread and row."""
NUM_WARPS = 4
WORD = 8
"""Weights of an NF4 matrix in a word of 32 bits; `nf4_matvec` reads the row in as many planes."""
SPREAD = 256
"""Words that a program spreads into planes."""


def multiply_row(
    x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, planes: torch.Tensor | None = None
) -> None:
    """Write out = W x.

    Args:
        x: [K], contiguous.
        weight: [N, K], with any stride between rows; N may be 0.
        out: [N], contiguous; not x.
        planes: [8, K / 8] float32, where x is laid out for `nf4_matvec`: planes[j, w] = x[8 w + j]; None for no need.
    """
    num_outputs, width = weight.shape
    if not registry.runs(NAME, x.device):
        if num_outputs:
            torch.mv(weight, x, out=out)
        if planes is not None:
            planes.copy_(x.view(-1, WORD).t())
        return
    outputs = 1 if num_outputs <= FEW_ROWS else OUTPUTS
    num_products = triton.cdiv(num_outputs, outputs)
    num_spreads = 0 if planes is None else triton.cdiv(width // WORD, SPREAD)
    launch(
        _multiply,
        (num_products + num_spreads, 1, 1),
        (x, weight, out, planes),
        (weight.stride(0), num_outputs, width, num_products),
        (outputs, _block(x), WORD, SPREAD),
        num_warps=NUM_WARPS,
    )


def multiply_row_gated(x: torch.Tensor, weight: torch.Tensor, activation: str, out: torch.Tensor) -> None:
    """Write out = activation(G x) * (U x), where G are the first half of the weight's rows and U are the others.

    Args:
        x: [K], contiguous.
        weight: [2 N, K], with any stride between rows.
        activation: as in `glu.gate_and_multiply`.
        out: [N], contiguous.
    """
    num_outputs, width = weight.shape[0] // 2, weight.shape[1]
    if not registry.runs(NAME, x.device):
        gate, up = torch.mv(weight, x).view(2, 1, -1)
        gate_and_multiply(gate, up, activation, out[None])
        return
    launch(
        _multiply_gated,
        (triton.cdiv(num_outputs, OUTPUTS // 2), 1, 1),
        (x, weight, out),
        (weight.stride(0), num_outputs, width),
        (activation, _block(x)),
        num_warps=NUM_WARPS,
    )


def _block(x: torch.Tensor) -> int:
    return EXACT_BLOCK if x.dtype == torch.float32 else BLOCK


# Triton programs


@jit
def _multiply(
    x,
    weight,
    out,
    planes,
    weight_stride,
    num_outputs,
    width,
    num_products,
    OUTPUTS: tl.constexpr,
    BLOCK: tl.constexpr,
    WORD: tl.constexpr,
    SPREAD: tl.constexpr,
):
    """Compute some outputs, or, behind all outputs, lay a part of the row out in planes."""
    program = tl.program_id(0)
    if program < num_products:
        first = program * OUTPUTS
        last = num_outputs - 1
        if OUTPUTS == 1:
            value = _one_row(x, weight + first.to(tl.int64) * weight_stride, width, BLOCK)
            tl.store(out + first, value.to(out.dtype.element_ty))
        else:
            a, b, c, d = _four_rows(
                x, weight, weight_stride, width,
                first, tl.minimum(first + 1, last), tl.minimum(first + 2, last), tl.minimum(first + 3, last), BLOCK,
            )  # fmt: skip
            tl.store(out + first, a.to(out.dtype.element_ty))
            if first + 1 < num_outputs:
                tl.store(out + first + 1, b.to(out.dtype.element_ty))
            if first + 2 < num_outputs:
                tl.store(out + first + 2, c.to(out.dtype.element_ty))
            if first + 3 < num_outputs:
                tl.store(out + first + 3, d.to(out.dtype.element_ty))
    elif planes is not None:
        num_words = width // WORD
        word = (program - num_products) * SPREAD + tl.arange(0, SPREAD)
        inside = word < num_words
        for place in tl.static_range(WORD):
            number = tl.load(x + word * WORD + place, mask=inside, other=0.0).to(tl.float32)
            tl.store(planes + place * num_words + word, number, mask=inside)


@jit
def _multiply_gated(
    x, weight, out, weight_stride, num_outputs, width, ACTIVATION: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Compute two outputs of a gated MLP."""
    first = tl.program_id(0) * 2
    second = tl.minimum(first + 1, num_outputs - 1)
    gate_a, gate_b, up_a, up_b = _four_rows(
        x, weight, weight_stride, width, first, second, num_outputs + first, num_outputs + second, BLOCK
    )
    store_gated(out, first, num_outputs, gate_a, gate_b, up_a, up_b, ACTIVATION)


@jit
def store_gated(out, first, num_outputs, gate_a, gate_b, up_a, up_b, ACTIVATION: tl.constexpr):
    """Write two gated products, rounded as `glu.gate_and_multiply` rounds them."""
    kind = out.dtype.element_ty
    active_a, _ = activate(gate_a.to(kind).to(tl.float32), ACTIVATION)
    active_b, _ = activate(gate_b.to(kind).to(tl.float32), ACTIVATION)
    a = active_a.to(kind).to(tl.float32) * up_a.to(kind).to(tl.float32)
    b = active_b.to(kind).to(tl.float32) * up_b.to(kind).to(tl.float32)
    tl.store(out + first, a.to(kind))
    if first + 1 < num_outputs:
        tl.store(out + first + 1, b.to(kind))


@jit
def _one_row(x, start, width, BLOCK: tl.constexpr):
    """Return the product of the row with one row of the matrix."""
    total = tl.zeros([BLOCK], tl.float32)
    for begin in range(0, width, BLOCK):
        column = begin + tl.arange(0, BLOCK)
        inside = column < width
        numbers = tl.load(x + column, mask=inside, other=0.0).to(tl.float32)
        total += tl.load(start + column, mask=inside, other=0.0).to(tl.float32) * numbers
    return tl.sum(total, axis=0)


@jit
def _four_rows(x, weight, stride, width, row_a, row_b, row_c, row_d, BLOCK: tl.constexpr):
    """Return the products of the row with four rows of the matrix."""
    start_a = weight + row_a.to(tl.int64) * stride
    start_b = weight + row_b.to(tl.int64) * stride
    start_c = weight + row_c.to(tl.int64) * stride
    start_d = weight + row_d.to(tl.int64) * stride
    a = tl.zeros([BLOCK], tl.float32)
    b = tl.zeros([BLOCK], tl.float32)
    c = tl.zeros([BLOCK], tl.float32)
    d = tl.zeros([BLOCK], tl.float32)
    for begin in range(0, width, BLOCK):
        column = begin + tl.arange(0, BLOCK)
        inside = column < width
        weight_a = tl.load(start_a + column, mask=inside, other=0.0)
        weight_b = tl.load(start_b + column, mask=inside, other=0.0)
        weight_c = tl.load(start_c + column, mask=inside, other=0.0)
        weight_d = tl.load(start_d + column, mask=inside, other=0.0)
        numbers = tl.load(x + column, mask=inside, other=0.0).to(tl.float32)
        a += weight_a.to(tl.float32) * numbers
        b += weight_b.to(tl.float32) * numbers
        c += weight_c.to(tl.float32) * numbers
        d += weight_d.to(tl.float32) * numbers
    return tl.sum(a, axis=0), tl.sum(b, axis=0), tl.sum(c, axis=0), tl.sum(d, axis=0)
