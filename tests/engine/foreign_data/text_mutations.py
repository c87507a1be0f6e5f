"""Data files of text that went wrong: bad rows planted at known lines, and whole files damaged by a fixed seed."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import os
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.engine.foreign_data.case import Case

DEEP = "[" * 100_000 + "]" * 100_000
UNCLOSED = '{"x": "' + "y" * 70_000
BOM = codecs.BOM_UTF8
NEWLINES = ("\n", "\n", "\r\n", "\r")

PAIR: dict[str, Any] = {"prompt": "Wer ist da? ü", "completion": "Ich – 我。"}
CHAT = {"messages": [{"role": "user", "content": "Wer? ü"}, {"role": "assistant", "content": "Ich."}]}
SHAREGPT = {"conversations": [{"from": "human", "value": "Wer? ü"}, {"from": "gpt", "value": "Ich."}]}
ALPACA = {"instruction": "Rechne ü", "input": "1+1", "output": "2"}
TEXT = {"text": "Ein Satz. ü"}
ROWS = (PAIR, CHAT, SHAREGPT, ALPACA, TEXT)
"""A good row of each format; all hold a letter beyond ASCII, so that a broken byte is no other encoding."""

BAD_JSON: tuple[str | bytes, ...] = (
    "nonsense", "{", "}", "[", '{"prompt": "a", "completion": }', '{"prompt": "a" "completion": "b"}', "[1, 2]", "[]",
    '"text"', "7", "null", "true", "NaN", "-", '{"prompt": "a", "completion": "b"} x', '{"prompt": "a", "comp',
    '{"x": NaN}', '{"x": -Infinity}', '{"x": 1e400}', '{"x": 1' + "0" * 5000 + "}", '{"x": ' + DEEP + "}",
    '{"x": "\\ud800"}',
    '{"x": "\\udfff\\ud800"}', "{'x': 1}", '{"x": "a\tb"}', '{"x": "\\q"}', '{"x": 1,}', '{"x": 01}', '{"x": +1}',
    '{"x": True}', "// comment", "# comment", '{"x": 1}{"x": 2}', '{"x": 1}, ', "\ufeff{}", "{}", '{"x": "\\u12"}',
    b'{"x": "\xff"}', b'{"x": "\xc3("}', b'{"x": "\xed\xa0\x80"}', b'{"x": "\xc0\xaf"}', b'{"x": "a\x00b"}',
    b"\x00" * 50,
    b"\xfe\xff", '{"": ""}', '{"x": [' + "[" * 500 + "}", "<row/>", "a: b", "a,b", '{"x": 0x10}', '{x: "a"}',
    UNCLOSED, '{"x": {"y": "\\ud83d"}}', '{"a":' * 3000,
)  # fmt: skip
"""Lines that are no row of any format."""

WHOLE_IN_A_LIST = ("[1, 2]", "[]", '"text"', "7", "null", "true", "{}", '{"": ""}', "[", "{", '{"a":' * 3000, UNCLOSED)
"""Those that are an item of a list all the same, or that only end with the file."""

BAD_VALUES: tuple[Any, ...] = (None, "", "  ", 5, 1.5, True, [], {}, [[]], ["x"], [None], {"role": "user"}, 10**400)
BAD_MESSAGES: tuple[Any, ...] = (
    7, None, "x", [], {}, {"role": "user"}, {"content": "x"}, {"role": 5, "content": "x"},
    {"role": "x", "content": "y"},
    {"role": "user", "content": 5}, {"role": "assistant", "content": ""}, {"role": "assistant", "content": None},
    {"role": "user", "content": [{"type": "image"}]}, {"role": "user", "content": {"a": 1}},
    {"role": "assistant", "content": "x", "tool_calls": 5}, {"role": "assistant", "content": "x", "tool_calls": [{}]},
    {"role": ["user"], "content": "x"}, {"role": "assistant", "content": "x", "tool_calls": [{"function": "f"}]},
)  # fmt: skip


def bad_row(row: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """Return a row of the same columns that can't be trained on."""
    name = chance.choice([name for name in row if name not in ("input", "prompt")])
    value = row[name]
    if isinstance(value, list) and chance.random() < 0.7:
        broken = chance.choice(BAD_MESSAGES)
        messages = [broken, *value[1:]] if chance.random() < 0.5 else [*value[:1], broken]
        return row | {name: messages}
    if chance.random() < 0.2:
        return {key: each for key, each in row.items() if key != name} or {"y": 1}
    return row | {name: chance.choice(BAD_VALUES)}


def lines(folder: Path, chance: random.Random) -> Case:
    """JSON Lines with one to three bad lines among good ones, blank lines, and one of the three line ends."""
    row = chance.choice(ROWS)
    newline, num_rows = chance.choice(NEWLINES), chance.randint(3, 400)
    texts: list[str | bytes] = [json.dumps(row, ensure_ascii=False)] * num_rows
    for _ in range(chance.randint(0, 3)):
        texts.insert(chance.randrange(1, len(texts)), chance.choice(("", "  ", "\t")))
    good = [number for number, text in enumerate(texts) if str(text).strip()]
    bad = sorted(chance.sample(good[1:], min(chance.randint(1, 3), len(good) - 1)))
    for number in bad:
        texts[number] = chance.choice(BAD_JSON) if chance.random() < 0.7 else json.dumps(bad_row(row, chance))
    return _planted(folder, chance, texts, newline, bad, num_rows, (".jsonl", ".ndjson", ".json", ".txt", ""), 1)


def _planted(
    folder: Path,
    chance: random.Random,
    texts: list[str | bytes],
    newline: str,
    bad: list[int],
    num_rows: int,
    suffixes: tuple[str, ...],
    first: int,
) -> Case:
    """Write lines, in UTF-16 where all can be, and tell which are bad."""
    end = newline if chance.random() < 0.7 else ""
    path = folder / f"a{chance.choice(suffixes)}"
    if all(isinstance(text, str) for text in texts) and chance.random() < 0.2:
        path.write_bytes((newline.join(map(str, texts)) + end).encode("utf-16"))
    else:
        raw = [text.encode() if isinstance(text, str) else text for text in texts]
        mark = codecs.BOM_UTF8 if chance.random() < 0.2 else b""
        path.write_bytes(mark + newline.encode().join(raw) + end.encode())
    what = [texts[number][:60] for number in bad]
    return Case(f"line {what!a}", path, bad=tuple(number + first for number in bad), num_good=num_rows - len(bad))


def table(folder: Path, chance: random.Random) -> Case:
    """CSV or TSV with bad rows among good ones."""
    kind = chance.choice((".csv", ".tsv"))
    delimiter = "\t" if kind == ".tsv" else chance.choice(",;|")
    newline, num_rows = chance.choice(NEWLINES), chance.randint(3, 300)
    texts: list[str | bytes] = ["prompt,completion"] + [f"Wer ü,{number}"[:40] for number in range(num_rows)]
    texts = [str(text).replace(",", delimiter) for text in texts]
    bad = sorted(chance.sample(range(2, num_rows + 1), min(chance.randint(1, 2), num_rows - 1)))
    choices: tuple[str | bytes, ...] = (
        "a,b,c", "a,", "a,  ", "a", ",,,x", b"a,\xff", b"a,\x00", b"\xed\xa0\x80,b", '"a"b,c', '"a" ,b', "a,b" * 50,
        b"\xc3(,b", '"say "hi"",b', f"{'x,' * 20_000}", '"a""b"c,d', "a,\u3000",
    )  # fmt: skip
    for number in bad:
        text = chance.choice(choices)
        mark = delimiter if isinstance(text, str) else delimiter.encode()
        texts[number] = text.replace("," if isinstance(text, str) else b",", mark)  # type: ignore[arg-type]
    return _planted(folder, chance, texts, newline, bad, num_rows, (kind,), 1)


def items(folder: Path, chance: random.Random) -> Case:
    """A JSON list, bare or in an object, with bad items among good ones."""
    row = chance.choice(ROWS)
    num_rows = chance.randint(3, 200)
    bad = sorted(chance.sample(range(1, num_rows), min(chance.randint(1, 3), num_rows - 1)))
    values: list[Any] = [row] * num_rows
    for number in bad:
        values[number] = chance.choice((7, None, "x", [], [1], {}, bad_row(row, chance), bad_row(row, chance)))
    text = json.dumps(values, indent=chance.choice((None, None, 1)), ensure_ascii=chance.random() < 0.5)
    if chance.random() < 0.4:
        wraps = ('{"data": %s}', '{"version": 1, "rows": %s, "more": {"a": [1, 2]}}', '{"a": [], "b": %s}')
        text = chance.choice(wraps) % text
    path = folder / chance.choice(("a.json", "a.json", "a.jsonl", "a.txt", "a"))
    if not text.startswith("["):
        path = folder / "a.json"
    path.write_text(text + chance.choice(("", "\n", "\n\n  ")), encoding="utf-8")
    numbers = tuple(number + 1 for number in bad)
    return Case(f"items {[values[number] for number in bad]!a:.200}", path, bad=numbers, num_good=num_rows - len(bad))


def list_with_a_break(folder: Path, chance: random.Random) -> Case:
    """A JSON list that stops being JSON at a known line."""
    row = chance.choice(ROWS)
    num_rows = chance.randint(3, 200)
    texts: list[str | bytes] = [json.dumps(row, ensure_ascii=False)] * num_rows
    number = chance.randrange(1, num_rows)
    texts[number] = chance.choice([text for text in BAD_JSON if text not in WHOLE_IN_A_LIST])
    raw = [text.encode() if isinstance(text, str) else text for text in texts]
    path = folder / "a.json"
    path.write_bytes(b"[" + b",\n".join(raw) + b"]")
    return Case(f"break {texts[number][:60]!a}", path, line=number + 1)


def cat(folder: Path, chance: random.Random) -> Case:
    """Two whole documents behind each other, as `cat` makes them."""
    row = chance.choice(ROWS)
    one, other = ([row] * chance.randint(1, 50) for _ in range(2))
    indent = chance.choice((None, 1))
    wrap = chance.choice(("%s", "%s", '{"data": %s}', '{"v": 1, "rows": %s}'))
    between = chance.choice(("", "\n", "\n", "\n\n"))
    second = chance.choice((json.dumps(other, indent=indent), json.dumps(row), "x", "]", "7", '{"', ", {}"))
    first = wrap % json.dumps(one, indent=indent) + between
    wrapped = second.startswith("[")
    path = folder / "a.json"
    path.write_text(first + (wrap % second if wrapped else second), encoding="utf-8")
    all_rows = len(one) + len(other) if wrapped else None
    # Objects on a line each are JSON Lines: the first of them is named, for it has no column of a format.
    line = None if wrap != "%s" and not indent and between else first.count("\n") + 1
    return Case(f"cat {wrap} {second[:20]!a}", path, line=line, whole=all_rows)


def base_file(folder: Path, chance: random.Random) -> Path:
    """A good file of any kind."""
    row, num_rows = chance.choice(ROWS), chance.randint(1, 60)
    kind = chance.choice((".jsonl", ".json", ".csv", ".tsv", "wrapped", "pretty"))
    path = folder / ("a.json" if kind in ("wrapped", "pretty") else f"a{kind}")
    if kind in (".csv", ".tsv"):
        mark = "," if kind == ".csv" else "\t"
        text = f"prompt{mark}completion\n" + f'"Wer\n""ü"""{mark}Ich\nDu{mark}Er\n' * num_rows
    elif kind == ".jsonl":
        text = (json.dumps(row, ensure_ascii=chance.random() < 0.5) + "\n") * num_rows
    else:
        text = json.dumps([row] * num_rows, indent=1 if kind == "pretty" else None)
        text = f'{{"data": {text}}}' if kind == "wrapped" else text
    path.write_text(text, encoding="utf-8", newline="\n")
    return path


def flips(folder: Path, chance: random.Random) -> Case:
    """Some bytes of a good file changed, cut out, doubled or put in."""
    path = base_file(folder, chance)
    raw = bytearray(path.read_bytes())
    for _ in range(chance.choice((1, 1, 2, 5, 50))):
        place = chance.randrange(len(raw) or 1)
        how = chance.randrange(5)
        if how == 0 and raw:
            raw[place % len(raw)] = chance.randrange(256)
        elif how == 1:
            del raw[place : place + chance.choice((1, 3, 100))]
        elif how == 2:
            raw[place:place] = raw[place : place + 30]
        elif how == 3:
            raw[place:place] = chance.choice((b"\0", b"\xff", b"\n", b"\r", b'"', b"{", b"[", b"\\", BOM, b"]"))
        elif raw:
            raw[place % len(raw)] ^= 1 << chance.randrange(8)
    path.write_bytes(raw)
    return Case("flips", path)


def cut(folder: Path, chance: random.Random) -> Case:
    """A good file that ends too early."""
    path = base_file(folder, chance)
    raw = path.read_bytes()
    path.write_bytes(raw[: chance.randrange(len(raw))])
    return Case("cut", path)


ENCODINGS = (
    "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-7", "latin-1", "cp1252", "cp1251",
    "shift-jis", "gb18030", "big5", "euc-kr", "koi8-r", "cp037", "mac-roman",
)  # fmt: skip


def encoded(folder: Path, chance: random.Random) -> Case:
    """A good file in another encoding, with or without its mark, whole or from the middle on."""
    path = base_file(folder, chance)
    text = path.read_text(encoding="utf-8").replace("我", "ä").replace("–", "-")
    code = chance.choice(ENCODINGS)
    raw = text.encode(code, "replace")
    how = chance.randrange(5)
    if how == 0:
        raw = text[: len(text) // 2].encode() + text[len(text) // 2 :].encode(code, "replace")
    elif how == 1:
        raw = raw[:-1]
    elif how == 2:
        raw = raw + b"\xef\xbb\xbf" + raw
    path.write_bytes(raw)
    return Case(f"encoded {code} {how}", path)


def _zip(name: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, json.dumps(PAIR))
    return file.getvalue()


FOREIGN: tuple[bytes, ...] = (
    b"", b"\n", b" \r\n\t\n", b"\0" * 70_000, b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff\n", b"\xff\xfe\0\0", b"{}",
    b"[]",
    b"[[]]", b"[{}]", b"{}\n{}", b"null", b'""', b"0", b"NaN", _zip("a.jsonl"), _zip("xl/workbook.xml"),
    gzip.compress(json.dumps(PAIR).encode()), b"<!doctype html><html><body>a,b</body></html>",
    b"<?xml version='1.0'?><rows/>", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"SQLite format 3\0" + bytes(100),
    b"%PDF-1.7\n%\xe2",
    b"ARROW1\0\0" + bytes(90), b"\x80\x04\x95\x0c", b"\x7fELF\x02\x01\x01" + bytes(60),
    b"- prompt: a\n  completion: b\n",
    b"\x28\xb5\x2f\xfd" + bytes(20), b"BZh91AY", b"\xfd7zXZ\0", b"Rar!\x1a\x07", b"7z\xbc\xaf\x27\x1c",
    b"\xd0\xcf\x11\xe0" + bytes(99),
    b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", b"404: Not Found", b"Entry not found",
    b"PAR1", b"PAR1PAR1", b"PAR1\0\0\0\0PAR1", b"PARE" + bytes(8) + b"PARE", b"Obj\x01avro.codec", b"ORC" + bytes(50),
    DEEP.encode(),
    b'{"a":' * 100_000, b'"' * 100_000, b"," * 100_000, b"\t" * 100_000, b'[{"prompt": "a"' + b" " * 100_000,
    b"a\n" * 1000,
    b'prompt,completion\n"', b"prompt,prompt\na,b\n", b",\na,b\n", b"prompt,completion", b"prompt,completion\n\n\n",
    b'"a\n' * 99,
    b'{"messages": "x"}\n', b'{"role": "user", "content": "x"}\n', b'{"prompt": "a"}\n{"completion": "b"}\n',
    b"\x1b[31m", b"sep=;\na;b\n",
    b'{"train": [{"text": "a"}], "test": [{"text": "b"}, {"text": "c"}]}', b'{"data": {"rows": [{"text": "a"}]}}',
    b'{"data": []}',
    b'[{"text": "a"}, {"text": "b"},]', b'[{"text": "a"} {"text": "b"}]', b'{"text": "a", "text": "b"}\n',
    b"\x00\x01\x02\x03" * 2000,
    b'[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]\n' * 3, b'["a","b"]\n["c","d"]\n',
    b'"a"\n"b"\n',
)  # fmt: skip
SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".txt", "", ".JSONL", ".xlsx", ".gz", ".json.bak")


def foreign(folder: Path, chance: random.Random) -> Case:
    """What is no training data, under any name."""
    content = chance.choice(FOREIGN)
    path = folder / f"a{chance.choice(SUFFIXES)}"
    path.write_bytes(content)
    return Case(f"foreign {path.suffix} {content[:40]!a}", path)


def special(folder: Path, chance: random.Random) -> Case:
    """What is no file at all."""
    path = folder / f"a{chance.choice(('.jsonl', '.json', '.csv', '.parquet', ''))}"
    makers: dict[str, Callable[[], object]] = {
        "fifo": lambda: os.mkfifo(path),
        "folder": path.mkdir,
        "loop": lambda: path.symlink_to(path),
        "dangling": lambda: path.symlink_to(folder / "none"),
        "zero": lambda: path.symlink_to("/dev/zero"),
        "null": lambda: path.symlink_to("/dev/null"),
        "tty": lambda: path.symlink_to("/dev/tty"),
        "missing": lambda: None,
        "to-fifo": lambda: (os.mkfifo(folder / "pipe"), path.symlink_to(folder / "pipe")),
    }
    name = chance.choice((*makers, "nul", "long"))
    if name in makers:
        makers[name]()
    path = {"nul": folder / "a\0b.jsonl", "long": folder / ("x" * 300 + ".jsonl")}.get(name, path)
    return Case(f"special {name} {path.suffix}", path, is_error=True)
