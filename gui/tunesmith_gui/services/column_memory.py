"""What a person said about columns, for the next file that has the same ones. No Qt."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tunesmith_core.datafmt import ROLES

MAX_SETS = 50

Said = tuple[str, dict[str, str]]
"""A format, and the column of each role."""


class ColumnMemory:
    """Answers by sets of columns, the newest last."""

    def __init__(self) -> None:
        self._said: dict[frozenset[str], Said] = {}

    def remember(self, columns: Iterable[str], said: Said) -> None:
        """Keeps an answer; the oldest ones are forgotten."""
        key = frozenset(columns)
        self._said.pop(key, None)
        self._said[key] = said
        while len(self._said) > MAX_SETS:
            del self._said[next(iter(self._said))]

    def recall(self, columns: Iterable[str]) -> Said | None:
        """Return the answer about the same columns, in any order."""
        return self._said.get(frozenset(columns))

    def to_values(self) -> list[Any]:  # Any: JSON values
        """Return what `take` takes."""
        return [[sorted(columns), format_name, mapping] for columns, (format_name, mapping) in self._said.items()]

    def take(self, values: Any) -> None:  # Any: JSON values
        """Add what was kept on the drive; what was said meanwhile wins, and what can't be read is left out."""
        newer, self._said = self._said, {}
        for value in values if isinstance(values, list) else []:
            match value:
                case [list() as columns, str() as format_name, dict() as mapping] if format_name in ROLES:
                    if all(isinstance(name, str) for name in (*columns, *mapping, *mapping.values())):
                        self.remember(columns, (format_name, mapping))
        for key, said in newer.items():
            self.remember(key, said)
