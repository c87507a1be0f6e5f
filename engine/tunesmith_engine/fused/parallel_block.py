"""Attention and a state-space scan that read the same norm and are added (Falcon H1), on buffers side by side.

# T tokens, A columns of attention's buffers, which come first, R columns of the adapters
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from tunesmith_engine.fused.attention_block import AttentionBlock
from tunesmith_engine.fused.projection import Projection
from tunesmith_engine.fused.queries_keys import Rotary
from tunesmith_engine.fused.state_space_block import StateSpaceBlock
from tunesmith_engine.fused.workspace import Workspace
from tunesmith_engine.kernels.column_dots import column_dots
from tunesmith_engine.mixer_shapes import ParallelShape
from tunesmith_engine.packed.batch import Documents

REGION = "branches"


@dataclass(frozen=True, slots=True)
class Columns:
    """What a layer must know of projections that a block goes through by itself.

    Attributes:
        num_extra: columns beside their inputs or their outputs' gradients, at most.
    """

    num_extra: int
    has_magnitudes: bool = False

    @staticmethod
    def of(*projections: object) -> Columns:
        """Return what is beside the widest."""
        return Columns(max(getattr(each, "num_extra", 0) for each in projections))


class ParallelBlock:
    """Does what `AttentionBlock` does, on the same buffers.

    Attributes:
        branches: attention and the scan.
        inputs, output: the columns that their projections take.
        qkv_width, heads_width: columns of their buffers together.
    """

    def __init__(
        self,
        shape: ParallelShape,
        attention: AttentionBlock,
        scan: StateSpaceBlock,
        hidden_size: int,
        workspace: Workspace,
        capacity_tokens: int,
    ) -> None:
        self.shape, self.branches = shape, (attention, scan)
        self._attention, self._scan = attention, scan
        self._hidden_size, self._workspace = hidden_size, workspace
        self.inputs = Columns.of(attention.inputs, scan.inputs)
        self.output = Columns.of(attention.output, scan.output)
        self.qkv_width = attention.qkv_width + scan.qkv_width
        self.heads_width = attention.heads_width + scan.heads_width
        workspace.reserve(REGION, *self._rooms(capacity_tokens))

    def _rooms(self, num_tokens: int) -> list[tuple[int, int]]:
        """Return the sizes of the gradient of a branch's output, [T, hidden + R], and of a branch's result."""
        return [(num_tokens, self._hidden_size + self.output.num_extra), (num_tokens, self._hidden_size)]

    def may_be_captured(self, documents: Documents, tensor: torch.Tensor) -> bool:
        """Return whether a graph of a batch serves others of the same sizes."""
        return all(branch.may_be_captured(documents, tensor) for branch in self.branches)

    # Forward

    def project(self, x: torch.Tensor, qkv: torch.Tensor, rotary: Rotary, with_adapter: bool) -> None:
        """Write what both branches' inputs give, from the normalised input [T, hidden + R]."""
        for branch, own in self.own(qkv):
            branch.project(self._beside(x, branch.inputs.num_extra), own, rotary, with_adapter)

    def attend(
        self, qkv: torch.Tensor, heads: torch.Tensor, rotary: Rotary, documents: Documents
    ) -> tuple[tuple[torch.Tensor, ...], ...]:
        """Write both branches' outputs into `heads`; return what attention's backward pass needs."""
        (_, of_attention), (_, of_scan) = self.own(qkv)
        in_attention, in_scan = self._split(heads)
        self._scan.attend(of_scan, in_scan, rotary, documents)
        return self._attention.attend(of_attention, in_attention, rotary, documents)

    def put_out(self, qkv: torch.Tensor, heads: torch.Tensor, out: torch.Tensor, with_adapter: bool) -> None:
        """Write the block's output, [T, hidden], from what `project` and `attend` wrote."""
        _, result = self._workspace.carve(REGION, *self._rooms(len(qkv)))
        parts = zip(self.own(qkv), self._split(heads), self.shape.factors, (result, out), strict=True)
        for (branch, own), inside, factor, room in parts:
            branch.put_out(own, inside, room, with_adapter)
            if factor != 1.0:
                room.mul_(factor)
        out.add_(result)

    def fill_columns(self, heads: torch.Tensor) -> None:
        """Write the columns of `heads` that `put_out` writes, for a backward pass without it."""
        self._attention.fill_columns(self._split(heads)[0])

    # Backward

    def backward(
        self,
        gradient: torch.Tensor,
        x: torch.Tensor,
        qkv: torch.Tensor,
        heads: torch.Tensor,
        saved: tuple[tuple[torch.Tensor, ...], ...],
        rotary: Rotary,
        documents: Documents,
        out: torch.Tensor | None,
    ) -> None:
        """Write the gradient of the normalised input and add those of the adapters; see `AttentionBlock.backward`."""
        slope, result = self._workspace.carve(REGION, *self._rooms(len(qkv)))
        rooms = (None, None) if out is None else (result, out)
        parts = zip(self.own(qkv), self._split(heads), self.shape.factors, rooms, strict=True)
        for (branch, own), inside, factor, room in parts:
            torch.mul(gradient[:, : self._hidden_size], factor, out=slope[:, : self._hidden_size])
            self._add_to_magnitudes(branch, own, inside, slope)
            wide = self._beside(x, branch.inputs.num_extra)
            if isinstance(branch.inputs, Projection):
                branch.inputs.shrink(wide)
            # `out` may be where the gradient is, so attention, which comes first, has a room of its own.
            to_block = self._beside(slope, branch.output.num_extra)
            branch.backward(to_block, wide, own, inside, saved, rotary, documents, room)
        if out is not None:
            out.add_(result)

    def _add_to_magnitudes(
        self, branch: AttentionBlock | StateSpaceBlock, qkv: torch.Tensor, heads: torch.Tensor, slope: torch.Tensor
    ) -> None:
        """Add the gradient of DoRA's magnitudes in a branch's output projection, whose output is computed again."""
        if not isinstance(branch.output, Projection) or not branch.output.has_magnitudes:
            return
        output = torch.empty_like(slope[:, : self._hidden_size])
        branch.put_out(qkv, heads, output, True)
        branch.output.add_to_magnitudes(column_dots(slope[:, : self._hidden_size], output), slope)

    # Parts

    def _beside(self, x: torch.Tensor, num_extra: int) -> torch.Tensor:
        return x[:, : self._hidden_size + num_extra]

    def own(self, qkv: torch.Tensor) -> Iterator[tuple[AttentionBlock | StateSpaceBlock, torch.Tensor]]:
        """Yield each branch with its columns of what the inputs give."""
        width = self._attention.qkv_width
        yield self._attention, qkv[:, :width]
        yield self._scan, qkv[:, width : self.qkv_width]

    def _split(self, heads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return attention's columns of the buffer of heads, and the scan's."""
        width = self._attention.heads_width
        return heads[:, :width], heads[:, width : self.heads_width]
