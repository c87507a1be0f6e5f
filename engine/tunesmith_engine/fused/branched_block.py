"""A mixture of experts beside an MLP, each between norms of its own (Gemma 4); see `BranchNorms`.

The gradient of a norm needs what the norm read. What the two branches give is not kept for that: their last products
run again in the backward pass, a tile at a time.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from tunesmith_engine.fused.experts import Experts
from tunesmith_engine.fused.mlp_block import MlpBlock, PlainMlp
from tunesmith_engine.fused.projection import Projection
from tunesmith_engine.fused.routing import Choice, Router
from tunesmith_engine.fused.sparse_block import Shared, SparseBlock, Tile
from tunesmith_engine.fused.workspace import Workspace
from tunesmith_engine.kernels import expert_rows, rms_norm
from tunesmith_engine.kernels.column_dots import column_dots
from tunesmith_engine.shapes import BranchNorms, SparseShape


class BranchedBlock(SparseBlock):
    """Reads the stream itself, so it has no columns beside its input, nor beside the gradient of its output."""

    lends_room = True

    def __init__(
        self,
        shape: SparseShape,
        norms: BranchNorms,
        experts: Experts,
        router: Router,
        mlp: Shared,
        workspace: Workspace,
        tile_tokens: int,
        keeps_gate_up: bool,
        few_rows: bool = False,
    ) -> None:
        self._norms, self._mlp = norms, mlp
        super().__init__(shape, experts, router, mlp, workspace, tile_tokens, keeps_gate_up, few_rows)
        self.inputs = self.down = experts

    def _beside_experts(self, num_tokens: int) -> list[tuple[int, int]]:
        """Return the sizes of what a branch reads, and of what it gives or the gradient of that."""
        parts = self._mlp.inputs, self._mlp.down
        return [(num_tokens, self._hidden_size + part.num_extra) for part in parts]

    # Forward

    def _read(self, x: torch.Tensor, tile: Tile) -> torch.Tensor:
        numbers = self._numbers(tile.buffers[7])
        rms_norm.add_norm(self._numbers(x), None, self._norms.before_experts, numbers)
        return numbers

    def _put_shared(
        self,
        shared: Shared,
        x: torch.Tensor,
        out: torch.Tensor,
        tile: Tile,
        choice: Choice,  # noqa: ARG002 - of a shared MLP with a factor
        with_adapter: bool,
    ) -> None:
        read = tile.buffers[7]
        rms_norm.add_norm(self._numbers(x), None, self._norms.before, self._numbers(read))
        shared.forward(read, out, tile.of_shared, with_adapter, first_row=tile.rows.start)
        rms_norm.add_norm(out, None, self._norms.behind, out)

    def _add_experts(self, out: torch.Tensor, tile: Tile, choice: Choice) -> None:
        output = self._numbers(tile.buffers[8])
        self._combine(tile, choice, output)
        rms_norm.add_norm(output, None, self._norms.behind_experts, output)
        out.add_(output)

    # Backward

    def _tile_backward(
        self,
        gradient: torch.Tensor,
        x: torch.Tensor,
        out: torch.Tensor,
        tile: Tile,
        choice: Choice,
        gradients: list[torch.Tensor],
    ) -> None:
        # `out` may be where the gradient is, so it is written at last.
        self._through_experts(gradient, x, tile, choice, gradients[0])
        self._through_mlp(gradient, x, out, tile)

    def _through_experts(
        self, gradient: torch.Tensor, x: torch.Tensor, tile: Tile, choice: Choice, to_weights: torch.Tensor
    ) -> None:
        """Leave the gradient of a tile's stream that comes through the experts and both of their norms."""
        inner, outputs, shrunk, _, of_down, _, to_x, read, output = tile.buffers
        stream, numbers, slopes = self._numbers(x), self._numbers(read), self._numbers(output)
        before = rms_norm.add_norm(stream, None, self._norms.before_experts, numbers)
        if not tile.is_there:
            self._experts.gate_up.forward(numbers, tile.order, tile.own, True, shrunk, True)
        expert_rows.activate_rows(tile.own, self.shape.gate, inner)
        self._experts.down.forward(inner, tile.order, outputs, False, of_down, True)
        self._combine(tile, choice, slopes)
        behind = rms_norm.add_norm(slopes, None, self._norms.behind_experts, to_x)
        rms_norm.norm_backward(self._numbers(gradient), slopes, self._norms.behind_experts, behind, slopes)
        self._experts_backward(output, read, replace(tile, is_there=True), choice, to_weights)
        rms_norm.norm_backward(to_x, stream, self._norms.before_experts, before, to_x)

    def _through_mlp(self, gradient: torch.Tensor, x: torch.Tensor, out: torch.Tensor, tile: Tile) -> None:
        """Write the gradient of a tile's stream: what comes through the MLP, and what `_through_experts` left."""
        assert isinstance(self._mlp, MlpBlock | PlainMlp), "a step of decoding goes forwards only"
        _, outputs, *_, to_x, read, wide = tile.buffers
        stream, slopes, first_row = self._numbers(x), self._numbers(wide), tile.rows.start
        # What the experts' outputs were in is free by now.
        output = outputs[: len(x)]
        before = rms_norm.add_norm(stream, None, self._norms.before, self._numbers(read))
        if tile.is_there and tile.of_shared is not None:
            self._mlp.put_out(read, output, tile.of_shared, first_row)
        else:
            self._mlp.forward(read, output, tile.of_shared, first_row=first_row)
        behind = rms_norm.add_norm(output, None, self._norms.behind, slopes)
        rms_norm.norm_backward(self._numbers(gradient), output, self._norms.behind, behind, slopes)
        last = self._mlp.down
        if isinstance(last, Projection) and last.has_magnitudes:
            last.add_to_magnitudes(column_dots(slopes, output), wide)
        self._mlp.backward(wide, read, out, tile.of_shared, first_row=first_row)
        rms_norm.norm_backward(out, stream, self._norms.before, before, out, residual=to_x)

    def _numbers(self, wide: torch.Tensor) -> torch.Tensor:
        """Return a tile without the columns of adapters beside it."""
        return wide[:, : self._hidden_size]
