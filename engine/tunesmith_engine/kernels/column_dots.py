"""Sums down the columns of two matrices' product, number by number: the gradient of what scales a layer's outputs.

The second form takes an MLP's gate and up, and the gradient of their gated product, whose own gradients it makes on
the way (see glu.py) and keeps nowhere. All is added up in float32, rows in blocks whose sums lie apart until all are
there, so the same inputs give the same bits.
"""

from __future__ import annotations

import torch

from tunesmith_engine.kernels import glu, registry
from tunesmith_engine.kernels.glu import activate
from tunesmith_engine.kernels.launch import launch
from tunesmith_engine.kernels.triton_import import jit, tl, triton

NAME = "column_dots"
COLUMNS, ROWS_AT_ONCE = 128, 16
"""A tile: half a line of the cache in each row, 8 numbers a thread."""
ROWS = 512
"""Of a program."""
NUM_WARPS = 8


def column_dots(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return sum_t left[t, n] * right[t, n].

    Args:
        left, right: [T, N] in one number format, with any stride between rows.

    Returns:
        float32 [N]; float64 for float64.
    """
    num_rows, width = left.shape
    if not registry.runs(NAME, left.device):
        wide = torch.promote_types(torch.promote_types(left.dtype, right.dtype), torch.float32)
        return sum(
            (left[start : start + ROWS].to(wide) * right[start : start + ROWS].to(wide)).sum(0)
            for start in range(0, num_rows, ROWS)
        )
    sums = _room_for_sums(left, width)
    launch(
        _column_dots,
        (triton.cdiv(width, COLUMNS), sums.shape[0], 1),
        (left, right, sums),
        (left.stride(0), right.stride(0), num_rows),
        (width, COLUMNS, ROWS_AT_ONCE, ROWS),
        num_warps=NUM_WARPS,
    )
    return sums.sum(0)


def gated_column_dots(gradient: torch.Tensor, gate_up: torch.Tensor, activation: str) -> torch.Tensor:
    """Return the sums of gate and up times their gradients, side by side.

    Args:
        gradient: of activation(gate) * up, [T, width], with any stride between rows.
        gate_up: gate and up side by side, [T, 2 width], with any stride between rows.
        activation: as in `glu.gate_and_multiply`.

    Returns:
        float32 [2 width]; float64 for float64.
    """
    num_rows, width = gradient.shape
    gate, up = gate_up[:, :width], gate_up[:, width : 2 * width]
    if not registry.runs(NAME, gradient.device):
        wide = torch.promote_types(gate.dtype, torch.float32)
        to_gate, to_up = (torch.empty(gate.shape, device=gate.device, dtype=wide) for _ in range(2))
        glu.gate_backward(gradient, gate, up, activation, to_gate, to_up)
        return torch.cat([column_dots(to_gate, gate), column_dots(to_up, up)])
    sums = _room_for_sums(gradient, 2 * width)
    launch(
        _gated_column_dots,
        (triton.cdiv(width, COLUMNS), sums.shape[0], 1),
        (gradient, gate, up, sums),
        (gradient.stride(0), gate_up.stride(0), num_rows),
        (width, COLUMNS, ROWS_AT_ONCE, ROWS, activation),
        num_warps=NUM_WARPS,
    )
    return sums.sum(0)


def _room_for_sums(like: torch.Tensor, width: int) -> torch.Tensor:
    return torch.empty(max(1, triton.cdiv(like.shape[0], ROWS)), width, device=like.device, dtype=torch.float32)


@jit
def _column_dots(
    left,
    right,
    sums,
    left_stride,
    right_stride,
    num_rows,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    ROWS_AT_ONCE: tl.constexpr,
    ROWS: tl.constexpr,
):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    block = tl.program_id(1).to(tl.int64)
    total = tl.zeros((COLUMNS,), dtype=tl.float32)
    for start in range(0, ROWS, ROWS_AT_ONCE):
        row = (block * ROWS + start + tl.arange(0, ROWS_AT_ONCE))[:, None]
        inside = (row < num_rows) & (column < WIDTH)[None, :]
        some = tl.load(left + row * left_stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
        other = tl.load(right + row * right_stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
        total += tl.sum(some * other, axis=0)
    tl.store(sums + block * WIDTH + column, total, mask=column < WIDTH)


@jit
def _gated_column_dots(
    gradient,
    gate,
    up,
    sums,
    gradient_stride,
    gate_stride,
    num_rows,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    ROWS_AT_ONCE: tl.constexpr,
    ROWS: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    block = tl.program_id(1).to(tl.int64)
    of_gate = tl.zeros((COLUMNS,), dtype=tl.float32)
    of_up = tl.zeros((COLUMNS,), dtype=tl.float32)
    for start in range(0, ROWS, ROWS_AT_ONCE):
        row = (block * ROWS + start + tl.arange(0, ROWS_AT_ONCE))[:, None]
        inside = (row < num_rows) & (column < WIDTH)[None, :]
        slope = tl.load(gradient + row * gradient_stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
        x = tl.load(gate + row * gate_stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
        factor = tl.load(up + row * gate_stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
        active, derivative = activate(x, ACTIVATION)
        of_gate += tl.sum(slope * factor * derivative * x, axis=0)
        of_up += tl.sum(slope * active * factor, axis=0)
    tl.store(sums + block * 2 * WIDTH + column, of_gate, mask=column < WIDTH)
    tl.store(sums + block * 2 * WIDTH + WIDTH + column, of_up, mask=column < WIDTH)
