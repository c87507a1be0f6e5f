"""Rows of the embedding table: exact copies, one rounding with a scale, a table in the host's memory."""

from __future__ import annotations

import pytest
import torch

from tests.engine.kernels.conftest import DTYPES, rows
from tests.engine.numerics import judge, mutants_fail
from tunesmith_engine.kernels.embedding import embed

NUM_ROWS = 11


def _ids(device: torch.device, num: int = 7) -> torch.Tensor:
    ids = torch.randint(0, NUM_ROWS, (num,), generator=torch.Generator().manual_seed(1))
    ids[:2] = torch.tensor([0, NUM_ROWS - 1])[:num]
    return ids.to(device)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 33, 576, 2880])
def test_rows_are_copied(device: torch.device, dtype: torch.dtype, width: int) -> None:
    table = rows(NUM_ROWS, width, dtype, device, seed=0)
    room = torch.full((7, width + 24), 7.0, dtype=dtype, device=device)
    embed(_ids(device), table, 1.0, room[:, 8 : 8 + width])
    assert torch.equal(room[:, 8 : 8 + width], table[_ids(device)])
    assert (room[:, :8] == 7).all()
    assert (room[:, 8 + width :] == 7).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_scale_is_rounded_once(device: torch.device, dtype: torch.dtype) -> None:
    table = rows(NUM_ROWS, 40, dtype, device, seed=0)
    out = torch.empty(7, 40, dtype=dtype, device=device)
    embed(_ids(device), table, 12.7, out)
    chosen = table[_ids(device)]

    def check(ours: torch.Tensor) -> None:
        judge("embedding", ours, chosen * 12.7, chosen.cpu().double() * 12.7, dtype)

    check(out)
    mutants_fail(check, out)


def test_table_in_pinned_memory(device: torch.device) -> None:
    table = torch.randn(NUM_ROWS, 96, generator=torch.Generator().manual_seed(0))
    if device.type == "cuda":
        table = table.pin_memory()
    out = torch.empty(7, 96, device=device)
    embed(_ids(device), table, 1.0, out)
    assert torch.equal(out.cpu(), table[_ids(device).cpu()])


def test_no_tokens(device: torch.device) -> None:
    embed(_ids(device, 0), torch.ones(3, 8, device=device), 2.0, torch.empty(0, 8, device=device))


@pytest.mark.long
def test_rows_behind_2_to_the_31_numbers(device: torch.device, far_rows: torch.Tensor) -> None:
    out = torch.empty(2, 64, dtype=torch.float16, device=device)
    embed(torch.tensor([1, 0], device=device), far_rows, 1.0, out)
    assert torch.equal(out, far_rows.flip(0))
