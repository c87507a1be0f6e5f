"""Sums over the trained tokens of each document, and what each of these tokens gets of a number for its document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tunesmith_engine.data.example import Example
from tunesmith_engine.packed.pack import to_device


@dataclass(frozen=True, slots=True)
class Answers:
    """Which trained places of a micro-batch belong to which document.

    Sums are taken over rows of a table: on a GPU, sums by index are not the same each time.

    Attributes:
        places: of each document its places among the R trained ones, R behind its last one, [documents, most] int64.
        documents: of each trained place its document, [R] int64.
        num_tokens: trained tokens of each document, [documents] float32.
    """

    places: torch.Tensor
    documents: torch.Tensor
    num_tokens: torch.Tensor

    @classmethod
    def of(cls, examples: Sequence[Example], device: torch.device) -> Answers:
        """Return those of a micro-batch that `make_packed_batch` makes of the same rows without fixed sizes."""
        counts = np.array(
            [sequence.num_trained_tokens for example in examples for sequence in example.sequences], np.int64
        )
        columns = np.arange(max(counts.max(), 1))
        starts = np.cumsum(counts) - counts
        places = np.where(columns < counts[:, None], starts[:, None] + columns, counts.sum())
        documents = np.repeat(np.arange(len(counts)), counts)
        return cls(*(to_device(part, device) for part in (places, documents, counts.astype(np.float32))))

    def sums(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sums of the values of trained places, [R], over each document, [documents]."""
        sums: torch.Tensor = _Sums.apply(values, self.places, self.documents)
        return sums

    def spread(self, values: torch.Tensor) -> torch.Tensor:
        """Return for each trained place the value of its document, [R]."""
        return values[self.documents]


class _Sums(torch.autograd.Function):
    """Sums over documents, whose gradient by a value is that of its document; autograd would add by index."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, places: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(documents)
        return torch.cat([values, values.new_zeros(1)])[places].sum(dim=1)

    @staticmethod
    def backward(ctx: Any, *slopes: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (documents,) = ctx.saved_tensors
        return slopes[0][documents], None, None
