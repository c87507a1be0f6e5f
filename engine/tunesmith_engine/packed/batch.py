"""One micro-batch without padding: the tokens of several documents behind each other, and where each one ends."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class SharedBeginnings:
    """Tokens that pass through the model once and begin several documents; only attention sees these whole.

    W tokens have the whole documents, T of them are computed.

    Attributes:
        rows: of each token of the whole documents its row among the computed ones, [W] int64.
        first: of each computed token its place in the whole documents, [T] int64.
        again: places of tokens that a document before them has computed, ascending, [W - T] int64.
        again_rows: their rows, each once, so that sums by row are the same each time.
    """

    rows: torch.Tensor
    first: torch.Tensor
    again: torch.Tensor
    again_rows: torch.Tensor


@dataclass(frozen=True, slots=True)
class Documents:
    """Which tokens belong together: attention never looks past these bounds.

    Attributes:
        bounds: start of each document and the end of the last, int32 on the device, [num_documents + 1]. Empty
            documents may follow at the end: a captured graph wants a fixed number.
        lengths: the lengths on the host, without empty documents.
        max_length: an upper bound of the lengths; a captured graph may have been given a longer one.
        shared: which tokens of these whole documents are computed once for two; None when each has its own.
    """

    bounds: torch.Tensor
    lengths: tuple[int, ...]
    max_length: int
    shared: SharedBeginnings | None = None

    @property
    def equal_length(self) -> int | None:
        """Length of every document when all are equally long, else None."""
        return self.lengths[0] if len(set(self.lengths)) == 1 else None


@dataclass(frozen=True, slots=True)
class SoftTokens:
    """How likely some tokens should be at each of R trained places.

    Attributes:
        ids: of the tokens, [R, K] int64: first the one that was written, then others; it fills up the rest.
        shares: of these tokens, float32 [R, K], 0 where ids are filled up; they sum to 1, or 0 where a fixed R is
            filled up.
    """

    ids: torch.Tensor
    shares: torch.Tensor

    def part(self, places: slice) -> SoftTokens:
        """Return those of some of the places."""
        return SoftTokens(self.ids[places], self.shares[places])


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """A micro-batch on its device; T tokens, of which R have a next token that is trained.

    Attributes:
        input_ids: [T] int64.
        positions: place of each token in its own document, [T] int64.
        documents: bounds of the documents; they cover all T tokens, and those that are shared as often as they count.
        trained_rows: ascending places whose next token is trained, [R] int64.
        targets: those next tokens, [R] int64; -100 for a place that fills up a fixed R.
        soft: how likely these and others should be, where that is learned; None where only the targets are.
    """

    input_ids: torch.Tensor
    positions: torch.Tensor
    documents: Documents
    trained_rows: torch.Tensor
    targets: torch.Tensor
    soft: SoftTokens | None = None

    @property
    def num_tokens(self) -> int:
        """Number of tokens T."""
        return self.input_ids.shape[0]
