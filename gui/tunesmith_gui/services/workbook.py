"""The first rows of a file that libraries of the training environment read, such as a workbook. No Qt."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tunesmith_core import datafmt
from tunesmith_core.datafmt.json_rows import Row
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.operations.kinds.engine import WORKBOOK_HEAD, HeadSpec
from tunesmith_core.operations.runner import conduct
from tunesmith_core.spec_sections import SourceSpec

NUM_ROWS = 20
NUM_KEPT = 4
"""Each change of the form asks again; starting the libraries takes a second or two."""

UNREAD = "dataset-parts-unread"

Answer = Mapping[str, Any]  # Any: JSON values
_kept: dict[tuple[str | int, ...], Answer] = {}
"""The newest answers by path, time of the last change, what was said about the rows, and sheet."""


@dataclass(frozen=True, slots=True)
class Looked:
    """What the first rows tell.

    Attributes:
        sniffed: what is known now; nothing new while no training environment can read them.
        rows: the first ones.
        sheets: names of a workbook's sheets.
        sheet: the one that was read; "" for the first.
        error: what is wrong with that sheet, when others may be right.
        notes: what a person should know of how it is read.
    """

    sniffed: datafmt.Sniffed
    rows: tuple[Row, ...] = ()
    sheets: tuple[str, ...] = ()
    sheet: str = ""
    error: TunesmithError | None = None
    notes: tuple[str, ...] = ()


def look_at_workbook(path: Path, sniffed: datafmt.Sniffed, source: SourceSpec) -> Looked:
    """Return what the first rows tell, of a workbook those of the sheet that a run reads.

    Raises:
        UserError: what is wrong with the file.
        OSError: it is gone.
    """
    try:
        found = _head(path, source, {})
        sheets = tuple(found["sheets"])
    except UserError:
        raise
    except TunesmithError:
        # Setting up or repairing the environment is asked for elsewhere.
        return Looked(sniffed, sheet=source.sheet)
    rows = found["rows"]
    columns = tuple(dict.fromkeys(name for row in rows for name in row))
    try:
        layout = datafmt.resolve_layout(rows, source=str(path))
    except UserError:
        layout = datafmt.Layout("auto", {})
    told = replace(
        sniffed,
        columns=columns,
        format=layout.format,
        mapping=layout.columns,
        num_rows_estimate=found["num_rows"] or sniffed.num_rows_estimate,
        longest_row_bytes=found["longest_row_bytes"],
    )
    is_first = not source.sheet and found["sheet"] == next(iter(sheets), "")
    error = TunesmithError.from_dict(found["problem"]) if found["problem"] else None
    # Which sheets are not read stands beside the choice of one.
    notes = tuple(words for code, words in found["notes"].items() if code != UNREAD or len(sheets) < 2)
    return Looked(told, tuple(rows), sheets, "" if is_first else found["sheet"], error, notes)


def check_workbook(path: Path, source: SourceSpec, skip_bad_rows: bool, **ways: bool) -> tuple[int, int]:
    """Return how many of the first rows are good, and how many bad; (0, 0) without a training environment.

    Raises:
        UserError: the first problem, as `datafmt.check_head` raises it.
        OSError: the file is gone.
    """
    found = _checked(path, source, ways)
    if problem := datafmt.head_problem(found, skip_bad_rows):
        raise problem
    return found.get("num_good", 0), found.get("num_bad", 0)


def count_bad_of_workbook(path: Path, source: SourceSpec, **ways: bool) -> tuple[int, int]:
    """Return the same also where rows are bad. Raises UserError, or OSError when the file is gone."""
    found = _checked(path, source, ways)
    return found.get("num_good", 0), found.get("num_bad", 0)


def _checked(path: Path, source: SourceSpec, ways: dict[str, bool]) -> dict[str, Any]:  # Any: JSON values
    try:
        return dict(_head(path, source, ways))
    except UserError:
        raise
    except TunesmithError:
        return {}


def _head(path: Path, source: SourceSpec, ways: dict[str, bool]) -> Answer:
    asked_for = ",".join(sorted(name for name, holds in ways.items() if holds))
    said = (source.encoding, source.format, json.dumps(source.columns, sort_keys=True), asked_for)
    key = (str(path), path.stat().st_mtime_ns, *said)
    if (*key, source.sheet) not in _kept:
        asked = HeadSpec.of(replace(source, path=str(path)), NUM_ROWS, **ways)
        answer: Answer = conduct(WORKBOOK_HEAD, asked).get()
        # Choosing the sheet that is proposed asks nothing new.
        for name in (source.sheet, answer["sheet"]):
            _kept[(*key, name)] = answer
        for oldest in list(_kept)[: -2 * NUM_KEPT]:
            _kept.pop(oldest, None)
    return _kept[(*key, source.sheet)]
