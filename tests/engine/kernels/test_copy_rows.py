"""Copies of rows that lie apart: every number arrives, and nothing beside them is touched."""

from __future__ import annotations

import pytest
import torch

from tests.engine.kernels.conftest import DTYPES, rows
from tunesmith_engine.kernels.copy_rows import copy_rows


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_rows", "width"), [(1, 1), (3, 33), (7, 64), (2, 5000), (0, 8)])
def test_rows_arrive_and_their_neighbours_stay(
    device: torch.device, num_rows: int, width: int, dtype: torch.dtype
) -> None:
    source = rows(num_rows, width, dtype, device, 1)
    wider = torch.full((num_rows, width + 3), 7.0, dtype=dtype, device=device)
    copy_rows(source, wider[:, 1 : width + 1])
    assert torch.equal(wider[:, 1 : width + 1], source)
    assert (wider[:, [0, width + 1, width + 2]] == 7).all()


def test_another_number_format_is_rounded_to(device: torch.device) -> None:
    source = torch.tensor([[1.0 + 2**-12, 3.0]], device=device)
    out = torch.empty(1, 2, dtype=torch.bfloat16, device=device)
    assert copy_rows(source, out) is out
    assert out.tolist() == [[1.0, 3.0]]
