"""Rows that occur more than once: among the training rows, and in training and evaluation alike.

What was trained on can't show whether a model learned more than those rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tunesmith_engine.data.example import IGNORED_LABEL, Example

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
    """Return how many of the rows differ from each other; pairs of one better answer may differ in the worse one."""
    return len({tuple(each.input_ids.tobytes() for each in example.sequences) for example in examples})


def num_leaked(train: Sequence[Example], held_out: Sequence[Example]) -> int:
    """Return how many held-out rows are training rows too, word for word or nearly."""
    known = {example.input_ids.tobytes() for example in train}
    others = [example for example in held_out if example.input_ids.tobytes() not in known]
    return len(held_out) - len(others) + _num_near(train, others[:MOST_ROWS])


@dataclass(frozen=True, slots=True)
class _Windows:
    """Runs of a few tokens within rows.

    Attributes:
        numbers: one for each content, [windows].
        rows: places of their rows, [windows].
        in_prompt: whether the last token is not learned, [windows].
    """

    numbers: NDArray[np.int64]
    rows: NDArray[np.int64]
    in_prompt: NDArray[np.bool_]


def _num_near(train: Sequence[Example], held_out: Sequence[Example]) -> int:
    if not held_out:
        return 0
    wanted = _windows(held_out)
    num_tokens = np.cumsum([len(example.input_ids) for example in train])
    searched = train[: max(1, int(np.searchsorted(num_tokens, MOST_TOKENS)))]
    found = _windows(searched)
    is_hit = np.isin(found.numbers, wanted.numbers)
    rows_with: dict[int, set[int]] = defaultdict(set)
    for window, row in zip(found.numbers[is_hit].tolist(), found.rows[is_hit].tolist(), strict=True):
        rows_with[window].add(row)
    most = max(2, min(MOST_COMMON, int(COMMON * len(searched))))
    own: dict[int, dict[int, bool]] = defaultdict(dict)
    for window, row, in_prompt in zip(
        wanted.numbers.tolist(), wanted.rows.tolist(), wanted.in_prompt.tolist(), strict=True
    ):
        if len(rows_with[window]) <= most:
            own[row][window] = in_prompt
    return sum(_has_copy(windows, rows_with) for windows in own.values())


def _has_copy(windows: dict[int, bool], rows_with: dict[int, set[int]]) -> bool:
    """Return whether a training row has nearly the same prompt, and is nearly the same as a whole.

    The same answer to another question is no copy.
    """
    if len(windows) < LEAST_WINDOWS:
        return False
    asked = [window for window, in_prompt in windows.items() if in_prompt]
    shared, shared_asked = (Counter(row for window in part for row in rows_with[window]) for part in (windows, asked))
    return any(
        num >= ALIKE * len(windows) and shared_asked[row] >= ALIKE * len(asked) for row, num in shared.items()
    )


def _windows(examples: Sequence[Example]) -> _Windows:
    tokens = np.concatenate([example.input_ids for example in examples]).astype(np.int64)
    in_prompt = np.concatenate([example.labels for example in examples]) == IGNORED_LABEL
    rows = np.repeat(np.arange(len(examples)), [len(example.input_ids) for example in examples])
    num = max(0, len(tokens) - WINDOW + 1)
    factors = np.random.default_rng(0).integers(1 << 62, size=WINDOW)
    hashes = np.zeros(num, np.int64)
    for place in range(WINDOW):
        # It wraps around, as a hash may.
        hashes += (tokens[place : place + num] + 1) * factors[place]
    is_within = rows[:num] == rows[WINDOW - 1 :][:num]
    return _Windows(hashes[is_within], rows[:num][is_within], in_prompt[WINDOW - 1 :][:num][is_within])
