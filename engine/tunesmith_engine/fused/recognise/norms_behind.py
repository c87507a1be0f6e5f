"""Layers whose norms stand behind the sums: each norm becomes the one before what comes next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tunesmith_engine.mixer_shapes import Norm
from tunesmith_engine.shapes import LayerShape, NotFusableError, UnfusedLayer

Layers = tuple[LayerShape | UnfusedLayer, ...]


def with_norms_before(layers: Sequence[LayerShape | UnfusedLayer]) -> tuple[Layers, Norm | None]:
    """Return layers whose norms are all before their blocks, and the norm behind the last layer's sum, if there is one.

    Raises:
        NotFusableError: only some layers have their norms behind the sums.
    """
    found = [layer for layer in layers if isinstance(layer, LayerShape) and layer.norms_stream]
    if not found:
        return tuple(layers), None
    if len(found) < len(layers):
        raise NotFusableError("Only some layers have their norms behind the sums, which is not supported.")
    before = [None, *(layer.norm_behind for layer in found)]
    shapes = tuple(
        replace(layer, input_norm=norm, norm_behind=None) for layer, norm in zip(found, before, strict=False)
    )
    return shapes, before[-1]
