"""A data file that went wrong, and what is known of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Case:
    """One file of the corpus.

    Attributes:
        name: what was done to it.
        path: where it lies.
        bad: lines or rows that are bad and must be named, or skipped and counted, and no others.
        num_good: how many rows are left when those are skipped.
        line: the line where a file breaks for good, which must be named.
        whole: rows of the whole file, where reading them all is as right as naming `line`.
        is_error: whether it can't be read at all.
    """

    name: str
    path: Path
    bad: tuple[int, ...] = ()
    num_good: int | None = None
    line: int | None = None
    whole: int | None = None
    is_error: bool = False
