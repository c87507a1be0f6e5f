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

NUM_PERMUTATIONS, NUM_BANDS = 64, 16
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
    _lsh: Any = None  # Any: rensa has no types
    _hashes: dict[int, Any] = field(default_factory=dict)

    def add(self, row: int, text: str) -> None:
        """Compare a row with those before it and remember it."""
        # Imported here, because older environments lack the library.
        from rensa import RMinHash, RMinHashLSH

        self.num_compared += 1
        words = _WORD.findall(text[:MOST_CHARACTERS].lower())
        if len(words) < LEAST_WORDS:
            return
        if self._lsh is None:
            self._lsh = RMinHashLSH(threshold=ALIKE, num_perm=NUM_PERMUTATIONS, num_bands=NUM_BANDS)
        minhash = RMinHash(num_perm=NUM_PERMUTATIONS, seed=1)
        minhash.update(list(map(" ".join, zip(*(words[place:] for place in range(GROUP)), strict=False))))
        near = [other for other in self._lsh.query(minhash) if minhash.jaccard(self._hashes[other]) >= ALIKE]
        if near:
            self.pairs.append((row, min(near)))
        else:
            # What is near to a copy is near to the first one too.
            self._lsh.insert(row, minhash)
            self._hashes[row] = minhash
