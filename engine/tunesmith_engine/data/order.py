"""The order of rows in an epoch, and which rows are kept out for evaluation: the same seed, the same answer."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tunesmith_core.held_out import num_held_out


def epoch_order(num_rows: int, seed: int, epoch: int, shuffle: bool) -> list[int]:
    """Return the row indices of one epoch, each exactly once.

    Args:
        num_rows: number of training rows.
        seed: schedule.seed.
        epoch: from 0; every epoch has an order of its own.
        shuffle: False keeps the order of the file.
    """
    order = list(range(num_rows))
    if shuffle:
        random.Random(f"epoch {seed} {epoch}").shuffle(order)
    return order


def split_rows(
    num_rows: int, percent: float, seed: int, contents: Sequence[int] = ()
) -> tuple[list[int], list[int]]:
    """Return the indices of training rows and evaluation rows, both ascending.

    A share above zero keeps at least one row out, and at least one row stays for training.

    Args:
        num_rows: number of all rows.
        percent: share that is kept out.
        seed: schedule.seed.
        contents: a number for what each row holds; equal rows stay on one side, unless all are equal.
    """
    if percent <= 0 or num_rows < 2:
        return list(range(num_rows)), []
    num_eval = num_held_out(num_rows, percent)
    sampled = random.Random(f"split {seed}").sample(range(num_rows), num_eval)
    chosen = set(sampled)
    if len(set(contents)) > 1:
        chosen = _with_copies(sampled, contents, seed)
    return [row for row in range(num_rows) if row not in chosen], sorted(chosen)


def _with_copies(sampled: list[int], contents: Sequence[int], seed: int) -> set[int]:
    """Return about as many rows as were sampled, the same ones where none has a copy, as whole groups of equal rows."""
    groups: dict[int, list[int]] = {}
    for row, content in enumerate(contents):
        groups.setdefault(content, []).append(row)
    if len(groups) == len(contents):
        return set(sampled)
    others = list(groups)
    random.Random(f"split copies {seed}").shuffle(others)
    chosen: set[int] = set()
    for content in dict.fromkeys([*(contents[row] for row in sampled), *others]):
        if len(chosen) + len(groups[content]) <= len(sampled):
            chosen.update(groups[content])
    smallest = min(groups, key=lambda content: len(groups[content]))
    return chosen or set(groups[smallest])
