"""Tells how far an installation is by how its folders grow: uv shows its own progress on terminals only.

uv unpacks each wheel into its cache while it downloads it, and copies the files when all wheels are there. So the
growth of the cache stands for the download, in the proportion in which the wheels were measured, and the size of the
new environment for the copying. A wheel whose download was cut starts again; the ones before it are kept.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tunesmith_core import files
from tunesmith_core.messages import Message
from tunesmith_setup.packages.wheel_sizes import Weight
from tunesmith_setup.progress import Progress

DOWNLOAD, UNPACK, COPY = Message("Download"), Message("Unpack"), Message("Copy")
COPY_BEGINS_BYTES = 1_000_000
"""An environment without packages is smaller."""
WINDOW = 20
"""Looks over which the speed is averaged."""
SHARE_OF_TIME = 0.2
"""Looking may take this share of the time: counting twenty thousand files is work for a slow disk."""


class Speed:
    """Reports how far a part is, with its speed over the last looks."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, str, int]] = deque(maxlen=WINDOW)

    def report(self, progress: Progress, name: str, done: int, total: int, now_s: float) -> None:
        """Add a look; nothing is said before anything has grown, or when it went back."""
        if self._looks and self._looks[-1][1] != name:
            self._looks.clear()
        self._looks.append((now_s, name, done))
        seconds, grown = now_s - self._looks[0][0], done - self._looks[0][2]
        if done and seconds > 0 and grown >= 0:
            speed = grown / seconds
            progress.progress(name, done, total, speed, (total - done) / speed if speed else None)


class Growth:
    """What the folders of an installation have grown to.

    Args:
        cache: uv's cache.
        staging: the environment that is being built.
        missing: what is to be downloaded.
        disk_bytes: what the environment will take.
        fetched: whether most of what is missing is on this computer already and only unpacked.
    """

    def __init__(self, cache: Path, staging: Path, missing: Weight, disk_bytes: int, *, fetched: bool = False) -> None:
        self._cache, self._staging = cache, staging
        self._missing, self._disk_bytes, self._fetched = missing, disk_bytes, fetched
        self._before = files.folder_bytes(cache)
        self._speed = Speed()

    def tell(self, progress: Progress, now_s: float) -> None:
        """Look once and report."""
        self._speed.report(progress, *self._look(), now_s)

    def _look(self) -> tuple[str, int, int]:
        copied = files.folder_bytes(self._staging)
        if copied > COPY_BEGINS_BYTES:
            return COPY, min(copied, self._disk_bytes), self._disk_bytes
        unpacked = max(0, files.folder_bytes(self._cache) - self._before)
        if self._fetched:
            return UNPACK, min(unpacked, self._missing.disk_bytes), self._missing.disk_bytes
        total = self._missing.download_bytes
        share = min(1.0, unpacked / self._missing.disk_bytes) if self._missing.disk_bytes else 0.0
        return DOWNLOAD, round(total * share), total


@contextmanager
def reported(growth: Growth, progress: Progress) -> Iterator[None]:
    """Report growth in a thread of its own, at most every `progress.interval_s`, as long as the context lasts."""
    ended = threading.Event()

    def report() -> None:
        pause_s = progress.interval_s
        while not ended.wait(pause_s):
            started_s = time.monotonic()
            growth.tell(progress, started_s)
            pause_s = max(progress.interval_s, (time.monotonic() - started_s) / SHARE_OF_TIME)

    thread = threading.Thread(target=report, name="growth", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
