"""One token more for each row: the model on buffers that stay where they are, so that a CUDA graph can hold it.

# M rows, V vocabulary
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tunesmith_engine.decode.attention_step import AttentionStep
from tunesmith_engine.decode.cache import KeyValueCache
from tunesmith_engine.decode.context import Context
from tunesmith_engine.decode.mlp_step import MlpStep, SparseStep
from tunesmith_engine.decode.rotary import RotaryTables
from tunesmith_engine.fused.assembly import Assembly, LayerProjections
from tunesmith_engine.fused.projection import Projection
from tunesmith_engine.fused.queries_keys import Rotary
from tunesmith_engine.kernels import rms_norm
from tunesmith_engine.kernels.embedding import add_positions, embed
from tunesmith_engine.mixer_shapes import AttentionShape, Norm
from tunesmith_engine.shapes import LayerShape, MlpShape, NotFusableError, SparseShape, UnfusedLayer


@dataclass(frozen=True, slots=True)
class StepLayer:
    """A decoder layer with its blocks."""

    shape: LayerShape
    mixer: AttentionStep
    mlp: MlpStep | SparseStep


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
        context = Context(cache, torch.empty(0, device=compute.device, dtype=compute.dtype), with_adapter)
        self.ids = torch.zeros(num_rows, device=compute.device, dtype=torch.int64)
        self._x, self._y, self._read = (context.rows(shape.hidden_size) for _ in range(3))
        self._head = context.product(assembly.tables.head(with_adapter))
        self.logits = context.rows(assembly.head.num_outputs)
        self._layers = [
            _layer(index, layer, parts, assembly, context)
            for index, (layer, parts) in enumerate(zip(shape.layers, assembly.projections, strict=True))
            if isinstance(layer, LayerShape)
        ]
        mixtures = [layer.mlp for layer in self._layers if isinstance(layer.mlp, SparseStep)]
        self._capturable = self.ids.is_cuda and all(mixture.capturable for mixture in mixtures)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._num_runs = 0

    def run(self) -> None:
        """Read `ids`, write `logits` and count the tokens of the cache; from the third time on a GPU by a graph."""
        self._num_runs += 1
        if self._graph is None and self._num_runs == 3 and self._capturable:
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
        turned = {kind: Rotary(*pair, cache.lengths) for kind, pair in self.rotary.at(cache.lengths).items()}
        pending: torch.Tensor | None = None
        scale = 1.0
        for layer in self._layers:
            _add_norm(self._x, pending, layer.shape.input_norm, layer.mixer.x, scale)
            if layer.shape.parallel and not layer.shape.mlp_norm:
                # Attention's own products may overwrite it before the MLP reads it.
                self._read.copy_(layer.mixer.x[:, : self._x.shape[1]])
            layer.mixer.forward(self._y, turned[layer.shape.rotary_kind])
            if layer.shape.post_attention_norm:
                rms_norm.add_norm(self._y, None, layer.shape.post_attention_norm, self._y)
            scale = layer.shape.residual_scale
            self._mlp(layer.shape, layer.mlp, scale)
            pending = self._y
        head = self._head.x[:, : shape.hidden_size]
        rms_norm.add_norm(self._x, pending, shape.final_norm, head, None, scale)
        self._head.forward(self.logits)
        cache.lengths.add_(1)

    def _mlp(self, shape: LayerShape, mlp: MlpStep | SparseStep, scale: float) -> None:
        """Add the attention block's output to the stream; write that of the MLP to `_y`."""
        if shape.parallel and shape.mlp_norm:
            _add_norm(self._x, None, shape.mlp_norm, mlp.x, scale)
            self._x.add_(self._y if scale == 1.0 else self._y * scale)
        elif shape.parallel:
            # The MLP reads what attention read.
            mlp.x[:, : self._x.shape[1]].copy_(self._read)
            self._x.add_(self._y if scale == 1.0 else self._y * scale)
        else:
            _add_norm(self._x, self._y, shape.mlp_norm, mlp.x, scale)
        mlp.forward(mlp.x, self._y)
        if shape.post_mlp_norm:
            rms_norm.add_norm(self._y, None, shape.post_mlp_norm, self._y)


def check_steppable(assembly: Assembly) -> None:
    """Raise NotFusableError where a part of the model runs only as transformers wrote it, or has no step of its own."""
    if assembly.shape.begins_as_written:
        raise NotFusableError("{name} has parts that run in plain PyTorch only.", name="The embedding")
    for layer, parts in zip(assembly.shape.layers, assembly.projections, strict=True):
        mlp = layer.mlp.shared if isinstance(layer.mlp, SparseShape) else layer.mlp
        is_written = isinstance(mlp, MlpShape) and mlp.function is not None
        is_written |= isinstance(layer.mlp, SparseShape) and parts.experts is None
        is_written |= not all(isinstance(part, Projection) for part in parts.all())
        if is_written or isinstance(layer, UnfusedLayer):
            raise NotFusableError("{name} has parts that run in plain PyTorch only.", name=layer.name)
        attention = layer.attention
        has_more = layer.per_layer is not None or layer.output_scale != 1.0 or layer.norms_stream
        has_more |= layer.mlp is None or not isinstance(attention, AttentionShape)
        if has_more or not isinstance(attention, AttentionShape) or attention.shares:
            raise NotFusableError("{name} has no fused step for single tokens.", name=layer.name)


def _layer(
    index: int, shape: LayerShape, parts: LayerProjections, assembly: Assembly, context: Context
) -> StepLayer:
    attention, mlp, inputs, output = shape.attention, shape.mlp, parts.attention_inputs, parts.attention_output
    if not isinstance(attention, AttentionShape) or mlp is None:
        raise TypeError(f"{shape.name} was not checked.")
    mixer = AttentionStep(index, attention, _checked(inputs), _checked(output), context)
    dense: MlpStep | None = None
    own = mlp.shared if isinstance(mlp, SparseShape) else mlp
    if isinstance(own, MlpShape):
        dense = MlpStep(own, _checked(parts.mlp_inputs), _checked(parts.mlp_down), context)
    if isinstance(mlp, SparseShape) and parts.experts is not None:
        return StepLayer(shape, mixer, SparseStep(mlp, parts.experts, assembly.router_of(mlp, True), dense, context))
    if dense is None:
        raise TypeError(f"{shape.name} was not checked.")
    return StepLayer(shape, mixer, dense)


def _checked(part: object) -> Projection:
    """Return a part that `check_steppable` let pass."""
    if not isinstance(part, Projection):
        raise TypeError("The layer was not checked.")
    return part


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
