"""One row of the table of budgets: a benchmark that fails only beyond what noise and a busy or slow machine explain.

A time is compared with that of a fixed piece of work, measured beside it: where that takes three times as long as on a
quiet machine of two cores, the limit is three times as long. The best of several tries counts.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

TRIES = 5
YARDSTICK_S = 0.025
"""What the fixed work takes on the quiet machine for which the limits were set: 2 cores, x86-64, CPython 3.11."""


WAITS = Path("/proc/thread-self/schedstat")
"""Of Linux: how long this thread has run and waited for a processor, in ns."""

Clock = Callable[[], float]


def own_s() -> float:
    """Return the time in s without what this thread waited for a processor, which the system may give to others."""
    waited_ns = int(WAITS.read_text().split()[1]) if WAITS.exists() else 0
    return time.perf_counter() - waited_ns / 1e9


def report(
    name: str, measure: Callable[[], float], limit: float, unit: str, clock: Clock = time.perf_counter
) -> None:
    """Measure until within the limit, five times at most; write one row to the real standard error.

    Args:
        name: of the row.
        measure: returns one measurement, in `unit`.
        limit: on a quiet machine; times (s, ms) are given more on one that is busy or slow.
        unit: of both.
        clock: by which it measures.

    Raises:
        AssertionError: every measurement was beyond the limit.
    """
    best, slowness = float("inf"), 1.0
    for _ in range(TRIES):
        before = _slowness(clock)
        value = measure()
        # Whatever else runs may have begun or ended meanwhile.
        slowness = max(before, _slowness(clock)) if unit in ("s", "ms") else 1.0
        best = min(best, value / slowness)
        if best <= limit:
            break
    sys.__stderr__.write(f"\n  {name:<44}{best:>10.1f} {unit:<4} limit {limit:.0f} {unit}, machine {slowness:.1f}")
    assert best <= limit, f"{name}: {best:.1f} {unit}, the machine's slowness taken off ({slowness:.1f})"


def _slowness(clock: Clock) -> float:
    """Return how many times as long as on the reference machine the fixed work takes here and now, at least 1."""
    start = clock()
    rows = [{"step": number, "loss": number / 7, "name": str(number)} for number in range(12_000)]
    json.loads(json.dumps(rows))
    return max(1.0, (clock() - start) / YARDSTICK_S)
