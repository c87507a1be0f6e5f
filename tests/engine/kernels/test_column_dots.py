"""Sums down columns, and those of an MLP's gate and up with their gradients, which nobody has to keep."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from tests.engine.kernels.conftest import DTYPES, rows
from tests.engine.kernels.test_glu import ACTIVATIONS, _exact, _transformers
from tests.engine.numerics import REDUCTION, judge, mutants_fail
from tunesmith_engine.kernels.column_dots import ROWS, column_dots, gated_column_dots

SIZES = [(3, 576, 0), (ROWS + 5, 33, 1), (1, 1, 0)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_rows", "width", "offset"), SIZES)
def test_sums_of_products(device: torch.device, dtype: torch.dtype, num_rows: int, width: int, offset: int) -> None:
    left, right = (rows(num_rows, width, dtype, device, seed=seed, offset=offset) for seed in range(2))
    found = column_dots(left, right)
    assert found.dtype == torch.float32
    usual, exact = (left.float() * right.float()).sum(0), (left.cpu().double() * right.cpu().double()).sum(0)
    check = partial(_judge, "dots", usual, exact)
    check(found)
    mutants_fail(check, found)
    assert torch.equal(found, column_dots(left, right))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_gate_and_up_with_their_gradients(device: torch.device, activation: str, dtype: torch.dtype) -> None:
    num_rows, width = ROWS + 7, 40
    gradient, gate_up = (rows(num_rows, size, dtype, device, seed=size) for size in (width, 2 * width))
    found = gated_column_dots(gradient, gate_up, activation)
    wanted = []
    for form, where, wide in ((_transformers, device, dtype), (_exact, torch.device("cpu"), torch.float64)):
        both = gate_up.detach().to(where, wide).requires_grad_()
        form(both[:, :width], both[:, width:], activation).backward(gradient.to(where, wide))
        sums = (both.grad.float() * both.float()) if wide != torch.float64 else both.grad * both
        wanted.append(sums.detach().sum(0))
    check = partial(_judge, "gated", *wanted)
    check(found)
    mutants_fail(check, found)


def _judge(name: str, usual: torch.Tensor, exact: torch.Tensor, ours: torch.Tensor) -> None:
    judge(name, ours, usual, exact, torch.float32, REDUCTION)
