"""Rows that occur more than once: among the training rows, and in training and evaluation alike.

What was trained on can't show whether a model learned more than those rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tunesmith_engine.data.example import Example

WINDOW = 5
"""Tokens that are compared together."""

ALIKE = 0.7
"""Share of a row's own windows that another row must have to be nearly the same."""

LEAST_WINDOWS = 6
"""With fewer windows of its own, a row is too short to be called nearly the same as another."""

COMMON, MOST_COMMON = 0.05, 50
"""A window in more than this share of the training rows, or in more than so many, belongs to a template."""

MOST_ROWS, MOST_TOKENS = 500, 5_000_000
"""Held-out rows and training tokens among which near copies are looked for; equal rows are always found."""


def num_distinct(examples: Sequence[Example]) -> int:
    """Return how many of the rows differ from each other."""
    return len({example.input_ids.tobytes() for example in examples})


def num_leaked(train: Sequence[Example], held_out: Sequence[Example]) -> int:
    """Return how many held-out rows are training rows too, word for word or nearly."""
    known = {example.input_ids.tobytes() for example in train}
    others = [example for example in held_out if example.input_ids.tobytes() not in known]
    return len(held_out) - len(others) + _num_near(train, others[:MOST_ROWS])


def _num_near(train: Sequence[Example], held_out: Sequence[Example]) -> int:
    if not held_out:
        return 0
    wanted, wanted_rows = _windows(held_out)
    num_tokens = np.cumsum([len(example.input_ids) for example in train])
    searched = train[: max(1, int(np.searchsorted(num_tokens, MOST_TOKENS)))]
    found, found_rows = _windows(searched)
    is_hit = np.isin(found, wanted)
    rows_with: dict[int, set[int]] = defaultdict(set)
    for window, row in zip(found[is_hit].tolist(), found_rows[is_hit].tolist(), strict=True):
        rows_with[window].add(row)
    most = max(2, min(MOST_COMMON, int(COMMON * len(searched))))
    own: dict[int, set[int]] = defaultdict(set)
    for window, row in zip(wanted.tolist(), wanted_rows.tolist(), strict=True):
        if len(rows_with[window]) <= most:
            own[row].add(window)
    return sum(_has_copy(windows, rows_with) for windows in own.values())


def _has_copy(windows: set[int], rows_with: dict[int, set[int]]) -> bool:
    if len(windows) < LEAST_WINDOWS:
        return False
    shared = Counter(row for window in windows for row in rows_with[window])
    return any(num >= ALIKE * len(windows) for _, num in shared.most_common(1))


def _windows(examples: Sequence[Example]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a number for each run of a few tokens within a row, and the places of their rows."""
    lengths = [len(example.input_ids) for example in examples]
    tokens = np.concatenate([example.input_ids for example in examples]).astype(np.int64)
    rows = np.repeat(np.arange(len(examples)), lengths)
    num = len(tokens) - WINDOW + 1
    if num <= 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    factors = np.random.default_rng(0).integers(1 << 62, size=WINDOW)
    with np.errstate(over="ignore"):
        hashes = sum((tokens[place : place + num] + 1) * factors[place] for place in range(WINDOW))
    is_within = rows[:num] == rows[WINDOW - 1 :]
    return np.asarray(hashes)[is_within], rows[:num][is_within]
