"""Weights that the files of a base model hold in pieces, such as one for each expert."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from transformers.core_model_loading import revert_weight_conversion

Change = Callable[[torch.Tensor], torch.Tensor]

KEPT_WEIGHTS = 2
"""So many whole weights are kept: files mostly name the pieces of two weights of a layer by turns."""


class Pieces:
    """What becomes of the pieces of one model's weights.

    Attributes:
        of: a piece by the name of its weight in the model.
    """

    def __init__(self, base: Any, in_files: Mapping[str, tuple[int, ...]]) -> None:  # Any: a transformers model
        """Know a model.

        Args:
            base: the model, on any device.
            in_files: shapes of all weights in its files, by name.
        """
        self._base, self._in_files = base, in_files
        self._of_change = functools.lru_cache(KEPT_WEIGHTS)(self._cut)
        self.of: dict[str, str] = {}

    def changes(self, name: str, shape: torch.Size, change: Change, *, adds: bool) -> dict[str, Change]:
        """Return what becomes of the pieces of a weight, by their names in the files.

        Args:
            name: of the weight in the model.
            shape: of the weight.
            change: adds something to the weight that does not depend on it, or puts another one in its place.
            adds: which of both.

        Returns:
            Nothing when the pieces that transformers would save are not those in the files.
        """
        try:
            pieces = revert_weight_conversion(self._base, {name: torch.empty(shape, device="meta")})
        except Exception:
            # The way back may need other weights, too; which errors that gives is not documented.
            return {}
        if name in pieces or any(self._in_files.get(piece) != tuple(value.shape) for piece, value in pieces.items()):
            return {}
        self.of[name] = min(pieces)

        def changing(piece: str) -> Change:
            if adds:
                return lambda weight: weight.float() + self._of_change(name, shape, change)[piece]
            return lambda _: self._of_change(name, shape, change)[piece]

        return {piece: changing(piece) for piece in pieces}

    def _cut(self, name: str, shape: torch.Size, change: Change) -> dict[str, torch.Tensor]:
        """Return each piece of what a change makes of zeros."""
        pieces: dict[str, torch.Tensor] = revert_weight_conversion(self._base, {name: change(torch.zeros(shape))})
        return pieces
