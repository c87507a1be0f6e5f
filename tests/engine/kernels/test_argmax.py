"""The largest number of each row."""

from __future__ import annotations

import pytest
import torch

from tests.engine.kernels.conftest import DTYPES, rows
from tunesmith_engine.kernels.argmax import argmax


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_rows", "width"), [(1, 1), (3, 700), (2, 2048), (5, 6151)])
def test_the_largest_is_found(num_rows: int, width: int, dtype: torch.dtype, device: torch.device) -> None:
    x = rows(num_rows, width, dtype, device, 1)
    for place in {0, width - 1, width // 2, min(2048, width - 1)}:
        x[:, place] = 100 + place
        assert argmax(x).tolist() == [place] * num_rows
        x[:, place] = 0


def test_of_equal_numbers_the_first_counts(device: torch.device) -> None:
    x = torch.full((2, 5000), -3.0, device=device)
    assert argmax(x).tolist() == [0, 0]
    x[0, [2047, 2048, 4999]] = 1.0
    x[1, [2048, 4999]] = 1.0
    assert argmax(x).tolist() == [2047, 2048]


def test_what_is_excluded_never_wins(device: torch.device) -> None:
    x = torch.full((1, 3000), -torch.inf, device=device)
    assert 0 <= argmax(x).item() < 3000
    x[0, 2999] = -1e30
    assert argmax(x).tolist() == [2999]


def test_a_row_without_numbers_gives_some_place(device: torch.device) -> None:
    assert 0 <= argmax(torch.full((1, 4100), torch.nan, device=device)).item() < 4100
