"""What a figure gained over rows, and whether chance alone gives as much."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunesmith_engine.train.comparison import interval

NUM_FLIPS = 2000
MOST_EXACT = 12
"""Up to so many pairs, every way to exchange them is tried; of more pairs, so many random ways."""

Values = dict[str, Any]  # Any: JSON values


def difference(before: Iterable[float], after: Iterable[float]) -> Values:
    """Return the means before and after, the 95 % interval of the gain, and how likely chance alone gives as much.

    The probability is that of a paired permutation test: with each row's two values exchanged at random.
    """
    old, new = (np.array(list(values), dtype=np.float64) for values in (before, after))
    gains = new - old
    return {
        "before": float(old.mean()),
        "after": float(new.mean()),
        "gain": interval(gains, np.ones(len(gains))),
        "p": _chance(gains),
    }


def _chance(gains: NDArray[np.float64]) -> float:
    """Return how likely gains of random signs are as far from 0 on average."""
    is_exact = len(gains) <= MOST_EXACT
    if is_exact:
        flips = np.array(list(itertools.product((-1.0, 1.0), repeat=len(gains))))
    else:
        flips = np.random.default_rng(0).choice([-1.0, 1.0], size=(NUM_FLIPS, len(gains)))
    as_large = np.abs((flips * gains).mean(axis=1)) >= abs(gains.mean()) - 1e-12
    # What was measured is one of all ways, and one more beside those that were drawn.
    return float(as_large.mean()) if is_exact else float((as_large.sum() + 1) / (NUM_FLIPS + 1))
