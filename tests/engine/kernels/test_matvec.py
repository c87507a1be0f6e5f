"""Products of one row: of plain matrices, of gated ones, and of matrices in NF4 with their adapter."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.engine.kernels.conftest import DTYPES, rows
from tests.engine.kernels.test_nf4 import _weight
from tests.engine.numerics import REDUCTION, judge, mutants_fail
from tunesmith_engine.kernels import nf4_matvec
from tunesmith_engine.kernels.matvec import multiply_row, multiply_row_gated
from tunesmith_engine.kernels.nf4 import FourBitWeight, dequantise
from tunesmith_engine.kernels.nf4_matvec import multiply_row_nf4

SHAPES = [(1, 16), (3, 40), (513, 64), (514, 136), (6, 2200)]
"""One output, fewer than a program has, more than few rows with a rest of 1 and of 2, more than two turns."""
ACTIVATIONS = {
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
}


@pytest.fixture(autouse=True)
def _no_compiler() -> Iterator[None]:
    """bitsandbytes' plain PyTorch code on the CPU asks for torch.compile."""
    with torch.compiler.set_stance("force_eager"):
        yield


def row(width: int, dtype: torch.dtype, device: torch.device, seed: int = 1) -> torch.Tensor:
    return rows(1, width, dtype, device, seed)[0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_is_multiplied_and_laid_out(shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> None:
    x, weight = row(shape[1], dtype, device), rows(*shape, dtype, device, 2)
    out = torch.full((shape[0] + 4,), 7.0, dtype=dtype, device=device)
    planes = torch.full((8, shape[1] // 8), float("nan"), device=device)
    multiply_row(x, weight, out[: shape[0]], planes)
    assert torch.equal(planes, x.float().view(-1, 8).t())
    assert bool((out[shape[0] :] == 7.0).all())
    exact, usual = weight.double() @ x.double(), weight @ x
    judge("product", out[: shape[0]], usual, exact.cpu(), dtype, REDUCTION)
    mutants_fail(lambda wrong: judge("product", wrong, usual, exact.cpu(), dtype, REDUCTION), out[: shape[0]])


def test_a_row_is_laid_out_without_a_product(device: torch.device) -> None:
    x, planes = row(48, torch.float32, device), torch.zeros(8, 6, device=device)
    multiply_row(x, x.new_empty(0, 48), x.new_empty(0), planes)
    assert torch.equal(planes, x.view(6, 8).t())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("width", "num_draws"), [(1, 8), (2, 6), (35, 1)])
def test_a_gated_product(
    width: int, num_draws: int, activation: str, dtype: torch.dtype, device: torch.device
) -> None:
    """Of one or two outputs alone, chance would decide how exact the usual code is."""
    def gated(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        gate, up = (w @ x).chunk(2)
        return ACTIVATIONS[activation](gate) * up

    ours, usual, exact = [], [], []
    for seed in range(num_draws):
        x = row(72, dtype, device, seed)
        weight = rows(2 * width, 72, dtype, device, num_draws + seed) * 0.3
        out = torch.full((width + 4,), 7.0, dtype=dtype, device=device)
        multiply_row_gated(x, weight, activation, out[:width])
        assert bool((out[width:] == 7.0).all())
        ours.append(out[:width])
        usual.append(gated(weight, x))
        exact.append(gated(weight.double(), x.double()).cpu())
    result = torch.cat(ours)

    def check(result: torch.Tensor) -> None:
        judge("gated", result, torch.cat(usual), torch.cat(exact), dtype, REDUCTION)

    check(result)
    mutants_fail(check, result)


def laid_out(x: torch.Tensor) -> torch.Tensor:
    return x.float().view(-1, 8).t().contiguous()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize(
    ("heights", "width", "extra"), [((8,), 64, 0), ((4, 8, 4), 192, 16), ((12, 4), 128, 5), ((4,), 64 * 66, 16)]
)
def test_matrices_in_nf4_and_their_adapter(
    heights: tuple[int, ...], width: int, extra: int, nested: bool, dtype: torch.dtype, device: torch.device
) -> None:
    parts = [FourBitWeight.of(_weight((height, width), device, nested=nested)) for height in heights]
    x, shrunk = row(width, dtype, device), row(extra, dtype, device)
    beside = rows(sum(heights), extra, dtype, device, 3)
    out = torch.full((sum(heights),), float("nan"), dtype=dtype, device=device)
    adapter = (beside, shrunk) if extra else None
    assert nf4_matvec.problem(parts, gated=False) is None
    multiply_row_nf4(laid_out(x), parts, adapter, out)
    full = torch.cat([dequantise(part, x.new_empty(part.shape, dtype=torch.float32)) for part in parts])
    exact = full.double() @ x.double() + beside.double() @ shrunk.double()
    usual = full.to(dtype) @ x + beside @ shrunk
    judge("product", out, usual, exact.cpu(), dtype, REDUCTION)
    mutants_fail(lambda wrong: judge("product", wrong, usual, exact.cpu(), dtype, REDUCTION), out)


@pytest.mark.parametrize("merged", [True, False])
@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_a_gated_product_in_nf4(activation: str, merged: bool, device: torch.device) -> None:
    heights = (16,) if merged else (8, 8)
    parts = [FourBitWeight.of(_weight((height, 128), device)) for height in heights]
    dtype = torch.bfloat16
    x, beside, shrunk = row(128, dtype, device), rows(16, 8, dtype, device, 3), row(8, dtype, device)
    out = torch.full((8,), float("nan"), dtype=dtype, device=device)
    assert nf4_matvec.problem(parts, gated=True) is None
    multiply_row_nf4(laid_out(x), parts, (beside, shrunk), out, activation)
    full = torch.cat([dequantise(part, x.new_empty(part.shape, dtype=torch.float32)) for part in parts])
    products = full.double() @ x.double() + beside.double() @ shrunk.double()
    rounded = full.to(dtype) @ x + beside @ shrunk
    exact, usual = (ACTIVATIONS[activation](each[:8]) * each[8:] for each in (products, rounded))
    judge("gated", out, usual, exact.cpu(), dtype, REDUCTION)
    mutants_fail(lambda wrong: judge("gated", wrong, usual, exact.cpu(), dtype, REDUCTION), out)


@pytest.mark.parametrize(
    ("heights", "width", "gated"), [((6,), 64, False), ((4, 4, 4, 4), 64, False), ((4,), 96, False), ((4, 4), 64, True)]
)
def test_matrices_that_do_not_fit_the_programs_are_named(
    heights: tuple[int, ...], width: int, gated: bool, device: torch.device
) -> None:
    parts = [FourBitWeight.of(_weight((height, width), device)) for height in heights]
    assert nf4_matvec.problem(parts, gated) is not None
