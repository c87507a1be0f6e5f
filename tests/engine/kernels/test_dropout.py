"""Dropout of an adapter's input: its masks are those of Philox, alike in every product, and as often as they should."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from tests.engine.kernels.conftest import DTYPES, rows
from tests.engine.numerics import REDUCTION, judge, mutants_fail
from tunesmith_engine.kernels.dropout import (
    FLOAT32_SPAN,
    LEAST_ROWS_OF_SPLIT,
    LEVELS,
    Mask,
    add_input_gradient,
    keep,
    random_words,
    shrink,
    weight_gradient,
)

SIZES = [(5, 64, 4, 0), (70, 200, 16, 1), (33, 72, 70, 0), (LEAST_ROWS_OF_SPLIT + 3, 24, 3, 0)]
SIZES += [(3, 4 * FLOAT32_SPAN + 72, 4, 0), (8 * LEAST_ROWS_OF_SPLIT + 5, 40, 4, 0), (1, 1, 1, 0)]


def mask_on(device: torch.device, share: float = 0.3, seed: int = 2**40 + 12345, first_row: int = 0) -> Mask:
    return Mask(torch.tensor([seed], device=device), share, first_row)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_rows", "width", "num_ranks", "offset"), SIZES)
def test_products_are_those_of_autograd_with_the_same_mask(
    device: torch.device, dtype: torch.dtype, num_rows: int, width: int, num_ranks: int, offset: int
) -> None:
    mask = mask_on(device, first_row=3)
    x, a = (rows(num, width, dtype, device, seed=num, offset=offset) for num in (num_rows, num_ranks))
    slope, before = rows(num_rows, num_ranks, dtype, device, 7, offset), rows(num_rows, width, dtype, device, 8)
    shrunk, to_x = torch.empty(num_rows, num_ranks, dtype=dtype, device=device), before.clone()
    shrink(x, a, mask, shrunk)
    add_input_gradient(slope, a, mask, to_x)
    to_a = weight_gradient(slope, x, mask)
    assert to_a.dtype == torch.float32
    wanted = []
    # The usual code on the processor as well: the largest of two thousand errors is chance.
    cpu = torch.device("cpu")
    for where, wide in ((device, dtype), (cpu, dtype), (cpu, torch.float64)):
        kept = keep(replace(mask, seed=mask.seed.to(where)), slice(0, num_rows), width).to(wide) * mask.factor
        inputs = [tensor.detach().to(where, wide).requires_grad_() for tensor in (x, a)]
        product = (inputs[0] * kept) @ inputs[1].t()
        product.backward(slope.to(where, wide))
        wanted.append((product.detach(), inputs[0].grad + before.to(where, wide), inputs[1].grad))
    names = ("shrunk", "input gradient", "weight gradient")
    for name, ours, *usual, exact in zip(names, (shrunk, to_x, to_a.to(dtype)), *wanted, strict=True):
        check = partial(_judge, name, tuple(usual), exact, dtype)
        check(ours)
        if ours.numel() > 1:
            mutants_fail(check, ours)


def _judge(
    name: str, usual: tuple[torch.Tensor, ...], exact: torch.Tensor, dtype: torch.dtype, ours: torch.Tensor
) -> None:
    judge(name, ours, usual, exact, dtype, REDUCTION)


def test_the_same_place_has_the_same_mask_whichever_rows_are_at_hand(device: torch.device) -> None:
    whole = keep(mask_on(device), slice(0, 50), 100)
    assert torch.equal(keep(mask_on(device, first_row=20), slice(0, 30), 100), whole[20:])
    assert torch.equal(keep(mask_on(device), slice(20, 50), 40), whole[20:, :40])
    # Whole numbers, doubled where they are kept: their sums are exact in any order, whatever the library of products.
    x, a = (rows(num, 100, torch.float32, device, num).mul(4).round() for num in (50, 2))
    together, apart = torch.empty(50, 2, device=device), torch.empty(50, 2, device=device)
    shrink(x, a, mask_on(device, 0.5), together)
    shrink(x[:20], a, mask_on(device, 0.5), apart[:20])
    shrink(x[20:], a, mask_on(device, 0.5, first_row=20), apart[20:])
    assert torch.equal(together, apart)


@pytest.mark.parametrize("share", [0.05, 0.1, 0.5, 0.95])
def test_as_many_are_dropped_as_should_be_and_none_depends_on_another(device: torch.device, share: float) -> None:
    num_rows, width = 400, 500
    mask = mask_on(device, share)
    assert mask.factor == pytest.approx(1 / (1 - share), abs=2 / LEVELS / (1 - share) ** 2)
    kept = keep(mask, slice(0, num_rows), width).double()
    variance = share * (1 - share)

    def is_usual(numbers: torch.Tensor, expected: float, one_variance: float) -> None:
        # Five standard deviations: once in two million tries.
        assert abs(float(numbers.mean()) - expected) < 5 * (one_variance / numbers.numel()) ** 0.5 + 1 / LEVELS

    is_usual(kept, 1 - share, variance)
    centred = kept - (1 - share)
    others = [
        keep(mask_on(device, share, seed), slice(0, num_rows), width).double() - (1 - share)
        for seed in (2**40 + 12346, 2**40 + 12345 + 2**32, 1)
    ]
    for shifted in (*others, centred.roll(1, 0), centred.roll(1, 1), centred.roll(8, 1), centred.roll(4, 1)):
        is_usual(centred * shifted, 0.0, variance**2)
    for dimension, number in ((0, num_rows), (1, width)):
        assert float((centred.mean(dimension).abs()).max()) < 5.5 * (variance / number) ** 0.5


def test_the_generator_is_philox() -> None:
    """The first words of Random123's known answers for 7 rounds: all zeros, all ones."""
    zero = torch.zeros(1, dtype=torch.int64)
    assert [hex(int(word)) for word in random_words(zero, zero, zero)] == [
        "0x5f6fb709", "0xd893f64", "0x4f121f81", "0x4f730a48",
    ]  # fmt: skip


def test_nothing_is_dropped_where_the_share_is_zero(device: torch.device) -> None:
    assert keep(mask_on(device, 0.0), slice(0, 9), 30).all()
