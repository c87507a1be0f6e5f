"""Which rows each expert of a mixture computes: tokens sorted by expert, and a table of tiles for one launch over all.

A token that goes to k experts has k rows. Rows of one expert lie behind each other, in the order of their tokens, so
the same choice always gives the same order and no sum depends on who came first. Nothing here makes the host wait.

# T tokens, k experts of each, M = T k rows, E experts
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

TILE_ROWS = (128, 64, 32, 16)
"""Rows of a program: the most that an expert has on average."""


@dataclass(frozen=True, slots=True)
class Order:
    """Where rows come from and whose they are.

    Attributes:
        token: the token of each row, int32 [M].
        choice: which of the T k choices each row is, int64 [M].
        place: the row of each choice, int32 [T k].
        offsets: the rows before each expert's, int32 [E + 1].
        tile_expert: whose the rows of a tile are, int32, in ascending order; E where a tile is left over.
        tile_row: its first row, int32.
        tile_rows: most rows of a tile.
    """

    token: torch.Tensor
    choice: torch.Tensor
    place: torch.Tensor
    offsets: torch.Tensor
    tile_expert: torch.Tensor
    tile_row: torch.Tensor
    tile_rows: int

    @property
    def num_rows(self) -> int:
        """Return M."""
        return len(self.token)

    @property
    def num_experts(self) -> int:
        """Return E."""
        return len(self.offsets) - 1


def order_of(experts: torch.Tensor, num_experts: int) -> Order:
    """Return the order of rows.

    Args:
        experts: of each token, integers [T, k].
        num_experts: E; every number is below it.
    """
    num_tokens, per_token = experts.shape
    num_rows, device = num_tokens * per_token, experts.device
    ordered, choice = torch.sort(experts.reshape(-1).to(torch.int32), stable=True)
    bounds = torch.arange(num_experts + 1, dtype=torch.int32, device=device)
    offsets = torch.searchsorted(ordered, bounds, out_int32=True)
    rows = torch.arange(num_rows, dtype=torch.int32, device=device)
    place = torch.empty_like(rows).scatter_(0, choice, rows)
    average = num_rows / num_experts
    tile_rows = next((rows for rows in TILE_ROWS if rows <= average), TILE_ROWS[-1])
    tiles = (offsets.diff() + (tile_rows - 1)) // tile_rows
    ends = tiles.cumsum(0, dtype=torch.int32)
    numbers = torch.arange(num_tiles(num_rows, num_experts, tile_rows), dtype=torch.int32, device=device)
    tile_expert = torch.searchsorted(ends, numbers, right=True, out_int32=True)
    whose = tile_expert.clamp(max=num_experts - 1).long()
    tile_row = offsets[whose] + (numbers - (ends - tiles)[whose]) * tile_rows
    token = (choice // per_token).to(torch.int32)
    return Order(token, choice, place, offsets, tile_expert, tile_row.to(torch.int32), tile_rows)


def num_tiles(num_rows: int, num_experts: int, tile_rows: int) -> int:
    """Return the most tiles that rows can take, whatever the choice: each expert may have one that isn't full."""
    return num_rows // tile_rows + min(num_experts, num_rows)

