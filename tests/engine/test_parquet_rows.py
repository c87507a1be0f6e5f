"""Rows of Parquet as JSON values: what is converted, what is named in its row, and what is not read at all."""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from tunesmith_core.datafmt import Chat, PromptCompletion, Unreadable
from tunesmith_core.errors import UserError
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_engine.data import parquet_pages, parquet_rows, read
from tunesmith_engine.data.read import Source

DAY, NOON = datetime.date(2024, 5, 1), datetime.datetime(2024, 5, 1, 12)


def write(folder: Path, columns: dict[str, Any], **options: Any) -> Path:
    path = folder / "a.parquet"
    parquet.write_table(pa.table(columns), path, **options)
    return path


def fields_of(folder: Path, fields: dict[str, Any], kind: Any) -> dict[str, Any]:
    """Return the fields of an answer in a chat of Parquet as the conversation has them."""
    messages = pa.array([[{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", **fields}]], kind)
    ((_, chat),) = Source(SourceSpec(path=str(write(folder, {"messages": messages}))), False).conversations()
    assert isinstance(chat, Chat)
    json.dumps(chat.messages, allow_nan=False)
    return {name: value for name, value in chat.messages[1].items() if name not in ("role", "content")}


def test_values_inside_of_chats_become_json(tmp_path: Path) -> None:
    kinds = {
        "day": (pa.date32(), datetime.date(2024, 5, 1), "2024-05-01"),
        "price": (pa.decimal128(5, 2), decimal.Decimal("1.50"), "1.50"),
        "raw": (pa.binary(), b"abc", "abc"),
        "scores": (pa.list_(pa.float64()), [1.5, float("nan")], [1.5, None]),
        "map": (pa.map_(pa.string(), pa.int64()), [("x", 1)], {"x": 1}),
        "nested": (pa.struct({"at": pa.time32("s")}), {"at": datetime.time(1, 2)}, {"at": "01:02:00"}),
        "name": (pa.dictionary(pa.int32(), pa.string()), "n", "n"),
    }
    texts = {"role": pa.string(), "content": pa.string()}
    message = pa.struct(texts | {name: kind for name, (kind, _, _) in kinds.items()})
    fields = {name: value for name, (_, value, _) in kinds.items()}
    expected = {name: told for name, (_, _, told) in kinds.items()}
    assert fields_of(tmp_path, fields, pa.list_(message)) == expected


def test_only_the_row_with_a_value_that_is_no_text_is_bad(tmp_path: Path) -> None:
    days = pa.array([0, 2**31 - 1, 1], pa.int32()).view(pa.date32())
    path = write(tmp_path, {"text": pa.array([b"a", b"\xff", b"b"]).view(pa.string()), "content": days, "other": days})
    source = Source(SourceSpec(path=str(path), format="text"), skip_bad_rows=True)
    assert [number for number, _ in source.conversations()] == [1, 3]
    assert source.first_error is not None
    assert 'row 2, column "text": holds text that is not UTF-8.' in source.first_error.message
    by_day = Source(SourceSpec(path=str(path), format="text", columns={"text": "other"}), skip_bad_rows=True)
    with pytest.raises(UserError, match=r"row 1.*must be a text, not a date or time"):
        list(by_day.conversations())
    assert by_day.num_skipped_rows == 3


def test_the_first_bad_row_is_named_though_a_later_one_ends_the_reading(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text":"a"}\n{"text":5}\n{bad\n')
    with pytest.raises(UserError, match="line 2"):
        list(Source(SourceSpec(path=str(path)), False).conversations())
    path.write_text('{"text":"a"}\n{bad\n')
    with pytest.raises(UserError, match="line 2"):
        list(Source(SourceSpec(path=str(path)), False).conversations())


def test_damage_is_named_with_the_row_behind_the_last_good_one(tmp_path: Path) -> None:
    path = write(tmp_path, {"text": ["a" * 50, "b" * 50, "c" * 50]}, row_group_size=2, compression="none")
    place = parquet.ParquetFile(path).metadata.row_group(1).column(0).dictionary_page_offset
    content = bytearray(path.read_bytes())
    content[place : place + 8] = b"\xff" * 8
    path.write_bytes(content)
    source = Source(SourceSpec(path=str(path)), False)
    with pytest.raises(UserError, match=r"a\.parquet, row 3: the Parquet file is damaged: \w.*\w"):
        list(source.conversations())


def test_columns_whose_names_leave_no_doubt_are_read(tmp_path: Path) -> None:
    path = write(tmp_path, {"id": [1], "Question text": ["Why?"], "Best answer": ["So it is."]})
    ((_, pair),) = Source(SourceSpec(path=str(path)), False).conversations()
    assert pair == PromptCompletion("Why?", "So it is.")


def test_columns_that_no_example_can_use_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, {"text": ["a"], "image": ["x" * 100_000]})
    monkeypatch.setattr(parquet_pages, "MAX_PAGE_BYTES", 50_000)
    assert len(list(Source(SourceSpec(path=str(path)), False).conversations())) == 1
    with pytest.raises(UserError, match="row 1: reading on would take"):
        list(Source(SourceSpec(path=str(path), columns={"text": "image"}), False).conversations())


def test_a_part_that_is_too_big_is_named_with_its_first_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, {"text": ["a", "b", "x" * 100_000]}, row_group_size=2, compression="none")
    monkeypatch.setattr(parquet_pages, "MAX_PAGE_BYTES", 50_000)
    rows = parquet_rows.parquet_rows(path, ())
    assert [next(rows), next(rows)] == [(1, {"text": "a"}), (2, {"text": "b"})]
    with pytest.raises(UserError, match="row 3: reading on would take"):
        next(rows)


def test_columns_are_read_by_their_usual_names_or_where_they_are_mapped(tmp_path: Path) -> None:
    path = write(tmp_path, {"Text": ["a", "b"], "image": [1, 2], "own": ["c", "d"]})
    assert list(parquet_rows.parquet_rows(path, ["own"])) == [
        (1, {"Text": "a", "image": None, "own": "c"}),
        (2, {"Text": "b", "image": None, "own": "d"}),
    ]
    path = write(tmp_path, {"image": [1, 2, 3]})
    assert list(parquet_rows.parquet_rows(path, ())) == [(number, {"image": None}) for number in (1, 2, 3)]


def test_a_column_that_is_there_twice_can_not_be_meant(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table([pa.array(["a"]), pa.array(["b"])], names=["text", "text"]), path)
    with pytest.raises(UserError) as caught:
        list(parquet_rows.parquet_rows(path, ()))
    assert caught.value.message == f'{path}: the header names the column "text" twice.'
    parquet.write_table(pa.table([pa.array([1]), pa.array([2])], names=["image", "image"]), path)
    assert list(parquet_rows.parquet_rows(path, ())) == [(1, {"image": None})]


def test_a_long_list_and_a_long_text_are_bad_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a" * 50}]
    path = write(tmp_path, {"messages": [turns, turns * 40, turns]})
    for limit, value, said in (("MAX_VALUES", 100, "100 values"), ("MAX_ROW_CHARACTERS", 1000, "1,000 bytes")):
        monkeypatch.setattr(parquet_rows, limit, value)
        source = Source(SourceSpec(path=str(path)), skip_bad_rows=True)
        assert [number for number, _ in source.conversations()] == [1, 3]
        assert source.first_error is not None
        assert source.first_error.message == f'{path}, row 2, column "messages": holds more than {said}.'
        monkeypatch.undo()


@pytest.mark.parametrize(
    ("kind", "value", "num_values"),
    [
        (pa.string(), "abc", 1),
        (pa.list_(pa.int64()), [1, 2, 3], 4),
        (pa.large_list(pa.int64()), [1, 2, 3], 4),
        (pa.list_(pa.list_(pa.int64())), [[1, 2], [3]], 6),
        (pa.struct({"a": pa.int64(), "b": pa.list_(pa.int64())}), {"a": 1, "b": [1, 2]}, 5),
        (pa.list_(pa.struct({"a": pa.int64()})), [{"a": 1}, {"a": 2}], 5),
        (pa.map_(pa.string(), pa.list_(pa.int64())), {"a": [1, 2], "b": []}, 6),
        (pa.uuid(), b"0123456789abcdef", 1),
    ],
)
def test_the_values_within_each_other_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any, value: Any, num_values: int
) -> None:
    rows = [list(value.items())] if pa.types.is_map(kind) else [value]
    for num_rows in (1, 2):
        path = write(tmp_path, {"text": pa.array(rows * num_rows, kind)})
        monkeypatch.setattr(parquet_rows, "MAX_VALUES", num_values)
        found = [row["text"] for _, row in parquet_rows.parquet_rows(path, ())]
        assert found == [uuid.UUID(bytes=value) if kind == pa.uuid() else value] * num_rows
        monkeypatch.setattr(parquet_rows, "MAX_VALUES", num_values - 1)
        found = [row["text"] for _, row in parquet_rows.parquet_rows(path, ())]
        assert found == [Unreadable(f"more than {num_values - 1} values")] * num_rows


@pytest.mark.parametrize(
    "value", ["a", True, 3, None, ["a"], [{"role": "user", "content": "q"}], {"a": [1, None], "b": {"c": False}}]
)
def test_values_that_are_json_are_taken_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: Any
) -> None:
    """Not one after another, which takes as long again."""
    monkeypatch.setattr(parquet_rows, "_json_value", None)
    arrays = [pa.array([value, value])]
    if isinstance(value, str):
        arrays += [arrays[0].cast(pa.large_string()), arrays[0].dictionary_encode()]
    for array in arrays:
        for most in (10**6, 10):
            monkeypatch.setattr(parquet_rows, "MAX_VALUES", most)
            rows = parquet_rows.parquet_rows(write(tmp_path, {"text": array}), ())
            assert [row["text"] for _, row in rows] == [value, value]


def test_what_a_library_says_of_damage_is_told_shortly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise pa.ArrowInvalid("so " * 100 + "\nand more")

    monkeypatch.setattr(parquet, "ParquetFile", fail)
    with pytest.raises(UserError) as caught:
        list(parquet_rows.parquet_rows(tmp_path / "a.parquet", ()))
    said = ("so " * 100)[:200]
    assert caught.value.message == f"{tmp_path / 'a.parquet'}, row 1: the Parquet file is damaged: {said}."


def test_a_row_may_hold_so_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = pa.array(["abc"])
    for num_rows in (1, 2):
        path = write(tmp_path, {"text": ["abc"] * num_rows})
        monkeypatch.setattr(parquet_rows, "MAX_ROW_CHARACTERS", array.nbytes)
        assert [row["text"] for _, row in parquet_rows.parquet_rows(path, ())] == ["abc"] * num_rows
        monkeypatch.setattr(parquet_rows, "MAX_ROW_CHARACTERS", array.nbytes - 1)
        found = [row["text"] for _, row in parquet_rows.parquet_rows(path, ())]
        assert found == [Unreadable(f"more than {array.nbytes - 1} bytes")] * num_rows


@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        (pa.large_string(), "a", "a"),
        (pa.bool_(), True, True),
        (pa.int8(), 3, 3),
        (pa.null(), None, None),
        (pa.float32(), 1.5, 1.5),
        (pa.date32(), DAY, DAY),
        (pa.binary(), b"abc", "abc"),
        (pa.binary(), b"\xff", Unreadable("text that is not UTF-8")),
        (pa.timestamp("us"), 2**62, Unreadable("a value that can't be read")),
        (pa.list_(pa.float64()), [1.5, float("inf")], [1.5, None]),
        (
            pa.list_(pa.map_(pa.timestamp("ms"), pa.date32())),
            [[(NOON, DAY)], []],
            [{"2024-05-01T12:00:00": str(DAY)}, []],
        ),
        (pa.struct({"a": pa.string(), "b": pa.decimal128(3, 1)}), {"a": "x", "b": decimal.Decimal("1.5")}, None),
    ],
)
def test_values_are_told_as_json_or_as_what_they_are(tmp_path: Path, kind: Any, value: Any, told: Any) -> None:
    """Beside lists and objects, a value that is no text stays what it is, so that the row can say so."""
    path = write(tmp_path, {"text": pa.array([value, None], kind)})
    rows = [row["text"] for _, row in parquet_rows.parquet_rows(path, ())]
    assert rows == [{"a": "x", "b": "1.5"} if pa.types.is_struct(kind) else told, None]


def test_texts_that_repeat_are_read_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, {"text": ["x" * 200_000] * 100})
    group = parquet.ParquetFile(path).metadata.row_group(0)
    assert parquet_pages.batch_rows(path, group, ["text"], 1) == parquet_pages.BATCH_BYTES // 200_000
    short = write(tmp_path, {"text": [f"{number} " * 10 for number in range(10_000)]})
    assert parquet_pages.batch_rows(short, parquet.ParquetFile(short).metadata.row_group(0), ["text"], 1) == 512
    monkeypatch.setattr(parquet_pages, "MAX_LIST_VALUES", 1000)
    monkeypatch.setattr(parquet_pages, "MAX_VALUES_PER_BYTE", 1)
    path = write(tmp_path, {"messages": [[{"role": "user", "content": "q"}] * 10_000]})
    with pytest.raises(UserError, match="reading on would take"):
        parquet_pages.batch_rows(path, parquet.ParquetFile(path).metadata.row_group(0), ["messages"], 1)


def test_after_so_many_bad_rows_no_good_one_is_expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "MOST_BAD_ROWS", 70)
    path = write(tmp_path, {"text": [None] * 80 + ["a"]})
    with pytest.raises(UserError, match="row 1,"):
        list(Source(SourceSpec(path=str(path)), skip_bad_rows=True).conversations())
    path = write(tmp_path, {"text": ["a"] + [None] * 80 + ["a"]})
    assert len(list(Source(SourceSpec(path=str(path)), skip_bad_rows=True).conversations())) == 2
