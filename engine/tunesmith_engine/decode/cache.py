"""Keys and values of the tokens so far, in memory that is allocated once: a captured graph wants fixed places."""

from __future__ import annotations

import torch

from tunesmith_engine.device import Compute
from tunesmith_engine.shapes import ModelShape


class KeyValueCache:
    """The cache of some rows.

    Attributes:
        keys, values: of each layer, [M, K, capacity, head_dim] and [M, K, capacity, value_dim]; what no token has
            written is zero.
        lengths: tokens of each row, [M] int32 on the device.
        capacity: most tokens of a row.
    """

    def __init__(self, shape: ModelShape, compute: Compute, num_rows: int, capacity: int) -> None:
        self.keys, self.values = (
            [
                torch.zeros(num_rows, groups, capacity, width, device=compute.device, dtype=compute.dtype)
                for groups, width in sizes
            ]
            for sizes in (
                [(attention.num_key_value_heads, attention.head_dim) for attention in shape.attentions],
                [(attention.num_key_value_heads, attention.value_dim) for attention in shape.attentions],
            )
        )
        self.lengths = torch.zeros(num_rows, device=compute.device, dtype=torch.int32)
        self.capacity = capacity

    @property
    def num_rows(self) -> int:
        """Rows M."""
        return self.lengths.shape[0]

    def write(
        self, layer: int, rows: torch.Tensor, positions: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> None:
        """Take over keys and values of packed tokens.

        Args:
            layer: index.
            rows, positions: of each token, [T] int64.
            keys, values: [T, K, head_dim] and [T, K, value_dim].
        """
        self.keys[layer][rows, :, positions] = keys
        self.values[layer][rows, :, positions] = values
