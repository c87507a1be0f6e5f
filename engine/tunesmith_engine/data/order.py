"""The order of rows in an epoch, and which rows are kept out for evaluation: the same seed, the same answer."""

from __future__ import annotations

import random


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


def split_rows(num_rows: int, percent: float, seed: int) -> tuple[list[int], list[int]]:
    """Return the indices of training rows and evaluation rows, both ascending.

    A share above zero keeps at least one row out, and at least one row stays for training.
    """
    if percent <= 0 or num_rows < 2:
        return list(range(num_rows)), []
    num_eval = min(max(1, round(num_rows * percent / 100)), num_rows - 1)
    chosen = set(random.Random(f"split {seed}").sample(range(num_rows), num_eval))
    return [row for row in range(num_rows) if row not in chosen], sorted(chosen)
