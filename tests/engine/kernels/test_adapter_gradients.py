"""Adapters' gradients get their parts of two products, and nothing beside them changes; numbers are whole, so exact."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from tests.engine.kernels.conftest import DTYPES
from tunesmith_engine.kernels.adapter_gradients import AdapterGradients, Part

SCALE = 2.0
INPUTS = 33


def whole(*shape: int, dtype: torch.dtype, device: torch.device, seed: int) -> torch.Tensor:
    """Return random whole numbers that every number format holds."""
    numbers = torch.randint(-99, 100, shape, generator=torch.Generator().manual_seed(seed))
    return numbers.to(dtype).to(device)


def parts_of(shapes: Sequence[tuple[int, int]], flat: torch.Tensor) -> list[Part]:
    """Return adapters of (outputs, rank) whose gradients lie in a flat tensor, the last first, with gaps of 7."""
    places, start = [], 0
    for outputs, rank in reversed(shapes):
        b = flat[start : start + outputs * rank].view(outputs, rank)
        start += b.numel() + 7
        a = flat[start : start + rank * INPUTS].view(rank, INPUTS)
        start += a.numel() + 7
        places.insert(0, (b, a))
    assert start <= len(flat)
    parts, row, column = [], 3, 0
    for (outputs, rank), (b, a) in zip(shapes, places, strict=True):
        parts.append(Part(b, a, slice(row, row + outputs), slice(column, column + rank), SCALE))
        row, column = row + outputs + 3, column + rank
    return parts


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shapes", [[(1, 1)], [(65, 16)], [(40, 8), (300, 5), (16, 64)]])
def test_each_adapter_takes_its_own(device: torch.device, shapes: list[tuple[int, int]], dtype: torch.dtype) -> None:
    flat = whole(40_000, dtype=torch.float32, device=device, seed=1)
    wanted, parts = flat.clone(), parts_of(shapes, flat)
    outputs, ranks = parts[-1].rows.stop + 3, parts[-1].columns.stop
    to_b = whole(outputs, ranks, dtype=dtype, device=device, seed=2)
    to_a = whole(ranks, INPUTS, dtype=dtype, device=device, seed=3)
    adder = AdapterGradients()
    for _ in range(2):
        adder.add(to_b, to_a, parts)
        for place in parts_of(shapes, wanted):
            place.b.add_(to_b[place.rows, place.columns].float() * SCALE)
            place.a.add_(to_a[place.columns].float())
    assert torch.equal(flat, wanted)


def test_gradients_that_have_moved_are_found_again(device: torch.device) -> None:
    before, after = (torch.zeros(2_000, device=device) for _ in range(2))
    to_b = whole(30, 4, dtype=torch.float32, device=device, seed=1)
    to_a = whole(4, INPUTS, dtype=torch.float32, device=device, seed=2)
    adder = AdapterGradients()
    adder.add(to_b, to_a, parts_of([(20, 4)], before))
    adder.add(to_b, to_a, parts_of([(20, 4)], after))
    assert before.any()
    assert torch.equal(before, after)


def test_gradients_in_float64_are_added_to_as_they_are(device: torch.device) -> None:
    flat = torch.zeros(2_000, dtype=torch.float64, device=device)
    (part,) = parts_of([(20, 4)], flat)
    to_b = torch.full((30, 4), 2.0**-40, dtype=torch.float64, device=device)
    AdapterGradients().add(to_b, torch.ones(4, INPUTS, dtype=torch.float64, device=device), [part])
    assert (part.b == SCALE * 2.0**-40).all()
    assert (part.a == 1).all()
