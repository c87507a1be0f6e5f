"""What a column holds that is no plain text: an answer inside of something, or the label of a text."""

from __future__ import annotations

import math
from typing import Any


def held_text(value: Any) -> str | None:  # Any: JSON values
    """Return the text of an answer that is none: a number, a truth, the first of several right ones, or inside them."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, dict):
        value = value.get("text", value.get("value"))
    if isinstance(value, list):
        value = next((each for each in value if each), None)
    return value if isinstance(value, str) else None


def held_label(value: object) -> str:
    """Return a label as text, "" where a row has no single one."""
    if value is None or isinstance(value, list | dict):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).strip()


def number_of(label: str) -> float | None:
    """Return the number that a label is, None for anything else."""
    try:
        number = float(label)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
