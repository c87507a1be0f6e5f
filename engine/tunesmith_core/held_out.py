"""How many rows a share holds out, and whether that is enough to judge a run."""

from __future__ import annotations

import math

from tunesmith_core.evaluations import FEWEST_ROWS
from tunesmith_core.messages import Message
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import MOST_HELD_OUT_PERCENT


def num_held_out(num_rows: int, percent: float) -> int:
    """Return how many of so many rows a share above zero holds out: at least one, and one stays for training."""
    if percent <= 0 or num_rows < 2:
        return 0
    return min(max(1, round(num_rows * percent / 100)), num_rows - 1)


def least_percent(num_rows: int) -> float:
    """Return the smallest whole share of so many rows by which a run can be judged, the largest where none can."""
    whole = math.ceil(100 * FEWEST_ROWS / max(1, num_rows))
    return min(MOST_HELD_OUT_PERCENT, float(whole))


def note(spec: RunSpec, num_rows: int | None) -> Message | None:
    """Return what a person should know before a run whose held-out rows are too few to judge it."""
    percent = spec.evaluation.percent
    if num_rows is None or num_rows < 1 or spec.evaluation.path or not percent:
        return None
    held_out = num_held_out(num_rows, percent)
    if held_out >= FEWEST_ROWS:
        return None
    words = Message(
        "Held-out rows: {held_out} of {num_rows}. With fewer than {least}, nobody can tell whether the model improved.",
        held_out=held_out,
        num_rows=num_rows,
        least=FEWEST_ROWS,
    )
    if num_held_out(num_rows, MOST_HELD_OUT_PERCENT) < FEWEST_ROWS:
        return Message("{reason} Add more rows.", reason=words)
    return Message("{reason} Hold out {percent}% or more.", reason=words, percent=f"{least_percent(num_rows):g}")
