"""A layer's third block and the numbers of its own that it reads, for one token of each row; see `PerLayerShape`."""

from __future__ import annotations

from dataclasses import replace

import torch

from tunesmith_engine.decode.context import Context
from tunesmith_engine.decode.product import StepProjection
from tunesmith_engine.fused.assembly import Assembly
from tunesmith_engine.fused.layer_projections import LayerProjections
from tunesmith_engine.fused.projection import Projection
from tunesmith_engine.shapes import LayerShape


class PerLayerStep:
    """Makes the own numbers of all layers."""

    def __init__(self, assembly: Assembly, context: Context) -> None:
        self._table = assembly.per_layer_of(context.workspace, context.num_rows)
        self._x = context.rows(assembly.gradient_width)
        self._with_adapter = context.with_adapter

    def forward(self, ids: torch.Tensor, embedded: torch.Tensor) -> None:
        """Write them to the workspace, for tokens, [M], and what the embedding gives, [M, hidden]."""
        assert self._table is not None, "asked only where there are some"
        self._x[:, : embedded.shape[1]].copy_(embedded)
        self._table.forward(ids, self._x, self._with_adapter)


class ThirdStep:
    """Runs the third block of a layer."""

    def __init__(self, shape: LayerShape, parts: LayerProjections, assembly: Assembly, context: Context) -> None:
        gate, output = parts.per_layer_gate, parts.per_layer_output
        if not isinstance(gate, Projection) or not isinstance(output, Projection):
            raise TypeError(f"{shape.name} was not checked.")
        first, last = context.product(gate), context.product(output, is_last=True)
        for_rows = replace(
            parts, per_layer_gate=StepProjection(gate, first), per_layer_output=StepProjection(output, last)
        )
        block = assembly.per_layer_block_of(shape, for_rows, context.workspace, context.num_rows)
        assert block is not None, "asked only where there is one"
        self._block, self._x, self._with_adapter = block, first.x, context.with_adapter

    def forward(self, x: torch.Tensor, out: torch.Tensor) -> None:
        """Write the block's output, [M, hidden], for the stream, [M, hidden]."""
        self._x[:, : x.shape[1]].copy_(x)
        self._block.forward(self._x, out, self._with_adapter)
