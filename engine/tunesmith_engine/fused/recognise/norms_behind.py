"""Layers whose norms stand behind the sums: each norm becomes the one before what comes next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tunesmith_engine.fused.recognise.body import Body
from tunesmith_engine.fused.recognise.parts import read_norm
from tunesmith_engine.mixer_shapes import Norm
from tunesmith_engine.shapes import LayerShape, NotFusableError, Unfused, UnfusedLayer

Layers = tuple[LayerShape | UnfusedLayer, ...]


def with_norms_before(body: Body, layers: Sequence[LayerShape | UnfusedLayer]) -> tuple[Layers, Norm]:
    """Return a decoder's layers with all norms before their blocks, and the norm before its head.

    Raises:
        NotFusableError: no norm is before the head, or two are, or only some layers have theirs behind the sums.
    """
    found = [layer for layer in layers if isinstance(layer, LayerShape) and layer.norms_stream]
    if not found:
        try:
            return tuple(layers), read_norm(*body.last_norm)
        except NotFusableError as error:
            reasons = [layer.attention.reason for layer in layers if isinstance(layer.attention, Unfused)]
            if not reasons:
                raise
            raise NotFusableError("{reason} {other}", reason=reasons[0], other=error.message) from error
    if len(found) < len(layers):
        raise NotFusableError("Only some layers have their norms behind the sums, which is not supported.")
    if body.norm is not None:
        raise NotFusableError("{name} has a norm behind its last layer's, which is not supported.", name=body.name)
    before = [None, *(layer.norm_behind for layer in found)]
    shapes = [replace(layer, input_norm=norm, norm_behind=None) for layer, norm in zip(found, before, strict=False)]
    last = found[-1].norm_behind
    assert last is not None, "found with the others"
    return tuple(shapes), last
