"""The first rows of a file that libraries read, how many it has, how long they get, and which sheets there are."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from tunesmith_core import datafmt
from tunesmith_core.datafmt.sniffing import trained_bytes, trained_columns
from tunesmith_core.errors import UserError
from tunesmith_core.operations.kinds.engine import HeadSpec
from tunesmith_core.operations.limits import Portions
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_engine.data.read import Source

MOST_COUNTED = 20_000
"""Rows that are counted while a person waits."""


@dataclass(slots=True)
class _Head:
    source: Source
    rows: list[datafmt.Row] = field(default_factory=list)
    num_rows: int | None = None
    longest_row_bytes: int | None = None
    error: UserError | None = None

    def answer(self) -> dict[str, Any]:  # Any: JSON values
        """Return what was found as JSON values."""
        return {
            "rows": json.loads(json.dumps(self.rows, default=str)),
            "num_rows": self.num_rows,
            "longest_row_bytes": self.longest_row_bytes,
            "sheet": self.source.sheet,
            "sheets": self.source.sheets,
            "notes": self.source.notes,
            "problem": self.error.to_dict() if self.error else None,
        }


def head_of(spec: HeadSpec, portions: Portions) -> dict[str, Any]:  # Any: JSON values
    """Return the first rows, their number and longest (None where counting takes long), and the sheets.

    What is wrong with one of several sheets is a part of the answer, so that another one can be chosen.

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
        for _, row in islice(found, MOST_COUNTED):
            num_more += 1
            longest = max(longest, trained_bytes(row, trained))
    except UserError as error:
        if not head.source.sheets:
            raise
        head.error = error
    else:
        if num_more < MOST_COUNTED:
            head.num_rows, head.longest_row_bytes = len(head.rows) + num_more, longest
    return head.answer()
