"""Rows whose columns are others than those of most rows of their file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from tunesmith_core.datafmt import ROLES, Layout, Row
from tunesmith_core.datafmt.formats import listed
from tunesmith_core.messages import Message
from tunesmith_engine.desk.problems import MOST_SHOWN

MOST_SCHEMAS = 1_000
"""Sets of columns that are told apart; a file with more has no schema at all."""


@dataclass(slots=True)
class _Schema:
    count: int = 0
    first: list[int] = field(default_factory=list)


class Schemas:
    """The sets of columns of one file.

    Args:
        layout: rows may leave out its optional columns; None where it is unknown.
    """

    def __init__(self, layout: Layout | None) -> None:
        roles = ROLES.get(layout.format, ()) if layout else ()
        columns = layout.columns if layout else {}
        self._optional = {columns[role.name] for role in roles if not role.required and role.name in columns}
        self._schemas: dict[tuple[str, ...], _Schema] = {}
        self.num_more = 0

    def add(self, lines: Sequence[int], rows: Sequence[Row]) -> None:
        """Count the columns of rows."""
        keys = list(map(tuple, rows))
        for key, number in Counter(keys).items():
            schema = self._schemas.get(key)
            if schema is None:
                if len(self._schemas) == MOST_SCHEMAS:
                    continue
                schema = self._schemas[key] = _Schema()
            schema.count += number
            if (num_more := MOST_SHOWN - len(schema.first)) > 0:
                here = (line for line, each in zip(lines, keys, strict=True) if each == key)
                schema.first.extend(islice(here, num_more))

    def different(self) -> Iterator[tuple[int, Message]]:
        """Yield the line and what is different of the first rows that differ; `num_more` counts the others."""
        counts: dict[frozenset[str], int] = {}
        for key, schema in self._schemas.items():
            names = frozenset(key) - self._optional
            counts[names] = counts.get(names, 0) + schema.count
        usual = max(counts, key=lambda names: counts[names], default=frozenset())
        for key, schema in self._schemas.items():
            names = frozenset(key) - self._optional
            if names == usual:
                continue
            self.num_more += schema.count - len(schema.first)
            missing, more = sorted(usual - names), sorted(names - usual)
            message = (
                Message("columns that other rows don't have: {names}.", names=listed(more))
                if more
                else Message("columns that other rows have are missing: {names}.", names=listed(missing))
            )
            for line in schema.first:
                yield line, message
