"""Reading data files: every kind and encoding, and a named verdict with its place for everything that is malformed."""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tunesmith_core import datafmt, files
from tunesmith_core.datafmt import encoding, json_rows, json_stream, reading
from tunesmith_core.errors import EnvironmentProblem, UserError
from tunesmith_core.json_values import MAX_VALUES


def write(folder: Path, name: str, content: bytes | str) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def failure(path: Path) -> UserError:
    with pytest.raises(UserError) as caught:
        list(datafmt.read_rows(path))
    assert str(path) in caught.value.message
    return caught.value


def read_leniently(path: Path) -> tuple[list[tuple[int, dict[str, Any]]], list[int]]:
    """Return the good rows and the lines of the bad ones."""
    bad: list[int] = []
    return list(datafmt.read_rows(path, lambda line, _error: bad.append(line))), bad


GOOD = {
    "a.jsonl": '{"text":"a"}\n\n  \n{"text":"ü"}\n',
    "bom.jsonl": b'\xef\xbb\xbf{"text":"a"}\n\n\n{"text":"\xc3\xbc"}',
    "cr.jsonl": '{"text":"a"}\r\r\r{"text":"ü"}\r',
    "crlf.jsonl": '{"text":"a"}\r\n\r\n\r\n{"text":"ü"}\r\n',
    "utf16.jsonl": '{"text":"a"}\n\n\n{"text":"ü"}\n'.encode("utf-16"),
    "lines.json": '{"text":"a"}\n\n\n{"text":"ü"}\n',
    "list.json": '[{"text":"a"},\n\n\n{"text":"ü"}]',
    "list.jsonl": '[{"text":"a"},\n\n\n{"text":"ü"}]',
    "wrapped.json": '{"v":1,"tags":["x"],"none":[],"data":[{"text":"a"},\n\n\n{"text":"ü"}],"more":2}',
    "table.csv": 'text\n"a"\n\nü\n',
    "table.tsv": "text\na\n\nü\n",
    "utf16.csv": "text\na\n\nü\n".encode("utf-16"),
    "utf32.csv": "text\na\n\nü\n".encode("utf-32"),
    "little.csv": "text\na\n\nü\n".encode("utf-16-le"),
    "big.jsonl": '{"text":"a"}\n\n\n{"text":"ü"}\n'.encode("utf-16-be"),
    "unnamed": '{"text":"a"}\n\n\n{"text":"ü"}\n',
}


@pytest.mark.parametrize("name", GOOD)
def test_rows_come_with_their_line_or_their_number_in_a_list(tmp_path: Path, name: str) -> None:
    rows = list(datafmt.read_rows(write(tmp_path, name, GOOD[name])))
    first = 2 if name.endswith(("csv", "tsv")) else 1
    second = 2 if name.startswith(("list", "wrapped")) else 4
    assert rows == [(first, {"text": "a"}), (second, {"text": "ü"})]


def test_a_column_without_a_name_is_called_by_its_place(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", ",question,\n0,Why?,x\n")
    assert list(datafmt.read_rows(path)) == [(2, {"column 1": "0", "question": "Why?", "column 3": "x"})]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl", '{"text":"a"}\n{"text":\n', "line 2, column 9: not valid JSON"),
        ("a.jsonl", '{"text":"a"} x\n', "line 1, column 14: more text follows"),
        ("a.jsonl", '"text"\n', "line 1: the line must hold a JSON object"),
        ("a.jsonl", b'{"text":"\x81"}', "column 10: not valid JSON: byte 0x81 does not fit the encoding of the file"),
        ("a.jsonl", '{"text":"\xfc"}\n'.encode() + b'{"text":"\xe9"}', "line 2, column 10: not valid JSON: byte 0xE9"),
        ("a.jsonl", '{"text":"a"}\n'.encode("utf-16") + b"\n", "line 2, column 1: not valid JSON: half a"),
        ("a.jsonl", b"\xff\xfe\n", "line 1, column 1: not valid JSON: half a surrogate pair"),
        ("a.jsonl", b'{"text":"a\0b"}', "column 11: not valid JSON: a NUL byte"),
        ("a.jsonl", b"\0" * 9000, "column 1: not valid JSON: a NUL byte"),
        ("a.jsonl", b'{"text":"\\ud800"}', "half a surrogate pair"),
        ("a.jsonl", b"\xff\xfe" + '{"t":"\ud800"}'.encode("utf-16-le", "surrogatepass"), "half a surrogate pair"),
        ("a.jsonl", '{"x":NaN}', "NaN is not a JSON number"),
        ("a.jsonl", '{"x":-Infinity}', "-Infinity is not a JSON number"),
        ("a.jsonl", '{"x":1e400}', "the number 1e400 is too large"),
        ("a.jsonl", '{"x":1' + "0" * 5000 + "}", "not valid JSON: the number 10000000000000000000... is too large"),
        ("a.jsonl", '{"text":"a}', "line 1, column 9: not valid JSON: the text that begins here has no closing quote."),
        ("a.json", '[{"text":"a}]', "column 10: not valid JSON: the text that begins here has no closing quote."),
        ("a.jsonl", '{"x":' + "[" * 100_000, "line 1: brackets are nested too deeply"),
        ("a.json", '[{},{"x":' + "[" * 100_000, "line 1, column 5: brackets are nested too deeply"),
        ("a.json", '[{"a":1}]\n{"a":2}', "line 2, column 1: more text follows the list of rows"),
        ("a.json", '{"r":[{"a":1}],\n"s":[{"a":2}]}', 'line 2: a second list of rows begins here, "s"'),
        ("a.json", '{"r":[{"a":1}],"s":[{"b":2}]', 'expected ",", found the end of the file'),
        ("a.json", '{"r":[ ', "not valid JSON"),
        ("a.csv", 'a\n"b" c"d"\n', "line 2: a quote inside a field is not written twice"),
        ("a.csv", '"a" b"c"\n1\n', "line 1: a quote inside a field is not written twice"),
        ("a.csv", ",".join(map(str, range(5000))) + "\n", "line 1: the header names 5,000 columns. The most is 4,096."),
        ("a.json", "[{},\n 1]", "row 2: each item of the list must be an object"),
        ("a.json", '[{"a":1},\n {"a" 2}]', "line 2, column 7: not valid JSON"),
        ("a.json", '[{"a":1}\n {"a":2}]', 'line 2, column 2: not valid JSON: expected ",", found "{"'),
        ("a.json", '[{"a":1}', 'not valid JSON: expected ",", found the end of the file'),
        ("a.json", "[", "not valid JSON"),
        ("a.json", '{\n"text": "a"\n}', "no list of rows"),
        ("a.json", "nonsense", "line 1, column 1: not valid JSON"),
        ("a.csv", "a,b\n1,2,3\n", "line 2: fields in this row: 3, in the header: 2"),
        ("a.csv", 'a\n1\n"open\n\n', "line 3, column 1: the quote that opens here has no closing"),
        ("a.csv", 'a,b,c\n1,"2\n""3""\n4",\n5,"so ""it""","open\n6\n', "line 5, column 15: the quote that opens here"),
        ("a.csv", 'a,b\n"x\ny","z""\n1,2\n', "line 3, column 4: the quote that opens here"),
        ("a.csv", 'a,b\n"say "hi",2\n1,2\n', "line 2: the quote that opens here"),
        ("a.tsv", 'a\tb\n,"1\t"2\n3', "line 2, column 5: the quote that opens here"),
        ("a.csv", "a,a\n1,2\n", 'line 1: the header names the column "a" twice'),
        ("a.csv", "column 2,\n1,2\n", 'line 1: the header names the column "column 2" twice'),
        ("a.csv", "text\n\u65e5\u672c\u8a9e\n".encode("shift-jis"), "line 2: byte 0x93 does not fit the encoding"),
        ("a.csv", b"a\n\x8d\n", "line 2: byte 0x8D does not fit the encoding"),
        ("a.csv", b"\x8d\n1\n", "line 1: byte 0x8D does not fit the encoding"),
        ("a.doc", "hello", 'the file type ".doc" is not supported'),
        ("a.pdf", "hello", 'the name ends in ".pdf", but the content is something else'),
        ("a.jsonl", b"7z\xbc\xafrest", "the file is a 7-Zip archive. Choose JSONL"),
        ("a.jsonl", b"PK\x03\x04rest", "zip files are read by the engine only"),
        ("a.xlsx", b"PK\x03\x04rest", "xlsx files are read by the engine only"),
        ("a.XLS", b"\xd0\xcf\x11\xe0rest", "xls files are read by the engine only"),
        ("a.parquet", b"PAR1rest", "read by the engine only"),
    ],
)
def test_a_malformed_file_gets_a_verdict_with_its_place(
    tmp_path: Path, name: str, content: bytes | str, said: str
) -> None:
    error = failure(write(tmp_path, name, content))
    assert error.code == "dataset-parse-error"
    assert said in error.message


@pytest.mark.parametrize(
    ("text", "code", "likely"),
    [
        ("caf\xe9", "windows-1252", "Windows-1252 (Western European)"),
        # Two signs that GB 2312 would read as a Cyrillic letter.
        ("see \xa7\xbb here", "windows-1252", "Windows-1252 (Western European)"),
        ("M\xfcnchen \xdc\xdf \u20ac", "windows-1252", "Windows-1252 (Western European)"),
        ("it\u2019s \u201cso\u201d", "windows-1252", "Windows-1252 (Western European)"),
        ("\u4f60\u597d", "gbk", "GB18030 and GBK (Chinese)"),
        ("\u56de\u7b54\u662f\u7684\uff0c\u6211\u5011\u5728\u9019\u88e1\u3002", "big5", "Big5 (Traditional Chinese)"),
        ("\u306f\u3044\u3001\u65e5\u672c\u8a9e\u3067\u3059\u3002", "shift-jis", "Shift JIS (Japanese)"),
        ("\u306f\u3044\u3001\u65e5\u672c\u8a9e\u3067\u3059\u3002", "euc_jp", "EUC-JP (Japanese)"),
        ("\ub124 \ud55c\uad6d\uc5b4 \ub2f5\ubcc0\uc785\ub2c8\ub2e4.", "euc-kr", "EUC-KR (Korean)"),
        (
            "\u0414\u0430 \u044d\u0442\u043e \u043f\u043e-\u0440\u0443\u0441\u0441\u043a\u0438.",
            "cp1251",
            "Windows-1251 (Cyrillic)",
        ),
    ],
)
@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv"])
def test_a_file_of_another_encoding_is_read_once_that_is_named(
    tmp_path: Path, name: str, text: str, code: str, likely: str
) -> None:
    lines = {"a.jsonl": '{"text":"plain"}\n{"text":"TEXT"}', "a.json": '[{"text":"plain"},\n{"text":"TEXT"}]'}
    content = lines.get(name, "text\nplain\nTEXT").replace("TEXT", text).encode(code)
    path = write(tmp_path, name, content)
    # Never row by row: to skip the rows would leave out all of a language.
    with pytest.raises(UserError) as caught:
        list(datafmt.read_rows(path, lambda _line, _error: None))
    assert caught.value.code == "dataset-encoding"
    assert f", line {3 if name == 'a.csv' else 2}, column " in caught.value.message
    assert f"looks like {likely}." in caught.value.message
    (action,) = caught.value.actions
    rows = [row for _, row in datafmt.read_rows(path, encoding=action.removeprefix("read-as-"))]
    assert rows == [{"text": "plain"}, {"text": text}]


def test_what_begins_with_a_mark_needs_no_encoding(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "text\nü\n".encode("utf-16"))
    assert [row for _, row in datafmt.read_rows(path, encoding="windows-1252")] == [{"text": "ü"}]


def test_a_short_csv_row_ends_in_empty_fields(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "prompt,completion,note\nq,a\nq\n")
    assert [row for _, row in datafmt.read_rows(path)] == [
        {"prompt": "q", "completion": "a", "note": ""},
        {"prompt": "q", "completion": "", "note": ""},
    ]


@pytest.mark.parametrize(
    ("name", "content"), [("a.jsonl", ""), ("a.jsonl", "\n \n"), ("a.json", "[]"), ("a.csv", "a,b\n")]
)
def test_a_file_without_rows_is_empty(tmp_path: Path, name: str, content: str) -> None:
    assert failure(write(tmp_path, name, content)).code == "dataset-empty"


def test_a_file_that_is_not_there_or_a_folder_is_named(tmp_path: Path) -> None:
    assert "No such file" in failure(tmp_path / "none.jsonl").message
    assert failure(tmp_path).code == "dataset-parse-error"


def test_a_file_that_vanishes_between_looks_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="can't be read"):
        encoding.open_text(tmp_path / "gone.jsonl", "utf-8-sig")
    with pytest.raises(UserError, match="can't be read"):
        encoding.check_is_utf_8(tmp_path / "gone.jsonl")


def test_the_last_of_two_keys_of_the_same_name_wins(tmp_path: Path) -> None:
    assert list(datafmt.read_rows(write(tmp_path, "a.jsonl", '{"a":1,"a":2.5}'))) == [(1, {"a": 2.5})]


def test_bad_rows_can_be_left_out(tmp_path: Path) -> None:
    contents = {
        "a.jsonl": '{"a":1}\nbad\n{"a":2}',
        "a.json": '[{"a":1},\n7,\n{"a":2}]',
        "a.csv": b"a\n1\n\x8d\n2\n",
        "b.csv": "a\n1\n1,2\n2\n",
    }
    for name, content in contents.items():
        rows, bad = read_leniently(write(tmp_path, name, content))
        assert [int(row["a"]) for _, row in rows] == [1, 2]
        assert bad == [3 if name.endswith("csv") else 2]


def test_when_every_row_is_bad_the_first_problem_is_raised(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", "bad\nworse\n")
    with pytest.raises(UserError, match="line 1, column 1"):
        list(datafmt.read_rows(path, lambda _line, _error: None))


def test_lists_behind_each_other_are_read_as_one(tmp_path: Path) -> None:
    rows = [{"a": [number]} for number in range(4)]
    one, other = json.dumps(rows[:2]), json.dumps(rows[2:])
    wrapped = f'{{\n"r": {one}, "s": [7, {{}}], "t": []}}\n{{"v": 1,\n"r": {other}}}'
    for content in (one + other, f"{one}\n{other}\n", wrapped):
        assert list(datafmt.read_rows(write(tmp_path, "a.json", content))) == list(enumerate(rows, 1))


def test_only_rows_with_a_stray_quote_are_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", 'a,b\n1,2\n"say "hi"",2\n"3",4\n')
    assert read_leniently(path) == ([(2, {"a": "1", "b": "2"}), (4, {"a": "3", "b": "4"})], [3])
    # Here nobody knows where the next row begins.
    with pytest.raises(UserError, match="line 2, column 1: the quote that opens here"):
        read_leniently(write(tmp_path, "b.csv", 'a\n"x\ny"z"w"\n1\n'))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", '{"text":"a","x":[%s]}'),
        ("a.json", '[{"text":"a","x":[%s]}]'),
        ("a.csv", "text\n%s\n"),
        ("b.csv", 'text\n"%s\n"\n'),
    ],
)
def test_a_row_of_too_many_values_is_refused(tmp_path: Path, name: str, content: str) -> None:
    value = "1,,\n" if name == "b.csv" else "1,"
    error = failure(write(tmp_path, name, content % (value * (MAX_VALUES + 1) + "1")))
    assert "one row holds more than 1,000,000 values" in error.message
    assert "line" in error.message


@pytest.mark.parametrize("name", ["a.jsonl", "first.jsonl", "a.json", "inside.json", "wrapped.json", "a.csv"])
def test_endless_blank_lines_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for module in (reading, json_rows):
        monkeypatch.setattr(module, "MAX_BLANK_CHARACTERS", 50)
    monkeypatch.setattr(reading, "MAX_BLANK_ROWS", 50)
    monkeypatch.setattr(json_stream, "MAX_BLANK_CHARACTERS", 50)
    monkeypatch.setattr(json_stream, "CHUNK_CHARACTERS", 7)
    monkeypatch.setattr(json_stream, "MAX_FIRST_OBJECT", 7)
    content = {
        "a.jsonl": '{"a":1}\nBLANK{"a":2}',
        "first.jsonl": 'BLANK{"a":2}',
        "a.json": '[{"a":1},BLANK{"a":2}]',
        "inside.json": '{"a":[BLANK{"a":2}]}',
        "wrapped.json": '{"a":[{"b":1}]BLANK}',
        "a.csv": "a,b\n1,2\n" + ",\n" * 60,
    }
    path = write(tmp_path, name, content[name].replace("BLANK", "\n" * 300))
    assert "too many blank lines follow each other" in failure(path).message


def test_a_csv_row_of_many_lines_has_a_cap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_ROW_CHARACTERS", 50)
    monkeypatch.setattr(reading, "MAX_VALUES", 20)
    error = failure(write(tmp_path, "a.csv", 'a,b\n1,2\n"x\n",' * 1 + '"x\ny",' * 20))
    assert "line 3: the row that begins here is longer than 50 characters" in error.message


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such files")
def test_what_is_no_ordinary_file_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "loop.jsonl").symlink_to(tmp_path / "loop.jsonl")
    for path in (tmp_path / "pipe.jsonl", tmp_path / "loop.jsonl", tmp_path / "a\0b.jsonl", Path("/dev/zero")):
        assert "the file can't be read" in failure(path).message


@pytest.fixture
def short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines and values have small limits, and so has what is read of a file at once."""
    for module in (reading, json_rows, encoding):
        monkeypatch.setattr(module, "MAX_ROW_CHARACTERS", 50)
    monkeypatch.setattr(json_rows, "CHUNK_CHARACTERS", 20)
    monkeypatch.setattr(json_rows, "MAX_SKIPPED_CHARACTERS", 200)
    monkeypatch.setattr(reading, "MAX_VALUES", 50)


@pytest.mark.usefixtures("short_lines")
def test_lines_over_the_cap_are_refused_and_can_be_skipped(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", '{"a":"' + "x" * 120 + '"}\n{"a":2}\n{"a":"' + "x" * 60 + '"}')
    assert "line 1: the line is longer than 50 characters" in failure(path).message
    assert read_leniently(path) == ([(2, {"a": 2})], [1, 3])
    assert "line 2: the line is longer" in failure(write(tmp_path, "a.csv", "a\n" + "x" * 60)).message


def test_a_row_of_too_many_columns_is_refused(tmp_path: Path) -> None:
    wide = json.dumps(dict.fromkeys(map(str, range(4097)), 0))
    widest = json.dumps(dict.fromkeys(map(str, range(4096)), 0))
    lines = write(tmp_path, "a.jsonl", f"{widest}\n{wide}\n")
    assert "line 2: the row has 4,097 columns. The most is 4,096." in failure(lines).message
    assert [number for number, _ in read_leniently(lines)[0]] == [1]
    items = write(tmp_path, "a.json", f"[{widest}, {wide}]")
    assert "row 2: the row has 4,097 columns. The most is 4,096." in failure(items).message


@pytest.mark.usefixtures("short_lines")
def test_a_line_without_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", '{"a":1}\n{"a":"' + "x" * 230 + '"}\n{"a":2}')
    assert read_leniently(path) == ([(1, {"a": 1}), (3, {"a": 2})], [2])
    endless = write(tmp_path, "b.jsonl", '{"a":1}\n{"a":"' + "x" * 400 + '"}\n{"a":2}')
    with pytest.raises(UserError, match="line 2: the line is longer than 50 characters"):
        read_leniently(endless)


def test_a_quoted_field_over_the_cap_is_no_endless_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_ROW_CHARACTERS", 50)
    monkeypatch.setattr(reading, "MAX_VALUES", 50)
    error = failure(write(tmp_path, "a.csv", 'a\n"' + "x\n" * 60 + '"'))
    assert "line 2: the row that begins here is longer than 50 characters" in error.message


def test_a_json_list_is_read_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "CHUNK_CHARACTERS", 7)
    rows = [{"n": number, "text": "x" * number, "list": [number]} for number in range(40)]
    for name, content in {
        "one.json": json.dumps(rows),
        "many.json": json.dumps(rows, indent=1),
        "wrapped.json": json.dumps({"version": 12345, "data": rows}),
        "spaced.json": '{"data"   :   [' + " " * 30 + json.dumps(rows)[1:] + "}",
    }.items():
        assert [row for _, row in datafmt.read_rows(write(tmp_path, name, content))] == rows


def test_places_in_a_json_list_are_right_across_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "CHUNK_CHARACTERS", 7)
    numbers = [line for line, _ in datafmt.read_rows(write(tmp_path, "a.json", "[\n" + '{"a":\n1},\n' * 9 + "{}]"))]
    assert numbers == list(range(1, 11))
    assert "line 1, column 47:" in failure(write(tmp_path, "b.json", "[" + '{"a": 1}, ' * 4 + '{"b" 1}]')).message
    assert "line 3, column 6:" in failure(write(tmp_path, "c.json", '[{"a": 1},\n{"a": 1},\n{"b" 1}]')).message


def test_a_row_of_a_json_list_has_a_cap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "CHUNK_CHARACTERS", 8)
    monkeypatch.setattr(json_stream, "MAX_ROW_CHARACTERS", 32)
    long = failure(write(tmp_path, "a.json", '[{},\n{"a":"' + "x" * 500 + '"}]'))
    assert "line 2, column 1: the row is longer than 32 characters" in long.message
    short = failure(write(tmp_path, "a.json", '[{},\n{"a":"x" 5}' + " " * 500))
    assert "line 2, column 10: not valid JSON: a comma or a closing bracket is missing" in short.message


def test_kinds_are_judged_by_content_first(tmp_path: Path) -> None:
    kinds = {
        "list.jsonl": ("[{}]", "json"),
        "one.json": ('{"text":"a"}', "jsonl"),
        "wrapped.json": ('{"data":[{"text":"a"}]}', "json"),
        "wrapped.jsonl": ('{"messages":[{"role":"user"}]}', "jsonl"),
        "chats.json": ('{"messages":[{"role":"user"}]}\n{"messages":[{"role":"user"}]}', "jsonl"),
        "deep.json": ('{"a":' + "[" * 100_000, "json"),
        "cut.unknown": ('{"a":', "jsonl"),
        "x.parquet": ("PAR1", "parquet"),
        "list.csv": ("[{}]", "csv"),
    }
    for name, (content, kind) in kinds.items():
        assert datafmt.file_kind(write(tmp_path, name, content)) == kind, name


LINES = ["", " ", "{}", '{"a":1}', '{"a":"\\ud83d\\ude00"}', '{"a":"\\ud83d"}', '{"a":"\\\\ud83d"}', '{"a":"é"}']
LINES += ['{"a":"\udc80"}', "7", '"a"', '{"a":[{}', "{}]}", '{"a":1},{"a":2}', '{"a":1},"b",{"a":2}', '{"a":"b', '"}']
LINES += ['{"a":NaN}', '{"a":1}\r']


@given(lines=st.lists(st.sampled_from(LINES), min_size=1, max_size=12), size=st.sampled_from([1, 9, 30, 65536]))
@settings(max_examples=300, deadline=None)
def test_many_lines_are_decoded_as_each_would_be(lines: list[str], size: int) -> None:
    sound, broken = [], []
    for number, line in enumerate(lines, 1):
        if text := line.strip():
            try:
                row, end = reading.decode_row(text, 0)
                (sound if end == len(text) and isinstance(row, dict) else broken).append(number)
            except ValueError:
                broken.append(number)
    bad: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_rows, "CHUNK_CHARACTERS", size)
        rows = dict(
            json_rows.jsonl_rows(Path("a"), io.StringIO("\n".join(lines)), lambda line, _error: bad.append(line))
        )
    assert (list(rows), bad) == (sound, broken)
    assert list(rows.values()) == [json.loads(lines[number - 1]) for number in sound]


@given(content=st.binary(max_size=300), name=st.sampled_from(["a.jsonl", "a.json", "a.csv", "a.tsv"]))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_bytes_crash_the_reader(tmp_path: Path, content: bytes, name: str) -> None:
    path = write(tmp_path, name, content)
    # Any other exception than a UserError fails the test, and so does a row that can't be written as UTF-8.
    with contextlib.suppress(UserError):
        rows, _bad = read_leniently(path)
        json.dumps(rows, ensure_ascii=False).encode()


@given(rows=st.lists(st.fixed_dictionaries({"q": st.text(), "a": st.text(min_size=1)}), min_size=1, max_size=5))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_was_written_is_read_back(tmp_path: Path, rows: list[dict[str, str]]) -> None:
    lines = "\n".join(json.dumps(row) for row in rows)
    assert [row for _, row in datafmt.read_rows(write(tmp_path, "a.jsonl", lines))] == rows
    assert [row for _, row in datafmt.read_rows(write(tmp_path, "a.json", json.dumps(rows)))] == rows
    table = io.StringIO()
    writer = csv.DictWriter(table, ["q", "a"], quoting=csv.QUOTE_ALL)
    writer.writeheader()
    writer.writerows(rows)
    if "\0" not in table.getvalue():
        assert [row for _, row in datafmt.read_rows(write(tmp_path, "a.csv", table.getvalue()))] == rows


@pytest.mark.long
def test_a_malformed_line_behind_a_million_is_named(tmp_path: Path) -> None:
    path = tmp_path / "big.jsonl"
    with path.open("w", encoding="utf-8") as file:
        file.writelines('{"text":"some words"}\n' for _ in range(1_000_000))
        file.write("{bad\n")
    assert "line 1000001, column 2" in failure(path).message


def test_a_path_of_thousands_of_letters_is_not_repeated_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *_: object) -> None:
        raise OSError(errno.ENAMETOOLONG, "File name too long", str(path))

    monkeypatch.setattr(files, "open_file", refuse)
    with pytest.raises(EnvironmentProblem) as caught:
        encoding.read_head(Path("x/" * 3000))
    assert caught.value.code == "path-too-long"
    assert len(caught.value.message) < 300


def test_the_next_step_names_a_line_only_where_there_is_one(tmp_path: Path) -> None:
    assert "line" in failure(write(tmp_path, "a.jsonl", '{"text":')).hint
    assert "line" not in failure(write(tmp_path, "a.jsonl", b"PK\x03\x04")).hint


@pytest.mark.parametrize(
    ("line", "column"),
    [
        ('  {"text": "NaN", "n": NaN}', 24),
        ('{"a": "\\"1e999", "b": true, "n": -1e999}', 34),
        ('{"n": ' + "1" * 1001 + "}", 7),
        ('{"n": 1.5, "m": Infinity}', 17),
        ('\t{"a": "\\\\ud800 \\ud83d\\ude00", "b": "\\n\\udc00"}', 40),
        ('  {"text": "a"} x', 17),
        ('  {"text" "a"}', 11),
    ],
)
def test_a_fault_of_a_line_is_told_with_its_column(tmp_path: Path, line: str, column: int) -> None:
    path = write(tmp_path, "a.jsonl", '{"text": "a"}\n' + line + "\n")
    error = failure(path)
    assert error.message.startswith(f"{path}, line 2, column {column}: "), error.message
    if not line.endswith("x"):
        listed = write(tmp_path, "a.json", '[{"text": "a"},\n' + line + "]")
        assert failure(listed).message.startswith(f"{listed}, line 2, column {column}: ")


@pytest.mark.parametrize("line", ["sep=;", '"sep=;"', "SEP=;"])
def test_a_first_line_that_says_the_delimiter_is_no_header(tmp_path: Path, line: str) -> None:
    path = write(tmp_path, "a.csv", f"{line}\nquestion;answer\n1,5 or 2,5 or 3,5;x,y\n")
    assert list(datafmt.read_rows(path)) == [(3, {"question": "1,5 or 2,5 or 3,5", "answer": "x,y"})]


def test_an_object_over_many_lines_is_read_whatever_its_name(tmp_path: Path) -> None:
    content = json.dumps({"data": [{"text": "a"}, {"text": "b"}]}, indent=2)
    assert [row for _, row in datafmt.read_rows(write(tmp_path, "a.jsonl", content))] == [{"text": "a"}, {"text": "b"}]


def test_a_line_that_is_cut_behind_its_first_bracket_is_the_bad_one(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", '{\n{"text": "a"}\n')
    bad: list[int] = []
    assert list(datafmt.read_rows(path, lambda line, _error: bad.append(line))) == [(2, {"text": "a"})]
    assert bad == [1]


def test_lists_of_texts_by_column_are_named_over_many_lines_too(tmp_path: Path) -> None:
    path = write(tmp_path, "a.json", json.dumps({"question": ["a"], "answer": ["b"]}, indent=2))
    with pytest.raises(UserError, match="one list for each column"):
        list(datafmt.read_rows(path))


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
@pytest.mark.parametrize("between", ["\n", "\n\n", ""])
def test_objects_over_many_lines_are_rows(tmp_path: Path, name: str, between: str) -> None:
    rows: list[dict[str, Any]] = [{"question": f"Who? {number}" * 400, "answer": "Me."} for number in range(90)]
    rows.append({"messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Me."}]})
    for written in (rows, rows[::-1]):
        path = write(tmp_path, name, between.join(json.dumps(row, indent=2) for row in written))
        assert list(datafmt.read_rows(path)) == list(enumerate(written, start=1))


def test_objects_are_known_wherever_a_chunk_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"question": "Who?", "answer": "Me."}, {"question": "Why?", "answer": "So."}]
    path = write(tmp_path, "a.json", "\n".join(json.dumps(row, indent=2) for row in rows))
    for num_characters in range(1, 60):
        monkeypatch.setattr(json_stream, "CHUNK_CHARACTERS", num_characters)
        assert [row for _, row in datafmt.read_rows(path)] == rows


def test_a_first_object_that_is_too_deep_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "a.json", '{\n"data": [{"a": ' + "[" * 5000 + "]" * 5000 + "}]}")
    assert "line 2" in failure(path).message


def test_the_head_of_a_table_is_told(tmp_path: Path) -> None:
    heads = {"a;b\n1;2\n": (";", 0), "# by hand\n\na,b\n1,2\n": (",", 1), "sep=|\na|b\n": ("|", 1)}
    for content, head in heads.items():
        assert reading.table_head(write(tmp_path, "a.csv", content), "csv", "utf-8") == head


def test_a_fault_in_objects_over_many_lines_has_its_line(tmp_path: Path) -> None:
    objects = [json.dumps({"question": "Who?", "answer": "Me."}, indent=2)] * 3
    path = write(tmp_path, "a.json", "\n".join(objects)[:-4] + ",,\n}")
    with pytest.raises(UserError, match=r"line 11, column 18"):
        list(datafmt.read_rows(path))
    path = write(tmp_path, "a.json", "\n".join(objects) + "\n[]")
    with pytest.raises(UserError, match=r"line 13, column 1: more text follows"):
        list(datafmt.read_rows(path))


@pytest.mark.parametrize("above", ["# made by hand\n", "# made by hand\n\n# in 2026\n", "# a, b; c; d\n"])
def test_comments_above_the_header_are_left_out(tmp_path: Path, above: str) -> None:
    path = write(tmp_path, "a.csv", above + "question;answer\nWho?;Me.\n")
    line = above.count("\n") + 2
    assert list(datafmt.read_rows(path)) == [(line, {"question": "Who?", "answer": "Me."})]


def test_a_name_that_begins_like_a_comment_stays_one(tmp_path: Path) -> None:
    tables: dict[str, tuple[int, Any]] = {
        "#,question\n1,Who?\n": (2, {"#": "1", "question": "Who?"}),
        "# text\na\n": (2, {"# text": "a"}),
        "# q;a\nWho?;Me.\n": (2, {"# q": "Who?", "a": "Me."}),
        "# by hand\n#q;a\nWho?;Me.\n": (3, {"#q": "Who?", "a": "Me."}),
    }
    for content, row in tables.items():
        assert list(datafmt.read_rows(write(tmp_path, "a.csv", content))) == [row]
