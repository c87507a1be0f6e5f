"""One token more for each row: the model on buffers that stay where they are, so that a CUDA graph can hold it.

# M rows, V vocabulary
"""

from __future__ import annotations

import torch

from tunesmith_engine.decode.cache import KeyValueCache
from tunesmith_engine.decode.context import Context
from tunesmith_engine.decode.layers import MixerStep, StepLayer, layer_of
from tunesmith_engine.decode.mlp_step import MlpStep, SparseStep
from tunesmith_engine.decode.per_layer_step import PerLayerStep
from tunesmith_engine.decode.rotary import RotaryTables
from tunesmith_engine.fused.assembly import Assembly
from tunesmith_engine.fused.projection import Projection
from tunesmith_engine.fused.queries_keys import Rotary
from tunesmith_engine.kernels import rms_norm
from tunesmith_engine.kernels.embedding import add_positions, embed
from tunesmith_engine.mixer_shapes import Norm
from tunesmith_engine.shapes import LayerShape, MlpShape, NotFusableError, SparseShape, UnfusedLayer


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
        self._per_layer = PerLayerStep(assembly, context) if shape.per_layer else None
        self._layers: list[StepLayer] = []
        for layer, parts in zip(shape.layers, assembly.projections, strict=True):
            if not isinstance(layer, LayerShape):
                raise TypeError(f"{layer.name} was not checked.")
            self._layers.append(layer_of(layer, parts, assembly, context, self._layers))
        mlps = [layer.mlp for layer in self._layers if layer.mlp]
        self._capturable = self.ids.is_cuda and all(mlp.capturable for mlp in mlps)
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
        ids = self.ids if shape.placeholders is None else shape.placeholders.read(self.ids)
        embed(ids, self._assembly.tables.table(self._with_adapter), shape.embedding_scale, self._x)
        if shape.positions:
            add_positions(shape.positions, cache.lengths, self._x)
        if shape.embedding_norm:
            rms_norm.add_norm(self._x, None, shape.embedding_norm, self._x)
        if self._per_layer:
            self._per_layer.forward(ids, self._x)
        turned = {kind: Rotary(*pair, cache.lengths) for kind, pair in self.rotary.at(cache.lengths).items()}
        pending: torch.Tensor | None = None
        scale = 1.0
        for layer in self._layers:
            if layer.mixer:
                self._mix(layer.shape, layer.mixer, pending, scale, turned[layer.shape.rotary_kind])
                pending, scale = self._y, layer.shape.residual_scale
            if layer.mlp:
                self._mlp(layer.shape, layer.mlp, pending, scale)
                pending, scale = self._y, layer.shape.residual_scale
            if layer.third or layer.shape.output_scale != 1.0:
                self._end(layer, pending, scale)
                pending = None
        head = self._head.x[:, : shape.hidden_size]
        rms_norm.add_norm(self._x, pending, shape.final_norm, head, None, scale)
        self._head.forward(self.logits)
        cache.lengths.add_(1)

    def _mix(
        self, shape: LayerShape, mixer: MixerStep, pending: torch.Tensor | None, scale: float, rotary: Rotary
    ) -> None:
        """Add the last block's output to the stream; write that of attention, or what is in its place, to `_y`."""
        self._add_norm(pending, shape, shape.input_norm, mixer.x, scale)
        if shape.parallel and not shape.mlp_norm:
            # Attention's own products may overwrite it before the MLP reads it.
            self._read.copy_(mixer.x[:, : self._x.shape[1]])
        mixer.forward(self._y, rotary)
        if shape.post_attention_norm:
            rms_norm.add_norm(self._y, None, shape.post_attention_norm, self._y)

    def _mlp(
        self, shape: LayerShape, mlp: MlpStep | SparseStep, pending: torch.Tensor | None, scale: float
    ) -> None:
        """Add the last block's output to the stream; write that of the MLP to `_y`."""
        if shape.parallel and pending is not None:
            if shape.mlp_norm:
                self._add_norm(None, shape, shape.mlp_norm, mlp.x, scale)
            else:
                # The MLP reads what attention read.
                mlp.x[:, : self._x.shape[1]].copy_(self._read)
            self._x.add_(pending if scale == 1.0 else pending * scale)
        else:
            self._add_norm(pending, shape, shape.mlp_norm, mlp.x, scale)
        mlp.forward(mlp.x, self._y)
        if shape.post_mlp_norm:
            rms_norm.add_norm(self._y, None, shape.post_mlp_norm, self._y)


    def _add_norm(
        self, pending: torch.Tensor | None, shape: LayerShape, norm: Norm | None, out: torch.Tensor, scale: float
    ) -> None:
        """Add the last block's output to the stream, and write its norm to the first columns of `out`.

        Where the norm stands behind the sum, what it gives is the stream.
        """
        out = out[:, : self._x.shape[1]]
        if norm is not None:
            rms_norm.add_norm(self._x, pending, norm, out, self._x, scale)
            if shape.norms_stream:
                self._x.copy_(out)
            return
        if pending is not None:
            self._x.add_(pending if scale == 1.0 else pending * scale)
        out.copy_(self._x)

    def _end(self, layer: StepLayer, pending: torch.Tensor | None, scale: float) -> None:
        """Add the last block's output to the stream, and do what is behind that."""
        if pending is not None:
            self._x.add_(pending if scale == 1.0 else pending * scale)
        if layer.third:
            layer.third.forward(self._x, self._y)
            self._x.add_(self._y)
        if layer.shape.output_scale != 1.0:
            self._x.mul_(layer.shape.output_scale)


def check_steppable(assembly: Assembly) -> None:
    """Raise NotFusableError where a part of the model runs only as transformers wrote it, or has no step of its own."""
    if assembly.shape.begins_as_written:
        raise NotFusableError("{name} has parts that run in plain PyTorch only.", name="The embedding")
    for layer, parts in zip(assembly.shape.layers, assembly.projections, strict=True):
        mlp = layer.mlp
        is_written = isinstance(mlp, SparseShape) and parts.experts is None
        is_written |= not all(isinstance(part, Projection) for part in parts.all())
        if is_written or isinstance(layer, UnfusedLayer):
            raise NotFusableError("{name} has parts that run in plain PyTorch only.", name=layer.name)
        if isinstance(mlp, MlpShape) and mlp.cut is not None:
            raise NotFusableError("{name} has no fused step for single tokens.", name=layer.name)
