"""Attention of a layer for one token more of each row, between the layer's norm and the residual.

# M rows, H heads, D head size, K key and value heads
"""

from __future__ import annotations

import torch

from tunesmith_engine.decode.context import Context
from tunesmith_engine.fused import head_gates, queries_keys
from tunesmith_engine.fused.attention_block import GATE
from tunesmith_engine.fused.pieces import gather
from tunesmith_engine.fused.projection import Projection
from tunesmith_engine.fused.queries_keys import Rotary
from tunesmith_engine.kernels import cached_attention, glu, rms_norm, rope
from tunesmith_engine.mixer_shapes import AttentionShape, Norm


class AttentionStep:
    """Runs attention over a layer's cache.

    Attributes:
        x: what it reads, [M, hidden + R]; whoever comes before writes the first columns.
    """

    def __init__(
        self, index: int, shape: AttentionShape, inputs: Projection, output: Projection, context: Context
    ) -> None:
        self._shape, cache = shape, context.cache
        self._inputs, self._output = context.product(inputs), context.product(output, is_last=True)
        self.x = self._inputs.x
        self._qkv = context.rows(inputs.num_outputs)
        self._keys, self._values, self._lengths = cache.keys[index], cache.values[index], cache.lengths
        self._parts = context.attention_parts(shape.num_heads, shape.value_dim)

    def forward(self, out: torch.Tensor, rotary: Rotary) -> None:
        """Write the block's output, [M, hidden]."""
        shape, qkv = self._shape, self._qkv
        self._inputs.forward(qkv)
        if shape.pieces is not None:
            gather(qkv.clone(), shape.pieces, qkv)
        width = qkv.shape[1] - shape.num_gates
        qkv, gates = qkv[:, :width], qkv[:, width:]
        _rotate(shape, qkv, rotary)
        heads = self._output.x[:, : shape.output_width]
        cached_attention.attend(qkv, self._keys, self._values, self._lengths, shape, self._parts, heads)
        if shape.output_norm:
            rms_norm.add_norm(heads, None, shape.output_norm, heads)
        elif shape.head_gate:
            head_gates.forward(shape, heads, gates, heads)
        elif shape.output_gate:
            glu.gate_and_multiply(gates, heads, GATE, heads)
        self._output.forward(out)


def _rotate(shape: AttentionShape, qkv: torch.Tensor, rotary: Rotary) -> None:
    """Normalise and rotate queries and keys where they are, and clip the values."""
    num_query, num_key = shape.num_heads * shape.head_dim, shape.num_key_value_heads * shape.head_dim
    q, k = qkv[:, :num_query], qkv[:, num_query : num_query + num_key]
    values = qkv[:, num_query + num_key :]
    if shape.clip is not None:
        values.clamp_(-shape.clip, shape.clip)
    if shape.value_scale != 1.0:
        values.mul_(shape.value_scale)
    if shape.steps_apart:
        queries_keys.forward(shape, (q, k), rotary, (q, k))
        return
    norms: tuple[Norm | None, Norm | None] = (shape.query_norm, shape.key_norm)
    if apart := shape.norms_apart:
        for part, norm in zip((q, k), apart, strict=True):
            if shape.whole_width_norms:
                rms_norm.add_norm(part, None, norm, part)
            else:
                heads = part.clone().view(-1, shape.head_dim)
                rms_norm.add_norm(heads, None, norm, heads)
                part.copy_(heads.view(part.shape))
        norms = (None, None)
    cos, sin = (rotary.cos, rotary.sin) if shape.rotary else (None, None)
    if cos is not None or norms[0] is not None:
        rope.rotate(q, k, cos, sin, shape.head_dim, shape.interleaved, *norms, q, k)
