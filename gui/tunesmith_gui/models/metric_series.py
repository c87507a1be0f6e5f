"""Numbers over a run: append-only columns, thinning to what a screen can show, and smoothing.

Everything here is numpy and knows nothing of Qt, so that a worker thread may use it too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_SMOOTHING_BLOCK = 256


class MetricSeries:
    """A table of float64 columns that only grows at its end; unknown values are NaN.

    Args:
        columns: names; the first is the key (step or time), which never falls from row to row.
    """

    def __init__(self, columns: tuple[str, ...]) -> None:
        self.columns = columns
        self._index = {name: place for place, name in enumerate(columns)}
        self._buffer = np.empty((len(columns), 1024), dtype=np.float64)
        self._length = 0
        self.revision = 0
        """Counts every change; a view that has drawn this number is up to date."""

    def __len__(self) -> int:
        return self._length

    def extend(self, rows: Floats) -> None:
        """Append rows of shape (num_rows, num_columns)."""
        if not len(rows):
            return
        end = self._length + len(rows)
        if end > self._buffer.shape[1]:
            grown = np.empty((len(self.columns), max(end, self._buffer.shape[1] * 2)), dtype=np.float64)
            grown[:, : self._length] = self._buffer[:, : self._length]
            self._buffer = grown
        self._buffer[:, self._length : end] = rows.T
        self._length = end
        self.revision += 1

    def column(self, name: str) -> Floats:
        """A view of one column, shape (num_rows,); valid until the next `extend`."""
        return self._buffer[self._index[name], : self._length]

    def last(self, name: str) -> float:
        """The newest known value of a column, NaN when there is none."""
        values = self.column(name)
        known = np.flatnonzero(np.isfinite(values[-64:]))
        return float(values[-64:][known[-1]]) if len(known) else float("nan")

    def truncate_after(self, key: float) -> None:
        """Drop the rows whose key is greater: a resumed run repeats the steps after its checkpoint."""
        keys = self._buffer[0, : self._length]
        keep = int(np.searchsorted(keys, key, side="right"))
        if keep != self._length:
            self._length = keep
            self.revision += 1


def nearest(x: Floats, place: float) -> int:
    """Return the index of the value nearest to a place in rising positions of shape (n,), n > 0."""
    after = min(int(np.searchsorted(x, place)), len(x) - 1)
    return after - 1 if after and place - x[after - 1] < x[after] - place else after


def decimate(x: Floats, y: Floats, num_buckets: int) -> tuple[Floats, Floats]:
    """Thin a line to its lowest and highest point in each of `num_buckets` pieces, so that no spike is lost.

    Args:
        x: rising positions, shape (n,).
        y: values, shape (n,); NaN is a gap.
        num_buckets: about the number of pixels the line is wide.

    Returns:
        The line itself when it is short enough, else at most 2 points per bucket.
    """
    if len(y) <= 2 * num_buckets:
        return x, y
    size = -(-len(y) // num_buckets)
    starts = np.arange(0, len(y), size)
    middles = np.minimum(starts + size // 2, len(y) - 1)
    thin_y = np.empty(2 * len(starts))
    thin_y[0::2] = np.fmin.reduceat(y, starts)
    thin_y[1::2] = np.fmax.reduceat(y, starts)
    thin_x = np.repeat(x[middles], 2)
    thin_x[0], thin_x[-1] = x[0], x[-1]
    return thin_x, thin_y


def thin(x: Floats, y: Floats, num_points: int) -> tuple[Floats, Floats]:
    """Take about `num_points` evenly spaced points of a smooth line, first and last included."""
    if len(y) <= num_points:
        return x, y
    chosen = np.linspace(0, len(y) - 1, num_points).astype(np.intp)
    return x[chosen], y[chosen]


def smooth(values: Floats, weight: float) -> Floats:
    """Exponential moving average without the bias of its start, as TensorBoard draws it.

    Args:
        values: shape (n,); what is not finite is passed over and stays as it is.
        weight: 0 (nothing) up to, not including, 1.

    Raises:
        ValueError: the weight is outside [0, 1).
    """
    if not 0.0 <= weight < 1.0:
        raise ValueError(f"the smoothing weight must be in [0, 1), not {weight}")
    finite = np.isfinite(values)
    known = values[finite]
    if weight == 0.0 or not len(known):
        return values.copy()
    num_blocks = -(-len(known) // _SMOOTHING_BLOCK)
    padded = np.zeros(num_blocks * _SMOOTHING_BLOCK)
    padded[: len(known)] = known
    powers = np.arange(_SMOOTHING_BLOCK)
    distance = powers[:, None] - powers[None, :]
    kernel = np.where(distance >= 0, (1.0 - weight) * weight ** np.maximum(distance, 0), 0.0)
    blocks = padded.reshape(num_blocks, _SMOOTHING_BLOCK) @ kernel.T
    # Only the carry from block to block is sequential, which makes this two hundred times shorter than a plain loop.
    fade = weight ** (powers + 1.0)
    carry = 0.0
    for block in blocks:
        block += carry * fade
        carry = block[-1]
    correction = 1.0 - weight ** np.arange(1.0, len(known) + 1.0)
    result = values.copy()
    result[finite] = blocks.reshape(-1)[: len(known)] / correction
    return result
