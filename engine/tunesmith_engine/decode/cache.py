"""What layers remember of the tokens so far, in memory that is allocated once: a captured graph wants fixed places."""

from __future__ import annotations

import math

import torch

from tunesmith_engine.device import Compute
from tunesmith_engine.mixer_shapes import (
    AttentionShape,
    ChannelDeltaShape,
    ConvolutionShape,
    DeltaShape,
    LatentShape,
    StateSpaceShape,
    branches_of,
)
from tunesmith_engine.shapes import ModelShape

CAPACITY_STEP = 256
"""Tokens by which a cache grows, so that a longer prompt seldom needs a new graph."""


def capacity_of(num_tokens: int) -> int:
    """Return the capacity of a cache for rows of so many tokens."""
    return -(-num_tokens // CAPACITY_STEP) * CAPACITY_STEP


class KeyValueCache:
    """The cache of some rows.

    Attributes:
        keys, values: of each layer that has its own, by its index, [M, K, capacity, head_dim] and
            [M, K, capacity, value_dim]; what no token has written is zero.
        inputs: what a layer's short convolution has read last, the newest at the end, [M, channels, width - 1] float32;
            zeros before a row's first token.
        states: of a layer's recurrent heads, [M, H, K, V] float32.
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
        self.inputs, self.states = (
            {index: torch.zeros(num_rows, *size, device=compute.device) for index, size in sizes.items()}
            for sizes in (inputs_of(shape), states_of(shape))
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


def bytes_per_row(shape: ModelShape, dtype: torch.dtype, capacity: int) -> int:
    """Return what the cache of one row takes.

    Args:
        shape: of the model.
        dtype: the run's number format.
        capacity: most tokens of the row.
    """
    per_token = sum(each.num_key_value_heads * (each.head_dim + each.value_dim) for _, each in attentions_of(shape))
    others = (*inputs_of(shape).values(), *states_of(shape).values())
    return per_token * capacity * dtype.itemsize + sum(map(math.prod, others)) * torch.float32.itemsize


def inputs_of(shape: ModelShape) -> dict[int, tuple[int, int]]:
    """Return channels and remembered tokens of each layer that has a short convolution, by its index."""
    return {
        index: (mixer.convolution.shape[0], mixer.convolution.shape[1] - 1)
        for index, layer in enumerate(shape.layers)
        for mixer in branches_of(layer.attention)
        if isinstance(mixer, ConvolutionShape | DeltaShape | ChannelDeltaShape | StateSpaceShape)
    }


def states_of(shape: ModelShape) -> dict[int, tuple[int, int, int]]:
    """Return heads H and sizes K and V of each layer whose heads have states, by its index."""
    found: dict[int, tuple[int, int, int]] = {}
    for index, layer in enumerate(shape.layers):
        for mixer in branches_of(layer.attention):
            if isinstance(mixer, DeltaShape | ChannelDeltaShape):
                found[index] = mixer.num_heads, mixer.key_dim, mixer.value_dim
            elif isinstance(mixer, StateSpaceShape):
                found[index] = mixer.num_heads, mixer.state_dim, mixer.head_dim
    return found


def attentions_of(shape: ModelShape) -> list[tuple[int, AttentionShape]]:
    """Return the attention of each layer that remembers keys and values of its own, with the layer's index."""
    return [
        (index, mixer.remembered if isinstance(mixer, LatentShape) else mixer)
        for index, layer in enumerate(shape.layers)
        for mixer in branches_of(layer.attention)
        if isinstance(mixer, LatentShape) or (isinstance(mixer, AttentionShape) and mixer.source is None)
    ]
