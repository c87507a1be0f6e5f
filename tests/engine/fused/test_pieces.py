"""Columns of a product are moved to where a block wants them and back, whatever their widths and places."""

from __future__ import annotations

import pytest
import torch

from tunesmith_engine.fused.pieces import gather, scatter
from tunesmith_engine.mixer_shapes import Piece

ROWS = 5


def columns_of(pieces: list[Piece]) -> list[int]:
    """Return the product's column of each column of the parts."""
    return [
        piece.start + number * piece.stride + place
        for piece in pieces
        for number in range(piece.count)
        for place in range(piece.width)
    ]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("begin", [0, 4, 3])
@pytest.mark.parametrize(
    "pieces",
    [
        [Piece(0, 2, 16, 8), Piece(8, 2, 16, 8), Piece(32, 1, 4, 4)],
        [Piece(0, 3, 12, 6), Piece(6, 3, 12, 6)],
        [Piece(0, 3, 2, 1), Piece(1, 3, 2, 1), Piece(6, 1, 30, 30)],
    ],
    ids=["of four", "of two", "of one"],
)
def test_columns_go_and_come_back(pieces: list[Piece], begin: int, dtype: torch.dtype) -> None:
    columns = columns_of(pieces)
    wide = torch.arange(ROWS * 60, dtype=dtype).view(ROWS, 60).remainder(251)
    product = wide[:, begin : begin + len(columns)]
    parts = torch.full((ROWS, len(columns) + 1), -1.0, dtype=dtype)
    gather(product, pieces, parts[:, :-1])
    assert torch.equal(parts[:, :-1], product[:, columns])
    assert (parts[:, -1] == -1).all()
    back = torch.full_like(wide, -1.0)
    scatter(parts[:, :-1], pieces, back[:, begin : begin + len(columns)])
    assert torch.equal(back[:, begin : begin + len(columns)], product)
    assert (back[:, :begin] == -1).all()
    assert (back[:, begin + len(columns) :] == -1).all()
