"""What a figure gained over rows, and whether chance alone gives as much."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tunesmith_engine.train.comparison import interval

NUM_FLIPS = 2000
Values = dict[str, Any]  # Any: JSON values


def difference(before: Iterable[float], after: Iterable[float]) -> Values:
    """Return the means before and after, the 95 % interval of the gain, and how likely chance alone gives as much.

    The probability is that of a paired permutation test: with each row's two values exchanged at random.
    """
    old, new = (np.array(list(values), dtype=np.float64) for values in (before, after))
    gains = new - old
    flips = np.random.default_rng(0).choice([-1.0, 1.0], size=(NUM_FLIPS, len(gains)))
    as_large = np.abs((flips * gains).mean(axis=1)) >= abs(gains.mean()) - 1e-12
    return {
        "before": float(old.mean()),
        "after": float(new.mean()),
        "gain": interval(gains, np.ones(len(gains))),
        "p": float((as_large.sum() + 1) / (NUM_FLIPS + 1)),
    }
