"""Rows of JSONL, JSON, CSV and TSV files, one at a time, each with the line where it begins.

Memory stays flat whatever the file's size. Every malformed row gets a verdict with file, line, column and reason; a
reader that wants to go on after one passes `on_bad_row`.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn, TextIO

from tunesmith_core.datafmt.encoding import (
    MAX_ROW_CHARACTERS,
    UTF_8,
    check_is_utf_8,
    open_text,
    parse_error,
    read_head,
    text_encoding,
    text_problem,
)
from tunesmith_core.datafmt.json_stream import ArrayScanner
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.messages import Message, json_problem

Row = dict[str, Any]  # Any: JSON values
BadRow = Callable[[int, TunesmithError], None]

PARQUET = "parquet"
KIND_OF_SUFFIX = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv", ".tsv": "tsv", ".tab": "tsv"}
DELIMITERS = ",;\t|"
HEAD_CHARACTERS = 65536

SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


def file_kind(path: Path) -> str:
    """Return "jsonl", "json", "csv", "tsv" or "parquet", judged by content first and by the name's ending second.

    Raises:
        UserError: `dataset-parse-error` when the file can't be read or is of no such kind,
            `dataset-empty` when it is empty.
    """
    head = read_head(path)
    if not head:
        raise TunesmithError("dataset-empty", "{path}: the file is empty.", path=path)
    if head.startswith(b"PAR1"):
        return PARQUET
    encoding = text_encoding(path, head)
    named = KIND_OF_SUFFIX.get(path.suffix.lower())
    if named in ("csv", "tsv"):
        return named
    try:
        with open_text(path, encoding) as file:
            line = _first_line(path, file)
            start = line.lstrip()[:1]
            if start == "[":
                return "json"
            if start == "{":
                return _kind_of_objects(file, line, named)
    except UnicodeDecodeError as error:
        raise parse_error(path, "broken UTF-16 text: {reason}.", reason=error.reason) from error
    if named is None:
        raise parse_error(
            path,
            'the file type "{suffix}" is not supported. Choose JSONL, JSON, CSV, TSV or Parquet.',
            suffix=path.suffix,
        )
    return named


def _first_line(path: Path, file: TextIO) -> str:
    """Return the first line that is not blank, cut at the longest row."""
    for line in iter(lambda: file.readline(MAX_ROW_CHARACTERS), ""):
        if line.strip():
            return line
    raise TunesmithError("dataset-empty", "{path}: the file contains only blank lines.", path=path)


def _kind_of_objects(file: TextIO, line: str, named: str | None) -> str:
    """Tell JSON Lines from one JSON object: lines are whole objects, and a wrapper object holds a list of rows."""
    try:
        first = json.loads(line)
    except (ValueError, RecursionError):
        return named or "jsonl"
    wraps_rows = any(isinstance(value, list) and value and isinstance(value[0], dict) for value in first.values())
    if named != "json" or not wraps_rows:
        return "jsonl"
    more_follows = any(text.strip() for text in iter(lambda: file.readline(HEAD_CHARACTERS), ""))
    return "jsonl" if more_follows else "json"


def read_rows(path: Path, on_bad_row: BadRow | None = None, encoding: str = UTF_8) -> Iterator[tuple[int, Row]]:
    """Yield (number from 1, row) of a JSONL, JSON, CSV or TSV file: of the line, in a JSON list of the item.

    Args:
        path: the file.
        on_bad_row: called with number and error for each malformed row, which is left out; None raises instead.
        encoding: a choice of SourceSpec.encoding, for a file without a byte order mark.

    Raises:
        UserError: `dataset-encoding` when the file is not UTF-8, which was said or assumed.
        UserError: `dataset-parse-error` with file, line, column and reason, also when every row was left out;
            `dataset-empty` when there is no row.
    """
    kind = file_kind(path)
    if kind == PARQUET:
        raise parse_error(path, "Parquet files are read by the engine only.")
    by_mark = text_encoding(path, read_head(path))
    if by_mark == "utf-8-sig" and encoding == UTF_8:
        check_is_utf_8(path)
    elif by_mark == "utf-8-sig":
        by_mark = encoding
    first_error: TunesmithError | None = None
    num_rows = 0

    def bad(line: int, error: TunesmithError) -> None:
        nonlocal first_error
        first_error = first_error or error
        if on_bad_row is None:
            raise error
        on_bad_row(line, error)

    with open_text(path, by_mark, newline="" if kind in ("csv", "tsv") else None) as file:
        if kind == "jsonl":
            rows = _jsonl_rows(path, file, bad)
        elif kind == "json":
            rows = ArrayScanner(path, file, decode_row).rows(bad)
        else:
            rows = _csv_rows(path, file, kind, bad)
        try:
            for num_rows, numbered in enumerate(rows, start=1):  # noqa: B007 - counted for the check below
                yield numbered
        except UnicodeDecodeError as error:
            raise parse_error(
                path, "broken UTF-16 text after row {num_rows}: {reason}.", num_rows=num_rows, reason=error.reason
            ) from error
    if not num_rows:
        raise first_error or TunesmithError("dataset-empty", "{path}: the file has no rows.", path=path)


def _jsonl_rows(path: Path, file: TextIO, bad: BadRow) -> Iterator[tuple[int, Row]]:
    number = 0
    while text := file.readline(MAX_ROW_CHARACTERS + 1):
        number += 1
        if len(text) > MAX_ROW_CHARACTERS:
            while text and not text.endswith("\n"):
                text = file.readline(MAX_ROW_CHARACTERS)
            bad(
                number,
                parse_error(
                    path,
                    "the line is longer than {max_row_characters:,} characters.",
                    number,
                    max_row_characters=MAX_ROW_CHARACTERS,
                ),
            )
            continue
        text = text.strip()
        if not text:
            continue
        try:
            row = _jsonl_row(path, text, number)
        except UserError as error:
            bad(number, error)
        else:
            yield number, row


def _jsonl_row(path: Path, text: str, number: int) -> Row:
    try:
        value, end = decode_row(text, 0)
    except json.JSONDecodeError as error:
        raise parse_error(path, "not valid JSON: {msg}.", number, error.pos + 1, msg=json_problem(error.msg)) from error
    rest = text[end:].lstrip()
    if rest:
        raise parse_error(path, "more text follows the JSON object.", number, len(text) - len(rest) + 1)
    if not isinstance(value, dict):
        raise parse_error(path, "the line must hold a JSON object such as {...}.", number)
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(Message("{name} is not a JSON number", name=name))


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(Message("the number {number} is too large", number=text[:20]))
    return value


_DECODER = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite_float)


def decode_row(text: str, start: int) -> tuple[Any, int]:  # Any: JSON values
    """Decode one JSON value of a data file and return it with the position behind it.

    Raises:
        json.JSONDecodeError: with the position, for everything that is wrong: syntax, NUL, undecodable bytes, numbers
            that are not finite, too deep nesting, half a surrogate pair.
    """
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError:
        problem = text_problem(text[start:])
        if problem is None:
            raise
        raise json.JSONDecodeError(problem[1], text, start + problem[0]) from None
    except RecursionError:
        raise json.JSONDecodeError(Message("brackets are nested too deeply"), text, start) from None
    except ValueError as error:
        # Of its own accord Python refuses only numbers of thousands of digits so.
        words = error.args[0] if isinstance(error.args[0], Message) else Message("a number is too large")
        raise json.JSONDecodeError(words, text, start) from None
    source = text[start:end]
    problem = text_problem(source)
    if problem is None and SURROGATE_ESCAPE.search(source):
        half = text_problem(json.dumps(value, ensure_ascii=False))
        problem = half and (0, half[1])
    if problem:
        raise json.JSONDecodeError(problem[1], text, start + problem[0])
    return value, end


def _csv_rows(path: Path, file: TextIO, kind: str, bad: BadRow) -> Iterator[tuple[int, Row]]:
    header_line = file.readline(MAX_ROW_CHARACTERS)
    file.seek(0)
    delimiter = "\t" if kind == "tsv" else max(DELIMITERS, key=header_line.count)
    csv.field_size_limit(MAX_ROW_CHARACTERS)
    yield from _csv_records(path, csv.reader(_csv_lines(path, file), delimiter=delimiter, strict=True), bad)


def _csv_lines(path: Path, file: TextIO) -> Iterator[str]:
    number = 0
    while line := file.readline(MAX_ROW_CHARACTERS + 1):
        number += 1
        if len(line) > MAX_ROW_CHARACTERS:
            raise parse_error(
                path,
                "the line is longer than {max_row_characters:,} characters.",
                number,
                max_row_characters=MAX_ROW_CHARACTERS,
            )
        yield line


def _csv_records(
    path: Path, reader: Any, bad: BadRow
) -> Iterator[tuple[int, Row]]:  # Any: csv's reader has no public type
    header: list[str] | None = None
    while True:
        number = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            # The reader has lost its place inside a quoted field, so there is no next row to go on with.
            raise parse_error(path, "not valid CSV from here on. Is a closing quote missing?", number) from error
        if not any(fields):
            continue
        if header is None:
            header = _checked_header(path, fields, number)
        elif broken := text_problem("\n".join(fields)):
            bad(number, parse_error(path, "{reason}.", number, reason=broken[1]))
        elif len(fields) > len(header):
            bad(
                number,
                parse_error(
                    path,
                    "fields in this row: {num_fields}, in the header: {num_header}.",
                    number,
                    num_fields=len(fields),
                    num_header=len(header),
                ),
            )
        else:
            # Many programs leave out the commas behind the last value.
            yield number, dict(itertools.zip_longest(header, fields, fillvalue=""))


def _checked_header(path: Path, fields: list[str], number: int) -> list[str]:
    problem = text_problem("\n".join(fields))
    if problem:
        raise parse_error(path, "{reason}.", number, reason=problem[1])
    header = [field.strip() for field in fields]
    for column, name in enumerate(header, start=1):
        if not name:
            raise parse_error(path, "field {field} of the header has no name.", number, field=column)
        if header.index(name) != column - 1:
            raise parse_error(path, 'the header names the column "{name}" twice.', number, name=name)
    return header
