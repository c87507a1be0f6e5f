"""Rows of Parquet files as JSON values, whatever the types of their columns, a batch in memory at a time.

Only the columns are read that can be part of an example. Inside of chats, dates, times and decimals become text, a map
becomes an object, bytes that are UTF-8 become text, and numbers that are not finite are missing. What can't be read is
an `Unreadable` in its place, so that only who needs it finds the row bad.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow
from pyarrow import parquet, types

from tunesmith_core.datafmt import ROLES, Row, Unreadable
from tunesmith_core.datafmt.encoding import MAX_ROW_CHARACTERS, DataFile, parse_error, row_error
from tunesmith_core.datafmt.guessing import speaks
from tunesmith_core.errors import TunesmithError
from tunesmith_core.json_values import MAX_VALUES
from tunesmith_core.messages import Message, phrase
from tunesmith_engine.data.members import path_of
from tunesmith_engine.data.parquet_pages import batch_rows

BUFFER_BYTES = 1024**2
"""Of a column that are read at once; without it a whole row group is."""

USUAL_NAMES = {name for roles in ROLES.values() for role in roles for name in role.usual_names}
ONE_VALUE_FAILS = (ValueError, OverflowError, TypeError, LookupError, pyarrow.ArrowException)
"""What pyarrow raises for a value that Python has no type for."""

Array = Any
"""pyarrow.Array, for which there are no types."""


def parquet_rows(path: DataFile, mapped: Iterable[str]) -> Iterator[tuple[int, Row]]:
    """Yield (row number from 1, row); columns that can't be part of an example are None.

    Args:
        path: the file.
        mapped: names of columns that are needed beside those that are usual.

    Raises:
        UserError: `dataset-parse-error` when the file is damaged or a part of it is too big; `dataset-empty` when it
            holds no row.
    """
    number = 0
    try:
        with parquet.ParquetFile(path_of(path), buffer_size=BUFFER_BYTES) as file:
            names = file.schema_arrow.names
            wanted, others = wanted_columns(path, names, mapped), dict.fromkeys(names)
            for group in range(file.num_row_groups):
                size = batch_rows(path, file.metadata.row_group(group), wanted, number + 1)
                for batch in file.iter_batches(size, row_groups=[group], columns=wanted):
                    for row in batch_values(batch, wanted):
                        number += 1
                        yield number, others | row
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError, LookupError, TypeError) as error:
        words = phrase(str(error).partition("\n")[0][:200])
        problem = Message("the Parquet file is damaged: {error}.", error=words)
        raise row_error(path, "parquet", number + 1, problem) from error
    if not number:
        raise TunesmithError("dataset-empty", "{path}: the file has no rows.", path=path)


def wanted_columns(path: DataFile, names: list[str], mapped: Iterable[str]) -> list[str]:
    """Return the columns of a table that can be part of an example.

    Raises:
        UserError: `dataset-parse-error` when two of them have the same name.
    """
    needed = USUAL_NAMES | {name.lower() for name in mapped}
    wanted = [name for name in names if name.lower() in needed or speaks(name)]
    if twice := next((name for name in wanted if wanted.count(name) > 1), None):
        raise parse_error(path, 'the header names the column "{name}" twice.', name=twice)
    return wanted


def batch_values(batch: Any, wanted: list[str]) -> Iterator[Row]:  # Any: a pyarrow.RecordBatch
    """Yield the rows of a batch with some of its columns."""
    columns = [_values(batch.column(name)) for name in wanted]
    for values in zip(*columns, strict=True) if columns else [()] * batch.num_rows:
        yield dict(zip(wanted, values, strict=True))


def _values(array: Array) -> Iterable[Any]:  # Any: JSON values
    """Return the values of a batch's column, at once where they are few and fit JSON, else one after another."""
    if array.nbytes <= MAX_ROW_CHARACTERS and _num_values(array) <= MAX_VALUES:
        try:
            values = array.to_pylist()
            return values if _is_json(array.type) else [_json_value(value) for value in values]
        except ONE_VALUE_FAILS:
            pass
    return (_value(array.slice(row, 1)) for row in range(len(array)))


def _value(array: Array) -> Any:  # Any: JSON values
    """Return the value of an array with one."""
    if array.nbytes > MAX_ROW_CHARACTERS:
        return Unreadable(Message("more than {num_bytes:,} bytes", num_bytes=MAX_ROW_CHARACTERS))
    if _num_values(array) > MAX_VALUES:
        return Unreadable(Message("more than {max_values:,} values", max_values=MAX_VALUES))
    try:
        value = array[0].as_py()
        return value if _is_json(array.type) else _json_value(value)
    except UnicodeDecodeError:
        return Unreadable(Message("text that is not UTF-8"))
    except ONE_VALUE_FAILS:
        return Unreadable(Message("a value that can't be read"))


def _num_values(array: Array) -> int:
    """Return how many values the lists of an array hold, those within each other included."""
    kind = array.type
    if types.is_struct(kind):
        return len(array) + sum(_num_values(child) for child in array.flatten())
    if types.is_map(kind):
        # Keys and items are those of all rows that were read with these.
        first, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
        return sum(_num_values(child.slice(first, end - first)) for child in (array.keys, array.items))
    if isinstance(kind, pyarrow.BaseExtensionType):
        return _num_values(array.storage)
    return len(array) + (_num_values(array.flatten()) if _is_list(kind) else 0)


def _is_list(kind: Any) -> bool:  # Any: a pyarrow.DataType
    return types.is_nested(kind) and hasattr(kind, "value_type")


def _is_json(kind: Any) -> bool:  # Any: a pyarrow.DataType
    """Return whether values of a type are JSON values wherever they stand."""
    if types.is_struct(kind):
        return all(_is_json(field.type) for field in kind)
    if types.is_map(kind):
        return False
    if types.is_dictionary(kind) or _is_list(kind):
        return _is_json(kind.value_type)
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_null(kind)
    )


def _json_value(value: Any, *, is_inside: bool = False) -> Any:  # Any: what pyarrow makes of values, and JSON values
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return {str(_json_value(key, is_inside=True)): _json_value(each, is_inside=True) for key, each in value}
    if isinstance(value, list):
        return [_json_value(each, is_inside=True) for each in value]
    if isinstance(value, dict):
        return {key: _json_value(each, is_inside=True) for key, each in value.items()}
    if isinstance(value, bytes):
        return value.decode()
    if not is_inside or value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
