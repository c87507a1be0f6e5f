"""Tables that embed some tokens in place of the model's embedding, as they are written: see `OtherTable`."""

from __future__ import annotations

import torch

from tunesmith_engine.fused.plain_modules import random_states, set_random_states
from tunesmith_engine.shapes import OtherTable


class TokenTable:
    """Embeds the tokens of one table; they are few, so all of them are computed.

    Attributes:
        is_trained: an adapter is on a part of it.
    """

    def __init__(self, shape: OtherTable, autocast: torch.dtype | None) -> None:
        self._shape, self._autocast = shape, autocast
        self.is_trained = any(parameter.requires_grad for parameter in shape.module.parameters())
        self._state: list[torch.Tensor] = []

    def _rows(self, device: torch.device) -> torch.Tensor:
        """Return what is embedded for each of its tokens, [number, hidden]."""
        first, number = self._shape.first, self._shape.number
        ids = torch.arange(first, first + number, device=device)
        with torch.autocast(device.type, self._autocast or torch.float32, enabled=self._autocast is not None):
            rows: torch.Tensor = self._shape.module(input_ids=ids[None])[0]
        return rows

    def _places(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return which tokens are its own, [T, 1], and rows of the table, whose others mean nothing."""
        places = ids - self._shape.first
        is_own = (places >= 0) & (places < self._shape.number)
        return is_own[:, None], places.clamp(0, self._shape.number - 1)

    def embed(self, ids: torch.Tensor, x: torch.Tensor) -> None:
        """Overwrite what the embedding gives for its tokens, [T, hidden]."""
        self._state = random_states(x.device)
        is_own, places = self._places(ids)
        torch.where(is_own, self._rows(x.device).to(x.dtype)[places], x, out=x)

    def backward(self, ids: torch.Tensor, gradient: torch.Tensor) -> None:
        """Add the gradients of its adapters, and clear that of its embedded tokens, [T, hidden]."""
        is_own, places = self._places(ids)
        if self.is_trained:
            present = random_states(gradient.device)
            set_random_states(self._state, gradient.device)
            with torch.enable_grad():
                rows = self._rows(gradient.device)
                torch.autograd.backward(
                    rows, torch.zeros_like(rows).index_add_(0, places, (gradient * is_own).to(rows.dtype))
                )
            set_random_states(present, gradient.device)
        gradient.masked_fill_(is_own, 0.0)
