"""What the parts of a decoding step share: rows, buffers, and what was remembered of the tokens before."""

from __future__ import annotations

import torch

from tunesmith_engine.decode.cache import KeyValueCache
from tunesmith_engine.decode.product import Inputs, Product
from tunesmith_engine.fused.projection import Projection
from tunesmith_engine.fused.workspace import Workspace
from tunesmith_engine.kernels import cached_attention


class Context:
    """Makes what parts need for a fixed number of rows.

    Attributes:
        cache: of these rows.
        like: any tensor of the run's number format on its device.
        with_adapter: False leaves the adapters out.
        workspace: for blocks of the training that a step runs.
    """

    def __init__(self, cache: KeyValueCache, like: torch.Tensor, with_adapter: bool) -> None:
        self.cache, self.like, self.with_adapter = cache, like, with_adapter
        self.workspace = Workspace(like.device, like.dtype)
        self._inputs = Inputs(cache.num_rows)
        self._parts: dict[tuple[int, int], torch.Tensor] = {}

    @property
    def num_rows(self) -> int:
        """Rows M."""
        return self.cache.num_rows

    def product(self, projection: Projection, activation: str | None = None, is_last: bool = False) -> Product:
        """Return a projection for the rows; see `Product`."""
        return Product(projection, self._inputs, self.like, self.with_adapter, activation, is_last)

    def rows(self, width: int) -> torch.Tensor:
        """Return a buffer of its own, [M, width]."""
        return self.like.new_zeros(self.num_rows, width)

    def attention_parts(self, num_heads: int, value_dim: int) -> torch.Tensor:
        """Return where attention leaves the parts of its sums; layers share it."""
        key = (num_heads, value_dim)
        if key not in self._parts:
            num_parts = cached_attention.num_parts(self.num_rows, num_heads, self.cache.capacity)
            self._parts[key] = torch.empty(
                self.num_rows, num_heads, num_parts, value_dim + 2, device=self.like.device
            )
        return self._parts[key]
