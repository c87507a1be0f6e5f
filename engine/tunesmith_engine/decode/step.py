"""One token more for each row: the model on buffers that stay where they are, so that a CUDA graph can hold it.

# M rows, H heads, D head size, K key and value heads, V vocabulary
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tunesmith_engine.decode.cache import KeyValueCache
from tunesmith_engine.decode.product import Inputs, Product
from tunesmith_engine.decode.rotary import RotaryTables
from tunesmith_engine.fused import queries_keys
from tunesmith_engine.fused.assembly import Assembly
from tunesmith_engine.fused.layer_projections import LayerProjections
from tunesmith_engine.fused.pieces import gather
from tunesmith_engine.fused.projection import Projection
from tunesmith_engine.kernels import cached_attention, glu, rms_norm, rope
from tunesmith_engine.kernels.embedding import add_positions, embed
from tunesmith_engine.mixer_shapes import AttentionShape, Norm
from tunesmith_engine.shapes import LayerShape, MlpShape, NotFusableError


@dataclass(frozen=True, slots=True)
class StepLayer:
    """A decoder layer with its products in the order in which they run."""

    shape: LayerShape
    attention: AttentionShape
    attention_inputs: Product
    attention_output: Product
    gate_up: Product
    down: Product
    qkv: torch.Tensor


class Step:
    """The model for a fixed number of rows.

    Attributes:
        cache: of these rows; a step adds a token to each.
        ids: the tokens that the next step reads, [M] int64.
        logits: of the tokens that follow, [M, V] in the run's number format; a step overwrites them.
    """

    def __init__(self, assembly: Assembly, cache: KeyValueCache, rotary: RotaryTables, with_adapter: bool) -> None:
        self._assembly, self.cache, self.rotary, self._with_adapter = assembly, cache, rotary, with_adapter
        shape, compute, num_rows = assembly.shape, assembly.compute, cache.num_rows
        like = torch.empty(0, device=compute.device, dtype=compute.dtype)
        self.ids = torch.zeros(num_rows, device=compute.device, dtype=torch.int64)
        self._x, self._y, self._read = (like.new_zeros(num_rows, shape.hidden_size) for _ in range(3))
        inputs = Inputs(num_rows)
        self._head = Product(assembly.tables.head(with_adapter), inputs, like)
        self.logits = like.new_zeros(num_rows, assembly.head.num_outputs)
        self._layers = [
            _layer(layer, parts, inputs, like)
            for layer, parts in zip(shape.layers, assembly.projections, strict=True)
            if isinstance(layer, LayerShape)
        ]
        self._parts = {
            (heads, width): torch.empty(
                num_rows,
                heads,
                cached_attention.num_parts(num_rows, heads, cache.capacity),
                width + 2,
                device=compute.device,
            )
            for heads, width in {(attention.num_heads, attention.value_dim) for attention in shape.attentions}
        }
        self._graph: torch.cuda.CUDAGraph | None = None
        self._num_runs = 0

    def run(self) -> None:
        """Read `ids`, write `logits` and count the tokens of the cache; from the third time on a GPU by a graph."""
        self._num_runs += 1
        if self._graph is None and self._num_runs == 3 and self.ids.is_cuda:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._forward()
        if self._graph is None:
            self._forward()
        else:
            self._graph.replay()

    def _forward(self) -> None:
        shape, cache = self._assembly.shape, self.cache
        self._assembly.scratch.forget()
        embed(self.ids, self._assembly.tables.table(self._with_adapter), shape.embedding_scale, self._x)
        if shape.positions:
            add_positions(shape.positions, cache.lengths, self._x)
        if shape.embedding_norm:
            rms_norm.add_norm(self._x, None, shape.embedding_norm, self._x)
        turned = self.rotary.at(cache.lengths)
        pending: torch.Tensor | None = None
        scale = 1.0
        for index, layer in enumerate(self._layers):
            _add_norm(self._x, pending, layer.shape.input_norm, layer.attention_inputs.x, scale)
            if layer.shape.parallel and not layer.shape.mlp_norm:
                # Attention's own products may overwrite it before the MLP reads it.
                self._read.copy_(layer.attention_inputs.x[:, : self._x.shape[1]])
            self._attend(index, layer, *turned[layer.shape.rotary_kind])
            scale = layer.shape.residual_scale
            self._mlp(layer, scale)
            pending = self._y
        head = self._head.x[:, : shape.hidden_size]
        rms_norm.add_norm(self._x, pending, shape.final_norm, head, None, scale)
        self._head.forward(self.logits, self._with_adapter)
        cache.lengths.add_(1)

    def _attend(self, index: int, layer: StepLayer, cos: torch.Tensor | None, sin: torch.Tensor | None) -> None:
        """Write the attention block's output to `_y`."""
        attention, cache, qkv = layer.attention, self.cache, layer.qkv
        layer.attention_inputs.forward(qkv, self._with_adapter)
        if attention.pieces is not None:
            gather(qkv.clone(), attention.pieces, qkv)
        _rotate(attention, qkv, cos, sin, cache.lengths)
        heads = layer.attention_output.x[:, : attention.output_width]
        parts = self._parts[attention.num_heads, attention.value_dim]
        cached_attention.attend(qkv, cache.keys[index], cache.values[index], cache.lengths, attention, parts, heads)
        if attention.output_norm:
            rms_norm.add_norm(heads, None, attention.output_norm, heads)
        layer.attention_output.forward(self._y, self._with_adapter)
        if layer.shape.post_attention_norm:
            rms_norm.add_norm(self._y, None, layer.shape.post_attention_norm, self._y)

    def _mlp(self, layer: StepLayer, scale: float) -> None:
        """Add the attention block's output to the stream; write that of the MLP to `_y`."""
        shape = layer.shape
        if shape.parallel and shape.mlp_norm:
            _add_norm(self._x, None, shape.mlp_norm, layer.gate_up.x, scale)
            self._x.add_(self._y if scale == 1.0 else self._y * scale)
        elif shape.parallel:
            # The MLP reads what attention read.
            layer.gate_up.x[:, : self._x.shape[1]].copy_(self._read)
            self._x.add_(self._y if scale == 1.0 else self._y * scale)
        else:
            _add_norm(self._x, self._y, shape.mlp_norm, layer.gate_up.x, scale)
        hidden = layer.down.x[:, : layer.shape.mlp.width] if isinstance(layer.shape.mlp, MlpShape) else layer.down.x
        layer.gate_up.forward(hidden, self._with_adapter)
        if isinstance(shape.mlp, MlpShape) and not shape.mlp.gated:
            glu.gate_and_multiply(hidden, None, shape.mlp.activation, hidden)
        if isinstance(shape.mlp, MlpShape) and shape.mlp.norm:
            rms_norm.add_norm(hidden, None, shape.mlp.norm, hidden)
        layer.down.forward(self._y, self._with_adapter)
        if shape.post_mlp_norm:
            rms_norm.add_norm(self._y, None, shape.post_mlp_norm, self._y)


def check_steppable(assembly: Assembly) -> None:
    """Raise NotFusableError where a part of the model runs only as transformers wrote it, or has no step of its own."""
    if assembly.shape.begins_as_written:
        raise NotFusableError("{name} has parts that run in plain PyTorch only.", name="The embedding")
    for layer, parts in zip(assembly.shape.layers, assembly.projections, strict=True):
        if not all(isinstance(part, Projection) for part in parts.all()) or not isinstance(layer.mlp, MlpShape):
            raise NotFusableError("{name} has parts that run in plain PyTorch only.", name=layer.name)
        if layer.mlp.function is not None:
            raise NotFusableError("{name} has parts that run in plain PyTorch only.", name=layer.name)
        attention = layer.attention
        has_more = layer.per_layer is not None or layer.output_scale != 1.0 or layer.norms_stream
        if has_more or not isinstance(attention, AttentionShape) or attention.num_gates or attention.shares:
            raise NotFusableError("{name} has no fused step for single tokens.", name=layer.name)


def _layer(shape: LayerShape, parts: LayerProjections, inputs: Inputs, like: torch.Tensor) -> StepLayer:
    projections = [part for part in parts.all() if isinstance(part, Projection)]
    attention = shape.attention
    if len(projections) != 4 or not isinstance(shape.mlp, MlpShape) or not isinstance(attention, AttentionShape):
        raise TypeError(f"{shape.name} was not checked.")
    first, output, gate_up, down = projections
    return StepLayer(
        shape,
        attention,
        Product(first, inputs, like),
        Product(output, inputs, like),
        Product(gate_up, inputs, like, shape.mlp.activation if shape.mlp.gated else None),
        Product(down, inputs, like),
        like.new_empty(inputs.num_rows, first.num_outputs),
    )


def _add_norm(
    x: torch.Tensor, pending: torch.Tensor | None, norm: Norm | None, out: torch.Tensor, scale: float
) -> None:
    """Add the last block's output to the stream, in place, and write its norm to the first columns of `out`."""
    out = out[:, : x.shape[1]]
    if norm is not None:
        rms_norm.add_norm(x, pending, norm, out, x, scale)
        return
    if pending is not None:
        x.add_(pending if scale == 1.0 else pending * scale)
    out.copy_(x)


def _rotate(
    shape: AttentionShape,
    qkv: torch.Tensor,
    cos: torch.Tensor | None,
    sin: torch.Tensor | None,
    positions: torch.Tensor,
) -> None:
    """Normalise and rotate queries and keys where they are, and clip the values."""
    num_query, num_key = shape.num_heads * shape.head_dim, shape.num_key_value_heads * shape.head_dim
    q, k = qkv[:, :num_query], qkv[:, num_query : num_query + num_key]
    values = qkv[:, num_query + num_key :]
    if shape.clip is not None:
        values.clamp_(-shape.clip, shape.clip)
    if shape.value_scale != 1.0:
        values.mul_(shape.value_scale)
    if shape.steps_apart:
        queries_keys.forward(shape, (q, k), queries_keys.Rotary(cos, sin, positions), (q, k))
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
    if not shape.rotary:
        cos = sin = None
    if cos is not None or norms[0] is not None:
        rope.rotate(q, k, cos, sin, shape.head_dim, shape.interleaved, *norms, q, k)
