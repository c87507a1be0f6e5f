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
        shape: of the layer's attention.
        x: what it reads, [M, hidden + R]; whoever comes before writes the first columns.
        qkv: queries, keys and values as attention takes them, and gates, once the layer has run.
    """

    def __init__(
        self,
        index: int,
        shape: AttentionShape,
        inputs: Projection,
        output: Projection,
        lender: AttentionStep | None,
        context: Context,
    ) -> None:
        """Make the buffers.

        Args:
            index: of the layer.
            shape: of its attention.
            inputs, output: the projections around it.
            lender: the step whose finished keys and values this one reads, or None for its own.
            context: of the step.
        """
        self.shape, self._lender, cache = shape, lender, context.cache
        self._inputs, self._output = context.product(inputs), context.product(output, is_last=True)
        self.x = self._inputs.x
        self._product = context.rows(inputs.num_outputs)
        self.qkv = context.rows(self._columns + shape.num_gates) if self._moves else self._product
        index = index if shape.source is None else shape.source
        self._keys, self._values, self._lengths = cache.keys[index], cache.values[index], cache.lengths
        self._parts = context.attention_parts(shape.num_heads, shape.value_dim)

    @property
    def _moves(self) -> bool:
        """Whether queries, keys and values lie elsewhere than the projection has them."""
        return self.shape.pieces is not None or self._lender is not None

    @property
    def _columns(self) -> int:
        """Width of queries, keys and values together."""
        shape = self.shape
        return shape.numbers_per_token + shape.num_key_value_heads * (shape.head_dim + shape.value_dim)

    def forward(self, out: torch.Tensor, rotary: Rotary) -> None:
        """Write the block's output, [M, hidden]."""
        shape = self.shape
        self._inputs.forward(self._product)
        if self._lender is not None:
            num_query = shape.numbers_per_token
            self.qkv[:, :num_query].copy_(self._product)
            # The lender has left the token's own in its cache, too, where this writes the same.
            own = self._lender.qkv[:, self._lender.shape.numbers_per_token :]
            self.qkv[:, num_query:].copy_(own)
        elif shape.pieces is not None:
            gather(self._product, shape.pieces, self.qkv)
        qkv, gates = self.qkv[:, : self._columns], self.qkv[:, self._columns :]
        if shape.shares:
            _rotate_shared(shape, qkv, rotary)
        else:
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


def _rotate_shared(shape: AttentionShape, qkv: torch.Tensor, rotary: Rotary) -> None:
    """Do what `_rotate` does where values have a norm, or keys and values are those of another layer."""
    num_query, num_key = shape.numbers_per_token, shape.num_key_value_heads * shape.head_dim
    q, k, values = qkv[:, :num_query], qkv[:, num_query : num_query + num_key], qkv[:, num_query + num_key :]
    cos, sin = (rotary.cos, rotary.sin) if shape.rotary else (None, None)
    form, nothing = (shape.head_dim, shape.interleaved), q[:, :0]
    if shape.source is not None:
        rope.rotate(q, nothing, cos, sin, *form, shape.query_norm, shape.query_norm, q, nothing)
        return
    rope.rotate(q, k, cos, sin, *form, shape.query_norm, shape.key_norm, q, k)
    if norm := shape.value_norm:
        rope.rotate(values, nothing, None, None, shape.head_dim, False, norm, norm, values, nothing)


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
