"""LFM2's block in attention's place: an input projection, a short convolution between gates, an output projection.

# T tokens, C channels, R columns of the adapters
"""

from __future__ import annotations

import torch

from tunesmith_engine.attention import shared
from tunesmith_engine.fused.attention_block import inputs_backward
from tunesmith_engine.fused.plain_modules import PlainModules
from tunesmith_engine.fused.projection import Projection
from tunesmith_engine.fused.queries_keys import Rotary
from tunesmith_engine.fused.workspace import Workspace
from tunesmith_engine.kernels.gated_convolution import NUM_PARTS, gated_convolve, gated_convolve_backward
from tunesmith_engine.kernels.short_convolution import first_tokens
from tunesmith_engine.mixer_shapes import ConvolutionShape
from tunesmith_engine.packed.batch import Documents


class ConvolutionBlock:
    """Does what `AttentionBlock` does, on the same buffers.

    Attributes:
        inputs, output: the projections around it.
        qkv_width: columns 3 C of the buffer of both gates and of what is convolved.
        heads_width: columns of the buffer of the result, with room for the adapters of `output`.
    """

    def __init__(
        self,
        shape: ConvolutionShape,
        inputs: Projection | PlainModules,
        output: Projection | PlainModules,
        workspace: Workspace,
        capacity_tokens: int,
    ) -> None:
        self.shape, self.inputs, self.output = shape, inputs, output
        self._workspace = workspace
        self.qkv_width = NUM_PARTS * shape.numbers_per_token
        self.heads_width = shape.numbers_per_token + output.num_extra
        workspace.reserve("block", *self._block(capacity_tokens))

    def _block(self, num_tokens: int) -> list[tuple[int, int]]:
        """Return the sizes of the gradients of the result and of the inputs."""
        return [(num_tokens, self.shape.numbers_per_token), (num_tokens, self.qkv_width + self.inputs.num_extra)]

    def may_be_captured(self, documents: Documents, tensor: torch.Tensor) -> bool:  # noqa: ARG002 (as attention has it)
        """Return that a graph of a batch serves others of the same sizes: where documents begin is read there."""
        return True

    # Forward

    def project(self, x: torch.Tensor, qkv: torch.Tensor, rotary: Rotary, with_adapter: bool) -> None:  # noqa: ARG002 (as attention has it)
        """Write the gates and what is convolved, [T, 3 C], from the normalised input [T, hidden + R]."""
        self.inputs.forward(x, qkv, with_adapter)

    def attend(
        self,
        qkv: torch.Tensor,
        heads: torch.Tensor,
        rotary: Rotary,  # noqa: ARG002 (as attention has it)
        documents: Documents,
    ) -> tuple[tuple[torch.Tensor, ...], ...]:
        """Write the result into the first C columns of `heads`; nothing else is needed by the backward pass."""
        rows = shared.whole(qkv, documents)
        begins = first_tokens(documents.bounds, len(rows))
        out = heads[:, : self.shape.numbers_per_token]
        result = out if documents.shared is None else out.new_empty(len(rows), out.shape[1])
        gated_convolve(rows, self.shape.convolution, self.shape.bias, begins, result)
        if documents.shared is not None:
            out.copy_(result.index_select(0, documents.shared.first))
        return ()

    def put_out(self, qkv: torch.Tensor, heads: torch.Tensor, out: torch.Tensor, with_adapter: bool) -> None:  # noqa: ARG002 (as attention has it)
        """Write the block's output, [T, hidden], from what `attend` wrote."""
        self.output.forward(heads, out, with_adapter)

    def fill_columns(self, heads: torch.Tensor) -> None:
        """Write the columns of `heads` that `put_out` writes, for a backward pass without it."""
        if isinstance(self.output, Projection):
            self.output.shrink(heads)

    # Backward

    def backward(
        self,
        gradient: torch.Tensor,
        x: torch.Tensor,
        qkv: torch.Tensor,
        heads: torch.Tensor,
        saved: tuple[tuple[torch.Tensor, ...], ...],  # noqa: ARG002 (as attention has it)
        rotary: Rotary,  # noqa: ARG002 (as attention has it)
        documents: Documents,
        out: torch.Tensor | None,
    ) -> None:
        """Write the gradient of the normalised input and add those of the adapters; see `AttentionBlock.backward`."""
        to_heads, to_qkv = self._workspace.carve("block", *self._block(len(qkv)))
        self.output.backward(gradient, heads, to_heads)
        self._convolution_backward(to_heads, qkv, to_qkv[:, : self.qkv_width], documents)
        inputs_backward(self.inputs, None, qkv, to_qkv, x, out, self._workspace)

    def _convolution_backward(
        self, to_heads: torch.Tensor, qkv: torch.Tensor, out: torch.Tensor, documents: Documents
    ) -> None:
        rows, to_rows, to_heads = shared.whole(qkv, documents), out, shared.slopes(to_heads, documents)
        if documents.shared is not None:
            to_rows = torch.empty_like(rows)
        begins = first_tokens(documents.bounds, len(rows))
        gated_convolve_backward(to_heads, rows, self.shape.convolution, self.shape.bias, begins, to_rows)
        if documents.shared is not None:
            shared.collect(to_rows, documents.shared, out)
