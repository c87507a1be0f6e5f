"""Data files that went wrong, by a fixed seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from tests.engine.foreign_data import parquet_mutations, text_mutations
from tests.engine.foreign_data.case import Case

SEED = 12

MUTATIONS = {
    text_mutations.lines: 24,
    text_mutations.table: 12,
    text_mutations.items: 8,
    text_mutations.list_with_a_break: 5,
    text_mutations.cat: 5,
    text_mutations.flips: 12,
    text_mutations.cut: 4,
    text_mutations.encoded: 7,
    text_mutations.foreign: 11,
    text_mutations.special: 3,
    parquet_mutations.broken_text: 4,
    parquet_mutations.odd_types: 12,
    parquet_mutations.damaged: 9,
    parquet_mutations.odd_shape: 4,
}


def cases(folder: Path, count: int, seed: int = SEED) -> Iterator[Case]:
    """Yield files, each in a folder of its own and of a random kind that is the same for the same seed."""
    for number in range(count):
        chance = random.Random(f"{seed} {number}")
        (mutation,) = chance.choices(list(MUTATIONS), list(MUTATIONS.values()))
        place = folder / f"{number:04d}"
        place.mkdir()
        yield mutation(place, chance)
