"""Products of several rows with matrices in NF4 and their adapters."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
import torch

from tests.engine.kernels.conftest import rows
from tests.engine.kernels.test_nf4 import _weight
from tests.engine.numerics import REDUCTION, judge, mutants_fail
from tunesmith_engine.kernels import nf4_rows
from tunesmith_engine.kernels.nf4 import FourBitWeight, dequantise
from tunesmith_engine.kernels.nf4_matvec import NF4_TABLE

DTYPES = [torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def _no_compiler() -> Iterator[None]:
    """bitsandbytes' plain PyTorch code on the CPU asks for torch.compile."""
    with torch.compiler.set_stance("force_eager"):
        yield


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize(
    ("num_rows", "heights", "width", "extra"),
    [(2, (64,), 128, 0), (3, (64, 128, 64), 256, 16), (17, (128, 64), 384, 5), (32, (64,), 1024, 80)],
)
def test_rows_are_multiplied(
    num_rows: int,
    heights: tuple[int, ...],
    width: int,
    extra: int,
    nested: bool,
    dtype: torch.dtype,
    device: torch.device,
) -> None:
    parts = [FourBitWeight.of(_weight((height, width), device, nested=nested)) for height in heights]
    x = rows(num_rows, width + extra, dtype, device, 1)
    beside = rows(sum(heights), extra, dtype, device, 3) if extra else None
    assert nf4_rows.problem(parts, num_rows, dtype) is None
    splits = nf4_rows.num_splits(parts)
    out = torch.full((num_rows, sum(heights)), float("nan"), dtype=dtype, device=device)
    sums = torch.full((splits, *out.shape), float("nan"), device=device)
    nf4_rows.multiply_rows_nf4(x, parts, beside, out, sums)
    full = torch.cat([dequantise(part, x.new_empty(part.shape, dtype=torch.float32)) for part in parts])
    weight = full if beside is None else torch.cat([full, beside.float()], dim=1)
    exact, usual = x.double() @ weight.double().t(), x @ weight.to(dtype).t()
    judge("product", out, usual, exact.cpu(), dtype, REDUCTION)
    mutants_fail(lambda wrong: judge("product", wrong, usual, exact.cpu(), dtype, REDUCTION), out)


def test_inputs_are_divided_where_outputs_are_few(device: torch.device) -> None:
    def splits(height: int, width: int) -> int:
        meta = torch.empty(0)
        return nf4_rows.num_splits([FourBitWeight(meta, meta, meta, None, None, None, (height, width), 64, 0)])

    assert [splits(64, 128), splits(64, 256), splits(64, 384), splits(64, 4096)] == [2, 4, 2, 8]
    assert splits(64 * nf4_rows.PROGRAMS, 4096) == 1


def test_the_rounded_table_is_as_near_as_said() -> None:
    numbers = [struct.unpack("<f", struct.pack("<I", bits << 16))[0] for bits in nf4_rows.rounded_table()]
    values = [number / nf4_rows.MORE for number in numbers]
    off = [abs(near / value - 1) for near, value in zip(values, NF4_TABLE, strict=True) if value]
    assert max(off) < 0.0018
    assert (sum(each**2 for each in off) / len(off)) ** 0.5 < 0.00086
    assert values[NF4_TABLE.index(0.0)] == 0.0


@pytest.mark.parametrize(
    ("num_rows", "heights", "width", "block", "dtype"),
    [
        (33, (64,), 128, 64, torch.bfloat16),
        (2, (64,) * 4, 128, 64, torch.bfloat16),
        (2, (64,), 128, 64, torch.float32),
        (2, (32,), 128, 64, torch.bfloat16),
        (2, (64,), 96, 64, torch.bfloat16),
        (2, (64,), 512, 256, torch.bfloat16),
    ],
)
def test_what_does_not_fit_is_named(
    num_rows: int, heights: tuple[int, ...], width: int, block: int, dtype: torch.dtype, device: torch.device
) -> None:
    parts = [FourBitWeight.of(_weight((height, width), device, block_size=block)) for height in heights]
    assert nf4_rows.problem(parts, num_rows, dtype) is not None
