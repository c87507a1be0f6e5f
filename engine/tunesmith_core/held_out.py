"""How many rows a share holds out, and whether that is enough to judge a run."""

from __future__ import annotations

import math

from tunesmith_core.evaluations import FEWEST_ROWS
from tunesmith_core.messages import Message
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_training import MOST_HELD_OUT_PERCENT


def num_held_out(num_rows: int, percent: float) -> int:
    """Return how many of so many rows a share above zero holds out: at least one, and one stays for training."""
    if percent <= 0 or num_rows < 2:
        return 0
    return min(max(1, round(num_rows * percent / 100)), num_rows - 1)


def least_percent(num_rows: int) -> float:
    """Return the smallest whole share of so many rows by which a run can be judged, the largest where none can."""
    whole = math.ceil(100 * FEWEST_ROWS / max(1, num_rows))
    return min(MOST_HELD_OUT_PERCENT, float(whole))


def advised_percent(spec: RunSpec, num_rows: int | None) -> float | None:
    """Return the share to hold out instead where a run holds out too few rows; None where no share would do."""
    if not _are_too_few(spec, num_rows) or num_held_out(num_rows or 0, MOST_HELD_OUT_PERCENT) < FEWEST_ROWS:
        return None
    return least_percent(num_rows or 0)


def action(percent: float) -> Message:
    """Return the words of the button that holds out a share."""
    return Message("Hold out {percent}%", percent=f"{percent:g}")


def _are_too_few(spec: RunSpec, num_rows: int | None) -> bool:
    percent = spec.evaluation.percent
    if not num_rows or spec.evaluation.path or not percent:
        return False
    return num_held_out(num_rows, percent) < FEWEST_ROWS


def note(spec: RunSpec, num_rows: int | None, *, is_exact: bool = True) -> Message | None:
    """Return what a person should know before a run whose held-out rows are too few to judge it.

    Args:
        spec: the run.
        num_rows: examples that it makes, if known.
        is_exact: whether these were counted.
    """
    if num_rows is None or not _are_too_few(spec, num_rows):
        return None
    counted = Message(
        "Held-out rows: {held_out} of {num_rows}. With fewer than {least}, nobody can tell whether the model improved."
    )
    estimated = Message(
        "Held-out rows: about {held_out} of {num_rows}. With fewer than {least}, nobody can tell whether the model "
        "improved."
    )
    words = Message(
        (counted if is_exact else estimated).template,
        held_out=num_held_out(num_rows, spec.evaluation.percent),
        num_rows=num_rows,
        least=FEWEST_ROWS,
    )
    percent = advised_percent(spec, num_rows)
    if percent is None:
        return Message("{reason} Add more rows.", reason=words)
    return Message("{reason} Hold out {percent}% or more.", reason=words, percent=f"{percent:g}")
