"""What layers with a memory of fixed size have in attention's place, for one token more of each row.

Projections, gates and norms are those of the training's blocks, on M rows.

# M rows, C channels, V numbers of all heads
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

from tunesmith_engine.decode.context import Context
from tunesmith_engine.fused.convolution_block import ConvolutionBlock
from tunesmith_engine.fused.queries_keys import Rotary
from tunesmith_engine.fused.state_block import StateBlock
from tunesmith_engine.kernels import state_step
from tunesmith_engine.kernels.gated_convolution import NUM_PARTS


class ConvolutionStep:
    """Runs a short convolution between two gates.

    Attributes:
        x: what it reads, [M, hidden + R]; whoever comes before writes the first columns.
    """

    def __init__(self, index: int, block: ConvolutionBlock, x: torch.Tensor, context: Context) -> None:
        self._block, self.x, self._with_adapter = block, x, context.with_adapter
        self._inputs = context.cache.inputs[index]
        self._rows, self._heads = context.rows(block.qkv_width), context.rows(block.heads_width)

    def forward(self, out: torch.Tensor, rotary: Rotary) -> None:
        """Write the block's output, [M, hidden]."""
        shape = self._block.shape
        self._block.project(self.x, self._rows, rotary, self._with_adapter)
        b, c, x = self._rows.to(self._inputs.dtype).chunk(NUM_PARTS, dim=1)
        z = _convolved(self._inputs, b * x, shape.convolution, shape.bias)
        self._heads[:, : shape.numbers_per_token].copy_(c * z)
        self._block.put_out(self._rows, self._heads, out, self._with_adapter)


class StateStep:
    """Runs heads with a state behind a short convolution with SiLU.

    Attributes:
        x: as of `ConvolutionStep`.
    """

    def __init__(self, index: int, block: StateBlock, x: torch.Tensor, context: Context) -> None:
        self._block, self.x, self._with_adapter = block, x, context.with_adapter
        self._inputs, self._states = context.cache.inputs[index], context.cache.states[index]
        self._rows, self._heads = context.rows(block.qkv_width), context.rows(block.heads_width)
        num_rows, num_heads, _, width = self._states.shape
        self._read = torch.empty(num_rows, num_heads, width, device=x.device, dtype=self._states.dtype)
        self._bounds = torch.arange(num_rows + 1, device=x.device, dtype=torch.int32)

    def forward(self, out: torch.Tensor, rotary: Rotary) -> None:
        """Write the block's output, [M, hidden]."""
        block, shape, rows = self._block, self._block.shape, self._rows
        block.project(self.x, rows, rotary, self._with_adapter)
        z = _convolved(self._inputs, block.channels(rows), shape.convolution, shape.convolution_bias)
        mixed = functional.silu(z).to(rows.dtype)
        tokens = block.tokens(mixed, rows)
        state_step.advance(tokens, self._bounds, block.corrects, self._states, self._read)
        block.add_skipped(mixed, self._read.flatten(1))
        self._heads.copy_(self._read.flatten(1))
        block.put_out(rows, self._heads, out, self._with_adapter)


def _convolved(
    inputs: torch.Tensor, new: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """Return the convolution behind one channel's number more, [M, C]; the inputs then end with that."""
    seen = torch.cat((inputs, new.to(inputs.dtype)[..., None]), dim=2)
    inputs.copy_(seen[..., 1:])
    z = (seen * weight.to(inputs.dtype)).sum(2)
    return z if bias is None else z + bias


def last_inputs(channels: torch.Tensor, lengths: Sequence[int], num_kept: int) -> torch.Tensor:
    """Return the last inputs of each row, [M, C, num_kept], zeros before its first token.

    Args:
        channels: of all rows behind each other, [T, C].
        lengths: tokens of each row.
        num_kept: how many are remembered.
    """
    ends = torch.tensor(lengths, device=channels.device).cumsum(0)
    ages = torch.arange(num_kept, 0, -1, device=channels.device)
    exists = ages <= torch.tensor(lengths, device=channels.device)[:, None]
    found = channels[(ends[:, None] - ages).clamp(min=0)] * exists[..., None]
    return found.transpose(1, 2)
