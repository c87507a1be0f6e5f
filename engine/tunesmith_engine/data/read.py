"""Rows of any supported file as conversations: text files through core, Parquet and workbooks through libraries."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from tunesmith_core import datafmt
from tunesmith_core.datafmt.encoding import row_place
from tunesmith_core.datafmt.sniffing import LAYOUT_ROWS, beginning
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.messages import Message
from tunesmith_core.operations.limits import Portions
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_engine.data.parquet_rows import parquet_rows

MOST_BAD_ROWS = 100_000
"""After so many at the beginning of a file no good one is expected; some bytes of Parquet can be a billion rows."""

READ_CPU_S, BYTES_PER_S = 18.0, 10_000_000
"""Beyond the usual limit: rows of Parquet come in batches, and opening a text file may mean reading all of it."""


@dataclass(slots=True)
class Source:
    """One data file being read.

    Attributes:
        spec: the file and how its rows are laid out.
        skip_bad_rows: whether bad ones are left out.
        on_problem: told each bad row that is left out.
        portions: told where the reader is.
        num_skipped_rows: bad rows left out so far.
        first_error: of the first of them, None while there is none.
        row_format: how the rows are read, known with the first of them.
        notes: what a person should know of the file: codes and sentences.
    """

    spec: SourceSpec
    skip_bad_rows: bool
    on_problem: Callable[[int, TunesmithError], None] | None = None
    portions: Portions = field(default_factory=Portions)
    num_skipped_rows: int = field(default=0, init=False)
    first_error: TunesmithError | None = field(default=None, init=False)
    row_format: str = field(default="", init=False)
    notes: dict[str, str] = field(default_factory=dict, init=False)

    _kind: str = field(default="", init=False)
    _has_good: bool = field(default=False, init=False)
    _more_cpu_s: float = field(default=READ_CPU_S, init=False)

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self.spec.path)

    def place(self, number: int) -> str:
        """Return "file, line 3", or "file, row 3" where rows are no lines."""
        return row_place(self.path, self._kind, number)

    def conversations(self) -> Iterator[tuple[int, datafmt.Conversation]]:
        """Yield (line or row number from 1, conversation) of every good row.

        Raises:
            UserError: the first problem, unless bad rows are to be left out; `dataset-empty` when there is no row;
                the first problem also when every row was left out.
        """
        rows = self.rows()
        head: list[tuple[int, datafmt.Row]] = []
        failure: UserError | None = None
        try:
            head.extend(beginning(rows, LAYOUT_ROWS))
        except UserError as error:
            failure = error
        if failure and not head:
            raise failure
        layout = datafmt.resolve_layout([row for _, row in head], self.spec.format, self.spec.columns, str(self.path))
        self.row_format = layout.format
        for number, row in chain(head, _raised(failure) if failure else rows):
            self._announce(number)
            try:
                conversation = datafmt.to_messages(row, layout, self.place(number))
            except UserError as error:
                self.bad_row(number, error)
            else:
                self._has_good = True
                yield number, conversation
                self._announce(number)
        if not self._has_good and self.first_error:
            raise self.first_error

    def rows(self) -> Iterator[tuple[int, datafmt.Row]]:
        """Open the file and return its rows with their numbers; see `conversations` for the errors."""
        # What is wrong with the path is said by whoever opens it.
        with contextlib.suppress(OSError, ValueError):
            self._more_cpu_s += self.path.stat().st_size / BYTES_PER_S
        self.portions.about(self.path)
        self._announce(0)
        self._kind = datafmt.file_kind(self.path)
        self.portions.about(self.path, self._kind)
        if self._kind == datafmt.PARQUET:
            return parquet_rows(self.path, self.spec.columns.values())
        if self._kind in datafmt.READ_BY_ENGINE:
            # Imported here: older environments lack the library, and other files do not need it.
            from tunesmith_engine.data.workbook_rows import WorkbookRows

            workbook = WorkbookRows(self.path, self._kind, self.bad_row)
            if workbook.unread:
                names = ", ".join(f'"{name}"' for name in workbook.unread)
                self.notes["dataset-fields-unused"] = Message(
                    "{path} has more sheets than the first, which are not read: {names}.", path=self.path, names=names
                )
            return workbook.rows()
        return datafmt.read_rows(self.path, self.bad_row, self.spec.encoding)

    def bad_row(self, number: int, error: TunesmithError) -> None:
        """Count a bad row, or raise its error when bad rows are not to be left out."""
        if not self.skip_bad_rows:
            raise error
        self._announce(number)
        self.num_skipped_rows += 1
        self.first_error = self.first_error or error
        if self.on_problem:
            self.on_problem(number, error)
        if self.num_skipped_rows == MOST_BAD_ROWS and not self._has_good:
            raise self.first_error

    def _announce(self, number: int) -> None:
        """Say that a row was read and the next one comes."""
        self.portions.begin("reader", number, more_cpu_s=self._more_cpu_s)


def _raised(error: UserError) -> Iterator[tuple[int, datafmt.Row]]:
    """Fail where the first rows ended, so that what is wrong with one of those is told before."""
    raise error
    yield
