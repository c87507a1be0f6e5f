"""Moves columns of a product to where a block wants them: each of its parts whole, one behind the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from tunesmith_engine.mixer_shapes import Piece


def gather(product: torch.Tensor, pieces: Sequence[Piece], out: torch.Tensor) -> None:
    """Write the pieces of a product behind each other; both are [T, columns]."""
    for there, here in _pairs(product, pieces, out):
        here.copy_(there)


def scatter(parts: torch.Tensor, pieces: Sequence[Piece], out: torch.Tensor) -> None:
    """Do the reverse: write parts that lie behind each other to where they lie in a product."""
    for there, here in _pairs(out, pieces, parts):
        there.copy_(here)


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
