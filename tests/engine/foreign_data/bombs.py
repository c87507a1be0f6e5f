"""Small or big files that would become gigabytes, or take minutes, in a reader that doesn't bound what it reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

MIB = 1024**2
SPARSE_BYTES = 5 * 1024**3


def _sparse(path: Path, head: bytes) -> None:
    """A file of gigabytes that takes no room on the disk: the head, and NULs behind it."""
    path.write_bytes(head)
    with path.open("r+b") as file:
        file.truncate(SPARSE_BYTES)


def _rows_of_16_mb(path: Path) -> None:
    text = "ab" * (8 * MIB - 100) + "\U0001f600"
    with path.open("w", encoding="utf-8") as file:
        for _ in range(6):
            file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")


def _long_chat(num_messages: int) -> str:
    turns = [{"role": "user", "content": "Who is it?"}, {"role": "assistant", "content": "It's me."}]
    return json.dumps({"messages": turns * (num_messages // 2)}) + "\n"


TEXTS: dict[str, Callable[[], str | bytes]] = {
    "deep.jsonl": lambda: '{"text": "a"}\n{"text": ' + "[" * 8_000_000,
    "deep-objects.jsonl": lambda: '{"text": "a"}\n' + '{"a":' * 3_000_000,
    "deep.json": lambda: '[{"text": "a"}, {"text": ' + "[" * 20_000_000,
    "deep-first.json": lambda: "[" * 20_000_000,
    "deep-closed.json": lambda: '[{"text": "a"}, {"x": ' + "[" * 100_000 + "]" * 100_000 + "}]",
    "deep-beside-texts.json": lambda: "[" + '{"a":["]",' * 100_000,
    "deep-arguments.jsonl": lambda: _with_arguments("[" * 2_000_000),
    "wide-arguments.jsonl": lambda: _with_arguments("[" + "[]," * 5_000_000 + "[]]"),
    "values.jsonl": lambda: '{"text": "a", "x": [' + "[]," * 5_000_000 + "[]]}\n",
    "objects.jsonl": lambda: '{"text": "a", "x": [' + '{"":0},' * 2_300_000 + "0]}\n",
    "values.json": lambda: '[{"text": "a", "x": [' + "[]," * 5_000_000 + "[]]}]",
    "numbers.jsonl": lambda: '{"text": "a", "x": [' + "0.1," * 4_000_000 + "0]}\n",
    "digits.jsonl": lambda: '{"text": "a", "x": ' + "9" * 16_000_000 + "}\n",
    "many-digits.jsonl": lambda: '{"text": "a", "x": [' + ("9" * 4000 + ",") * 4000 + "0]}\n",
    "quotes.jsonl": lambda: '{"text": "' + '\\"' * 8_000_000,
    "long-line.jsonl": lambda: '{"text": "a"}\n{"text": "' + "x" * 100_000_000 + '"}\n{"text": "b"}\n',
    "blank.jsonl": lambda: '{"text": "a"}\n' + "\n" * 100_000_000 + '{"text": "b"}\n',
    "blank.json": lambda: '[{"text": "a"},' + " " * 100_000_000 + '{"text": "b"}]',
    "blank-wrapper.json": lambda: '{"a": [' + " " * 100_000_000 + '{"text": "b"}]}',
    "blank.csv": lambda: "text\na\n" + ",\n" * 50_000_000 + "b\n",
    "bad.jsonl": lambda: "x\n" * 10_000_000,
    "keys.jsonl": lambda: "{" + ",".join(f'"{number}":0' for number in range(900_000)) + "}\n",
    "chats.jsonl": lambda: _long_chat(100_000) * 3,
    "wide.csv": lambda: ",".join(f"c{number}" for number in range(9_999)) + "\n" + "a\n" * 100_000,
    "widest.csv": lambda: "text," + ",".join(f"c{number}" for number in range(4_095)) + "\n" + "a\n" * 100_000,
    "million.csv": lambda: ",".join(f"c{number}" for number in range(1_000_000)) + "\na\n",
    "commas.csv": lambda: "text\n" + "," * 16_000_000 + "\n",
    "fields.csv": lambda: "text\n" + "ab," * 5_000_000 + "\n",
    "same-names.csv": lambda: "a," * 5_000_000 + "a\n",
    "row.csv": lambda: 'text\n"' + "x" * 16_000_000 + '"\n',
    "open.csv": lambda: 'text\na\n"' + "some words\n" * 20_000_000,
    "many-fields-open.csv": lambda: "text\n" + '"a\n",' * 3_000_000 + "\n",
    "quotes.csv": lambda: 'text\n"' + '""' * 8_000_000 + '"\n',
}


def _with_arguments(arguments: str) -> str:
    call = {"function": {"name": "f", "arguments": arguments}}
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "tool_calls": [call]}]
    return json.dumps({"messages": turns}) + "\n"


def _write(path: Path, columns: dict[str, Any], compression: str = "brotli", **options: Any) -> None:
    parquet.write_table(pa.table(columns), path, compression=compression, **options)


def _chats_of(num_values: int, text: str) -> Any:  # Any: a pyarrow.Array
    """One row with a list of so many equal messages."""
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * num_values, pa.int32()), [text]).cast(pa.string())
    messages = pa.StructArray.from_arrays([texts, texts], ["role", "content"])
    return pa.ListArray.from_arrays(pa.array([0, num_values], pa.int32()), messages)


FILES: dict[str, Callable[[Path], None]] = {
    "open-5-gb.csv": lambda path: _sparse(path, b'text\na\n"'),
    "open-5-gb.jsonl": lambda path: _sparse(path, b'{"text": "a"}\n{"text": "'),
    "open-5-gb.json": lambda path: _sparse(path, b'[{"text": "a"},{"text": "'),
    "5-gb.parquet": lambda path: _sparse(path, b"PAR1"),
    "rows-of-16-mb.jsonl": _rows_of_16_mb,
    "text.parquet": lambda path: _write(path, {"text": ["a" * (400 * MIB)]}),
    "texts.parquet": lambda path: _write(path, {"text": ["a" * (10 * MIB)] * 100}),
    "plain-texts.parquet": lambda path: _write(path, {"text": ["a" * (10 * MIB)] * 60}, use_dictionary=False),
    "big-texts.parquet": lambda path: _write(path, {"text": ["a" * (40 * MIB)] * 3}),
    "delta.parquet": lambda path: _write(
        path, {"text": ["a" * 500_000] * 2000}, use_dictionary=False, column_encoding={"text": "DELTA_BYTE_ARRAY"}
    ),
    "list.parquet": lambda path: _write(path, {"messages": _chats_of(20_000_000, "user")}),
    "short-list.parquet": lambda path: _write(path, {"messages": _chats_of(3_000_000, "user")}),
    "nulls.parquet": lambda path: _write(path, {"text": pa.nulls(20_000_000, pa.string())}),
    "unused.parquet": lambda path: _write(path, {"text": ["a"], "image": ["a" * (400 * MIB)]}),
}
BOMBS = (*TEXTS, *FILES)


def plant(path: Path) -> None:
    """Write the bomb of a file's name."""
    if path.name in FILES:
        FILES[path.name](path)
        return
    content = TEXTS[path.name]()
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
