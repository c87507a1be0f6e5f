"""Even noise on rows: the numbers of the generator at their places, as large as wanted, the same by kernel and twin."""

from __future__ import annotations

import pytest
import torch

from tests.engine.kernels.conftest import DTYPES, rows
from tests.engine.numerics import judge, mutants_fail
from tunesmith_engine.kernels.dropout import random_words
from tunesmith_engine.kernels.noise import add_noise

SEED = 2**40 + 3


def exact_noise(numbers: list[int], width: int) -> torch.Tensor:
    """Return noise between -1 and 1 by the generator's words, float64 [rows, width]."""
    found = torch.empty(len(numbers), width, dtype=torch.float64)
    for place, number in enumerate(numbers):
        for column in range(width):
            group, part = divmod(column, 8)
            words = random_words(torch.tensor([SEED]), torch.tensor([[group]]), torch.tensor([[number]]))
            word = int(words[part % 4])
            found[place, column] = ((word >> 16 if part >= 4 else word & 0xFFFF) + 0.5) / 32768 - 1
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 33, pytest.param(1040, marks=pytest.mark.long)])
def test_numbers_stand_at_their_places(device: torch.device, dtype: torch.dtype, width: int) -> None:
    numbers, magnitudes = [5, 0, 900], [2.0, 0.0, 0.25]
    x = rows(3, width, dtype, device, seed=0)
    before = x.clone()
    add_noise(x, torch.tensor([SEED], device=device), torch.tensor(numbers, dtype=torch.int32, device=device),
              torch.tensor(magnitudes, device=device))
    exact = before.cpu().double() + torch.tensor(magnitudes)[:, None].double() * exact_noise(numbers, width)

    def check(ours: torch.Tensor) -> None:
        judge("noise", ours, exact.to(dtype).to(device), exact, dtype)

    check(x)
    assert torch.equal(x[1], before[1])
    if width > 1:
        mutants_fail(check, x)


def test_no_rows(device: torch.device) -> None:
    none = torch.empty(0, device=device)
    add_noise(torch.empty(0, 8, device=device), torch.tensor([1], device=device), none.int(), none)
