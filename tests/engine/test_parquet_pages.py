"""How many rows of Parquet are read at once: told from the heads of pages, before anything is unpacked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from tunesmith_core.errors import UserError
from tunesmith_engine.data import parquet_pages
from tunesmith_engine.data.parquet_pages import batch_rows

MIB = 1024**2
DATA, DICTIONARY = 0, 2


def _number(value: int) -> bytes:
    return _varint(value << 1 if value >= 0 else (-value << 1) - 1)


def _varint(value: int) -> bytes:
    digits = []
    while value >> 7:
        digits.append(value & 127 | 128)
        value >>= 7
    return bytes([*digits, value])


def head(kind: int, size: int, packed_size: int) -> bytes:
    """Return the head of a page as Thrift's compact protocol has it."""
    return b"\x15" + _number(kind) + b"\x15" + _number(size) + b"\x15" + _number(packed_size) + b"\x00"


def long_head(num_bytes: int) -> bytes:
    """Return the head of an empty page that says more than its size."""
    return head(DATA, 0, 0)[:-1] + b"\x18" + _varint(num_bytes) + b"x" * num_bytes + b"\x00"


def page(kind: int, size: int, packed: bytes = b"xyz") -> bytes:
    return head(kind, size, len(packed)) + packed


@dataclass
class Column:
    """A column of a row group as its footer describes it.

    Attributes:
        pages: its bytes in the file; a first one may be a dictionary.
    """

    pages: Sequence[bytes] = (page(DATA, 100),)
    path_in_schema: str = "text"
    num_values: int = 10
    has_dictionary: bool = False
    physical_type: str = "BYTE_ARRAY"
    compression: str = "UNCOMPRESSED"
    encodings: tuple[str, ...] = ("PLAIN",)
    total_compressed_size: int = 0
    data_page_offset: int = 0
    dictionary_page_offset: int | None = None


class Group:
    """A row group of some columns, written into a file."""

    def __init__(self, path: Path, columns: Sequence[Column], num_rows: int) -> None:
        self.num_rows, self.num_columns, self._columns = num_rows, len(columns), columns
        content = b"PAR1"
        for column in columns:
            if column.has_dictionary:
                column.dictionary_page_offset = len(content)
            column.data_page_offset = len(content) + sum(map(len, column.pages[: column.has_dictionary]))
            content += b"".join(column.pages)
            column.total_compressed_size = column.total_compressed_size or sum(map(len, column.pages))
        # What stands behind a column belongs to another one.
        path.write_bytes(content + page(DATA, 10**9) + page(DICTIONARY, 10**9))

    def column(self, index: int) -> Column:
        return self._columns[index]


def rows_at_once(folder: Path, *columns: Column, num_rows: int = 10, wanted: Sequence[str] = ("text",)) -> int:
    """Return how many rows of a group, which begins with row 7 of its file, are read at once."""
    return batch_rows(folder / "a.parquet", Group(folder / "a.parquet", columns, num_rows), wanted, 7)


def pages_of(*sizes: int) -> Column:
    return Column([page(DATA, size) for size in sizes])


def with_dictionary(packed: bytes, size: int, *sizes: int, **about: Any) -> Column:
    pages = [page(DICTIONARY, size, packed), *(page(DATA, each) for each in sizes)]
    return Column(pages, has_dictionary=True, **about)


@pytest.mark.parametrize(
    ("columns", "num_mib"),
    [
        ([pages_of(256 * MIB)], 0),
        ([pages_of(256 * MIB, 256 * MIB)], 0),
        ([pages_of(1, 255 * MIB, 1), pages_of(MIB)], 0),
        ([with_dictionary(b"", 100 * MIB, 156 * MIB, 7)], 0),
        ([pages_of(300 * MIB), pages_of(20 * MIB)], 320),
        ([pages_of(256 * MIB + 1)], 256),
        ([with_dictionary(b"", 100 * MIB, 157 * MIB)], 257),
        ([Column([head(DATA, 5, -9), page(DATA, 257 * MIB)])], 257),
        # Damage ends what is known: no size, and what is no head.
        ([Column([b"\x15\x00\x15\x02\x00", page(DATA, 257 * MIB)])], 0),
        ([Column([b"\xff" * 9, page(DATA, 257 * MIB)])], 0),
        ([Column([page(DATA, 257 * MIB), b"\xff" * 9])], 257),
        ([Column([long_head(30_000), page(DATA, 257 * MIB)])], 257),
        ([Column([long_head(33_000), page(DATA, 257 * MIB)])], 0),
        # Said to be longer than the file.
        ([Column(total_compressed_size=10**6)], 2 * 10**9 // MIB),
    ],
)
def test_of_each_column_the_largest_page_and_the_dictionary_must_fit(
    tmp_path: Path, columns: list[Column], num_mib: int
) -> None:
    if not num_mib:
        assert rows_at_once(tmp_path, *columns)
        return
    with pytest.raises(UserError) as caught:
        rows_at_once(tmp_path, *columns)
    assert caught.value.code == "dataset-parse-error"
    assert caught.value.message == (
        f"{tmp_path / 'a.parquet'}, row 7: reading on would take {num_mib:,} MiB at once. The most is 256 MiB."
    )


def test_columns_that_are_not_wanted_count_for_nothing(tmp_path: Path) -> None:
    big = [page(DATA, 300 * MIB)]
    columns = [Column(big, path_in_schema=name) for name in ("other", "texts", "other.text")]
    assert rows_at_once(tmp_path, Column(), *columns) == 512
    for name in ("text", "text.list.element.content"):
        with pytest.raises(UserError):
            rows_at_once(tmp_path, Column(big, path_in_schema=name))
    with pytest.raises(UserError):
        rows_at_once(tmp_path, Column(big, path_in_schema="a.b"), wanted=["a.b"])


@pytest.mark.parametrize(
    ("size", "num_values", "num_rows", "at_once"),
    [
        (100, 10, 10, 512),
        (64 * MIB // 512, 10, 10, 512),
        (MIB, 10, 10, 64),
        (MIB, 15, 10, 42),
        (MIB, 10, 1, 6),
        (20 * MIB, 10, 10, 3),
        (65 * MIB, 10, 10, 1),
        (0, 0, 0, 512),
    ],
)
def test_where_each_value_may_repeat_the_one_before_a_batch_has_64_mib(
    tmp_path: Path, size: int, num_values: int, num_rows: int, at_once: int
) -> None:
    pages = [page(DATA, size), page(DATA, size // 2)]
    column = Column(pages, num_values=num_values, encodings=("RLE", "DELTA_BYTE_ARRAY"))
    assert rows_at_once(tmp_path, column, num_rows=num_rows) == at_once
    column.encodings = ("RLE", "DELTA_LENGTH_BYTE_ARRAY")
    assert rows_at_once(tmp_path, column, num_rows=num_rows) == 512


def test_the_values_of_several_columns_add_up(tmp_path: Path) -> None:
    one, other = (Column([page(DATA, 5 * MIB)], encodings=("DELTA_BYTE_ARRAY",)) for _ in range(2))
    assert rows_at_once(tmp_path, one, other) == 6
    one = Column([page(DATA, 64 * MIB // 512)], encodings=("DELTA_BYTE_ARRAY",))
    assert rows_at_once(tmp_path, one, Column()) == 512, "what can't repeat counts for nothing"


def texts(*lengths: int) -> bytes:
    return b"".join(length.to_bytes(4, "little") + b"x" * length for length in lengths)


@pytest.mark.parametrize(
    ("content", "at_once"),
    [
        pytest.param(texts(200_000, 10, 0), 335, id="first"),
        pytest.param(texts(10, 0, 200_000), 335, id="last"),
        pytest.param(texts(*[1000] * 200), 512, id="short"),
        pytest.param(texts(150_000) + b"\xff" * 50_000, 335, id="a length beyond the end"),
        pytest.param(texts(150_000, 40_000) + b"\xff" * 4, 353, id="a length that ends the dictionary"),
        pytest.param(texts(150_000, 40_000) + b"\xff" * 3, 447, id="bytes that are no length"),
        pytest.param(texts(*[149_996] * 55, 138_604), 447, id="8 MiB"),
        pytest.param(texts(*[149_996] * 55, 138_605), 7, id="more than 8 MiB"),
    ],
)
@pytest.mark.parametrize("compression", ["UNCOMPRESSED", "SNAPPY"])
def test_the_longest_text_of_a_dictionary_may_stand_in_each_row(
    tmp_path: Path, content: bytes, at_once: int, compression: str
) -> None:
    packed = content if compression == "UNCOMPRESSED" else pa.Codec("snappy").compress(content, asbytes=True)
    about = {"compression": compression}
    assert rows_at_once(tmp_path, with_dictionary(packed, len(content), 50, **about)) == at_once
    assert rows_at_once(tmp_path, with_dictionary(packed, len(content), **about, physical_type="INT64")) == 512


def test_a_dictionary_that_can_not_be_unpacked_counts_as_one_text(tmp_path: Path) -> None:
    for compression in ("SNAPPY", "UNKNOWN"):
        column = with_dictionary(b"\xff" * 9, 200_000, compression=compression)
        assert rows_at_once(tmp_path, column) == 64 * MIB // 200_000


@pytest.mark.parametrize(
    ("num_values", "padding", "num_mib"),
    [
        # 8 million, or 64 for each byte of the file.
        (8 * MIB + 1, 0, 0),
        (8 * MIB + 2, 0, 64),
        (64 * 200_000 + 1, 200_000, 0),
        (64 * 200_000 + 2, 200_000, 97),
    ],
)
def test_lists_hold_eight_million_values_or_64_for_each_byte(
    tmp_path: Path, num_values: int, padding: int, num_mib: int
) -> None:
    head_bytes = len(page(DATA, 10, b"x" * padding)) - padding
    pages = [page(DATA, 10, b"x" * (padding - head_bytes))] if padding else [page(DATA, 10)]
    columns = (Column(pages, num_values=num_values), Column([], num_values=1), Column([], num_values=0))
    if not num_mib:
        assert rows_at_once(tmp_path, *columns, num_rows=1) == 512
        return
    with pytest.raises(UserError, match=f"reading on would take {num_mib} MiB at once"):
        rows_at_once(tmp_path, *columns, num_rows=1)


def test_the_values_of_lists_in_several_columns_add_up(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="64 MiB at once"):
        rows_at_once(tmp_path, *(Column(num_values=4 * MIB + 2) for _ in range(2)), num_rows=1)


def test_pages_that_tell_their_longest_texts_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    rows = [chr(97 + number % 26) * 4000 + str(number) for number in range(100)]
    parquet.write_table(pa.table({"text": rows}), path, use_dictionary=False)
    monkeypatch.setattr(parquet_pages, "MAX_PAGE_BYTES", 300_000)
    with pytest.raises(UserError, match="reading on would take"):
        batch_rows(path, parquet.ParquetFile(path).metadata.row_group(0), ["text"], 1)
