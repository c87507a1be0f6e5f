"""The rows of the Data page as a table, CSV or Parquet, with what was changed in them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from tunesmith_core.datafmt import Row
from tunesmith_core.datafmt.row_index import TELL_EVERY_S, RowIndex
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kinds.rows import SaveRowsSpec, places_in
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_engine.desk.writing import Outline, RowsFile, check_targets


def save_table(host: Host, spec: SaveRowsSpec) -> dict[str, int]:
    """Write indexed rows into a table; return how many there are.

    Raises:
        UserError: `usage` for a target that can't be written, a file that has changed since it was indexed, and a row
            that can't be read: a table has no place for it.
    """
    target, edited = Path(spec.target), spec.edited
    with closing(RowIndex(Path(edited.folder))) as index:
        check_targets([target], [SourceSpec(path=str(index.source))], overwrite=True)
        index.check_unchanged()
        edits = {int(place): row for place, row in edited.edits.items()}
        deleted = frozenset(places_in(Path(edited.deleted)) if edited.deleted else ())
        outline = Outline(target)
        for row in _rows(index, edits, deleted):
            outline.add(row)
        told_s = time.monotonic()
        # With the mark of UTF-8, without which Excel takes a CSV file for one of another encoding.
        with RowsFile(target, outline, encoding="utf-8-sig") as file:
            for row in _rows(index, edits, deleted):
                file.add(row)
                if time.monotonic() - told_s > TELL_EVERY_S:
                    told_s = time.monotonic()
                    host.phase("saving", file.num_rows, len(index), "rows")
    return {"num_rows": file.num_rows}


def _rows(index: RowIndex, edits: dict[int, Row], deleted: frozenset[int]) -> Iterator[Row]:
    for place in range(len(index)):
        if place in deleted:
            continue
        row = edits[place] if place in edits else index.row(place)
        if isinstance(row, str):
            raise TunesmithError(
                "usage",
                "Row {number} can't be read, so it fits into no table.",
                hint=Message("Correct or delete the row, or save as JSON Lines."),
                number=place + 1,
            )
        yield row
