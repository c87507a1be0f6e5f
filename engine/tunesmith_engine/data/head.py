"""The first rows of a file that libraries read, how many it has and how long they get, which are bad, its sheets."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from tunesmith_core import datafmt
from tunesmith_core.datafmt.sniffing import HEAD_ROWS, trained_bytes, trained_columns
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.operations.kinds.engine import HeadSpec
from tunesmith_core.operations.limits import Portions
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_engine.data.read import Source

MOST_COUNTED = 20_000
"""Rows that are counted while a person waits."""


@dataclass(slots=True)
class _Checked:
    """How many of the first rows are good and bad, what is wrong with the first bad one, and with all of them."""

    num_good: int = 0
    num_bad: int = 0
    first: TunesmithError | None = None
    refused: UserError | None = None

    def tell(self, _number: int, error: TunesmithError) -> None:
        """Count a bad row."""
        self.first = self.first or error
        self.num_bad += 1
        if self.num_bad == HEAD_ROWS:
            raise _HeadEnds


class _HeadEnds(Exception):
    """So many rows were bad that nobody reads on."""


@dataclass(slots=True)
class _Head:
    source: Source
    rows: list[datafmt.Row] = field(default_factory=list)
    num_rows: int | None = None
    longest_row_bytes: int | None = None
    error: UserError | None = None
    checked: _Checked | None = None

    def answer(self) -> dict[str, Any]:  # Any: JSON values
        """Return what was found as JSON values."""
        checked = self.checked or _Checked()
        return {
            "rows": json.loads(json.dumps(self.rows, default=str)),
            "num_rows": self.num_rows,
            "longest_row_bytes": self.longest_row_bytes,
            "sheet": self.source.sheet,
            "sheets": self.source.sheets,
            "notes": self.source.notes,
            "problem": self.error.to_dict() if self.error else None,
            "num_good": checked.num_good,
            "num_bad": checked.num_bad,
            "first_bad": checked.first.to_dict() if checked.first else None,
            "refused": checked.refused.to_dict() if checked.refused else None,
        }


def head_of(spec: HeadSpec, portions: Portions) -> dict[str, Any]:  # Any: JSON values
    """Return the first rows, their number and longest (None where counting takes long), the sheets, and bad rows.

    What is wrong with one of several sheets is a part of the answer, so that another one can be chosen. So are the
    bad ones of the first rows, which may be skipped, and why the rows can't be learned from as asked.

    Raises:
        UserError: what is wrong with any other file.
    """
    asked = SourceSpec(
        path=spec.path, encoding=spec.encoding, sheet=spec.sheet, format=spec.format, columns=spec.columns
    )
    head = _Head(Source(asked, skip_bad_rows=True, portions=portions))
    found = head.source.rows()
    try:
        for _, row in islice(found, spec.num_rows):
            head.rows.append(row)
        trained = trained_columns(head.rows, Path(spec.path), spec.format, spec.columns)
        longest = max((trained_bytes(row, trained) for row in head.rows), default=0)
        num_more = 0
        for _, row in islice(found, MOST_COUNTED if spec.counts else 0):
            num_more += 1
            longest = max(longest, trained_bytes(row, trained))
    except UserError as error:
        if not head.source.sheets:
            raise
        head.error = error
    else:
        if spec.counts and num_more < MOST_COUNTED:
            head.num_rows, head.longest_row_bytes = len(head.rows) + num_more, longest
        head.checked = _checked(asked, spec, portions)
    return head.answer()


def _checked(asked: SourceSpec, spec: HeadSpec, portions: Portions) -> _Checked:
    """Count the rows that a run would refuse: some can be read and have no answer."""
    checked = _Checked()
    source = Source(asked, skip_bad_rows=True, on_problem=checked.tell, portions=portions)
    source.in_pairs, source.in_labels, source.has_stored = spec.in_pairs, spec.in_labels, spec.has_stored
    seen: tuple[str, int] | None = None
    try:
        for number, _ in source.conversations():
            # A row with two answers comes twice.
            checked.num_good += seen != (source.shown_path, number)
            seen = (source.shown_path, number)
            if checked.num_good == HEAD_ROWS:
                break
    except _HeadEnds:
        pass
    except UserError as error:
        # With no good row, the first bad one is what the file is refused for; who asks knows it.
        checked.refused = None if error is checked.first else error
    return checked
