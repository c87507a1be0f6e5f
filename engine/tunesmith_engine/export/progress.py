"""How far an export is, for whoever follows it."""

from __future__ import annotations

import time

from tunesmith_core.operations.host import Host

TOLD_EVERY_S = 0.5


class Progress:
    """Tells how many bytes are written, twice a second."""

    def __init__(self, host: Host, phase: str, total_bytes: int) -> None:
        self._host, self._phase, self._total_bytes = host, phase, total_bytes
        self._done_bytes = 0
        self._told_s = -TOLD_EVERY_S

    def advance(self, num_bytes: int) -> None:
        """Count bytes."""
        self._done_bytes += num_bytes
        if time.monotonic() - self._told_s >= TOLD_EVERY_S:
            self._told_s = time.monotonic()
            self._host.event("progress", name=self._phase, done_bytes=self._done_bytes, total_bytes=self._total_bytes)
