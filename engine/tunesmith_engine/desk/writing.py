"""Files of rows that are whole or not there: JSONL, CSV and Parquet, written beside their place and then renamed."""

from __future__ import annotations

import contextlib
import csv
import json
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from tunesmith_core import files
from tunesmith_core.datafmt import Row
from tunesmith_core.datafmt.formats import Unreadable
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message, phrase
from tunesmith_core.operations.kinds.data import WRITTEN
from tunesmith_core.spec_sections import SourceSpec

GROUP_ROWS = 10_000
"""Rows of a Parquet file that are written together."""


class RowsFile:
    """Writes rows into a file; a context manager. Only its good end puts the file into its place.

    Args:
        target: the file, see `check_targets`; what its name ends in says its kind.
        outline: of all rows, when they become a table.
        delimiter, encoding: of CSV, as the program expects them that opens it.

    Attributes:
        num_rows: written so far.

    Raises:
        UserError: `usage` when its name ends otherwise.
    """

    def __init__(
        self, target: Path, outline: Outline | None = None, *, delimiter: str = ",", encoding: str = "utf-8"
    ) -> None:
        self.target, self.num_rows = target, 0
        self._delimiter, self._encoding = delimiter, encoding
        self._kind = kind_of(target)
        self._part = target.with_name(f".{target.name}.part")
        self._columns = list(outline.columns) if outline else []
        self._schema = outline.schema() if outline and self._kind == ".parquet" else None
        self._group: list[Row] = []
        self._file: TextIO | None = None
        self._table: Any = None  # Any: a csv or a Parquet writer

    def __enter__(self) -> Self:
        if self._kind == ".parquet":
            from pyarrow.parquet import ParquetWriter

            self._table = ParquetWriter(self._part, self._schema)
            return self
        self._file = self._part.open("w", encoding=self._encoding, errors="replace", newline="")
        if self._kind == ".csv":
            self._table = csv.DictWriter(self._file, self._columns, restval="", delimiter=self._delimiter)
            self._table.writeheader()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._write_group()
        finally:
            if self._file is not None:
                self._file.close()
            else:
                self._table.close()
            if error is not None:
                self._part.unlink(missing_ok=True)
        if error is None:
            files.fsync_file(self._part)
            files.replace(self._part, self.target)

    def add(self, row: Row) -> None:
        """Write a row."""
        self.num_rows += 1
        if self._kind == ".parquet":
            self._group.append(row)
            if len(self._group) >= GROUP_ROWS:
                self._write_group()
        elif self._kind == ".csv":
            self._table.writerow({name: _cell(value) for name, value in row.items()})
        else:
            assert self._file is not None, "it was entered"
            self._file.write(_line(row) + "\n")

    def _write_group(self) -> None:
        if self._group:
            self._table.write_table(table_of(self._group, self._schema))
            self._group.clear()


class Outline:
    """The columns of rows that become a table.

    Args:
        targets: the files that they are written into: Parquet needs the types of the columns too.
    """

    def __init__(self, *targets: Path) -> None:
        self._has_types = any(kind_of(target) == ".parquet" for target in targets)
        self.columns: dict[str, None] = {}
        self._group: list[Row] = []
        self._schemas: list[Any] = []  # Any: pyarrow has no types

    def add(self, row: Row) -> None:
        """Take the columns of a row."""
        self.columns |= dict.fromkeys(row)
        if self._has_types:
            self._group.append(row)
            if len(self._group) >= GROUP_ROWS:
                self._end_group()

    def _end_group(self) -> None:
        schema = table_of([{name: row.get(name) for name in self.columns} for row in self._group]).schema
        self._schemas = [_joined([*self._schemas, schema])]
        self._group.clear()

    def schema(self) -> Any:  # Any: pyarrow has no types
        """Return the types of all columns."""
        self._end_group()
        return self._schemas[0]


def _joined(schemas: list[Any]) -> Any:  # Any: pyarrow has no types
    import pyarrow

    try:
        return pyarrow.unify_schemas(schemas, promote_options="permissive")
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
        raise _no_table(error) from error


def check_targets(targets: Sequence[Path], sources: Sequence[SourceSpec], *, overwrite: bool) -> None:
    """Refuse files to be written before anything is read.

    Raises:
        UserError: `usage` when two of them are one file, one is a source or in a folder that is one, its name ends
            otherwise, its folder is missing, or it is there already and may not be replaced.
    """
    for number, target in enumerate(targets):
        kind_of(target)
        if any(_is_same(target, other) for other in targets[:number]):
            words = Message("{path} is named twice.", path=target)
            raise TunesmithError("usage", words, hint=Message("Write each file to a name of its own."))
        if any(_is_same(target, Path(each.path)) or _is_inside(target, Path(each.path)) for each in sources):
            words = Message("{path} is one of the files that are read. They are never changed.", path=target)
            raise TunesmithError("usage", words, hint=Message("Choose another name or folder."))
        if not target.parent.is_dir():
            words = Message("The folder {folder} is missing.", folder=target.parent)
            raise TunesmithError("usage", words, hint=Message("Create the folder, or choose another one."))
        if target.is_dir() or (os.path.lexists(target) and not overwrite):
            raise TunesmithError(
                "usage",
                "{path} already exists.",
                hint=Message("Choose another name, or add --overwrite to replace the file."),
                path=target,
            )


def kind_of(target: Path) -> str:
    """Return what a file to be written is, by its name. Raises UserError `usage`."""
    kind = target.suffix.lower()
    if kind not in WRITTEN:
        raise TunesmithError(
            "usage",
            "The name of {path} must end in .jsonl, .csv or .parquet.",
            hint=Message("Choose a name such as {name}.", name=f"{target.stem}.csv"),
            path=target,
        )
    return kind


def table_of(rows: list[Row], schema: Any = None) -> Any:  # Any: pyarrow has no types
    """Return rows as a table of Arrow. Raises UserError `dataset-parse-error` when a column holds different types."""
    import pyarrow

    try:
        return pyarrow.Table.from_pylist(rows, schema)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
        raise _no_table(error) from error


def _no_table(error: Exception) -> TunesmithError:
    return TunesmithError(
        "dataset-parse-error",
        "The rows don't fit into one table: {reason}.",
        hint=Message("Write JSONL instead, which takes rows of any layout."),
        reason=phrase(error),
    )


def _is_same(path: Path, other: Path) -> bool:
    with contextlib.suppress(OSError):
        return path.samefile(other)
    return os.path.normcase(os.path.realpath(path)) == os.path.normcase(os.path.realpath(other))


def _is_inside(path: Path, folder: Path) -> bool:
    return folder.is_dir() and Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def _line(row: Row) -> str:
    try:
        return json.dumps(row, ensure_ascii=False, allow_nan=False, default=_plain)
    except ValueError:
        # JSON knows no NaN, and a reader takes nothing for it.
        values = json.loads(json.dumps(row, default=_plain), parse_constant=lambda _name: None)
        return json.dumps(values, ensure_ascii=False)


def _cell(value: object) -> object:
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False, default=_plain)
    return "" if value is None else value


def _plain(value: object) -> str:
    return value.what if isinstance(value, Unreadable) else str(value)
