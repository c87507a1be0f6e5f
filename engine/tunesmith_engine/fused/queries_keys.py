"""Queries and keys of attention that takes other steps than norms and a rotation: each step by itself.

The steps are a norm, the clip, the rotation, a norm behind it, and the queries' temperature; see `AttentionShape`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from tunesmith_engine.kernels import rms_norm, rope
from tunesmith_engine.mixer_shapes import AttentionShape, LatentShape, Norm

AddNorm = Callable[[Norm, torch.Tensor, torch.Tensor, torch.Tensor], None]
"""Adds the gradients of a norm's weights: it, the gradient of its output, its input and statistics."""

Pair = tuple[torch.Tensor, torch.Tensor]
"""The same of queries and keys, [T, heads * head_dim] each."""


@dataclass(frozen=True, slots=True)
class Rotary:
    """The rotary table of a batch: cos and sin, [T, rotary_dim] each, or None for layers without rotation.

    Attributes:
        positions: of the tokens in their documents, [T]; for queries with a temperature.
    """

    cos: torch.Tensor | None
    sin: torch.Tensor | None
    positions: torch.Tensor | None = None


def forward(shape: AttentionShape, raw: Pair, rotary: Rotary, outs: Pair) -> None:
    """Write queries and keys as attention takes them from those of the projections; `outs` may be `raw`."""
    _before_last_norm(shape, raw, rotary, outs)
    if shape.norms_last:
        for norm, out in zip(_norms(shape), outs, strict=True):
            heads, _ = _normed(shape, norm, out)
            out.copy_(heads)
    if shape.temperature is not None:
        warm(shape, rotary, outs[0])


def backward(
    shape: AttentionShape, gradients: Pair, raw: Pair, rotary: Rotary, outs: Pair, add_norm: AddNorm | None
) -> None:
    """Write the gradients of what `forward` was given; `outs` may be `gradients`.

    Args:
        add_norm: takes the gradients of trained norms, or None.
    """
    slopes: Pair = (gradients[0].clone(), gradients[1].clone())
    if shape.temperature is not None:
        warm(shape, rotary, slopes[0])
    if shape.norms_last:
        before: Pair = (torch.empty_like(raw[0]), torch.empty_like(raw[1]))
        _before_last_norm(shape, raw, rotary, before)
        for norm, part, slope in zip(_norms(shape), before, slopes, strict=True):
            _through_norm(shape, norm, part, slope, add_norm)
    form = shape.head_dim, shape.interleaved
    cos, sin = _table(shape, rotary)
    rope.rotate_backward(*slopes, *raw, cos, sin, *form, None, None, *slopes)
    norms = (None, None) if shape.norms_last else _norms(shape)
    for norm, part, slope, out in zip(norms, raw, slopes, outs, strict=True):
        if shape.clip is not None:
            normed = part if norm is None else _normed(shape, norm, part)[0]
            slope.masked_fill_(normed.abs() > shape.clip, 0)
        if norm is not None:
            _through_norm(shape, norm, part, slope, add_norm)
        out.copy_(slope)


def warm(shape: AttentionShape | LatentShape, rotary: Rotary, queries: torch.Tensor) -> None:
    """Multiply queries by their temperature, where they are."""
    if shape.temperature is not None and rotary.positions is not None:
        queries.mul_(shape.temperature.at(rotary.positions)[:, None].to(queries.dtype))


def _before_last_norm(shape: AttentionShape, raw: Pair, rotary: Rotary, outs: Pair) -> None:
    """Write queries and keys as they are behind the rotation."""
    norms = (None, None) if shape.norms_last else _norms(shape)
    for norm, part, out in zip(norms, raw, outs, strict=True):
        out.copy_(part if norm is None else _normed(shape, norm, part)[0])
        if shape.clip is not None:
            out.clamp_(-shape.clip, shape.clip)
    cos, sin = _table(shape, rotary)
    if cos is not None:
        rope.rotate(*outs, cos, sin, shape.head_dim, shape.interleaved, None, None, *outs)


def _norms(shape: AttentionShape) -> tuple[Norm | None, Norm | None]:
    return shape.query_norm, shape.key_norm


def _table(shape: AttentionShape, rotary: Rotary) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    return (rotary.cos, rotary.sin) if shape.rotary else (None, None)


def _rows(shape: AttentionShape, part: torch.Tensor) -> torch.Tensor:
    """Return what a norm sees as rows: a token, or each of its heads, which lie anywhere and are copied."""
    return part if shape.whole_width_norms else part.reshape(-1, shape.head_dim)


def _normed(shape: AttentionShape, norm: Norm | None, part: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return a part behind its norm, and the norm's statistics."""
    if norm is None:
        return part, None
    rows = _rows(shape, part)
    out = torch.empty_like(rows, memory_format=torch.contiguous_format)
    statistics = rms_norm.add_norm(rows, None, norm, out)
    return out.view(part.shape), statistics


def _through_norm(
    shape: AttentionShape, norm: Norm | None, part: torch.Tensor, slope: torch.Tensor, add_norm: AddNorm | None
) -> None:
    """Turn the gradient of a norm's output, which lies without gaps, into that of its input, where it is."""
    if norm is None:
        return
    _, statistics = _normed(shape, norm, part)
    assert statistics is not None
    rows, of_rows = _rows(shape, part), _rows(shape, slope)
    if add_norm is not None:
        add_norm(norm, of_rows, rows, statistics)
    rms_norm.norm_backward(of_rows, rows, norm, statistics, of_rows)
