"""Latent attention of a layer for one token more of each row; keys and values are kept expanded.

# M rows, H heads, D width of a head of queries and keys, V of a value
"""

from __future__ import annotations

import torch

from tunesmith_engine.decode.context import Context
from tunesmith_engine.fused.latent_block import LatentBlock
from tunesmith_engine.fused.queries_keys import Rotary
from tunesmith_engine.kernels import cached_attention


class LatentStep:
    """Runs attention over a layer's cache; projections, norms and gates are those of the training's block.

    Attributes:
        x: what it reads, [M, hidden + R]; whoever comes before writes the first columns.
    """

    def __init__(self, index: int, block: LatentBlock, x: torch.Tensor, context: Context) -> None:
        self._block, self.x, self._with_adapter = block, x, context.with_adapter
        self._shape, cache = block.shape.remembered, context.cache
        self._keys, self._values, self._lengths = cache.keys[index], cache.values[index], cache.lengths
        self._rows, self._heads = context.rows(block.qkv_width), context.rows(block.heads_width)
        self._qkv = context.rows(self._shape.num_columns)
        self._parts = context.attention_parts(self._shape.num_heads, self._shape.value_dim)

    def forward(self, out: torch.Tensor, rotary: Rotary) -> None:
        """Write the block's output, [M, hidden]."""
        block, shape, rows = self._block, self._shape, self._rows
        block.project(self.x, rows, rotary, self._with_adapter)
        parts = block.queries(rows, rotary), *block.keys_values(rows, rotary)
        torch.cat([part.flatten(1) for part in parts], dim=1, out=self._qkv)
        heads = self._heads[:, : shape.output_width]
        cached_attention.attend(self._qkv, self._keys, self._values, self._lengths, shape, self._parts, heads)
        block.put_out(rows, self._heads, out, self._with_adapter)
