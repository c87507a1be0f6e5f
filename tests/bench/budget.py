"""One row of the table of budgets. Limits are doubled where CI is set, as its machines are slow."""

from __future__ import annotations

import os
import sys

SLACK = 2.0 if os.environ.get("CI") else 1.0


def report(name: str, value: float, limit: float, unit: str) -> None:
    """Write one row of the table to the real standard error and fail when it is over the limit."""
    sys.__stderr__.write(f"\n  {name:<44}{value:>10.1f} {unit:<4} limit {limit * SLACK:.0f} {unit}")
    assert value <= limit * SLACK, f"{name}: {value:.1f} {unit}"
