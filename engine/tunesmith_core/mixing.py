"""How many rows of each of several files are taken: for a file that is written, and for an epoch of a run."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from tunesmith_core.errors import TunesmithError


def apportioned(size: int, weights: Sequence[float]) -> list[int]:
    """Return how many of `size` rows each weight stands for: exact, or the nearest whole numbers of the same sum."""
    total = sum(map(_exact, weights))
    quotas = [size * _exact(weight) / total for weight in weights]
    taken = [int(quota) for quota in quotas]
    by_rest = sorted(range(len(quotas)), key=lambda place: taken[place] - quotas[place])
    for place in by_rest[: size - sum(taken)]:
        taken[place] += 1
    return taken


def shares(numbers: Sequence[int], weights: Sequence[float], caps: Sequence[int], count: int) -> list[int]:
    """Return how many rows of each file are taken, none of them twice.

    Args:
        numbers: rows of each file.
        weights: of the files; as many as they have rows when empty.
        caps: most rows of each, 0 for any number; none when empty.
        count: rows of all; 0 for as many as the weights allow without repeating one.

    Raises:
        UserError: `usage` when nothing is taken.
    """
    most = [min(number, cap or number) for number, cap in zip(numbers, caps or [0] * len(numbers), strict=True)]
    wanted = list(weights) or [float(number) for number in most]
    total = sum(map(_exact, wanted))
    pairs = zip(most, wanted, strict=True)
    allowed = int(min((number * total / _exact(weight) for number, weight in pairs if weight), default=0))
    size = min(count, allowed) if count else allowed
    if not size:
        raise TunesmithError("usage", "No rows are left to mix with these weights and caps.")
    return apportioned(size, wanted)


def epoch_shares(numbers: Sequence[int], weights: Sequence[float]) -> list[int]:
    """Return how many examples of an epoch come from each file.

    A file without a weight gives each of its rows once. The others share by their weights as many examples as they have
    rows together, so an epoch is as long as all files.

    Args:
        numbers: rows of each file.
        weights: of each file, 0 for none.
    """
    weighted = [place for place, weight in enumerate(weights) if weight]
    taken = list(numbers)
    if weighted:
        size = sum(numbers[place] for place in weighted)
        for place, num in zip(weighted, apportioned(size, [weights[place] for place in weighted]), strict=True):
            taken[place] = num
    return taken


def with_replay(taken: Sequence[int], replay: Sequence[float]) -> list[int]:
    """Return how many examples of an epoch come from each file where some have a share of it, to be mixed in.

    Args:
        taken: examples of an epoch of each file, as `epoch_shares` gives them for the files without a share.
        replay: percent of the epoch that each file has, 0 for those that set its length.
    """
    total = sum(map(_exact, replay))
    length = sum(num for num, percent in zip(taken, replay, strict=True) if not percent)
    whole = length * 100 / (100 - total) if total else Fraction(length)
    return [
        max(1, round(whole * _exact(percent) / 100)) if percent else num
        for num, percent in zip(taken, replay, strict=True)
    ]


def _exact(weight: float) -> Fraction:
    """Return the number as a person wrote it: 0.1 is a tenth, and no nearest binary number."""
    return Fraction(str(weight))
