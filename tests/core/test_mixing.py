"""Rows of several files by weight: exact, within what there is, and an epoch as long as all files together."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunesmith_core.errors import UserError
from tunesmith_core.mixing import apportioned, epoch_shares, shares

WEIGHTS = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=6)


@given(st.integers(0, 10**9), WEIGHTS)
def test_every_weight_gets_its_share_to_the_row(size: int, weights: list[float]) -> None:
    taken = apportioned(size, weights)
    assert sum(taken) == size
    exact = [Fraction(str(weight)) for weight in weights]
    for num, weight in zip(taken, exact, strict=True):
        assert abs(num - size * weight / sum(exact)) < 1


def test_weights_that_divide_the_rows_are_met_exactly() -> None:
    assert apportioned(1000, [0.7, 0.2, 0.1]) == [700, 200, 100]
    assert apportioned(10, [1.0, 1.0, 1.0]) == [4, 3, 3]


@pytest.mark.parametrize(
    ("numbers", "weights", "caps", "count", "taken"),
    [
        ([10, 20], [], [], 0, [10, 20]),
        ([10, 20], [], [5, 0], 0, [5, 20]),
        ([10, 20], [1.0, 1.0], [], 0, [10, 10]),
        ([10, 20], [1.0, 1.0], [], 6, [3, 3]),
        ([10, 20], [0.0, 1.0], [], 0, [0, 20]),
        ([100, 20], [], [], 12, [10, 2]),
        ([10, 7, 7], [1.0, 1.0, 1.0], [], 11, [4, 4, 3]),
        ([10, 30], [0.1, 0.3], [], 0, [10, 30]),
    ],
)
def test_a_written_mixture_repeats_no_row(
    numbers: list[int], weights: list[float], caps: list[int], count: int, taken: list[int]
) -> None:
    assert shares(numbers, weights, caps, count) == taken


@given(st.lists(st.tuples(st.integers(0, 1000), st.floats(0.01, 100)), min_size=1, max_size=5), st.integers(0, 3000))
def test_no_file_gives_more_rows_than_it_has(files: list[tuple[int, float]], count: int) -> None:
    numbers, weights = [number for number, _ in files], [weight for _, weight in files]
    try:
        taken = shares(numbers, weights, [], count)
    except UserError:
        return
    assert all(num <= number for num, number in zip(taken, numbers, strict=True))
    assert sum(taken) <= (count or sum(numbers))


def test_a_mixture_of_nothing_is_refused() -> None:
    with pytest.raises(UserError, match="No rows are left"):
        shares([0, 5], [1.0, 1.0], [], 0)


@pytest.mark.parametrize(
    ("numbers", "weights", "taken"),
    [
        ([100, 300], [0.0, 0.0], [100, 300]),
        ([100, 300], [1.0, 1.0], [200, 200]),
        ([100, 300], [3.0, 1.0], [300, 100]),
        ([50, 100, 300], [0.0, 3.0, 1.0], [50, 300, 100]),
        ([1, 999], [1.0, 0.0], [1, 999]),
    ],
)
def test_an_epoch_is_as_long_as_all_files_whatever_the_weights(
    numbers: list[int], weights: list[float], taken: list[int]
) -> None:
    assert epoch_shares(numbers, weights) == taken
    assert sum(taken) == sum(numbers)
