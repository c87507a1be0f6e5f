"""Memory that one layer after another uses for its intermediate results; allocated once, so its size is known."""

from __future__ import annotations

from collections.abc import Sequence

import torch

ALIGNMENT = 128
"""Elements between the starts of two tensors."""

MOST_CARVED = 256
"""Views are kept, for a layer asks for the same ones as the layer before; batches of other sizes bring new ones."""


class Workspace:
    """Named regions; tensors are laid into a region from its start, so whoever takes it next overwrites them."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._device, self._dtype = device, dtype
        self._sizes: dict[str, int] = {}
        self._regions: dict[str, torch.Tensor] = {}
        self._carved: dict[tuple[str, tuple[tuple[int, int], ...]], list[torch.Tensor]] = {}

    def reserve(self, region: str, *shapes: tuple[int, int]) -> None:
        """Make a region large enough for tensors of these shapes side by side."""
        self._sizes[region] = max(self._sizes.get(region, 0), sum(_rounded(rows * width) for rows, width in shapes))

    @property
    def dtype(self) -> torch.dtype:
        """Of all numbers in it."""
        return self._dtype

    @property
    def num_bytes(self) -> int:
        """Memory of all regions."""
        return sum(self._sizes.values()) * self._dtype.itemsize

    def carve(self, region: str, *shapes: tuple[int, int]) -> list[torch.Tensor]:
        """Return tensors of these shapes, contiguous, with whatever is in them."""
        carved = self._carved.get((region, shapes))
        if carved is None:
            if len(self._carved) >= MOST_CARVED:
                self._carved.clear()
            carved = self._carved[region, shapes] = self._cut(region, shapes)
        return carved

    def _cut(self, region: str, shapes: Sequence[tuple[int, int]]) -> list[torch.Tensor]:
        flat = self._regions.get(region)
        if flat is None:
            flat = self._regions[region] = torch.zeros(self._sizes[region], device=self._device, dtype=self._dtype)
        tensors, start = [], 0
        for rows, width in shapes:
            tensors.append(flat[start : start + rows * width].view(rows, width))
            start += _rounded(rows * width)
        return tensors


def _rounded(num_elements: int) -> int:
    return -(-num_elements // ALIGNMENT) * ALIGNMENT
