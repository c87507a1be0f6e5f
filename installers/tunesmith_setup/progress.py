"""What the installer tells the person: numbered phases, short notes, times and sizes."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

GIB = 1024**3
MIB = 1024**2


def size_text(num_bytes: float) -> str:
    """Return a size for people, such as "5.6 GiB" or "93 MiB"."""
    return f"{num_bytes / GIB:.1f} GiB" if num_bytes >= GIB else f"{num_bytes / MIB:.0f} MiB"


def duration_text(seconds: float) -> str:
    """Return a duration for people, such as "2 min 05 s" or "0.4 s"."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest_s = divmod(round(seconds), 60)
    return f"{minutes} min {rest_s:02d} s"


class Progress:
    """Writes lines to standard output at once and times the phases.

    Attributes:
        timings: what each finished phase took, name and seconds, in order.
    """

    def __init__(self) -> None:
        self.timings: list[tuple[str, float]] = []

    def line(self, text: str = "") -> None:
        """Write one line."""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """Write one line that belongs to the current phase."""
        self.line(f"    {text}")

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Announce a phase, and its time when it ends well."""
        self.line(f"==> {name}")
        started = time.monotonic()
        yield
        seconds = time.monotonic() - started
        self.timings.append((name, seconds))
        self.note(f"done in {duration_text(seconds)}")
