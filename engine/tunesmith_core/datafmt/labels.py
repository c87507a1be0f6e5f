"""Labels of texts: the name of a class, or a number."""

from __future__ import annotations

import math


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
