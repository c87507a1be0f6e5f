"""Rows of any readable file as JSONL, CSV or Parquet, as they are or as chats of messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tunesmith_core.datafmt import Row
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kinds.data import ConvertDataSpec
from tunesmith_engine.desk.chats import LEFT_OUT, REFUSED, UNANSWERED, as_chats, count_unanswered, lost_columns
from tunesmith_engine.desk.reading import Meter, every_row, total_bytes
from tunesmith_engine.desk.writing import Outline, RowsFile, check_targets, kind_of


def convert_data(host: Host, spec: ConvertDataSpec) -> dict[str, Any]:  # Any: JSON values
    """Write the rows of all sources into a file of another kind; return how many it has.

    Raises:
        UserError: `usage` for a target that can't be written; what is wrong with a file none of whose rows can be read.
    """
    sources, target = spec.run.data.sources, Path(spec.target)
    check_targets([target], sources, overwrite=spec.overwrite)
    is_table = kind_of(target) != ".jsonl"

    def rows(counts: Counter[str]) -> Iterator[Row]:
        read = every_row(host, sources, meter)
        return as_chats(read, counts) if spec.as_messages else (row for _, row in count_unanswered(read, counts))

    with host.portions:
        meter, outline = Meter(host, (1 + is_table) * total_bytes(sources)), Outline(target)
        if is_table:
            for row in rows(Counter()):
                outline.add(row)
            meter.begin_pass()
        counts: Counter[str] = Counter()
        with RowsFile(target, outline) as written:
            for row in rows(counts):
                written.add(row)
    return {
        "files": {str(target): written.num_rows},
        "num_skipped_rows": meter.num_skipped + counts[REFUSED],
        "num_left_out_rows": counts[LEFT_OUT],
        "num_unanswered_left_out" if spec.as_messages else "num_unanswered_kept": counts[UNANSWERED],
        "lost_columns": lost_columns(counts),
    }
