"""Moves columns of a product to where a block wants them: each of its parts whole, one behind the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from tunesmith_engine.mixer_shapes import Piece

WIDE = torch.int64
"""PyTorch copies pieces that lie apart number by number, so numbers are taken together where they can."""


def gather(product: torch.Tensor, pieces: Sequence[Piece], out: torch.Tensor) -> None:
    """Write the pieces of a product behind each other; both are [T, columns]."""
    for there, here in _pairs(product, pieces, out):
        _copy(there, here)


def scatter(parts: torch.Tensor, pieces: Sequence[Piece], out: torch.Tensor) -> None:
    """Do the reverse: write parts that lie behind each other to where they lie in a product."""
    for there, here in _pairs(out, pieces, parts):
        _copy(here, there)


def _copy(source: torch.Tensor, out: torch.Tensor) -> None:
    """Copy a piece, [T, count, width]."""
    if source.dtype == out.dtype and _is_of_wide(source) and _is_of_wide(out):
        source, out = source.view(WIDE), out.view(WIDE)
    out.copy_(source)


def _is_of_wide(piece: torch.Tensor) -> bool:
    """Return whether each of its rows begins and ends between wide numbers."""
    places = (*piece.stride()[:2], piece.storage_offset(), piece.shape[2])
    return all(place * piece.itemsize % WIDE.itemsize == 0 for place in places)


def _pairs(
    product: torch.Tensor, pieces: Sequence[Piece], parts: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield each piece in the product and among the parts, [T, count, width] each."""
    start = 0
    for piece in pieces:
        shape = (len(product), piece.count, piece.width)
        offset = product.storage_offset() + piece.start
        size = piece.count * piece.width
        there = product.as_strided(shape, (product.stride(0), piece.stride, 1), offset)
        yield there, parts[:, start : start + size].unflatten(1, (piece.count, piece.width))
        start += size
