"""Reads what wheels recorded of their files, because a package counts as installed when files are gone.

A RECORD lists name, SHA-256 and size of every file of an installed wheel (the specification "Recording installed
projects" of the Python packaging guide).
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tunesmith_core.files import digest_text

HASH_MARK = "sha256="


@dataclass(frozen=True, slots=True)
class RecordedFile:
    """A row of a RECORD.

    Attributes:
        name: path relative to site-packages, with slashes.
        digest: SHA-256 in base64 with letters that are safe in addresses; "" when the row has none.
        size: in bytes, None when the row has none.
    """

    name: str
    digest: str
    size: int | None


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file's content as a RECORD writes it."""
    with path.open("rb") as file:
        return digest_text(hashlib.file_digest(file, "sha256").digest())


def read_record(record: Path) -> list[RecordedFile]:
    """Return the rows of a RECORD; rows that are no rows any more are left out, as the file's own digest tells."""
    rows = []
    # A field may be longer than the csv module allows where a disk lost its line ends.
    with record.open(encoding="utf-8", errors="replace", newline="") as file, contextlib.suppress(csv.Error):
        for row in csv.reader(line.replace("\0", "") for line in file):
            if len(row) == 3:
                digest = row[1].removeprefix(HASH_MARK) if row[1].startswith(HASH_MARK) else ""
                rows.append(RecordedFile(row[0], digest, int(row[2]) if row[2].isdecimal() else None))
    return rows


def recorded_files(site_packages: Path) -> Iterator[RecordedFile]:
    """Yield every file that an installed wheel recorded."""
    for record in sorted(site_packages.glob("*.dist-info/RECORD")):
        yield from read_record(record)
