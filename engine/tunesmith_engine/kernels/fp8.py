"""Rows of numbers in the 8-bit format e4m3, each row with a scale of its own, for products on 8-bit tensor cores.

e4m3 has a sign, 4 bits of exponent and 3 of mantissa; its largest number is 448 and it has a NaN but no infinity
(Micikevicius et al. 2022, arXiv 2209.05433, table 1). A row's scale puts its largest magnitude at 448. The kernel puts
the bits together with integers, so it needs no 8-bit type of Triton, which older GPUs lack.
"""

from __future__ import annotations

import torch

from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.triton_import import jit, tl, triton

NAME = "fp8"
LARGEST = 448.0
SMALLEST_PEAK = 2.0**-100
"""Rows without a larger magnitude become zeros; neither the scale nor its inverse leaves float32."""

BLOCK = 4096
NUM_WARPS = 8


def quantise_rows(x: torch.Tensor, out: torch.Tensor, scales: torch.Tensor) -> None:
    """Write out * scales = x, rounded to the nearest e4m3 numbers; a number that is not finite makes its row hold NaN.

    Args:
        x: [T, width], with any stride between rows.
        out: [T, width], float8_e4m3fn, contiguous.
        scales: [T, 1], float32, contiguous.
    """
    if not registry.runs(NAME, x.device):
        _quantise_twin(x, out, scales)
    elif x.shape[0]:
        width = x.shape[1]
        block = min(triton.next_power_of_2(width), BLOCK)
        _quantise_rows[(x.shape[0],)](
            x, out.view(torch.uint8), scales, x.stride(0),
            WIDTH=width, BLOCK=block, LARGEST=LARGEST, SMALLEST_PEAK=SMALLEST_PEAK, num_warps=NUM_WARPS,
        )  # fmt: skip


# Triton program


@jit
def _quantise_rows(
    x,
    out,
    scales,
    x_stride,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    LARGEST: tl.constexpr,
    SMALLEST_PEAK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    peaks = tl.full((BLOCK,), SMALLEST_PEAK, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        columns = start + offsets
        values = tl.load(x + row * x_stride + columns, mask=columns < WIDTH, other=0.0).to(tl.float32)
        peaks = tl.maximum(peaks, tl.abs(values))
    peak = tl.max(peaks, axis=0)
    tl.store(scales + row, tl.div_rn(peak, LARGEST))
    factor = tl.div_rn(LARGEST, peak)
    # The row is read again from the cache, where it still is.
    for start in range(0, WIDTH, BLOCK):
        columns = start + offsets
        values = tl.load(x + row * x_stride + columns, mask=columns < WIDTH, other=0.0).to(tl.float32)
        tl.store(out + row * WIDTH + columns, _encode(values * factor), mask=columns < WIDTH)


@jit
def _encode(x):
    """Return the bits of the nearest e4m3 numbers, ties to even, as uint8."""
    bits = x.to(tl.int32, bitcast=True)
    # Whatever is beyond e4m3 becomes NaN below; the sum there must not overflow.
    magnitude = tl.minimum(bits & 0x7FFFFFFF, 0x7F000000)
    # Round the mantissa to 3 bits; a carry goes into the exponent, whose bias falls from 127 to 7.
    normal = ((magnitude + 0x7FFFF + ((magnitude >> 20) & 1)) >> 20) - (120 << 3)
    # Below 2^-6 numbers are multiples of 2^-9, as they are for float32 between 2^14 and 2^15.
    tiny = (tl.abs(x) + 16384.0).to(tl.int32, bitcast=True) - 0x46800000
    code = tl.where(magnitude < 0x3C800000, tiny, tl.minimum(normal, 0x7F))
    return (code | ((bits >> 24) & 0x80)).to(tl.uint8)


# The same in PyTorch


def _quantise_twin(x: torch.Tensor, out: torch.Tensor, scales: torch.Tensor) -> None:
    values = x.float()
    peak = values.abs().amax(dim=1, keepdim=True).clamp(min=SMALLEST_PEAK)
    # By a plain number PyTorch would not divide: it multiplies by the inverse, which rounds twice.
    largest = torch.full_like(peak, LARGEST)
    torch.div(peak, largest, out=scales)
    out.copy_(values * (largest / peak))
