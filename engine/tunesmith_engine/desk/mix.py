"""Rows of several files in one: a share of each, at most so many, in an order that a seed decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import compress
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from tunesmith_core.datafmt import Row
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_core.mixing import shares
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kinds.data import MixDataSpec
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_engine.desk.chats import LEFT_OUT, REFUSED, UNANSWERED, as_chats, count_unanswered, differ, lost_columns
from tunesmith_engine.desk.reading import Meter, every_row, total_bytes
from tunesmith_engine.desk.writing import Outline, RowsFile, check_targets


def mix_data(host: Host, spec: MixDataSpec) -> dict[str, Any]:  # Any: JSON values
    """Write rows of all sources into one file; return how many there are of each.

    Raises:
        UserError: `usage` when weights or caps don't fit the sources, or nothing would be written.
    """
    sources, target = spec.run.data.sources, Path(spec.target)
    check_targets([target], sources, overwrite=spec.overwrite)
    _check_numbers(spec)
    counts: Counter[str] = Counter()

    def rows_of(source: SourceSpec) -> Iterator[Row]:
        read = every_row(host, [source], meter)
        return as_chats(read, counts) if makes_chats else (row for _, row in count_unanswered(read, counts))

    with host.portions:
        makes_chats = differ(host, sources)
        meter, outline = Meter(host, 2 * total_bytes(sources)), Outline(target)
        numbers = []
        for source in sources:
            numbers.append(0)
            for row in rows_of(source):
                outline.add(row)
                numbers[-1] += 1
        num_skipped, num_left_out = meter.num_skipped + counts[REFUSED], counts[LEFT_OUT]
        num_unanswered, lost = counts[UNANSWERED], lost_columns(counts)
        meter.begin_pass()
        taken = shares(numbers, spec.weights, spec.caps, spec.count)
        random = np.random.default_rng(spec.seed)
        chosen = [np.zeros(number, bool) for number in numbers]
        for each, number in zip(chosen, taken, strict=True):
            each[random.choice(len(each), number, replace=False)] = True
        turns = random.permutation(np.repeat(np.arange(len(sources)), taken))
        rows = [compress(rows_of(source), each.tolist()) for source, each in zip(sources, chosen, strict=True)]
        with RowsFile(target, outline) as file:
            for turn in turns.tolist():
                file.add(next(rows[turn]))
    of_each = [{"path": source.path, "num_rows": number} for source, number in zip(sources, taken, strict=True)]
    return {
        "files": {str(target): file.num_rows},
        "sources": of_each,
        "num_skipped_rows": num_skipped,
        "num_left_out_rows": num_left_out,
        "num_unanswered_left_out" if makes_chats else "num_unanswered_kept": num_unanswered,
        "are_chats": makes_chats,
        "lost_columns": lost,
    }


def _check_numbers(spec: MixDataSpec) -> None:
    """Refuse weights and caps that no mixture can have, before anything is read. Raises UserError `usage`."""
    sources = spec.run.data.sources
    for name, values in (("--weights", spec.weights), ("--caps", spec.caps)):
        if values and (len(values) != len(sources) or not all(isfinite(each) and each >= 0 for each in values)):
            raise TunesmithError(
                "usage",
                "{name} needs a number of at least 0 for each file. Files: {count}. Numbers: {given}.",
                hint=Message("For example: {name} {numbers}", name=name, numbers=" ".join("1" * len(sources))),
                name=name,
                count=len(sources),
                given=" ".join(f"{each:g}" for each in values),
            )
    if spec.weights and not sum(spec.weights):
        raise TunesmithError(
            "usage",
            "The sum of --weights must be above 0: a file with the weight 0 gives no rows.",
            hint=Message("For example: {name} {numbers}", name="--weights", numbers=" ".join("1" * len(sources))),
        )
