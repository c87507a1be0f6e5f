"""What makes several streams of the embedded tokens, and one of them before the last norm: see `AltUpEndsShape`.

# T tokens, N streams, d hidden size, R columns of the adapters (see projection.py)
"""

from __future__ import annotations

import torch

from tunesmith_engine.altup_shapes import LEAST_SQUARE
from tunesmith_engine.fused.projection import Projection, add_to_magnitudes
from tunesmith_engine.fused.workspace import Workspace
from tunesmith_engine.kernels.copy_rows import copy_rows

STREAMS, SLOPES = "streams", "slopes of streams"
"""Regions of the workspace: the streams and their gradients, [T, N d] each."""

EMBEDDED = "before the streams"
"""Of the embedded tokens, [T, d + R]."""


class AltUpEnds:
    """Goes from the embedded tokens to the streams and from them to the head, and back."""

    def __init__(
        self,
        projections: list[Projection],
        back: list[Projection],
        workspace: Workspace,
        capacity_tokens: int,
        hidden_size: int,
        gradient_width: int,
        embeds: bool,
    ) -> None:
        """Reserve the memory.

        Args:
            projections, back: as in `AltUpEndsShape`.
            workspace: for all.
            capacity_tokens: most tokens of a micro-batch.
            hidden_size: of the model.
            gradient_width: columns of buffers with room for adapters.
            embeds: the embedding is trained.
        """
        self._projections, self._back, self._workspace = projections, back, workspace
        self._hidden_size, self._wide, self._embeds = hidden_size, gradient_width, embeds
        self._width = (1 + len(projections)) * hidden_size
        self.needs_gradient = embeds or any(part.num_ranks for part in projections)
        for region in (STREAMS, SLOPES):
            workspace.reserve(region, (capacity_tokens, self._width))
        if self.needs_gradient:
            workspace.reserve(EMBEDDED, (capacity_tokens, gradient_width))
        workspace.reserve("block", *self._block(capacity_tokens))

    def _block(self, num_tokens: int) -> list[tuple[int, int]]:
        """Return the sizes of what a projection reads and gives, and of the gradient of what it gives."""
        return 3 * [(num_tokens, self._wide)]

    def _carved(self, region: str, num_tokens: int) -> list[torch.Tensor]:
        """Return the streams of a region, [T, d] each."""
        (streams,) = self._workspace.carve(region, (num_tokens, self._width))
        return list(streams.split(self._hidden_size, dim=1))

    def _project(self, part: Projection, x: torch.Tensor, out: torch.Tensor, with_adapter: bool) -> torch.Tensor:
        """Write what a projection gives for x, [T, d], to `out`, [T, d]; return its input with columns, [T, d + R]."""
        (wide, *_) = self._workspace.carve("block", *self._block(len(x)))
        wide = wide[:, : self._hidden_size + part.num_extra]
        copy_rows(x, wide[:, : self._hidden_size])
        part.forward(wide, out, with_adapter)
        return wide

    # Forward

    def begin(self, embedded: torch.Tensor, with_adapter: bool) -> torch.Tensor:
        """Return the streams of embedded tokens, [T, N d] from [T, d]."""
        first, *others = self._carved(STREAMS, len(embedded))
        first.copy_(embedded)
        if self.needs_gradient:
            (kept,) = self._workspace.carve(EMBEDDED, (len(embedded), self._wide))
            copy_rows(embedded, kept[:, : self._hidden_size])
        size = _size(first)
        for part, stream in zip(self._projections, others, strict=True):
            self._project(part, first, stream, with_adapter)
            stream.mul_(size / _least(_size(stream)))
        return self._workspace.carve(STREAMS, (len(embedded), self._width))[0]

    def end(self, out: torch.Tensor, with_adapter: bool) -> torch.Tensor:
        """Write the mean of the streams to `out`, [T, d], and return it; the streams stay."""
        first, *others = self._carved(STREAMS, len(out))
        _, output, _ = self._workspace.carve("block", *self._block(len(out)))
        output, size = output[:, : self._hidden_size], _size(first)
        out.copy_(first)
        for part, stream in zip(self._back, others, strict=True):
            self._project(part, stream, output, with_adapter)
            out.add_(output.mul_(size / _least(_size(output))))
        return out.div_(1 + len(others))

    # Backward

    def end_backward(self, gradient: torch.Tensor) -> None:
        """Write the gradients of the streams from that of their mean, [T, d], and add those of the adapters."""
        num_tokens = len(gradient)
        first, *others = self._carved(STREAMS, num_tokens)
        to_first, *to_others = self._carved(SLOPES, num_tokens)
        torch.div(gradient, 1 + len(others), out=to_first)
        size, to_size = _size(first), torch.zeros(num_tokens, 1, device=gradient.device)
        _, output, to_output = self._workspace.carve("block", *self._block(num_tokens))
        output = output[:, : self._hidden_size]
        for part, stream, to_stream in zip(self._back, others, to_others, strict=True):
            wide = self._project(part, stream, output, True)
            to_size += self._backward(part, to_first, size, wide, output, to_output, to_stream)
        to_first.addcmul_(first, _by_size(to_size, size, self._hidden_size).to(first.dtype))

    def begin_backward(self, out: torch.Tensor) -> None:
        """Write the gradient of the embedded tokens, [T, d], if they are trained, and add those of the adapters."""
        if not self.needs_gradient:
            return
        num_tokens, hidden = len(out), self._hidden_size
        (embedded,) = self._workspace.carve(EMBEDDED, (num_tokens, self._wide))
        x = embedded[:, :hidden]
        to_first, *to_others = self._carved(SLOPES, num_tokens)
        size, to_size = _size(x), torch.zeros(num_tokens, 1, device=out.device)
        to_input, output, to_output = self._workspace.carve("block", *self._block(num_tokens))
        to_input, output = to_input[:, :hidden], output[:, :hidden]
        for part, slope in zip(self._projections, to_others, strict=True):
            wide = embedded[:, : hidden + part.num_extra]
            part.forward(wide, output)
            to_x = to_input if self._embeds else None
            to_size += self._backward(part, slope, size, wide, output, to_output, to_x)
            if self._embeds:
                to_first.add_(to_input)
        if self._embeds:
            torch.addcmul(to_first, x, _by_size(to_size, size, hidden).to(x.dtype), out=out)

    def _backward(
        self,
        part: Projection,
        gradient: torch.Tensor,
        size: torch.Tensor,
        x: torch.Tensor,
        output: torch.Tensor,
        scratch: torch.Tensor,
        out: torch.Tensor | None,
    ) -> torch.Tensor:
        """Go backward through a projection whose output is made as large as another stream; return its size's gradient.

        Args:
            part: the projection.
            gradient: of what was made, [T, d].
            size: of the other stream, [T, 1].
            x: what the projection reads, [T, d + R].
            output: what it gives, [T, d].
            scratch: [T, d + R], overwritten.
            out: where the input's gradient is written, [T, d], or None.
        """
        own = _size(output)
        least = _least(own)
        dots = torch.bmm(gradient[:, None], output[:, :, None])[:, 0].float()
        to_output = scratch[:, : self._hidden_size + part.num_extra]
        # One that is smaller than the least has a size that doesn't depend on it.
        along = torch.where(own < least, 0.0, dots / (self._hidden_size * least.square()))
        slope = to_output[:, : self._hidden_size]
        torch.mul(output, -along, out=slope)
        slope.add_(gradient).mul_(size / least)
        add_to_magnitudes(part, to_output, output)
        part.backward(to_output, x, out)
        return dots / least


def _size(x: torch.Tensor) -> torch.Tensor:
    """Return the root of the mean square of each row, float32 [T, 1]."""
    return torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=_wide(x)) / x.shape[-1] ** 0.5


def _least(size: torch.Tensor) -> torch.Tensor:
    """Return what something of a size is divided by."""
    return size.clamp_min(LEAST_SQUARE**0.5)


def _by_size(to_size: torch.Tensor, size: torch.Tensor, width: int) -> torch.Tensor:
    """Return the factor of a row in its gradient, from that of its size; a row of zeros has none."""
    return torch.where(size > 0.0, to_size / (width * size), 0.0)


def _wide(x: torch.Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)
