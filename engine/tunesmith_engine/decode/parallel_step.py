"""Attention and a scan that read the same norm, for one token more of each row; see `ParallelShape`."""

from __future__ import annotations

import torch

from tunesmith_engine.decode.attention_step import AttentionStep
from tunesmith_engine.decode.context import Context
from tunesmith_engine.decode.recurrent_step import StateStep
from tunesmith_engine.fused.queries_keys import Rotary


class ParallelStep:
    """Runs one after the other and adds what they give.

    Attributes:
        x: what both read, [M, hidden + R]; whoever comes before writes the first columns.
    """

    def __init__(
        self,
        factors: tuple[float, float],
        attention: AttentionStep,
        scan: StateStep,
        hidden_size: int,
        context: Context,
    ) -> None:
        self._factors, self._attention, self._scan = factors, attention, scan
        self.x, self._result = attention.x, context.rows(hidden_size)

    def forward(self, out: torch.Tensor, rotary: Rotary) -> None:
        """Write the block's output, [M, hidden]."""
        hidden = out.shape[1]
        # Before attention, whose own columns stand behind these.
        self._scan.x[:, :hidden].copy_(self.x[:, :hidden])
        self._attention.forward(out, rotary)
        self._scan.forward(self._result, rotary)
        for factor, room in zip(self._factors, (out, self._result), strict=True):
            if factor != 1.0:
                room.mul_(factor)
        out.add_(self._result)
