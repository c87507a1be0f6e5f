"""A layer with several streams: AltUp around the blocks of a `FusedLayer`, which one stream goes through.

Of the streams only the layer's input is kept. What is predicted from it is computed again in the backward pass, and the
blocks' own input is a part of that.

# T tokens, N streams, d hidden size, R columns of the adapters (see projection.py)
"""

from __future__ import annotations

from dataclasses import replace

import torch

from tunesmith_engine.fused.activations import LayerBuffers
from tunesmith_engine.fused.altup_block import AltUpBlock
from tunesmith_engine.fused.altup_ends import SLOPES, STREAMS
from tunesmith_engine.fused.layer import FusedLayer, Pass
from tunesmith_engine.fused.per_layer_block import PerLayerBlock
from tunesmith_engine.fused.plain_modules import PlainModules
from tunesmith_engine.fused.workspace import Workspace
from tunesmith_engine.shapes import LayerShape

KEPT = "streams"
"""The name of the layer's input in the store."""


class AltUpLayer:
    """Does what `FusedLayer` does with streams side by side, [T, N d]; nothing is pending.

    Attributes:
        attention, mlp: of the blocks.
    """

    def __init__(
        self,
        index: int,
        shape: LayerShape,
        blocks: FusedLayer,
        altup: AltUpBlock,
        third: PerLayerBlock | None,
        workspace: Workspace,
        capacity_tokens: int,
        hidden_size: int,
    ) -> None:
        self.index, self.shape = index, shape
        self.attention, self.mlp = blocks.attention, blocks.mlp
        self._blocks, self._altup, self._third = blocks, altup, third
        self._hidden_size, self._width = hidden_size, altup.shape.num_streams * hidden_size
        parts = [altup.predicting, altup.correcting, *([third.gate, third.output] if third else [])]
        self._plain = [part for part in parts if isinstance(part, PlainModules)]
        for region in (STREAMS, SLOPES):
            workspace.reserve(region, (capacity_tokens, self._width))

    def buffers(self, keep_gate_up: bool, dtype: torch.dtype) -> LayerBuffers:
        """Return what the forward pass leaves: that of the blocks, with the streams in place of the blocks' input."""
        inner = self._blocks.buffers(keep_gate_up, dtype)
        tensors = {name: size for name, size in inner.tensors.items() if name != "x"}
        kept = {level: names - {"x"} | {KEPT} for level, names in inner.kept.items()}
        return replace(inner, tensors={KEPT: (self._width, dtype), **tensors}, kept=kept)

    def forward(self, x: torch.Tensor, pending: torch.Tensor | None, now: Pass) -> tuple[torch.Tensor, None]:  # noqa: ARG002 (as a FusedLayer has it)
        """Go through the layer; x is [T, N d], and what is returned lies where the next layer's input does."""
        num_tokens, altup = now.batch.num_tokens, self._altup
        self._blocks.begin_forward()
        for part in self._plain:
            part.begin_forward()
        kept = now.store.forward(self.index, num_tokens)
        kept[KEPT].copy_(x)
        wide, (streams,) = self._blocks.input_region(now), now.workspace.carve(STREAMS, (num_tokens, self._width))
        normed = wide[:, : self._hidden_size]
        altup.predict(kept[KEPT], streams, normed)
        active = altup.active(streams)
        total, y = self._blocks.through(active, None, {**kept, "x": active}, now)
        y.add_(total)
        altup.correct(streams, y, normed)
        if self._third:
            altup.read(streams, None, normed)
            self._third.forward(wide[:, : self._hidden_size + self._third.gate.num_extra], y, now.with_adapter)
            altup.others(streams).add_(y[:, None])
        if now.with_gradients:
            now.store.forward_done(self.index)
        return streams, None

    def backward(self, gradient: torch.Tensor, now: Pass, first: bool) -> None:
        """Turn the gradient of the streams that leave the layer into that of its input, where it lies.

        Args:
            gradient: [T, d + R], scratch.
            now: as in the forward pass.
            first: nobody needs the input's gradient.
        """
        num_tokens, altup, hidden = now.batch.num_tokens, self._altup, self._hidden_size
        self._blocks.begin_backward()
        for part in self._plain:
            part.begin_backward()
        kept, missing = now.store.backward(self.index, num_tokens)
        (slopes,), (streams,) = (now.workspace.carve(name, (num_tokens, self._width)) for name in (SLOPES, STREAMS))
        wide, scratch = self._blocks.input_region(now), self._blocks.output_region(now)
        normed, stream = wide[:, :hidden], gradient[:, :hidden]
        altup.predict(kept[KEPT], streams, normed)
        kept = {**kept, "x": altup.active(streams)}
        self._blocks.replay(kept, missing, now)
        self._blocks.write_end(kept, normed, scratch[:, :hidden])
        altup.weigh(normed, scratch[:, :hidden])
        if self._third:
            altup.read(streams, normed, normed)
            torch.sum(altup.others(slopes), dim=1, out=stream)
            to_read = self._third.backward(stream, wide[:, : hidden + self._third.gate.num_extra], scratch)
            altup.scale(to_read)
            altup.active(slopes).add_(to_read)
            self._blocks.write_end(kept, normed, scratch[:, :hidden])
        altup.correct_backward(slopes, streams, normed, stream, scratch[:, :hidden])
        self._blocks.through_backward(gradient, kept, missing, now, first=False)
        altup.active(slopes).add_(stream)
        altup.predict_backward(slopes, kept[KEPT], None if first else streams, normed)
        if not first:
            slopes.copy_(streams)
        now.store.backward_done(self.index)
