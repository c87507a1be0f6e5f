"""A layer's third block, x += norm(output(activation(gate(x)) * own)), and the numbers of its own that it reads.

Both are small beside the MLP, so the backward pass computes them again; see `PerLayerShape` and `PerLayerInputs`.

# T tokens, d hidden size, P numbers of a layer, L layers, R columns of the adapters (see projection.py)
"""

from __future__ import annotations

import torch

from tunesmith_engine.fused.plain_modules import PlainModules
from tunesmith_engine.fused.projection import Projection, add_to_magnitudes
from tunesmith_engine.fused.weight_gradients import WeightGradients
from tunesmith_engine.fused.workspace import Workspace
from tunesmith_engine.kernels import glu, rms_norm
from tunesmith_engine.kernels.column_dots import column_dots
from tunesmith_engine.kernels.copy_rows import copy_rows
from tunesmith_engine.kernels.embedding import embed
from tunesmith_engine.shapes import PerLayerInputs, PerLayerShape

REGION = "per layer"
"""Of the workspace: all layers' own numbers, [T, L P], and in the backward pass their gradients."""


class PerLayerBlock:
    """Runs the third block of one layer on buffers that the layer hands it.

    Attributes:
        gate, output: the projections.
    """

    def __init__(
        self,
        shape: PerLayerShape,
        gate: Projection | PlainModules,
        output: Projection | PlainModules,
        workspace: Workspace,
        capacity_tokens: int,
        num_columns: int,
        hidden_size: int,
        gradients: WeightGradients | None = None,
        needs_gradient: bool = True,
    ) -> None:
        """Reserve the memory.

        Args:
            shape: of the block.
            gate, output: its projections.
            workspace: with a region for all layers' own numbers.
            capacity_tokens: most tokens of a micro-batch.
            num_columns: of all layers' own numbers, L P.
            hidden_size: of the model.
            gradients: of whole weights, or None.
            needs_gradient: whether anything that makes the own numbers is trained.
        """
        self.shape, self.gate, self.output = shape, gate, output
        self._workspace, self._gradients = workspace, gradients
        self._num_columns, self._hidden_size = num_columns, hidden_size
        self._needs_gradient = needs_gradient
        workspace.reserve("block", *self._block(capacity_tokens))

    def _block(self, num_tokens: int) -> list[tuple[int, int]]:
        """Return the sizes of gates, their gradient, the gated numbers, their gradient, and the output."""
        width, beside_gate = self.shape.width, self.shape.width + self.gate.num_extra
        widths = [width, beside_gate, width + self.output.num_extra, width, self._hidden_size]
        return [(num_tokens, each) for each in widths]

    def _own(self, num_tokens: int) -> torch.Tensor:
        """Return the layer's own numbers, [T, P]."""
        (everything,) = self._workspace.carve(REGION, (num_tokens, self._num_columns))
        return everything[:, self.shape.first : self.shape.first + self.shape.width]

    def forward(self, x: torch.Tensor, out: torch.Tensor, with_adapter: bool) -> None:
        """Write the block's output, normalised, to `out`, [T, d], from the stream [T, d + R]."""
        self._compute(x, out, with_adapter)
        rms_norm.add_norm(out, None, self.shape.norm, out)

    def _compute(self, x: torch.Tensor, out: torch.Tensor, with_adapter: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the output before its norm; return gates, [T, P], and gated numbers, [T, P + R]."""
        gates, _, gated, *_ = self._workspace.carve("block", *self._block(len(x)))
        self.gate.forward(x, gates, with_adapter)
        glu.gate_and_multiply(gates, self._own(len(x)), self.shape.activation, gated[:, : self.shape.width])
        self.output.forward(gated, out, with_adapter)
        return gates, gated

    def backward(self, gradient: torch.Tensor, x: torch.Tensor, scratch: torch.Tensor) -> torch.Tensor:
        """Return the gradient of the stream that the block reads, in `scratch`, and add those of the adapters.

        Args:
            gradient: of the block's output, [T, d].
            x: the stream that the block reads, [T, d + R].
            scratch: [T, d + R], overwritten.
        """
        shape, hidden = self.shape, self._hidden_size
        _, to_gates, _, to_gated, output = self._workspace.carve("block", *self._block(len(x)))
        gates, gated = self._compute(x, output, True)
        to_output = scratch[:, : hidden + self.output.num_extra]
        # Only the statistics are needed; what else is written here is overwritten next.
        statistics = rms_norm.add_norm(output, None, shape.norm, to_output[:, :hidden])
        if self._gradients:
            self._gradients.add_norm(shape.norm, gradient, output, statistics)
        rms_norm.norm_backward(gradient, output, shape.norm, statistics, to_output[:, :hidden])
        add_to_magnitudes(self.output, to_output, output)
        self.output.backward(to_output, gated, to_gated)
        own = self._own(len(x))
        # The own numbers are not read again, so their gradients take their place.
        to_own = own if self._needs_gradient else to_gated
        glu.gate_backward(to_gated, gates, own, shape.activation, to_gates[:, : shape.width], to_own)
        add_to_magnitudes(self.gate, to_gates, gates)
        to_stream = scratch[:, :hidden]
        self.gate.backward(to_gates, x, to_stream)
        return to_stream


class PerLayerTable:
    """Makes the own numbers of all layers from tokens and their embedding, before the first layer.

    Attributes:
        projection: that reads the embedded tokens.
        needs_gradient: whether something is trained that the own numbers depend on.
    """

    def __init__(
        self,
        shape: PerLayerInputs,
        projection: Projection,
        workspace: Workspace,
        capacity_tokens: int,
        hidden_size: int,
        embeds: bool,
    ) -> None:
        """Reserve the memory.

        Args:
            shape: how they are made.
            projection: its linear layer.
            workspace: for all.
            capacity_tokens: most tokens of a micro-batch.
            hidden_size: of the model.
            embeds: the embedding is trained.
        """
        self.projection, self._shape, self._workspace = projection, shape, workspace
        self._hidden_size, self._embeds = hidden_size, embeds
        self.needs_gradient = embeds or projection.num_ranks > 0
        self.num_columns = shape.embedding.embedding_dim
        workspace.reserve(REGION, (capacity_tokens, self.num_columns))
        if self.needs_gradient:
            workspace.reserve("embedded", (capacity_tokens, hidden_size + projection.num_extra))
        workspace.reserve("block", *self._block(capacity_tokens))

    def _block(self, num_tokens: int) -> list[tuple[int, int]]:
        """Return the sizes of the gradient of the projection's output, with adapter columns, and of that output."""
        return [(num_tokens, self.num_columns + self.projection.num_extra), (num_tokens, self.num_columns)]

    def _project(self, x: torch.Tensor, out: torch.Tensor, with_adapter: bool) -> torch.Tensor:
        """Write the projection's output times its factor; return it with a layer's numbers in a row, [T L, P]."""
        self.projection.forward(x, out, with_adapter)
        out.mul_(self._shape.factor)
        return out.view(-1, self._shape.width)

    def forward(self, input_ids: torch.Tensor, embedded: torch.Tensor, with_adapter: bool) -> None:
        """Write the own numbers of all layers.

        Args:
            input_ids: of the tokens, [T].
            embedded: tokens, [T, d + R], whose last R columns are written.
            with_adapter: False leaves the adapters out.
        """
        shape, num_tokens = self._shape, len(embedded)
        (own,) = self._workspace.carve(REGION, (num_tokens, self.num_columns))
        x = embedded[:, : self._hidden_size + self.projection.num_extra]
        rows = self._project(x, own, with_adapter)
        rms_norm.add_norm(rows, None, shape.norm, rows)
        table = self._workspace.carve("block", *self._block(num_tokens))[1]
        read = torch.where(input_ids < shape.num_rows, input_ids, 0)
        embed(read, shape.embedding.weight.data, shape.embedding_scale, table)
        own.add_(table).mul_(shape.scale)
        if self.needs_gradient:
            (kept,) = self._workspace.carve("embedded", (num_tokens, x.shape[1]))
            copy_rows(x, kept)

    def backward(self, stream: torch.Tensor) -> None:
        """Add the gradients of the projection's adapter and, where that is trained, of the embedded tokens.

        Args:
            stream: gradient of the embedded tokens, [T, d], to which is added.
        """
        if not self.needs_gradient:
            return
        shape, num_tokens = self._shape, len(stream)
        (slopes,) = self._workspace.carve(REGION, (num_tokens, self.num_columns))
        (x,) = self._workspace.carve("embedded", (num_tokens, self._hidden_size + self.projection.num_extra))
        wide, raw = self._workspace.carve("block", *self._block(num_tokens))
        rows, out = self._project(x, raw, True), slopes.view(-1, shape.width)
        scrap = wide.flatten()[: rows.numel()].view_as(rows)
        statistics = rms_norm.add_norm(rows, None, shape.norm, scrap)
        rms_norm.norm_backward(out, rows, shape.norm, statistics, out)
        to_product = wide[:, : self.num_columns]
        torch.mul(slopes, shape.scale * shape.factor, out=to_product)
        if self.projection.has_magnitudes:
            # The output is there times its factor, by which the gradient was multiplied, too.
            dots = column_dots(to_product, raw) / shape.factor
            self.projection.add_to_magnitudes(dots, wide)
        to_embedded = x[:, : self._hidden_size] if self._embeds else None
        if to_embedded is not None:
            to_embedded = torch.empty_like(to_embedded)
        self.projection.backward(wide, x, to_embedded)
        if to_embedded is not None:
            stream.add_(to_embedded)
