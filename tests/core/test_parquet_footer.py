"""The number of rows in a Parquet file's footer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.parquet_files import ROOT, parquet_of, with_footer
from tunesmith_core import datafmt
from tunesmith_core.datafmt.parquet_footer import Thrift, count_rows
from tunesmith_core.errors import UserError
from tunesmith_core.spec_sections import SourceSpec

EVERY_KIND = (
    b"\x11\x12"  # truth values, which are all in the head of their field
    b"\x13\x07"  # a byte
    b"\x17" + bytes(8) + b"\x14\x02\x15\x02\x16\x02"  # a double, numbers of three widths
    b"\x1a\x21\x01\x02"  # a set of truth values
    b"\x1c\x15\x02\x00"  # a struct
    b"\x08\x60\x01x"  # a text in a field that names its number
    b"\x00"
)


@pytest.mark.parametrize("num_rows", [1, 63, 64, 5_000_000_000])
def test_the_number_of_rows_is_found(tmp_path: Path, num_rows: int) -> None:
    for schema in ((ROOT,), (ROOT, EVERY_KIND), (ROOT,) * 20):
        path = tmp_path / "a.parquet"
        path.write_bytes(parquet_of(num_rows, *schema))
        assert count_rows(path) == num_rows


@pytest.mark.parametrize("num_rows", [1, 3000])
def test_it_is_what_pyarrow_wrote(tmp_path: Path, num_rows: int) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    chats = [[{"role": "user", "content": "Hi"}]] * num_rows
    parquet.write_table(pyarrow.table({"messages": chats, "n": [1.5] * num_rows}), path)
    assert count_rows(path) == num_rows


@pytest.mark.parametrize("check", [datafmt.sniff, lambda path: datafmt.check_head(SourceSpec(path=str(path)))])
def test_a_file_without_rows_is_empty(tmp_path: Path, check: object) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(parquet_of(0))
    with pytest.raises(UserError, match=r"a\.parquet: the Parquet file has no rows") as caught:
        check(path)  # type: ignore[operator]
    assert caught.value.code == "dataset-empty"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (parquet_of(7)[:-1], "cut short"),
        (b"PAR1", "cut short"),
        (b"PAR1\xff\xff\x00\x00PAR1", "cut short"),
        (with_footer(b"\x15\x04\x00"), "damaged"),
        (with_footer(b"\x15"), "damaged"),
        (with_footer(b"\x1d\x00\x00"), "damaged"),
        (with_footer(b"\x19\xf8\xff\xff\x03\x7f\x00"), "damaged"),
        (with_footer(b"\x1c" * 4000), "damaged"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(content)
    with pytest.raises(UserError, match=words) as caught:
        count_rows(path)
    assert caught.value.code == "dataset-parse-error"


def test_the_numbers_of_a_head_are_found() -> None:
    head = Thrift(b"\x15\x04\x1c\x15\x02\x00\x15\x06\x08\x60\x01x\x00rest")
    assert head.integers() == {1: 2, 3: 3}
    assert head.data[head.place :] == b"rest"
    with pytest.raises(IndexError):
        Thrift(b"\x15").integers()
