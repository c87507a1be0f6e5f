"""Rows of Arrow files and streams, which is also what `datasets` saves, some at a time from the mapped file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow
from pyarrow import ipc

from tunesmith_core.datafmt import Row
from tunesmith_core.datafmt.encoding import ARROW, DataFile, read_head, row_error
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message, phrase
from tunesmith_engine.data.members import path_of
from tunesmith_engine.data.parquet_pages import MAX_BATCH_ROWS
from tunesmith_engine.data.parquet_rows import batch_values, wanted_columns

FILE_MAGIC = b"ARROW1"


def arrow_rows(path: DataFile, mapped: Iterable[str]) -> Iterator[tuple[int, Row]]:
    """Yield (row number from 1, row); columns that can't be part of an example are None.

    Args:
        path: the file.
        mapped: names of columns that are needed beside those that are usual.

    Raises:
        UserError: `dataset-parse-error` when the file is damaged; `dataset-empty` when it holds no row.
    """
    number = 0
    is_file = read_head(path).startswith(FILE_MAGIC)
    try:
        with pyarrow.memory_map(str(path_of(path))) as mapped_file:
            reader = ipc.open_file(mapped_file) if is_file else ipc.open_stream(mapped_file)
            names = reader.schema.names
            wanted, others = wanted_columns(path, names, mapped), dict.fromkeys(names)
            for batch in _batches(reader) if is_file else reader:
                for start in range(0, batch.num_rows, MAX_BATCH_ROWS):
                    part = batch.slice(start, MAX_BATCH_ROWS)
                    part.validate(full=True)
                    for row in batch_values(part, wanted):
                        number += 1
                        yield number, others | row
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError, LookupError, TypeError) as error:
        words = phrase(str(error).partition("\n")[0][:200])
        raise row_error(path, ARROW, number + 1, Message("the Arrow file is damaged: {error}.", error=words)) from error
    if not number:
        raise TunesmithError("dataset-empty", "{path}: the file has no rows.", path=path)


def _batches(reader: Any) -> Iterator[Any]:  # Any: pyarrow has no types here
    return (reader.get_batch(number) for number in range(reader.num_record_batches))
