"""Rows of any supported file as conversations: JSONL, JSON, CSV and TSV through core, Parquet through pyarrow."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

from tunesmith_core import datafmt
from tunesmith_core.datafmt.encoding import parse_error, row_place
from tunesmith_core.datafmt.sniffing import LAYOUT_ROWS
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.messages import Message
from tunesmith_core.operations.limits import Portions
from tunesmith_core.spec_sections import SourceSpec

PARQUET_BATCH_ROWS = 512

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
    """

    spec: SourceSpec
    skip_bad_rows: bool
    on_problem: Callable[[int, TunesmithError], None] | None = None
    portions: Portions = field(default_factory=Portions)
    num_skipped_rows: int = field(default=0, init=False)
    first_error: TunesmithError | None = field(default=None, init=False)
    row_format: str = field(default="", init=False)

    _kind: str = field(default="", init=False)
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
        with contextlib.suppress(OSError):
            self._more_cpu_s += self.path.stat().st_size / BYTES_PER_S
        self.portions.about(self.path)
        self._announce(0)
        self._kind = datafmt.file_kind(self.path)
        self.portions.about(self.path, self._kind)
        if self._kind == datafmt.PARQUET:
            rows = _parquet_rows(self.path)
        else:
            rows = datafmt.read_rows(self.path, self.bad_row, self.spec.encoding)
        head = list(islice(rows, LAYOUT_ROWS))
        layout = datafmt.resolve_layout([row for _, row in head], self.spec.format, self.spec.columns, str(self.path))
        self.row_format, num_good = layout.format, 0
        for number, row in chain(head, rows):
            self._announce(number)
            try:
                conversation = datafmt.to_messages(row, layout, self.place(number))
            except UserError as error:
                self.bad_row(number, error)
            else:
                num_good += 1
                yield number, conversation
                self._announce(number)
        if not num_good and self.first_error:
            raise self.first_error

    def bad_row(self, number: int, error: TunesmithError) -> None:
        """Count a bad row, or raise its error when bad rows are not to be left out."""
        if not self.skip_bad_rows:
            raise error
        self._announce(number)
        self.num_skipped_rows += 1
        self.first_error = self.first_error or error
        if self.on_problem:
            self.on_problem(number, error)

    def _announce(self, number: int) -> None:
        """Say that a row was read and the next one comes."""
        self.portions.begin("reader", number, more_cpu_s=self._more_cpu_s)


def _parquet_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:  # Any: JSON values
    """Yield (row number from 1, row) of a Parquet file, a batch in memory at a time."""
    import pyarrow
    from pyarrow import parquet

    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(PARQUET_BATCH_ROWS):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (pyarrow.ArrowException, OSError) as error:
        raise parse_error(
            path, Message("the Parquet file is damaged after row {row}: {error}.", row=number, error=error)
        ) from error
    if not number:
        raise TunesmithError("dataset-empty", "{path}: the file has no rows.", path=path)
