"""What a person has changed in rows, by where they are when their files are read again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from tunesmith_core.datafmt import Row
from tunesmith_core.datafmt.row_index import Position, RowIndex
from tunesmith_core.operations.kinds.rows import EditedRows, places_in


class Edited:
    """The changes of one source.

    Attributes:
        rows: what stands in place of rows.
        deleted: rows that are left out.
    """

    def __init__(self, spec: EditedRows) -> None:
        """Look up where the changed rows are read.

        Raises:
            UserError: `usage` when the files have changed since.
            OSError or ValueError: without their index.
        """
        self.rows: dict[Position, Row] = {}
        self.deleted: set[Position] = set()
        edits = {int(place): row for place, row in spec.edits.items()}
        deleted = frozenset(places_in(Path(spec.deleted)) if spec.deleted else ())
        if not edits and not deleted:
            return
        index = RowIndex(Path(spec.folder))
        try:
            index.check_unchanged()
            for place, position in enumerate(index.positions()):
                if place in deleted:
                    self.deleted.add(position)
                elif place in edits:
                    self.rows[position] = edits[place]
        finally:
            index.close()

    def __bool__(self) -> bool:
        return bool(self.rows or self.deleted)

    def applied(self, file: str, rows: Iterable[tuple[int, Row]], refused: list[Position]) -> Iterator[tuple[int, Row]]:
        """Yield the rows of a file, by their numbers, as they are now.

        Args:
            file: where they stand.
            rows: as they were read.
            refused: changed rows that could not be read; the reader adds those before the row that it yields next.
        """
        counted = Counted()

        def now(position: Position, row: Row | None = None) -> Iterator[tuple[int, Row]]:
            row = self.rows.get(position, row)
            if row is not None and position not in self.deleted:
                yield position[1], row

        for number, row in rows:
            while refused and refused[0][1] < number:
                yield from now(refused.pop(0))
            yield from now(counted.position(file, number), row)
        while refused:
            yield from now(refused.pop(0))

    def has(self, position: Position) -> bool:
        """Return whether a row was edited or deleted."""
        return position in self.rows or position in self.deleted


class Counted:
    """Counts the rows of one number, which come behind each other."""

    def __init__(self) -> None:
        self._last: Position = ("", 0, 0)

    def position(self, file: str, number: int) -> Position:
        """Return where the next row is."""
        is_same = self._last[:2] == (file, number)
        self._last = (file, number, self._last[2] + 1 if is_same else 0)
        return self._last
