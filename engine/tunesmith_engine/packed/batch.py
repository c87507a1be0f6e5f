"""One micro-batch without padding: the tokens of several documents behind each other, and where each one ends."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Documents:
    """Which tokens belong together: attention never looks past these bounds.

    Attributes:
        bounds: start of each document and the end of the last, int32 on the device, [num_documents + 1]. Empty
            documents may follow at the end: a captured graph wants a fixed number.
        lengths: the lengths on the host, without empty documents.
        max_length: an upper bound of the lengths; a captured graph may have been given a longer one.
    """

    bounds: torch.Tensor
    lengths: tuple[int, ...]
    max_length: int

    @property
    def equal_length(self) -> int | None:
        """Length of every document when all are equally long, else None."""
        return self.lengths[0] if len(set(self.lengths)) == 1 else None


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """A micro-batch on its device; T tokens, of which R have a next token that is trained.

    Attributes:
        input_ids: [T] int64.
        positions: place of each token in its own document, [T] int64.
        documents: bounds of the documents; they cover all T tokens.
        trained_rows: ascending places whose next token is trained, [R] int64.
        targets: those next tokens, [R] int64; -100 for a place that fills up a fixed R.
    """

    input_ids: torch.Tensor
    positions: torch.Tensor
    documents: Documents
    trained_rows: torch.Tensor
    targets: torch.Tensor

    @property
    def num_tokens(self) -> int:
        """Number of tokens T."""
        return self.input_ids.shape[0]
