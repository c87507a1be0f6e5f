"""How much a Parquet file unpacks to, told from the heads of its pages before any of them is unpacked.

A column of a row group is a dictionary page, if any, and data pages (parquet.thrift, PageHeader). A page is unpacked as
a whole, so its size is what a file of some hundred bytes can make gigabytes of.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow

from tunesmith_core.datafmt.encoding import DataFile, open_bytes, row_error
from tunesmith_core.datafmt.parquet_footer import Thrift
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message

MAX_BATCH_ROWS = 512
MAX_PAGE_BYTES = 256 * 1024**2
"""Of the largest pages of all columns of a row group, unpacked. Programs write pages of 1 to 100 MiB."""
BATCH_BYTES = 64 * 1024**2
MAX_LIST_VALUES = 8 * 1024**2
MAX_VALUES_PER_BYTE = 64
"""In lists: where there are more values, and more for each byte of the file, a single row may be all of them."""

MAX_UNPACKED_BYTES = 8 * 1024**2
"""Up to this size a dictionary is looked into; programs end one at 1 MiB."""

HEAD_BYTES = 32 * 1024
"""Of a page that are read to find its size: its smallest and largest value stand there twice, of 4 KiB each."""

TYPE, SIZE, PACKED_SIZE, DICTIONARY = 1, 2, 3, 2
"""Fields of a page's head, and the type of dictionary pages."""


@dataclass(slots=True)
class _Pages:
    """Of one column of a row group: bytes of the largest page, of the dictionary, and of a value that may repeat."""

    largest: int = 0
    dictionary: int = 0
    repeated: int = 0


def batch_rows(path: DataFile, group: Any, wanted: Collection[str], first_row: int) -> int:  # Any: RowGroupMetaData
    """Return how many rows of a row group are read at once, so that memory stays flat.

    Args:
        path: the file.
        group: metadata of the row group.
        wanted: names of the columns that are read.
        first_row: number of the group's first row.

    Raises:
        UserError: `dataset-parse-error` when the group takes too much memory however few rows are read at once.
    """
    num_page_bytes = num_repeated_bytes = num_list_values = num_packed_bytes = 0
    with open_bytes(path) as file:
        for index in range(group.num_columns):
            column = group.column(index)
            if column.path_in_schema not in wanted and column.path_in_schema.partition(".")[0] not in wanted:
                continue
            pages = _pages_of(file, column)
            num_page_bytes += pages.largest + pages.dictionary
            repeats = column.num_values / max(1, group.num_rows)
            num_repeated_bytes += int(pages.repeated * max(1.0, repeats))
            num_list_values += max(0, column.num_values - group.num_rows)
            num_packed_bytes += column.total_compressed_size
    if num_page_bytes > MAX_PAGE_BYTES:
        raise _too_big(path, first_row, num_page_bytes)
    if num_list_values > max(MAX_LIST_VALUES, MAX_VALUES_PER_BYTE * num_packed_bytes):
        raise _too_big(path, first_row, num_list_values * 8)
    return min(MAX_BATCH_ROWS, max(1, BATCH_BYTES // max(1, num_repeated_bytes)))


def _too_big(path: DataFile, row: int, num_bytes: int) -> TunesmithError:
    problem = Message(
        "reading on would take {num_mib:,} MiB at once. The most is {max_mib:,} MiB.",
        num_mib=num_bytes >> 20,
        max_mib=MAX_PAGE_BYTES >> 20,
    )
    return row_error(path, "parquet", row, problem)


def _pages_of(file: BinaryIO, column: Any) -> _Pages:  # Any: ColumnChunkMetaData
    pages = _Pages()
    start = column.data_page_offset
    if column.dictionary_page_offset:
        start = min(start, column.dictionary_page_offset)
    end = start + column.total_compressed_size
    for is_dictionary, size, place, packed_size in _heads(file, start, end):
        if not is_dictionary:
            pages.largest = max(pages.largest, size)
            continue
        pages.dictionary = max(pages.dictionary, size)
        if column.physical_type == "BYTE_ARRAY":
            file.seek(place)
            pages.repeated = _longest_text(file.read(packed_size), size, column.compression)
    if any("DELTA_BYTE_ARRAY" in encoding for encoding in column.encodings):
        # A value may repeat nearly all of the one before it.
        pages.repeated = max(pages.repeated, pages.largest)
    return pages


def _longest_text(packed: bytes, size: int, compression: str) -> int:
    """Return the bytes of the longest text of a dictionary, of the whole page where that would take long."""
    if size <= BATCH_BYTES // MAX_BATCH_ROWS or size > MAX_UNPACKED_BYTES:
        return size
    try:
        page = packed if compression == "UNCOMPRESSED" else pyarrow.Codec(compression.lower()).decompress(packed, size)
    except (pyarrow.ArrowException, ValueError, OSError):
        return size
    page = memoryview(page)
    longest = place = 0
    while place + 4 <= len(page):
        length = int.from_bytes(page[place : place + 4], "little")
        longest = max(longest, length)
        place += 4 + length
    return min(longest, size)


def _heads(file: BinaryIO, place: int, end: int) -> Iterator[tuple[bool, int, int, int]]:
    """Yield whether it is a dictionary, unpacked size, place and packed size of the pages in a part of a file.

    A damaged head ends it.
    """
    while place < end:
        file.seek(place)
        head = Thrift(file.read(HEAD_BYTES))
        try:
            fields = head.integers()
            is_dictionary, size, packed_size = fields[TYPE] == DICTIONARY, fields[SIZE], max(0, fields[PACKED_SIZE])
        except (LookupError, ValueError):
            return
        place += head.place
        yield is_dictionary, size, place, packed_size
        place += packed_size
