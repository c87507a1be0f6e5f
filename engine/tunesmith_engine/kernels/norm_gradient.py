"""The gradient of a norm's trained weight: the normalised input times the output's gradient, summed over the rows.

All is added up in float32, rows in blocks whose sums lie apart until all are there, so the same inputs give the same
bits. The normalised input is rounded where the forward pass rounds it (see rms_norm.py).
"""

from __future__ import annotations

import torch

from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.launch import launch
from tunesmith_engine.kernels.triton_import import jit, tl, triton
from tunesmith_engine.mixer_shapes import Norm

NAME = "norm_gradient"
COLUMNS, NUMBERS = 128, 2048
"""Of a tile: half a line of the cache in each row, 8 numbers a thread."""
ROWS = 512
"""Of a program."""
NUM_WARPS = 8


def norm_weight_gradient(
    gradient: torch.Tensor, total: torch.Tensor, norm: Norm, statistics: torch.Tensor | None = None
) -> torch.Tensor:
    """Return sum_t gradient[t] * normal(total[t]), the gradient of the norm's weight.

    Args:
        gradient: of the norm's output, [T, H width] for a norm of each of H heads, with any stride between rows.
        total: the norm's input, likewise.
        norm: what was computed.
        statistics: what `rms_norm.add_norm` returned for `total`, [T, 2]; None for a norm of heads.

    Returns:
        float32 [width]; float64 for float64.
    """
    assert norm.weight is not None
    width = norm.weight.numel()
    num_heads = total.shape[1] // width
    num_rows = total.shape[0] * num_heads
    if not registry.runs(NAME, total.device):
        return _twin(gradient, total, norm, statistics, width)
    sums = torch.empty(max(1, triton.cdiv(num_rows, ROWS)), width, device=total.device, dtype=torch.float32)
    # Without statistics a tile holds whole rows, of which they are computed.
    columns = COLUMNS if statistics is not None else triton.next_power_of_2(width)
    launch(
        _norm_gradient,
        (triton.cdiv(width, columns), sums.shape[0], 1),
        (gradient, total, statistics, sums),
        (gradient.stride(0), total.stride(0), num_rows, norm.eps),
        (width, num_heads, norm.centred, norm.cast_last, columns, max(1, NUMBERS // columns), ROWS),
        num_warps=NUM_WARPS,
    )
    return sums.sum(0)


@jit
def _norm_gradient(
    gradient,
    total,
    statistics,
    sums,
    gradient_stride,
    total_stride,
    num_rows,
    eps,
    WIDTH: tl.constexpr,
    HEADS: tl.constexpr,
    CENTRED: tl.constexpr,
    CAST_LAST: tl.constexpr,
    COLUMNS: tl.constexpr,
    ROWS_AT_ONCE: tl.constexpr,
    ROWS: tl.constexpr,
):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    block = tl.program_id(1).to(tl.int64)
    added = tl.zeros((ROWS_AT_ONCE, COLUMNS), dtype=tl.float32)
    for start in range(0, ROWS, ROWS_AT_ONCE):
        row = block * ROWS + start + tl.arange(0, ROWS_AT_ONCE)
        inside = (row < num_rows)[:, None] & (column < WIDTH)[None, :]
        token, place = row // HEADS, (row % HEADS * WIDTH)[:, None] + column[None, :]
        slope = tl.load(gradient + token[:, None] * gradient_stride + place, mask=inside, other=0.0).to(tl.float32)
        values = tl.load(total + token[:, None] * total_stride + place, mask=inside, other=0.0).to(tl.float32)
        if statistics is not None:
            root = tl.load(statistics + row * 2 + 1, mask=row < num_rows, other=0.0).to(tl.float32)
            if CENTRED:
                mean = tl.load(statistics + row * 2, mask=row < num_rows, other=0.0).to(tl.float32)
                values = values - mean[:, None]
        else:
            root = tl.rsqrt(tl.sum(values * values, axis=1) / WIDTH + eps)
        normal = values * root[:, None]
        if not CAST_LAST:
            normal = normal.to(total.dtype.element_ty).to(tl.float32)
        added += slope * normal
    # Threads meet once, not in each turn.
    tl.store(sums + block * WIDTH + column, tl.sum(added, axis=0), mask=column < WIDTH)


def _twin(
    gradient: torch.Tensor, total: torch.Tensor, norm: Norm, statistics: torch.Tensor | None, width: int
) -> torch.Tensor:
    wide = torch.promote_types(total.dtype, torch.float32)
    sums = torch.zeros(width, device=total.device, dtype=wide)
    for start in range(0, total.shape[0], ROWS):
        rows = slice(start, start + ROWS)
        values = total[rows].to(wide).unflatten(1, (-1, width))
        if statistics is not None:
            mean, root = statistics[rows, :1, None].to(wide), statistics[rows, 1:, None].to(wide)
            normal = (values - mean if norm.centred else values) * root
        else:
            normal = values * torch.rsqrt(values.square().mean(-1, keepdim=True) + norm.eps)
        if not norm.cast_last:
            normal = normal.to(total.dtype).to(wide)
        sums += (gradient[rows].to(wide).unflatten(1, (-1, width)) * normal).sum((0, 1))
    return sums
