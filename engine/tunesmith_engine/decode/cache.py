"""What layers remember of the tokens so far, in memory that is allocated once: a captured graph wants fixed places."""

from __future__ import annotations

import torch

from tunesmith_engine.device import Compute
from tunesmith_engine.mixer_shapes import AttentionShape, branches_of
from tunesmith_engine.shapes import ModelShape


class KeyValueCache:
    """The cache of some rows.

    Attributes:
        keys, values: of each layer that has its own, by its index, [M, K, capacity, head_dim] and
            [M, K, capacity, value_dim]; what no token has written is zero.
        lengths: tokens of each row, [M] int32 on the device.
        capacity: most tokens of a row.
    """

    def __init__(self, shape: ModelShape, compute: Compute, num_rows: int, capacity: int) -> None:
        self.keys: dict[int, torch.Tensor] = {}
        self.values: dict[int, torch.Tensor] = {}
        like = torch.empty(0, device=compute.device, dtype=compute.dtype)
        for index, attention in attentions_of(shape):
            sizes = num_rows, attention.num_key_value_heads, capacity
            self.keys[index] = like.new_zeros(*sizes, attention.head_dim)
            self.values[index] = like.new_zeros(*sizes, attention.value_dim)
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


def attentions_of(shape: ModelShape) -> list[tuple[int, AttentionShape]]:
    """Return the attention of each layer that remembers keys and values, with the layer's index."""
    return [
        (index, mixer)
        for index, layer in enumerate(shape.layers)
        for mixer in branches_of(layer.attention)
        if isinstance(mixer, AttentionShape)
    ]
