"""Even noise on the rows of a buffer without a tensor of it in memory: each number is computed from its place.

The generator is that of `dropout`: key is the seed, counter the number of a row and an eighth of the column.
"""

from __future__ import annotations

import torch

from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.dropout import COLUMNS_OF_COUNTER, LEVELS, NUM_ROUNDS, TWIN_ROWS, random_words
from tunesmith_engine.kernels.launch import launch
from tunesmith_engine.kernels.triton_import import jit, tl, triton

NAME = "noise"
COLUMNS = 1024
NUM_WARPS = 4


def add_noise(x: torch.Tensor, seed: torch.Tensor, numbers: torch.Tensor, magnitudes: torch.Tensor) -> None:
    """Add to each number of a row one that is evenly distributed between minus and plus the row's magnitude.

    Args:
        x: [T, d], with any stride between rows.
        seed: int64 [1] on the device.
        numbers: by which the rows are known, int32 [T]; each gives other noise.
        magnitudes: float32 [T].
    """
    num_rows, width = x.shape
    if not registry.runs(NAME, x.device):
        for start in range(0, num_rows, TWIN_ROWS):
            rows = slice(start, start + TWIN_ROWS)
            noise = magnitudes[rows, None] * _even(seed, numbers[rows], width)
            x[rows] = (x[rows].to(torch.promote_types(x.dtype, torch.float32)) + noise).to(x.dtype)
    elif num_rows:
        launch(
            _add_noise,
            (num_rows, triton.cdiv(width, COLUMNS), 1),
            (x, seed, numbers, magnitudes),
            (x.stride(0),),
            (width, COLUMNS, LEVELS // 2, NUM_ROUNDS),
            num_warps=NUM_WARPS,
        )


def _even(seed: torch.Tensor, numbers: torch.Tensor, width: int) -> torch.Tensor:
    """Return numbers between -1 and 1, float32 [rows, width]."""
    row = numbers.to(torch.int64)[:, None]
    group = torch.arange(-(-width // COLUMNS_OF_COUNTER), device=seed.device)[None, :]
    words = random_words(seed, group + 0 * row, row + 0 * group)
    parts = [word & 0xFFFF for word in words] + [word >> 16 for word in words]
    return (torch.stack(parts, dim=2).flatten(1)[:, :width].float() + 0.5) / (LEVELS // 2) - 1


@jit
def _add_noise(
    x,
    seed,
    numbers,
    magnitudes,
    x_stride,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    HALF: tl.constexpr,
    NUM_ROUNDS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1) * (COLUMNS // 8) + tl.arange(0, COLUMNS // 8)
    zero = group * 0
    first, second, third, fourth = tl.philox(
        tl.load(seed), zero + group, zero + tl.load(numbers + row), zero, zero, NUM_ROUNDS
    )
    left = tl.interleave(tl.interleave(first & 0xFFFF, first >> 16), tl.interleave(third & 0xFFFF, third >> 16))
    right = tl.interleave(
        tl.interleave(second & 0xFFFF, second >> 16), tl.interleave(fourth & 0xFFFF, fourth >> 16)
    )
    even = (tl.interleave(left, right).to(tl.int32).to(tl.float32) + 0.5) / HALF - 1.0
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < WIDTH
    places = x + row * x_stride + column
    before = tl.load(places, mask=inside, other=0.0).to(tl.float32)
    after = before + tl.load(magnitudes + row) * even
    tl.store(places, after.to(x.dtype.element_ty), mask=inside)
