"""Copies between matrices whose rows lie apart; PyTorch's own copy of such rows takes one number at a time."""

from __future__ import annotations

import torch

from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.launch import launch
from tunesmith_engine.kernels.triton_import import jit, tl, triton

NAME = "copy_rows"
BLOCK_NUMBERS = 4096
NUM_WARPS = 4


def copy_rows(source: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Copy a matrix.

    Args:
        source, out: [T, width], each row without gaps, rows anywhere; the same number format.
    """
    num_rows, width = source.shape
    if source.dtype != out.dtype or not num_rows or not registry.runs(NAME, out.device):
        return out.copy_(source)
    columns = min(triton.next_power_of_2(width), BLOCK_NUMBERS)
    rows = max(1, BLOCK_NUMBERS // columns)
    launch(
        _copy_rows,
        (triton.cdiv(num_rows, rows), triton.cdiv(width, columns), 1),
        (source, out),
        (source.stride(0), out.stride(0), num_rows, width),
        (rows, columns),
        num_warps=NUM_WARPS,
    )
    return out


@jit
def _copy_rows(source, out, source_stride, out_stride, num_rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Copy a tile of ROWS by COLUMNS; nothing is computed, so nothing is cast."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    inside = (row < num_rows) & (column < width)
    tl.store(out + row * out_stride + column, tl.load(source + row * source_stride + column, mask=inside), mask=inside)
