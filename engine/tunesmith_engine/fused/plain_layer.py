"""A whole layer as written, between the fused parts of a model."""

from __future__ import annotations

import torch

from tunesmith_engine.fused.activations import LayerBuffers
from tunesmith_engine.fused.layer import Pass
from tunesmith_engine.fused.plain_documents import PlainDocuments, PlainMixer
from tunesmith_engine.shapes import UnfusedLayer


class PlainLayer:
    """A whole layer as written; the stream that it returns has nothing pending."""

    mlp = None

    def __init__(self, index: int, shape: UnfusedLayer, layer: PlainDocuments, hidden_size: int) -> None:
        self.index, self.shape, self._layer, self._hidden_size = index, shape, layer, hidden_size
        self.attention = PlainMixer(layer)

    def buffers(self, keep_gate_up: bool, dtype: torch.dtype) -> LayerBuffers:  # noqa: ARG002 (as a FusedLayer has it)
        """Return what the forward pass leaves: the layer's input."""
        kept = frozenset({"x"})
        return LayerBuffers({"x": (self._hidden_size, dtype)}, dict.fromkeys(("none", "mlp", "smart", "full"), kept))

    def forward(self, x: torch.Tensor, pending: torch.Tensor | None, now: Pass) -> tuple[torch.Tensor, None]:
        """Go through the layer; x and pending are [T, hidden], and so is what is returned."""
        self._layer.begin_forward()
        kept = now.store.forward(self.index, now.batch.num_tokens)["x"]
        if pending is None:
            kept.copy_(x)
        else:
            torch.add(x, pending, alpha=self.shape.residual_scale, out=kept)
        (out,) = now.workspace.carve("output", (now.batch.num_tokens, self._hidden_size))
        self._layer.forward_documents(kept, now.batch.documents, out)
        if now.with_gradients:
            now.store.forward_done(self.index)
        return out, None

    def backward(self, gradient: torch.Tensor, now: Pass, first: bool) -> None:
        """Turn the gradient of the layer's output into that of its input, in place; see `FusedLayer.backward`."""
        self._layer.begin_backward()
        kept, _ = now.store.backward(self.index, now.batch.num_tokens)
        stream = gradient[:, : self._hidden_size]
        self._layer.backward_documents(stream, kept["x"], now.batch.documents, None if first else stream)
        now.store.backward_done(self.index)
