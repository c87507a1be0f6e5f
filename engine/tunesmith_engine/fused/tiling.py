"""How a micro-batch is cut where not all of its intermediate results have room at once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tiling:
    """Sizes of the pieces that are computed one after another.

    Attributes:
        mlp_tokens: rows of the MLP.
        head_rows: rows whose logits exist together.
        attention_numbers: queries times their width; attention's backward pass keeps several times as much beside them.
    """

    mlp_tokens: int
    head_rows: int
    attention_numbers: int


TILINGS = (
    Tiling(mlp_tokens=16384, head_rows=1024, attention_numbers=2**24),
    Tiling(mlp_tokens=4096, head_rows=1024, attention_numbers=2**24),
    Tiling(mlp_tokens=2048, head_rows=512, attention_numbers=2**23),
    Tiling(mlp_tokens=1024, head_rows=256, attention_numbers=2**22),
)
"""For less and less memory.

A product of 184 rows is bound by arithmetic already on an H200, so only the last is slower to speak of."""

WHOLE, SMALL, SAVER, SMALLEST = TILINGS
