"""The model's rotary tables for every position that a cache holds: a step picks its rows instead of computing them."""

from __future__ import annotations

import torch

from tunesmith_engine.device import Compute
from tunesmith_engine.shapes import ModelShape

Turned = dict[str, tuple[torch.Tensor | None, torch.Tensor | None]]
"""cos and sin by kind of layer, [M, rotary_dim] each, or None for layers without rotation."""


class RotaryTables:
    """Tables [capacity, rotary_dim] of every kind of layer."""

    def __init__(self, shape: ModelShape, compute: Compute, capacity: int) -> None:
        kinds = {layer.rotary_kind for layer in shape.layers}
        like = torch.empty(0, device=compute.device, dtype=compute.dtype)
        positions = torch.arange(capacity, device=compute.device)[None]
        self._tables: Turned = {}
        for kind in kinds:
            if shape.rotary is None or kind not in shape.rotary_kinds:
                self._tables[kind] = (None, None)
                continue
            cos, sin = shape.rotary(like, positions, kind)
            self._tables[kind] = (cos[0].contiguous(), sin[0].contiguous())

    def at(self, positions: torch.Tensor) -> Turned:
        """Return the rows of some positions, [M]."""
        return {kind: (_rows(cos, positions), _rows(sin, positions)) for kind, (cos, sin) in self._tables.items()}


def _rows(table: torch.Tensor | None, positions: torch.Tensor) -> torch.Tensor | None:
    return None if table is None else table.index_select(0, positions)
