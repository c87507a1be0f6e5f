"""Rows in e4m3: the nearest numbers that the format has, to the bit, whatever the strides."""

from __future__ import annotations

import math

import pytest
import torch

from tests.engine.kernels.conftest import DTYPES, rows
from tunesmith_engine.kernels.fp8 import BLOCK, LARGEST, quantise_rows

SIZES = [(3, 576, 0), (2, BLOCK + 40, 8), (1, 1, 0), (5, 33, 1)]

ROUNDING = 2.0**-3 / math.sqrt(12 * 1.5 / math.log(2))
"""Relative root mean square error of a number whose logarithm is evenly spread over a binade [1, 2): steps of 2^-3 err
by a 12th of their square in the mean, and the mean square of such numbers is 1.5 / ln 2."""


def quantised(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return values and scales, both written over NaN."""
    out = torch.full(x.shape, float("nan"), device=x.device).to(torch.float8_e4m3fn)
    scales = torch.full((x.shape[0], 1), float("nan"), device=x.device)
    quantise_rows(x, out, scales)
    return out, scales


def exact(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what the definition says, for rows with a number unlike zero, from Python's own numbers alone.

    The format's numbers are m 2^(e - 3) with m from 8 to 15 and e from -6 to 8 without 480, and k 2^-9 for k below 8.
    """
    normal = [m * 2.0 ** (e - 3) for e in range(-6, 9) for m in range(8, 16)]
    numbers = torch.tensor([k * 2.0**-9 for k in range(8)] + normal[:-1], dtype=torch.float64)
    peak = x.float().abs().amax(dim=1, keepdim=True)
    scaled = (x.float() * (torch.full_like(peak, LARGEST) / peak)).double()
    place = torch.searchsorted(numbers, scaled.abs()).clamp(1, len(numbers) - 1)
    below, above = numbers[place - 1], numbers[place]
    to_below, to_above = scaled.abs() - below, above - scaled.abs()
    # Numbers stand in the order of their bits, so every second one is even.
    up = (to_above < to_below) | ((to_above == to_below) & (place % 2 == 0))
    return torch.where(up, above, below) * scaled.sign(), peak / LARGEST


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_rows", "width", "offset"), SIZES)
def test_numbers_are_the_nearest_ones(
    device: torch.device, dtype: torch.dtype, num_rows: int, width: int, offset: int
) -> None:
    x = rows(num_rows, width, dtype, device, seed=0, offset=offset)
    # Over the whole range of the format, down to where there is nothing but zero.
    x *= torch.exp2(torch.linspace(8, -13, width, device=device)).to(dtype)
    # Triton's interpreter reads float16's smallest numbers wrongly.
    x[x.abs() < torch.finfo(torch.float16).tiny] = 0
    values, scales = quantised(x)
    expected_values, expected_scales = exact(x.cpu())
    assert torch.equal(values.cpu().double(), expected_values)
    assert torch.equal(scales.cpu(), expected_scales)


def test_ties_go_to_the_even_number(device: torch.device) -> None:
    ties = [448.0, 432.0, 416.0, -432.0, 17.0, 19.0, 2.0**-10, 3 * 2.0**-10, 15 * 2.0**-10, 2.0**-6, 0.0]
    values, scales = quantised(torch.tensor([ties], device=device))
    assert scales.item() == 1.0
    expected = [448.0, 448.0, 416.0, -448.0, 16.0, 20.0, 0.0, 2.0**-8, 2.0**-6, 2.0**-6, 0.0]
    assert values.float().tolist() == [expected]


def test_the_error_is_that_of_three_bits(device: torch.device) -> None:
    magnitude = torch.exp2(8 * torch.rand(8, 4096, generator=torch.Generator().manual_seed(1)))
    x = magnitude.to(device)
    values, scales = quantised(x)
    wrong = (values.double() * scales.double() - x.double()) / torch.exp2(x.double().log2().floor())
    # Each binade for itself, so that the largest does not stand for all; the scale shifts them against ours.
    assert 0.9 * 2.0**-3 / 12**0.5 < wrong.square().mean().sqrt() < 1.5 * 2.0**-3 / 12**0.5
    share = (values.double() * scales.double() - x.double()).norm() / x.double().norm()
    assert 0.9 * ROUNDING < share < 1.1 * ROUNDING


def test_zeros_stay_zeros(device: torch.device) -> None:
    values, scales = quantised(torch.zeros(2, 40, device=device, dtype=torch.bfloat16))
    assert not values.float().any()
    assert torch.isfinite(scales).all()
    assert (scales > 0).all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_never_lost(device: torch.device, bad: float) -> None:
    x = rows(2, 70, torch.bfloat16, device, seed=0).clone()
    x[1, 33] = bad
    values, scales = quantised(x)
    dequantised = values.float() * scales
    assert torch.isfinite(dequantised[0]).all()
    assert torch.isnan(dequantised[1, 33])
