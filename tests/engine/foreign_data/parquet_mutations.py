"""Parquet files that went wrong: values that are no text, planted at known rows, and damaged files."""

from __future__ import annotations

import decimal
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from tests.engine.foreign_data.case import Case

BROKEN = (b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xc0\xaf", b"\x93\xfa\x96\x7b")
COMPRESSIONS = ("none", "snappy", "gzip", "zstd", "brotli", "lz4")


def _text(values: list[bytes | None], kind: Any = None) -> Any:  # Any: pyarrow has no types
    """Bytes that call themselves text."""
    large = kind is not None and pa.types.is_large_string(kind)
    return pa.array(values, pa.large_binary()).view(kind) if large else pa.array(values, pa.binary()).view(pa.string())


def _write(path: Path, chance: random.Random, columns: dict[str, Any], **options: Any) -> None:
    parquet.write_table(
        pa.table(columns),
        path,
        compression=chance.choice(COMPRESSIONS),
        row_group_size=chance.choice((1, 7, 1000)),
        use_dictionary=chance.random() < 0.5,
        data_page_version=chance.choice(("1.0", "2.0")),
        **options,
    )


def broken_text(folder: Path, chance: random.Random) -> Case:
    """Texts that are not UTF-8, in a column of texts or deep inside chats, at known rows."""
    num_rows = chance.randint(2, 1500)
    bad = sorted(chance.sample(range(1, num_rows), min(chance.randint(1, 3), num_rows - 1)))
    texts: list[bytes | None] = [b"\xc3\xbc ok"] * num_rows
    for row in bad:
        texts[row] = chance.choice(BROKEN)
    path = folder / "a.parquet"
    values = _text(texts, chance.choice((pa.string(), pa.large_string())))
    if chance.random() < 0.5:
        columns = {"prompt": pa.array(["?"] * num_rows), "completion": values}
    else:
        contents = [each for text in texts for each in (b"?", text)]
        roles = pa.array(["user", "assistant"] * num_rows)
        messages = pa.StructArray.from_arrays([roles, _text(contents)], ["role", "content"])
        columns = {"messages": pa.ListArray.from_arrays(pa.array(range(0, 2 * num_rows + 1, 2), pa.int32()), messages)}
    _write(path, chance, columns)
    return Case("broken text", path, bad=tuple(row + 1 for row in bad), num_good=num_rows - len(bad))


def _far(kind: Any) -> Any:  # Any: pyarrow has no types
    """Dates and times beyond what Python knows."""
    width = pa.int32() if kind in (pa.date32(), pa.time32("s"), pa.time32("ms")) else pa.int64()
    most = 2**31 - 1 if width == pa.int32() else 2**62
    return pa.array([0, most, -most, None], width).view(kind)


ODD: dict[str, Callable[[], Any]] = {
    "date32": lambda: _far(pa.date32()),
    "date64": lambda: pa.array([0, 86_400_000 * 10**10, -86_400_000 * 10**10, None], pa.int64()).view(pa.date64()),
    "time": lambda: pa.array([0, 86_399, 5, None], pa.int32()).view(pa.time32("s")),
    "timestamp-us": lambda: _far(pa.timestamp("us")),
    "timestamp-ns": lambda: pa.array([1, 2, 3, None], pa.int64()).view(pa.timestamp("ns")),
    "timestamp-tz": lambda: _far(pa.timestamp("ms", "Nowhere/City")),
    "duration": lambda: _far(pa.duration("us")),
    "duration-ns": lambda: pa.array([1, 2, 3, None], pa.int64()).view(pa.duration("ns")),
    "decimal": lambda: pa.array([decimal.Decimal("1.50"), None, decimal.Decimal(-9), decimal.Decimal(7)]),
    "decimal256": lambda: pa.array([decimal.Decimal(10**60), None, decimal.Decimal(1), None], pa.decimal256(76, 2)),
    "binary": lambda: pa.array([b"\xff\xfe", b"", None, b"text"]),
    "fixed-binary": lambda: pa.array([b"abcd", b"\xff\xff\xff\xff", None, b"    "], pa.binary(4)),
    "null": lambda: pa.nulls(4),
    "bool": lambda: pa.array([True, False, None, True]),
    "float": lambda: pa.array([float("nan"), float("inf"), -0.0, None]),
    "half": lambda: pa.array([1.5, float("nan"), None, 2.0]).cast(pa.float16()),
    "int": lambda: pa.array([2**63 - 1, -(2**63), None, 0]),
    "uint": lambda: pa.array([2**64 - 1, 0, None, 1], pa.uint64()),
    "dictionary": lambda: pa.array(["a", "b", None, "a"]).dictionary_encode(),
    "large-string": lambda: pa.array(["a", "", None, "b"], pa.large_string()),
    "string-view": lambda: pa.array(["a", "", None, "b"], pa.string_view()),
    "list": lambda: pa.array([["a"], [], None, ["b", None]]),
    "large-list": lambda: pa.array([["a"], [], None, ["b"]], pa.large_list(pa.string())),
    "fixed-list": lambda: pa.array([["a", "b"], None, ["c", "d"], ["", ""]], pa.list_(pa.string(), 2)),
    "map": lambda: pa.array([[("a", "b")], [], None, [("a", "1"), ("a", "2")]], pa.map_(pa.string(), pa.string())),
    "struct": lambda: pa.array([{"a": 1}, {"a": None}, None, {"a": 2}]),
    "deep": lambda: pa.array([[[[[["x"]]]]], None, [], [[]]]),
    "dates-in-chats": lambda: _chats(_far(pa.timestamp("us")).take(pa.array([0, 1, 2, 3, 0, 1, 2, 3]))),
    "decimals-in-chats": lambda: _chats(pa.array([decimal.Decimal("1.5")] * 8)),
    "bytes-in-chats": lambda: _chats(pa.array([b"\xff"] * 8)),
    "nan-in-chats": lambda: _chats(pa.array([float("nan")] * 8)),
    "map-in-chats": lambda: _chats(pa.array([[("a", 1)]] * 8, pa.map_(pa.string(), pa.int64()))),
    "broken-key-in-chats": lambda: _chats(pa.array(["x"] * 8), "\x00"),
    "calls-in-chats": lambda: _calls(),
}  # fmt: skip


def _chats(extra: Any, name: str = "extra") -> Any:  # Any: pyarrow has no types
    parts = [pa.array(["user", "assistant"] * 4), pa.array(["a", "b"] * 4), extra]
    messages = pa.StructArray.from_arrays(parts, ["role", "content", name])
    return pa.ListArray.from_arrays(pa.array([0, 2, 4, 6, 8], pa.int32()), messages)


def _calls() -> Any:  # Any: pyarrow has no types
    """Tool calls whose arguments are no JSON values."""
    arguments = pa.array([{"day": 10**9, "price": decimal.Decimal("1.5")}] * 4)
    days, missing = pa.array([2**30] * 4, pa.int32()).view(pa.date32()), pa.array([float("nan")] * 4)
    fields = pa.StructArray.from_arrays([days, arguments.field(1), missing], ["d", "p", "n"])
    function = pa.StructArray.from_arrays([pa.array(["f"] * 4), fields], ["name", "arguments"])
    calls = pa.StructArray.from_arrays([function], ["function"])
    calls = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3, 4], pa.int32()), calls)
    parts = [pa.array(["assistant"] * 4), pa.array(["a"] * 4), calls]
    messages = pa.StructArray.from_arrays(parts, ["role", "content", "tool_calls"])
    return pa.ListArray.from_arrays(pa.array([0, 1, 2, 3, 4], pa.int32()), messages)


def odd_types(folder: Path, chance: random.Random) -> Case:
    """A column of a type that JSON does not know: the text itself, the chat, or one that nobody asked for."""
    name = chance.choice(list(ODD))
    values = ODD[name]()
    role = chance.choice(("completion", "beside", "messages", "text", "prompt"))
    if "chats" in name:
        role = "messages"
    columns: dict[str, Any] = {"prompt": pa.array(["a"] * 4), "completion": pa.array(["b"] * 4)}
    if role in ("messages", "text"):
        columns = {}
    columns[role] = values
    path = folder / "a.parquet"
    try:
        _write(path, chance, columns)
    except (pa.ArrowException, ValueError):
        columns[role] = pa.array(["x"] * 4)
        _write(path, chance, columns)
    return Case(f"type {name} as {role}", path, num_good=4 if role == "beside" else None)


def _good(path: Path, chance: random.Random) -> None:
    num_rows = chance.randint(1, 800)
    chats = [[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b" * 20}]] * num_rows
    pairs = {"prompt": ["a"] * num_rows, "completion": [str(n) for n in range(num_rows)]}
    columns = {"messages": chats} if chance.random() < 0.5 else pairs
    _write(path, chance, {name: pa.array(values) for name, values in columns.items()})


def damaged(folder: Path, chance: random.Random) -> Case:
    """A good file with changed bytes, or one that is cut, doubled or has another tail."""
    path = folder / "a.parquet"
    _good(path, chance)
    raw = bytearray(path.read_bytes())
    length = int.from_bytes(raw[-8:-4], "little")
    how = chance.randrange(9)
    if how <= 1:
        for _ in range(chance.choice((1, 2, 20))):
            raw[chance.randrange(4, len(raw) - length - 8)] = chance.randrange(256)
    elif how <= 3:
        for _ in range(chance.choice((1, 2, 20))):
            raw[chance.randrange(len(raw) - length - 8, len(raw) - 8)] = chance.randrange(256)
    elif how == 4:
        raw = raw[: chance.randrange(len(raw))]
    elif how == 5:
        raw = raw + raw
    elif how == 6:
        raw[-4:] = chance.choice((b"PARE", b"PAR2", b"\0\0\0\0"))
    elif how == 7:
        raw[-8:-4] = chance.choice((0, 1, 2**32 - 1, length + 1, len(raw))).to_bytes(4, "little")
    else:
        start = chance.randrange(len(raw) - 100)
        del raw[start : start + chance.randrange(1, 100)]
    path.write_bytes(raw)
    return Case(f"damaged {how}", path)


def odd_shape(folder: Path, chance: random.Random) -> Case:
    """Good Parquet that holds nothing, or not in columns of texts."""
    path = folder / f"a{chance.choice(('.parquet', '.pq', '.jsonl', '.csv', ''))}"
    makers: tuple[Callable[[], Any], ...] = (
        lambda: pa.table({}),
        lambda: pa.table({"prompt": pa.array([], pa.string()), "completion": pa.array([], pa.string())}),
        lambda: pa.table([pa.array(["a"]), pa.array(["b"])], ["x", "x"]),
        lambda: pa.table([pa.array(["a"]), pa.array(["b"])], ["text", "text"]),
        lambda: pa.table({f"c{number}": ["a"] for number in range(3000)}),
        lambda: pa.table({"role": ["user"], "content": ["a"]}),
        lambda: pa.table({"": ["user"], "text": ["a"]}),
        lambda: pa.table({"text": [None, None]}),
        lambda: pa.table({"text": pa.array(["a"] * 5000)}),
    )
    table = chance.choice(makers)()
    if chance.random() < 0.2:
        writer = parquet.ParquetWriter(path, table.schema)
        writer.close()
    else:
        parquet.write_table(table, path)
    return Case(f"shape {table.column_names[:2]}", path)
