"""The MLP of one layer between its norm and the residual, in tiles of rows so that long batches need no more."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tunesmith_engine.fused.plain_modules import PlainModules
from tunesmith_engine.fused.projection import Projection
from tunesmith_engine.fused.sent_tiles import SentTiles
from tunesmith_engine.fused.weight_gradients import WeightGradients
from tunesmith_engine.fused.workspace import Workspace
from tunesmith_engine.kernels import glu, rms_norm
from tunesmith_engine.kernels.column_dots import column_dots, gated_column_dots
from tunesmith_engine.kernels.copy_rows import copy_rows
from tunesmith_engine.mixer_shapes import Norm
from tunesmith_engine.shapes import MlpShape


class MlpBlock:
    """Runs an MLP, with or without a gate, forward and backward, on buffers that the layer hands it.

    Attributes:
        inputs, down: the projections.
        gate_up_width: columns of a buffer that keeps gate and up; in the backward pass it holds their gradients.
    """

    def __init__(
        self,
        shape: MlpShape,
        inputs: Projection | PlainModules,
        down: Projection | PlainModules,
        workspace: Workspace,
        tile_tokens: int,
        keeps_gate_up: bool,
        gradients: WeightGradients | None = None,
    ) -> None:
        self.shape, self.inputs, self.down, self._gradients = shape, inputs, down, gradients
        self._workspace, self._tile_tokens = workspace, tile_tokens
        self.gate_up_width = shape.inner_width + inputs.num_extra
        self._hidden_width = shape.width + down.num_extra
        # Columns that gate and up leave free until their gradients come: enough for S = hidden A^T of `down`?
        self._keeps_shrunk = 0 < down.num_extra <= inputs.num_extra
        shapes = [(tile_tokens, self._hidden_width)]
        if not keeps_gate_up:
            shapes.append((tile_tokens, self.gate_up_width))
        workspace.reserve("block", *shapes)
        if shape.norm is not None:
            workspace.reserve("mlp_norm", *[(tile_tokens, shape.width)] * 2)
        if shape.cut is not None:
            workspace.reserve("cut gates", (tile_tokens, shape.width))

    def forward(
        self,
        x: torch.Tensor,
        out: torch.Tensor,
        gate_up: torch.Tensor | None,
        with_adapter: bool = True,
        sent: SentTiles | None = None,
        first_row: int = 0,
    ) -> None:
        """Write the block's output.

        Args:
            x: [T, hidden + R]; its last R columns are written.
            out: [T, hidden].
            gate_up: [T, gate_up_width] to keep gate and up for the backward pass, and what `down` shrank, or None.
            with_adapter: False leaves the adapters out.
            sent: tiles of gate and up that go to the computer's memory for the backward pass, or None.
            first_row: where in the micro-batch x begins.
        """
        for number, rows in enumerate(self._tiles(x.shape[0])):
            room = sent.write(number, rows.stop - rows.start) if sent else None
            self._begin_at(first_row + rows.start)
            hidden, tile = self._buffers(rows, gate_up, room)
            self._gate_up(x[rows], tile, with_adapter)
            self._fill(tile, hidden)
            if sent:
                sent.written(number)
            self.down.forward(hidden, out[rows], with_adapter)
            if gate_up is not None and self._keeps_shrunk:
                copy_rows(hidden[:, self.shape.width :], self._kept_shrunk(tile))

    def put_out(self, x: torch.Tensor, out: torch.Tensor, gate_up: torch.Tensor, first_row: int) -> None:
        """Write the output of a forward pass again, from the gate and up that it kept; see there."""
        for rows in self._tiles(x.shape[0]):
            self._begin_at(first_row + rows.start)
            hidden, tile = self._buffers(rows, gate_up, None)
            self._fill(tile, hidden)
            self.down.forward(hidden, out[rows])

    def backward(
        self,
        gradient: torch.Tensor,
        x: torch.Tensor,
        out: torch.Tensor,
        gate_up: torch.Tensor | None,
        sent: SentTiles | None = None,
        first_row: int = 0,
    ) -> None:
        """Write the gradient of the normalised input and add those of the adapters; down is not computed again.

        Args:
            gradient: of the block's output, [T, hidden + R]; its last R columns are written.
            x: [T, hidden + R]; its last R columns are written.
            out: [T, hidden]; may be the first columns of `gradient`.
            gate_up: what the forward pass kept, or None; it is used up.
            sent: what it was given, or None; other tiles than these are computed again.
            first_row: as in the forward pass.
        """
        width = self.shape.width
        # In reverse: the tiles that were sent last are still there.
        for number, rows in reversed(list(enumerate(self._tiles(x.shape[0])))):
            there = sent.read(number, rows.stop - rows.start) if sent else None
            self._begin_at(first_row + rows.start)
            hidden, tile = self._buffers(rows, gate_up, there)
            if gate_up is None and there is None:
                self._gate_up(x[rows], tile, True)
            elif isinstance(self.inputs, Projection):
                self.inputs.shrink(x[rows])
            to_hidden, dots = hidden[:, :width], None
            if self.shape.norm is not None:
                dots = self._down_and_norm_backward(self.shape.norm, gradient[rows], hidden, tile)
            elif isinstance(self.down, Projection):
                self.down.input_gradient(gradient[rows], to_hidden)
                dots = self._dots(to_hidden, tile)
                self._activate_backward(to_hidden, tile, to_hidden)
                if gate_up is not None and self._keeps_shrunk:
                    copy_rows(self._kept_shrunk(tile), hidden[:, width:])
                else:
                    self.down.shrink(hidden)
                self.down.accumulate(gradient[rows], hidden)
            else:
                self._activate(tile, to_hidden)
                self.down.backward(gradient[rows], to_hidden, to_hidden)
                dots = self._dots(to_hidden, tile)
                self._activate_backward(to_hidden, tile, None)
            self._scale(tile)
            if dots is not None and isinstance(self.inputs, Projection):
                self.inputs.add_to_magnitudes(dots, tile)
            self.inputs.backward(tile, x[rows], out[rows])
            if sent:
                sent.used(number)

    def _down_and_norm_backward(
        self, norm: Norm, gradient: torch.Tensor, hidden: torch.Tensor, tile: torch.Tensor
    ) -> torch.Tensor | None:
        """Go through the down projection and the norm before it, to gate and up; return what `_dots` does."""
        shape = (len(tile), self.shape.width)
        activated, slope = self._workspace.carve("mlp_norm", shape, shape)
        self._activate(tile, activated)
        statistics = rms_norm.add_norm(activated, None, norm, hidden[:, : self.shape.width])
        if isinstance(self.down, Projection):
            self.down.input_gradient(gradient, slope)
            self.down.shrink(hidden)
            self.down.accumulate(gradient, hidden)
        else:
            self.down.backward(gradient, hidden, slope)
        if self._gradients:
            self._gradients.add_norm(norm, slope, activated, statistics)
        rms_norm.norm_backward(slope, activated, norm, statistics, slope)
        dots = self._dots(slope, tile)
        self._activate_backward(slope, tile, None)
        return dots

    def _begin_at(self, row: int) -> None:
        """Tell the projections where in the micro-batch the tile begins."""
        for part in (self.inputs, self.down):
            if isinstance(part, Projection):
                part.first_row = row

    def _dots(self, to_hidden: torch.Tensor, tile: torch.Tensor) -> torch.Tensor | None:
        """Return gate and up times their gradients, summed over the tile, where DoRA's magnitudes need them."""
        if not self.inputs.has_magnitudes:
            return None
        inner = tile[:, : self.shape.inner_width]
        if self.shape.gated and self.shape.cut is None:
            return gated_column_dots(to_hidden, inner, self.shape.activation)
        slope = inner.clone()
        self._activate_backward(to_hidden, slope, None)
        return column_dots(slope, inner)

    def _fill(self, tile: torch.Tensor, hidden: torch.Tensor) -> None:
        """Write what the down projection reads of a tile."""
        inner = hidden[:, : self.shape.width]
        self._activate(tile, inner)
        if self.shape.norm is not None:
            rms_norm.add_norm(inner, None, self.shape.norm, inner)

    def _activate(self, tile: torch.Tensor, out: torch.Tensor) -> None:
        """Write activation(gate) * up of a tile, or activation(up)."""
        gate, up = self._halves(tile)
        if self.shape.cut is not None:
            gate, _, _ = self._cut(gate, self.shape.cut)
        if self.shape.function is None:
            glu.gate_and_multiply(gate, up, self.shape.activation, out)
        else:
            out.copy_(self.shape.function(gate))

    def _activate_backward(self, gradient: torch.Tensor, tile: torch.Tensor, out: torch.Tensor | None) -> None:
        """Turn gate and up into their gradients, where they are; write their product to `out` if that is given."""
        gate, up = self._halves(tile)
        if self.shape.cut is not None:
            cut, mean, deviation = self._cut(gate, self.shape.cut)
            is_below = cut <= 0.0
            glu.gate_backward(gradient, cut, up, self.shape.activation, cut, up, out_hidden=out)
            _cut_backward(cut.masked_fill_(is_below, 0.0), gate, mean, deviation, self.shape.cut)
            return
        if self.shape.function is None:
            glu.gate_backward(gradient, gate, up, self.shape.activation, gate, up, out_hidden=out)
            return
        with torch.enable_grad():
            leaf = gate.detach().clone().requires_grad_()
            product = self.shape.function(leaf)
            product.backward(gradient.to(product.dtype))
        if out is not None:
            out.copy_(product.detach())
        if leaf.grad is not None:
            gate.copy_(leaf.grad)

    def _cut(self, gate: torch.Tensor, cut: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return relu(gate - mean - cut * deviation), [T, width], and mean and standard deviation of rows, [T, 1]."""
        (out,) = self._workspace.carve("cut gates", (len(gate), self.shape.width))
        deviation, mean = torch.std_mean(gate, dim=-1, correction=0, keepdim=True)
        torch.sub(gate, torch.add(mean, deviation, alpha=cut), out=out)
        return out.relu_(), mean, deviation

    def _gate_up(self, x: torch.Tensor, tile: torch.Tensor, with_adapter: bool) -> None:
        self.inputs.forward(x, tile[:, : self.shape.inner_width], with_adapter)
        self._scale(tile)

    def _scale(self, tile: torch.Tensor) -> None:
        """Multiply gate and up, or their gradients, by the factors that a model has for them."""
        for half, factor in zip(self._halves(tile), self.shape.scales or (), strict=False):
            if half is not None and factor != 1.0:
                half.mul_(factor)

    def _halves(self, tile: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        if not self.shape.gated:
            return tile[:, : self.shape.width], None
        return tile[:, : self.shape.width], tile[:, self.shape.width : 2 * self.shape.width]

    def _kept_shrunk(self, tile: torch.Tensor) -> torch.Tensor:
        start = self.shape.inner_width
        return tile[:, start : start + self.down.num_extra]

    def _tiles(self, num_tokens: int) -> Iterator[slice]:
        for start in range(0, num_tokens, self._tile_tokens):
            yield slice(start, min(start + self._tile_tokens, num_tokens))

    def _buffers(
        self, rows: slice, gate_up: torch.Tensor | None, sent: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the buffers of a tile: the product of gate and up with its adapter columns, and gate with up."""
        num_rows = rows.stop - rows.start
        shapes = [(num_rows, self._hidden_width)]
        own = sent if gate_up is None else gate_up[rows]
        if own is not None:
            return self._workspace.carve("block", *shapes)[0], own
        hidden, tile = self._workspace.carve("block", *shapes, (num_rows, self.gate_up_width))
        return hidden, tile


def _cut_backward(
    gradient: torch.Tensor, gate: torch.Tensor, mean: torch.Tensor, deviation: torch.Tensor, cut: float
) -> None:
    """Turn gates into their gradient, where they are, from that of relu's input, [T, width]; see `MlpBlock._cut`."""
    share = gradient.sum(-1, keepdim=True, dtype=torch.promote_types(gate.dtype, torch.float32)) / gate.shape[1]
    # Equal gates have no deviation, and none of them is above their mean.
    along = torch.where(deviation > 0.0, share * cut / deviation, 0.0).to(gate.dtype)
    gate.sub_(mean).mul_(-along).add_(gradient).sub_(share.to(gate.dtype))


class PlainMlp:
    """An MLP that only its own module can compute, such as a mixture of experts."""

    gate_up_width = 0

    def __init__(self, inputs: PlainModules) -> None:
        self.inputs = inputs
        self.down = inputs

    def forward(
        self,
        x: torch.Tensor,
        out: torch.Tensor,
        gate_up: torch.Tensor | None,  # noqa: ARG002 - called like MlpBlock
        with_adapter: bool = True,
        sent: SentTiles | None = None,  # noqa: ARG002
        first_row: int = 0,  # noqa: ARG002
    ) -> None:
        """Write the module's output for x, [T, hidden], to out, [T, hidden]; nothing is kept."""
        self.inputs.forward(x, out, with_adapter)

    def put_out(
        self,
        x: torch.Tensor,
        out: torch.Tensor,
        gate_up: torch.Tensor,  # noqa: ARG002 - called like MlpBlock
        first_row: int,  # noqa: ARG002
    ) -> None:
        """Write the module's output again."""
        self.inputs.forward(x, out)

    def backward(
        self,
        gradient: torch.Tensor,
        x: torch.Tensor,
        out: torch.Tensor,
        gate_up: torch.Tensor | None,  # noqa: ARG002 - called like MlpBlock
        sent: SentTiles | None = None,  # noqa: ARG002
        first_row: int = 0,  # noqa: ARG002
    ) -> None:
        """Write the input's gradient by running the module once more."""
        self.inputs.backward(gradient, x, out)
