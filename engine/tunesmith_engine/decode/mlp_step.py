"""The MLP of a layer, or its mixture of experts, for one token of each row.

# M rows, F numbers of the MLP
"""

from __future__ import annotations

import torch

from tunesmith_engine.decode.context import Context
from tunesmith_engine.fused.branched_block import BranchedBlock
from tunesmith_engine.fused.experts import Experts
from tunesmith_engine.fused.projection import Projection
from tunesmith_engine.fused.quiet import is_quiet
from tunesmith_engine.fused.routing import Router
from tunesmith_engine.fused.sent_tiles import SentTiles
from tunesmith_engine.fused.sparse_block import SparseBlock
from tunesmith_engine.kernels import glu, rms_norm
from tunesmith_engine.shapes import MlpShape, SparseShape


class MlpStep:
    """Runs an MLP, with or without a gate; also the one that all tokens of a mixture go through.

    Attributes:
        x: what it reads, [M, hidden + R]; whoever comes before writes the first columns.
        inputs, down, gate_up_width: as `SparseBlock` asks for them; nothing is kept here.
        capturable: a graph can hold its activation.
    """

    gate_up_width = 0

    def __init__(self, shape: MlpShape, inputs: Projection, down: Projection, context: Context) -> None:
        self._shape, self.inputs, self.down = shape, inputs, down
        # Factors stand between the product and the activation.
        at_once = shape.activation if shape.gated and shape.scales is None else None
        self._gate_up, self._down = context.product(inputs, at_once), context.product(down, is_last=True)
        self._apart = context.rows(shape.inner_width) if shape.scales is not None else None
        self.x = self._gate_up.x
        hidden = self._down.x[:, : shape.width]
        self.capturable = shape.function is None or is_quiet(lambda: self._activate(hidden), hidden.device)

    def _activate(self, hidden: torch.Tensor) -> None:
        """Replace what an MLP without a gate has inside by its activation."""
        if self._shape.function is not None:
            hidden.copy_(self._shape.function(hidden))
        else:
            glu.gate_and_multiply(hidden, None, self._shape.activation, hidden)

    def forward(
        self,
        x: torch.Tensor,
        out: torch.Tensor,
        gate_up: torch.Tensor | None = None,  # noqa: ARG002 - called like MlpBlock
        with_adapter: bool = True,  # noqa: ARG002 - the products know
        sent: SentTiles | None = None,  # noqa: ARG002
        first_row: int = 0,  # noqa: ARG002
    ) -> None:
        """Write the output, [M, hidden], for `x`, which is the attribute of that name or is copied there."""
        shape, hidden = self._shape, self._down.x[:, : self._shape.width]
        if x.data_ptr() != self.x.data_ptr():
            # A branch has its norm before it, and the products read their own rows.
            width = self.inputs.num_inputs
            self.x[:, :width].copy_(x[:, :width])
        if self._apart is not None:
            self._scaled(self._apart, hidden)
        else:
            self._gate_up.forward(hidden)
            if not shape.gated:
                self._activate(hidden)
        if shape.norm:
            rms_norm.add_norm(hidden, None, shape.norm, hidden)
        self._down.forward(out)

    def _scaled(self, inner: torch.Tensor, hidden: torch.Tensor) -> None:
        """Write activation(gate) * up of gate and up times their factors."""
        self._gate_up.forward(inner)
        gate, up = inner.chunk(2, dim=1)
        for half, factor in zip((gate, up), self._shape.scales or (), strict=False):
            half.mul_(factor)
        glu.gate_and_multiply(gate, up, self._shape.activation, hidden)


class SparseStep:
    """Runs a mixture of experts as the training does, one tile of M rows.

    Attributes:
        x: as of `MlpStep`.
        capturable: a graph can hold its router.
    """

    def __init__(
        self, shape: SparseShape, experts: Experts, router: Router, shared: MlpStep | None, context: Context
    ) -> None:
        self._with_adapter = context.with_adapter
        sizes = context.num_rows, False, True
        around, norms = (context.workspace, *sizes), shape.branch_norms
        if norms is not None and shared is not None:
            self._block: SparseBlock = BranchedBlock(shape, norms, experts, router, shared, *around)
        else:
            self._block = SparseBlock(shape, experts, router, shared, *around)
        # Branches read the stream, each through a norm of its own.
        self.x = shared.x if shared and norms is None else context.rows(experts.gate_up.num_inputs)
        numbers = self.x[:, : experts.gate_up.num_inputs]
        self.capturable = is_quiet(lambda: router.choose(numbers), numbers.device)
        self.capturable &= shared is None or shared.capturable

    def forward(self, x: torch.Tensor, out: torch.Tensor) -> None:
        """Write the output, [M, hidden], for `x`, which is the attribute of that name."""
        self._block.forward(x, out, None, self._with_adapter)
