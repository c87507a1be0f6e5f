"""How well a whole set of texts is sorted into classes, or its numbers are predicted."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NUM_BINS = 10
"""Of equal width, as in Guo et al. 2017 (arXiv:1706.04599)."""


def class_figures(logits: Floats, right: Floats) -> dict[str, float]:
    """Return "macro_f1" over the classes that occur, and "calibration_error".

    Args:
        logits: of each class, [rows, classes].
        right: the number of the right class, [rows].
    """
    told = logits.argmax(axis=1)
    scores = []
    for label in np.union1d(told, right):
        hits = float(np.sum((told == label) & (right == label)))
        scores.append(2 * hits / float(np.sum(told == label) + np.sum(right == label)))
    return {"macro_f1": float(np.mean(scores)), "calibration_error": _calibration_error(logits, told == right)}


def _calibration_error(logits: Floats, is_right: NDArray[np.bool_]) -> float:
    """Return by how much confidence and accuracy differ on average: the expected calibration error."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    sure = (shifted / shifted.sum(axis=1, keepdims=True)).max(axis=1)
    bins = np.minimum((sure * NUM_BINS).astype(int), NUM_BINS - 1)
    gaps = (abs(float(np.sum(is_right[bins == each])) - float(np.sum(sure[bins == each]))) for each in range(NUM_BINS))
    return float(sum(gaps)) / len(sure)


def number_figures(told: Floats, right: Floats) -> dict[str, float]:
    """Return "rmse", and "correlation" by Pearson; 0 where one side is always the same number.

    Args:
        told, right: predicted and right numbers, [rows].
    """
    deviations = told - told.mean(), right - right.mean()
    size = float(np.sqrt(np.sum(deviations[0] ** 2) * np.sum(deviations[1] ** 2)))
    correlation = float(np.sum(deviations[0] * deviations[1])) / size if size else 0.0
    return {"rmse": float(np.sqrt(np.mean((told - right) ** 2))), "correlation": correlation}
