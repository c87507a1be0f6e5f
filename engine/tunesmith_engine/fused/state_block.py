"""What the blocks with a state in attention's place do alike: a short convolution, then their rule on whole documents.

# T tokens, C channels that are convolved, V numbers of all heads, R columns of the adapters
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch

from tunesmith_engine.attention import shared
from tunesmith_engine.fused.plain_modules import PlainModules
from tunesmith_engine.fused.projection import Projection
from tunesmith_engine.fused.queries_keys import Rotary
from tunesmith_engine.fused.workspace import Workspace
from tunesmith_engine.kernels.short_convolution import convolve, convolve_backward, first_tokens
from tunesmith_engine.kernels.state_step import Tokens
from tunesmith_engine.mixer_shapes import ChannelDeltaShape, DeltaShape, StateSpaceShape
from tunesmith_engine.packed.batch import Documents


class StateBlock(ABC):
    """Does what `AttentionBlock` does, on the same buffers.

    Attributes:
        inputs, output: the projections around it.
        qkv_width: columns of the buffer of what the inputs give.
        heads_width: columns V of the buffer of the rule's output.
        corrects: whether a token corrects what a state has for its key; see kernels/state_step.py.
    """

    shape: DeltaShape | ChannelDeltaShape | StateSpaceShape
    inputs: Projection | PlainModules
    output: Projection | PlainModules
    qkv_width: int
    heads_width: int
    corrects = True
    _workspace: Workspace

    @abstractmethod
    def project(self, x: torch.Tensor, qkv: torch.Tensor, rotary: Rotary, with_adapter: bool) -> None:
        """Write what the inputs give, from the normalised input [T, hidden + R]."""

    def attend(
        self,
        qkv: torch.Tensor,
        heads: torch.Tensor,
        rotary: Rotary,  # noqa: ARG002 (as attention has it)
        documents: Documents,
    ) -> tuple[tuple[torch.Tensor, ...], ...]:
        """Write the rule's output into `heads`, [T, V]; nothing else is needed by the backward pass."""
        _, mixed = self.convolved(qkv, documents)
        out = heads if documents.shared is None else heads.new_empty(len(mixed), heads.shape[1])
        self._rule(mixed, qkv, documents, out)
        if documents.shared is not None:
            heads.copy_(out.index_select(0, documents.shared.first))
        return ()

    def put_out(self, qkv: torch.Tensor, heads: torch.Tensor, out: torch.Tensor, with_adapter: bool) -> None:
        """Write the block's output, [T, hidden], from what `project` and `attend` wrote."""
        self.output.forward(self._gated(qkv, heads), out, with_adapter)

    def fill_columns(self, heads: torch.Tensor) -> None:  # noqa: B027 (nothing to do, as for attention with gates)
        """Do nothing: the columns beside the output projection's input are filled in the backward pass."""

    @abstractmethod
    def _block(self, num_tokens: int) -> list[tuple[int, int]]:
        """Return the sizes of the block's intermediate results: first of convolved channels and of their gradient."""

    @abstractmethod
    def _rule(self, mixed: torch.Tensor, qkv: torch.Tensor, documents: Documents, out: torch.Tensor) -> None:
        """Write the rule's output for whole documents, from their convolved channels and the rest of `qkv`."""

    @abstractmethod
    def tokens(self, mixed: torch.Tensor, qkv: torch.Tensor) -> Tokens:
        """Return what tokens do to states, from their convolved channels and from what `project` wrote."""

    def add_skipped(self, mixed: torch.Tensor, heads: torch.Tensor) -> None:  # noqa: B027 (nothing, but for a scan)
        """Add what goes past the states to what is read from them, [T, V]."""

    @abstractmethod
    def channels(self, qkv: torch.Tensor) -> torch.Tensor:
        """Return the columns that are convolved, [T, C]."""

    @abstractmethod
    def _gated(self, qkv: torch.Tensor, heads: torch.Tensor) -> torch.Tensor:
        """Return the input of the output projection, [T, V + R], whose last R columns are still to be written."""

    def _output_backward(self, gradient: torch.Tensor, gated: torch.Tensor, to_gated: torch.Tensor) -> None:
        """Write the gradient of what `_gated` returned, and add those of the output's adapters."""
        if isinstance(self.output, Projection):
            self.output.shrink(gated)
        self.output.backward(gradient, gated, to_gated)

    def convolved(self, qkv: torch.Tensor, documents: Documents) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the channels of whole documents before and after the convolution, [T, C] each."""
        channels = shared.whole(self.channels(qkv), documents)
        if documents.shared is None:
            mixed = self._workspace.carve("block", *self._block(len(qkv)))[0]
        else:
            mixed = torch.empty_like(channels)
        begins = first_tokens(documents.bounds, len(channels))
        convolve(channels, self.shape.convolution, self.shape.convolution_bias, True, begins, mixed)
        return channels, mixed

    def _convolved_backward(
        self, to_mixed: torch.Tensor, channels: torch.Tensor, documents: Documents, out: torch.Tensor
    ) -> None:
        """Write the gradient of the channels of whole documents."""
        begins = first_tokens(documents.bounds, len(channels))
        convolve_backward(to_mixed, channels, self.shape.convolution, self.shape.convolution_bias, True, begins, out)
