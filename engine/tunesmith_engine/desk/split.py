"""Rows in a training and an evaluation file: by share, number or groups, and never a row on both sides."""

from __future__ import annotations

from array import array
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kinds.data import SplitDataSpec
from tunesmith_engine.data.groups import alike_rows, choose, joined_groups, stable_hash
from tunesmith_engine.desk.chats import UNANSWERED, count_unanswered
from tunesmith_engine.desk.reading import Meter, every_row, total_bytes
from tunesmith_engine.desk.writing import Outline, RowsFile, check_targets


def split_data(host: Host, spec: SplitDataSpec) -> dict[str, Any]:  # Any: JSON values
    """Write the rows of all sources into two files; return how many rows each has.

    Raises:
        UserError: `usage` for targets that can't be written or when there is nothing to hold out;
            `dataset-column-missing` without the column of groups.
    """
    sources, targets = spec.run.data.sources, (Path(spec.train), Path(spec.evaluation))
    check_targets(targets, sources, overwrite=spec.overwrite)
    _check_share(spec)
    with host.portions:
        meter = Meter(host, 2 * total_bytes(sources))
        outline, contents, groups = Outline(*targets), array("q"), array("q")
        counts: Counter[str] = Counter()
        for file, row in count_unanswered(every_row(host, sources, meter), counts):
            outline.add(row)
            contents.append(stable_hash({name: value for name, value in row.items() if name != spec.column}))
            if spec.column and spec.column not in row:
                raise TunesmithError(
                    "dataset-column-missing", 'Not every row has the column "{column}".', column=spec.column
                )
            document = file.source.group
            groups.append(
                stable_hash(row[spec.column]) if spec.column else contents[-1] if document is None else document
            )
        joined = np.asarray(joined_groups(groups, contents) if spec.column else alike_rows(groups, contents), np.int64)
        wanted = spec.count or round(len(joined) * spec.percent / 100)
        held_out = choose(joined, wanted, spec.seed)
        meter.begin_pass()
        with RowsFile(targets[0], outline) as train, RowsFile(targets[1], outline) as evaluation:
            for (_, row), is_held_out in zip(every_row(host, sources, meter), held_out.tolist(), strict=True):
                (evaluation if is_held_out else train).add(row)
    return {
        "files": {str(targets[0]): train.num_rows, str(targets[1]): evaluation.num_rows},
        "num_skipped_rows": meter.num_skipped,
        "num_unanswered_kept": counts[UNANSWERED],
    }


def _check_share(spec: SplitDataSpec) -> None:
    """Refuse a share or a number that no file has, before anything is read. Raises UserError `usage`."""
    if spec.count < 0:
        raise TunesmithError(
            "usage",
            "--count must be at least 1, not {count}.",
            hint=Message("For example: {name} {numbers}", name="--count", numbers="100"),
            count=spec.count,
        )
    if not spec.count and not 0 < spec.percent < 100:
        raise TunesmithError(
            "usage",
            "--percent must be above 0 and below 100, not {percent:g}.",
            hint=Message("For example: {name} {numbers}", name="--percent", numbers="10"),
            percent=spec.percent,
        )
