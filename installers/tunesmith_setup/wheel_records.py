"""Compares installed files with what their wheels recorded, because a package counts as installed when files are gone.

Names and sizes are compared, not hashes: a copy that was cut short shows in its size, and gigabytes need not be read.
"""

from __future__ import annotations

import csv
from pathlib import Path


def damaged_files(site_packages: Path) -> list[str]:
    """Return the installed files that are missing or of another size than recorded, as text for the person."""
    damaged = []
    for record in sorted(site_packages.glob("*.dist-info/RECORD")):
        with record.open(encoding="utf-8", newline="") as file:
            for name, _, num_bytes in csv.reader(file):
                path = site_packages / name
                if not path.exists():
                    damaged.append(f"{name} is missing")
                elif num_bytes and path.stat().st_size != int(num_bytes):
                    damaged.append(f"{name} has {path.stat().st_size} bytes instead of {num_bytes}")
    return damaged
