"""The first rows of a workbook, which libraries of the training environment read. No Qt."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from tunesmith_core import datafmt
from tunesmith_core.datafmt.reading import Row
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.operations.kind import AbsolutePath
from tunesmith_core.operations.kinds.engine import WORKBOOK_HEAD, HeadSpec
from tunesmith_core.operations.runner import conduct

NUM_ROWS = 20
NUM_KEPT = 4
"""Each change of the form asks again; starting the libraries takes a second or two."""


def look_at_workbook(path: Path, sniffed: datafmt.Sniffed) -> tuple[datafmt.Sniffed, tuple[Row, ...]]:
    """Return what the first rows tell, and these; nothing new while no training environment can read them.

    Raises:
        UserError: what is wrong with the file.
        OSError: it is gone.
    """
    try:
        found = _head(str(path), path.stat().st_mtime_ns)
    except UserError:
        raise
    except TunesmithError:
        # Setting up or repairing the environment is asked for elsewhere.
        return sniffed, ()
    rows = found["rows"]
    columns = tuple(dict.fromkeys(name for row in rows for name in row))
    try:
        layout = datafmt.resolve_layout(rows, source=str(path))
    except UserError:
        layout = datafmt.Layout("auto", {})
    told = {"format": layout.format, "mapping": layout.columns, "num_rows_estimate": found["num_rows"]}
    return replace(sniffed, columns=columns, **told), tuple(rows)


@lru_cache(NUM_KEPT)
def _head(path: str, _changed_ns: int) -> dict[str, Any]:  # Any: JSON values
    answer: dict[str, Any] = conduct(WORKBOOK_HEAD, HeadSpec(AbsolutePath(path), NUM_ROWS)).get()
    return answer
