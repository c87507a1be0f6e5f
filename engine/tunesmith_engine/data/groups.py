"""Rows that belong together: which group each is of, and groups that are held out as a whole."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tunesmith_core.datafmt import Row
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data.order import split_rows
from tunesmith_engine.data.rows_file import RowsWriter


def stable_hash(value: object) -> int:
    """Return a hash of JSON values that is the same in every process."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little", signed=True)


def group_of(row: Row, column: str, place: str) -> int:
    """Return the group of a row of a run.

    Raises:
        UserError: `dataset-groups` when it has no such column; `place` names the row.
    """
    if column not in row:
        raise TunesmithError(
            "dataset-groups",
            '{place}: the row has no column "{column}", which is the group column (evaluation.group_column).',
            place=place,
            column=column,
        )
    return stable_hash(row[column])


def joined_groups(groups: array[int], contents: array[int]) -> NDArray[np.int64]:
    """Return the group of each row, where groups that have a row in common are one."""
    parents: dict[int, int] = {}

    def root(group: int) -> int:
        while (parent := parents.get(group, group)) != group:
            group = parent
        return group

    first: dict[int, int] = {}
    for group, content in zip(groups, contents, strict=True):
        one, other = root(group), root(first.setdefault(content, group))
        parents[one] = other
    return np.fromiter((root(group) for group in groups), np.int64, len(groups))


def alike_rows(groups: array[int], contents: array[int]) -> Sequence[int]:
    """Return a number for each row that is the same for those that stay on one side: parts of a text, equal rows.

    Where equal rows join all groups, only the groups stay whole; where there is one group, only equal rows do.
    """
    num_groups = len(set(groups))
    if num_groups in (1, len(groups)):
        return contents
    joined = joined_groups(groups, contents).tolist()
    return joined if len(set(joined)) > 1 else groups


def uneven_documents(num_rows: int, percent: float, seed: int, held_out: Sequence[int]) -> dict[str, str]:
    """Return what a person should know where whole documents make another share than was asked for."""
    wanted = len(split_rows(num_rows, percent, seed)[1])
    if len(held_out) == wanted:
        return {}
    words = Message(
        "Held out: {num:,} of {total:,} rows, because documents stay whole.", num=len(held_out), total=num_rows
    )
    return {"dataset-groups": words}


def choose(groups: NDArray[np.int64], wanted: int, seed: int) -> NDArray[np.bool_]:
    """Return which rows are held out: whole groups, as many as come nearest to a number of rows from below.

    Raises:
        UserError: `usage` when that leaves one side empty.
    """
    different, place, counts = np.unique(groups, return_inverse=True, return_counts=True)
    chosen, num_chosen = np.zeros(len(different), bool), 0
    for group in np.random.default_rng(seed).permutation(len(different)).tolist():
        if num_chosen + counts[group] <= wanted:
            chosen[group] = True
            num_chosen += int(counts[group])
    if len(different) == 1:
        words = "None can be held out, because all rows stay together."
        raise TunesmithError("usage", words, hint=Message("Add rows that differ from each other."))
    if not 0 < num_chosen < len(groups):
        raise TunesmithError(
            "usage",
            "{wanted} of {number} rows can't be held out. There are {groups} groups of rows that stay together.",
            hint=Message("Choose another share with --percent, or a number of rows with --count."),
            wanted=wanted,
            number=len(groups),
            groups=len(different),
        )
    return chosen[place.reshape(-1)]


def split_groups(spec: RunSpec, rows: RowsWriter) -> tuple[list[int], list[int], dict[str, str]]:
    """Return the numbers of the rows of a run that are trained and held out, and what a person should know of them.

    At least one group is held out, and one stays for training.

    Raises:
        UserError: `dataset-groups` when all rows are of one group.
    """
    column = spec.evaluation.groups_by
    joined = joined_groups(rows.groups, rows.contents)
    _, counts = np.unique(joined, return_counts=True)
    if len(counts) < 2:
        raise TunesmithError(
            "dataset-groups",
            '{paths}: all rows are of one group by the column "{column}" (evaluation.group_column), so none can be '
            "held out. Groups that have a row in common count as one.",
            paths=", ".join(source.path for source in spec.data.sources),
            column=column,
        )
    wanted = max(1, round(len(joined) * spec.evaluation.percent / 100))
    held_out = choose(joined, max(wanted, int(counts.min())), spec.schedule.seed)
    num = int(held_out.sum())
    notes: dict[str, str] = {}
    if num != wanted:
        notes["dataset-groups"] = Message(
            'Held out: {num:,} of {total:,} rows, because the groups of the column "{column}" stay whole.',
            num=num,
            total=len(joined),
            column=column,
        )
    return np.flatnonzero(~held_out).tolist(), np.flatnonzero(held_out).tolist(), notes
