"""Rows that are nearly the same as another: MinHash finds them without comparing each with each."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass, field
from typing import Any

MOST_ROWS = 10_000
"""Training rows that are compared: each takes ten times as long as all other rules together."""

MOST_EVALUATION_ROWS = 5_000

ALIKE = 0.8
"""Share of word groups that two rows must have in common."""

NUM_PERMUTATIONS, BAND = 64, 4
"""Numbers that stand for a row, and how many of them in a band: rows that are compared have one in common."""

MOST_OF_BAND = 16
"""Rows with the same band that are kept, the first ones: rows made from one sentence would all be compared."""

GROUP, LEAST_WORDS = 2, 12
"""Words that are compared together, and of the shortest row: in fewer, one word is a large share."""

MOST_CHARACTERS = 20_000
"""Of a row that are looked at."""

_WORD = re.compile(r"[\u3400-\u9fff\u3040-\u30ff\uac00-\ud7af]|\w+")
"""A word; in Chinese, Japanese and Korean a letter."""


def has_library() -> bool:
    """Return whether this environment has the library."""
    return importlib.util.find_spec("rensa") is not None


@dataclass(slots=True)
class NearRows:
    """The rows seen so far.

    Attributes:
        pairs: rows that are nearly the same as one before them, with the number of that.
        num_compared: rows so far.
    """

    pairs: list[tuple[int, int]] = field(default_factory=list)
    num_compared: int = 0
    _hashes: dict[int, Any] = field(default_factory=dict)  # Any: rensa has no types
    _bands: dict[tuple[int, ...], list[int]] = field(default_factory=dict)

    def add(self, row: int, text: str) -> None:
        """Compare a row with those before it and remember it."""
        # Imported here, because older environments lack the library.
        from rensa import RMinHash

        self.num_compared += 1
        words = _WORD.findall(text[:MOST_CHARACTERS].lower())
        if len(words) < LEAST_WORDS:
            return
        minhash = RMinHash(num_perm=NUM_PERMUTATIONS, seed=1)
        minhash.update(list(map(" ".join, zip(*(words[place:] for place in range(GROUP)), strict=False))))
        digest = minhash.digest()
        bands = [(place, *digest[place : place + BAND]) for place in range(0, NUM_PERMUTATIONS, BAND)]
        others = {other for band in bands for other in self._bands.get(band, ())}
        near = [other for other in others if minhash.jaccard(self._hashes[other]) >= ALIKE]
        if near:
            self.pairs.append((row, min(near)))
        else:
            # What is near to a copy is near to the first one too.
            self._hashes[row] = minhash
            for band in bands:
                same = self._bands.setdefault(band, [])
                if len(same) < MOST_OF_BAND:
                    same.append(row)
