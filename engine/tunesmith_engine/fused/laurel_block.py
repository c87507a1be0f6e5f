"""Laurel, a low-rank branch beside attention; it is small, so the backward pass computes it again: see `LaurelShape`.

# T tokens, d hidden size, r Laurel's rank, R columns of the adapters (see projection.py)
"""

from __future__ import annotations

import torch

from tunesmith_engine.altup_shapes import LaurelShape
from tunesmith_engine.fused.plain_modules import PlainModules
from tunesmith_engine.fused.projection import Projection, add_to_magnitudes
from tunesmith_engine.fused.workspace import Workspace
from tunesmith_engine.kernels import rms_norm


class LaurelBlock:
    """Runs the branch of one layer on buffers that the layer hands it.

    Attributes:
        left, right: the projections.
    """

    def __init__(
        self,
        shape: LaurelShape,
        left: Projection | PlainModules,
        right: Projection | PlainModules,
        workspace: Workspace,
        capacity_tokens: int,
        hidden_size: int,
    ) -> None:
        self.shape, self.left, self.right = shape, left, right
        self._workspace, self._hidden_size = workspace, hidden_size
        workspace.reserve("block", *self._block(capacity_tokens))

    def _block(self, num_tokens: int) -> list[tuple[int, int]]:
        """Return the sizes of what is between the projections, its gradient, the output and its gradient."""
        rank, beside = self.shape.rank, self.right.num_extra
        widths = [rank + beside, rank + self.left.num_extra, self._hidden_size, self._hidden_size + beside]
        return [(num_tokens, width) for width in widths]

    def _compute(self, normed: torch.Tensor, with_adapter: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what is between the projections, [T, r + R], and the output before its norm, [T, d]."""
        between, _, output, _ = self._workspace.carve("block", *self._block(len(normed)))
        self.left.forward(normed, between[:, : self.shape.rank], with_adapter)
        self.right.forward(between, output, with_adapter)
        return between, output

    def join(self, x: torch.Tensor, normed: torch.Tensor, y: torch.Tensor, with_adapter: bool) -> None:
        """Turn attention's output into what the MLP's norm reads, where it is.

        Args:
            x: the layer's input, [T, d].
            normed: attention's input, [T, d + R]; its last R columns are written.
            y: attention's output, behind its norm, [T, d].
            with_adapter: False leaves the adapters out.
        """
        _, output = self._compute(normed, with_adapter)
        rms_norm.add_norm(output, None, self.shape.norm, output)
        y.add_(x).add_(output.add_(normed[:, : self._hidden_size])).mul_(self.shape.factor)

    def backward(self, gradient: torch.Tensor, normed: torch.Tensor, out: torch.Tensor | None) -> None:
        """Add the gradient of attention's input to `out`, [T, d], if given, and those of the adapters.

        Args:
            gradient: of the sum, times the factor, [T, d].
            normed: attention's input, [T, d + R]; its last R columns are written.
            out: where the gradient is added.
        """
        shape, hidden = self.shape, self._hidden_size
        between, output = self._compute(normed, True)
        _, to_between, _, to_output = self._workspace.carve("block", *self._block(len(normed)))
        # Only the statistics are needed; what else is written here is overwritten next.
        statistics = rms_norm.add_norm(output, None, shape.norm, to_output[:, :hidden])
        rms_norm.norm_backward(gradient, output, shape.norm, statistics, to_output[:, :hidden])
        add_to_magnitudes(self.right, to_output, output)
        self.right.backward(to_output, between, to_between[:, : shape.rank])
        add_to_magnitudes(self.left, to_between, between[:, : shape.rank])
        self.left.backward(to_between, normed, None if out is None else output)
        if out is not None:
            out.add_(output).add_(gradient)
