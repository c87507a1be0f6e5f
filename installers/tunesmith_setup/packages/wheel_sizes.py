"""What the packages of a lock weigh, as measured when the lock was made, and which of them the download cache holds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tunesmith_core import files

SIZES = "wheel_sizes.json"
FETCHED_SUFFIXES = (".http", ".rev")
"""uv writes such a file beside a wheel once the wheel is fetched and unpacked; half a download leaves none."""


@dataclass(frozen=True, slots=True)
class Weight:
    """Bytes of a wheel: to download, and of its files on the disk."""

    download_bytes: int
    disk_bytes: int

    def __add__(self, other: Weight) -> Weight:
        return Weight(self.download_bytes + other.download_bytes, self.disk_bytes + other.disk_bytes)


def pins(lock: Path) -> dict[str, str]:
    """Return the version of each package that a lock pins."""
    return dict(re.findall(r"^([a-z0-9-]+)==([^\s;\\]+)", lock.read_text(encoding="utf-8"), re.MULTILINE))


def weights(lock: Path) -> dict[str, Weight]:
    """Return what each package of a lock weighs; empty for a lock that was not measured."""
    try:
        measured = files.read_json(lock.with_name(SIZES)).get(lock.stem, {})
    except (OSError, ValueError):
        return {}
    return {name: Weight(*numbers) for name, numbers in measured.items()}


def fetched(cache: Path) -> set[tuple[str, str]]:
    """Return name and version of every wheel that uv's download cache holds completely."""
    found = set()
    for path in cache.glob("wheels-v*/**/*"):
        if path.suffix in FETCHED_SUFFIXES:
            found.add((path.parent.name, path.name.partition("-")[0]))
    return found


def total(locks: tuple[Path, ...], without: set[tuple[str, str]]) -> Weight:
    """Return what the packages of some locks weigh together, without those of some names and versions."""
    sum_of = Weight(0, 0)
    for lock in locks:
        known = weights(lock)
        for name, version in pins(lock).items():
            if name in known and (name, version) not in without:
                sum_of += known[name]
    return sum_of
