"""Gate and up of one layer, the largest of its results, piece by piece in the computer's memory."""

from __future__ import annotations

import torch

from tunesmith_core.errors import TunesmithError
from tunesmith_engine.fused.ring import Ring


class SentTiles:
    """The tiles of one layer's gate and up that go to the host; `write` and `read` return None for all others."""

    def __init__(self, ring: Ring[tuple[int, int]], layer: int, width: int, dtype: torch.dtype) -> None:
        self._ring, self._layer, self._width, self._dtype = ring, layer, width, dtype

    def write(self, number: int, num_rows: int) -> torch.Tensor | None:
        """Return where to write a tile of the forward pass, [num_rows, width]."""
        entry = self._layer, number
        if entry not in self._ring:
            return None
        self._ring.take(entry)
        return self._view(entry, num_rows)

    def written(self, number: int) -> None:
        """Start to send a tile out."""
        if (self._layer, number) in self._ring:
            self._ring.leave((self._layer, number))

    def read(self, number: int, num_rows: int) -> torch.Tensor | None:
        """Return a tile as the forward pass left it; it may be overwritten."""
        entry = self._layer, number
        if entry not in self._ring:
            return None
        if not self._ring.holds(entry):
            raise TunesmithError(
                "bug", "Tile {number} of layer {layer} is asked for out of its turn.", number=number, layer=self._layer
            )
        self._ring.fetch(entry)
        return self._view(entry, num_rows)

    def used(self, number: int) -> None:
        """Give a tile's slot free and fetch the one before it that shares the slot."""
        if (self._layer, number) in self._ring:
            self._ring.free((self._layer, number))

    def _view(self, entry: tuple[int, int], num_rows: int) -> torch.Tensor:
        flat = self._ring.memory(entry)[: num_rows * self._width * self._dtype.itemsize]
        return flat.view(self._dtype).view(num_rows, self._width)
