"""What depends on the length of a row: the last position that a model has learned, and rotary tables.

A rotary table may change with the length of the text, and a row must be computed as it would be alone.
"""

from __future__ import annotations

from typing import Any

import torch

from tunesmith_core.position_limits import is_position_table


def learned_positions(model: Any) -> int | None:  # Any: a transformers model, maybe with an adapter
    """Return for how many tokens a model has learned positions, None where it computes them.

    A part for images has a table of its own, for pieces of images.
    """
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    found = [
        module.num_embeddings - int(getattr(module, "offset", 0))
        for name, module in base.get_decoder().named_modules()
        if isinstance(module, torch.nn.Embedding) and is_position_table(name)
    ]
    return min(found, default=None)


class RotarySwitches:
    """The rotary modules of a model that take another table for a longer text."""

    def __init__(self, model: torch.nn.Module) -> None:
        # Any: transformers' rotary modules. The number of tokens up to which the first table serves, by module.
        self._by_length: list[tuple[Any, int]] = []
        self._dynamic: list[tuple[Any, str, int]] = []
        for module in model.modules():
            kinds = getattr(module, "rope_type", None)
            for layer, kind in kinds.items() if isinstance(kinds, dict) else [("", kinds)]:
                if kind == "longrope":
                    parameters = module.config.rope_parameters
                    limit = (parameters[layer] if layer else parameters)["original_max_position_embeddings"]
                    self._by_length.append((module, int(limit)))
                elif kind == "dynamic":
                    self._dynamic.append((module, f"{layer}_" if layer else "", int(module.original_max_seq_len)))

    def table_of(self, num_tokens: int) -> tuple[int, ...]:
        """Return what tells the tables for a row of this length apart; rows of equal answers may share a batch."""
        return (
            *(int(num_tokens > limit) for _, limit in self._by_length),
            *(max(num_tokens, limit) for _, _, limit in self._dynamic),
        )

    def forget_lengths(self) -> None:
        """Let the next batch begin with the tables of short texts: a dynamic one remembers the longest text so far."""
        for module, prefix, limit in self._dynamic:
            setattr(module, f"{prefix}max_seq_len_cached", limit)
            device = getattr(module, f"{prefix}inv_freq").device
            setattr(module, f"{prefix}inv_freq", getattr(module, f"{prefix}original_inv_freq").to(device))
