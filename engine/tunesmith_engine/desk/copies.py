"""Rows that occur more than once, and questions that do, by hashes of 8 bytes a row."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST_ROWS = 10_000_000
"""Rows that are compared: 80 MB of hashes; those behind them are not, so that a check takes less than 1 GiB."""


@dataclass(frozen=True, slots=True)
class Copies:
    """Rows that are the same as one before them.

    Attributes:
        rows: numbers of the copies, ascending.
        firsts: the number of the first such row, for each.
    """

    rows: NDArray[np.int64]
    firsts: NDArray[np.int64]


def copies(hashes: array[int], start: int, end: int) -> Copies:
    """Return which of the rows from `start` up to `end` are the same as one before them there."""
    part = np.frombuffer(hashes, np.int64)[start:end]
    # A stable order leaves equal rows in the order of the file.
    order = np.argsort(part, kind="stable")
    ordered = part[order]
    is_copy = np.zeros(len(part), bool)
    is_copy[1:] = ordered[1:] == ordered[:-1]
    places = np.flatnonzero(is_copy)
    group_starts = np.flatnonzero(~is_copy)
    firsts = order[group_starts[np.searchsorted(group_starts, places, side="right") - 1]]
    rows = order[places]
    by_row = np.argsort(rows)
    return Copies(rows[by_row] + start, firsts[by_row] + start)


def answered_otherwise(questions: array[int], answers: array[int], num_rows: int) -> Copies:
    """Return which of the first rows ask what one before them asks, with another answer than the first such row.

    Args:
        questions: hashes, 0 for a row without one.
        answers: hashes of their answers.
        num_rows: rows that are compared.
    """
    found = copies(questions, 0, num_rows)
    asked, answered = (np.frombuffer(hashes, np.int64) for hashes in (questions, answers))
    differs = (asked[found.rows] != 0) & (answered[found.rows] != answered[found.firsts])
    return Copies(found.rows[differs], found.firsts[differs])


def swapped(pairs: array[int], exchanged: array[int]) -> Copies:
    """Return which pairs are one before them with the answers exchanged, and the first of those.

    Args:
        pairs: their hashes.
        exchanged: the hashes that they would have with their answers exchanged.
    """
    own, other = (np.frombuffer(hashes, np.int64) for hashes in (pairs, exchanged))
    order = np.argsort(own, kind="stable")
    places = np.searchsorted(own[order], other).clip(max=max(0, len(own) - 1))
    firsts = order[places]
    rows = np.flatnonzero((own[firsts] == other) & (firsts < np.arange(len(own))))
    return Copies(rows, firsts[rows])


def leaked(hashes: array[int], num_train: int) -> Copies:
    """Return which training rows are evaluation rows too, and the first of those; the latter come behind them."""
    every = np.frombuffer(hashes, np.int64)
    train, held_out = every[:num_train], every[num_train:]
    order = np.argsort(held_out, kind="stable")
    ordered = held_out[order]
    places = np.searchsorted(ordered, train)
    inside = places < len(ordered)
    rows = np.flatnonzero(inside)
    rows = rows[ordered[places[rows]] == train[rows]]
    return Copies(rows, order[places[rows]] + num_train)
