"""Adds the products that give adapters' gradients to these: all adapters of one projection in one launch.

A product of a whole group has them side by side, in the run's number format; the gradients lie apart, in float32. Eight
launches a layer in place of two dozen: a step of many small micro-batches has a thousand of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.launch import launch
from tunesmith_engine.kernels.triton_import import jit, tl, triton

NAME = "adapter_gradients"
BLOCK = 1024
NUM_WARPS = 4
FIELDS = 4
"""Of a row of the table: where the gradient lies, where the product begins, its width, and how many numbers it has."""


class Part(NamedTuple):
    """One adapter's gradients and its places in the products.

    Attributes:
        b, a: gradients [outputs, rank] and [rank, inputs], contiguous.
        rows: its outputs.
        columns: its ranks.
        scale: factor of B's product.
    """

    b: torch.Tensor
    a: torch.Tensor
    rows: slice
    columns: slice
    scale: float


class AdapterGradients:
    """Adds to the gradients of the adapters of one projection, which stay where they are."""

    def __init__(self) -> None:
        self._places: tuple[int, ...] = ()
        self._table = self._scales = torch.empty(0)

    def add(self, to_b: torch.Tensor, to_a: torch.Tensor, parts: Sequence[Part]) -> None:
        """Add products to gradients, in float32.

        Args:
            to_b: [outputs of all, ranks of all], contiguous, of which each adapter takes its rows and columns.
            to_a: [ranks of all, inputs], contiguous.
            parts: one at least.
        """
        float32 = all(part.b.dtype == part.a.dtype == torch.float32 for part in parts)
        if not float32 or not registry.runs(NAME, to_b.device):
            for part in parts:
                part.b.add_(to_b[part.rows, part.columns], alpha=part.scale)
                part.a.add_(to_a[part.columns])
            return
        base = parts[0].b
        self._look_up(base, to_b, to_a, parts)
        most = max(number for part in parts for number in (part.b.numel(), part.a.numel()))
        launch(
            _add,
            (triton.cdiv(most, BLOCK), 2 * len(parts), 1),
            (base, to_b, to_a, self._table, self._scales),
            (to_b.shape[1],),
            (FIELDS, BLOCK),
            num_warps=NUM_WARPS,
        )

    def _look_up(self, base: torch.Tensor, to_b: torch.Tensor, to_a: torch.Tensor, parts: Sequence[Part]) -> None:
        """Write the table, unless all gradients lie where they did."""
        places = tuple(gradient.data_ptr() for part in parts for gradient in (part.b, part.a))
        if places == self._places:
            return
        table: list[list[int]] = []
        for part in parts:
            start, rank = part.columns.start, part.b.shape[1]
            table.append([part.b.data_ptr(), part.rows.start * to_b.shape[1] + start, rank, part.b.numel()])
            table.append([part.a.data_ptr(), start * to_a.shape[1], to_a.shape[1], part.a.numel()])
        for row in table:
            row[0] = (row[0] - base.data_ptr()) // base.itemsize
        self._table = torch.tensor(table, device=base.device)
        self._scales = torch.tensor([part.scale for part in parts], device=base.device)
        self._places = places


@jit
def _add(base, to_b, to_a, table, scales, num_ranks, FIELDS: tl.constexpr, BLOCK: tl.constexpr):
    part = tl.program_id(1)
    row = table + part * FIELDS
    out, start, width, count = tl.load(row), tl.load(row + 1), tl.load(row + 2), tl.load(row + 3)
    numbers = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = numbers < count
    base += out + numbers
    if part % 2 == 0:
        places = start + numbers // width * num_ranks + numbers % width
        added = tl.load(to_b + places, mask=inside, other=0.0).to(tl.float32) * tl.load(scales + part // 2)
    else:
        added = tl.load(to_a + start + numbers, mask=inside, other=0.0).to(tl.float32)
    tl.store(base, tl.load(base, mask=inside, other=0.0) + added, mask=inside)
