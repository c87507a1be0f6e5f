"""Rows of JSONL, JSON, CSV, TSV and text files, one at a time, each with the line where it begins.

Memory stays flat whatever the file's size. Every malformed row gets a verdict with file, line, column and reason; a
reader that wants to go on after one passes `on_bad_row`.
"""

from __future__ import annotations

import csv
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn, TextIO

from tunesmith_core import json_values
from tunesmith_core.datafmt.documents import MARKDOWN, PLAIN, pieces
from tunesmith_core.datafmt.encoding import (
    ARROW,
    DOCX,
    FOLDER,
    FORMATS,
    GZ,
    HTML,
    MAGIC_KINDS,
    MAX_BLANK_CHARACTERS,
    MAX_COLUMNS,
    MAX_ROW_CHARACTERS,
    PDF,
    READ_AS,
    UTF_8,
    WORKBOOK_MAGIC,
    WORKBOOKS,
    ZIP,
    ZST,
    DataFile,
    blank_error,
    check_is_utf_8,
    open_text,
    parse_error,
    read_head,
    text_encoding,
    text_problem,
    too_long_error,
)
from tunesmith_core.datafmt.json_rows import BadRow, Row, decode_row, jsonl_rows
from tunesmith_core.datafmt.json_stream import ArrayScanner
from tunesmith_core.errors import TunesmithError
from tunesmith_core.json_values import MAX_VALUES
from tunesmith_core.messages import Message

PARQUET = "parquet"
READ_BY_ENGINE = frozenset({PARQUET, ARROW, PDF, DOCX, HTML, GZ, ZST, ZIP, FOLDER, *WORKBOOKS.values()})
"""Kinds of files that need libraries of the training environment."""

KIND_OF_SUFFIX = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".txt": PLAIN,
    ".md": MARKDOWN,
    ".markdown": MARKDOWN,
    ".html": HTML,
    ".htm": HTML,
    ".xhtml": HTML,
}
BY_CONTENT = frozenset({".pdf", ".docx", ".parquet", ".arrow", ".zip", ".gz", ".zst", *WORKBOOKS})
"""Endings of files that are known by their first bytes."""
JSON_START = re.compile(r'\{\s*(?:"|\}|$)|\[\s*(?:\{|\]|$)')
"""How JSON begins in a file whose name says that it is text."""
DELIMITERS = ",;\t|"
MOST_COMMENTS = 100
"""Lines above the names of the columns that say something about a table."""
DELIMITER_LINE = re.compile(rf'"?sep=([{DELIMITERS}])"?\s*', re.IGNORECASE)
"""A first line that only says the delimiter, as spreadsheets have it."""
MAX_BLANK_ROWS = 2_000_000
"""Rows of nothing but commas behind each other, twice what a spreadsheet can hold."""


def file_kind(path: DataFile) -> str:
    """Return the kind of a file, judged by content first and by the name's ending second.

    It is "jsonl", "json", "csv", "tsv", "txt", "md" or one of READ_BY_ENGINE, "folder" included.

    Raises:
        UserError: `dataset-parse-error` when the file can't be read or is of no such kind,
            `dataset-empty` when it is empty.
    """
    if isinstance(path, Path) and os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises for a name that is too long
        return FOLDER
    head, suffix = read_head(path), path.suffix.lower()
    if not head:
        raise TunesmithError("dataset-empty", "{path}: the file is empty.", path=path)
    if suffix in WORKBOOKS and head.startswith(WORKBOOK_MAGIC):
        return WORKBOOKS[suffix]
    if kind := next((kind for magic, kind in MAGIC_KINDS.items() if head.startswith(magic)), None):
        return DOCX if kind == ZIP and suffix == ".docx" else kind
    encoding = text_encoding(path, head)
    named = KIND_OF_SUFFIX.get(suffix)
    if named in ("csv", "tsv", MARKDOWN, HTML):
        return named
    with open_text(path, encoding) as file:
        line = _next_line(path, file)
        if not line:
            raise TunesmithError("dataset-empty", "{path}: the file contains only blank lines.", path=path)
        if named == PLAIN and not JSON_START.match(line.lstrip()):
            return PLAIN
        start = line.lstrip()[:1]
        if start == "[":
            return "json"
        if start == "{":
            is_cut = line.strip() == "{" and _next_line(path, file).lstrip()[:1] == '"'
            # Lines are whole objects in JSON Lines, whatever the name says.
            return "json" if is_cut else _kind_of_objects(path, file, line) if named == "json" else "jsonl"
    if suffix in BY_CONTENT:
        raise parse_error(
            path,
            'the name ends in "{suffix}", but the content is something else. Save the file again as {suffix}, or give '
            "it the ending of what it is.",
            suffix=path.suffix,
        )
    if named is None:
        raise parse_error(
            path,
            'the file type "{suffix}" is not supported. {formats}',
            suffix=path.suffix,
            formats=FORMATS,
        )
    return named


def likely_encoding(path: Path) -> str:
    """Return a choice of SourceSpec.encoding: UTF-8 unless the file surely has another; also where it can't be read."""
    try:
        if file_kind(path) not in READ_BY_ENGINE and text_encoding(path, read_head(path)) == "utf-8-sig":
            check_is_utf_8(path)
    except TunesmithError as error:
        return next((each.removeprefix(READ_AS) for each in error.actions if each.startswith(READ_AS)), UTF_8)
    return UTF_8


def _next_line(path: DataFile, file: TextIO) -> str:
    """Return the next line that is not blank, cut at the longest row, or "" at the end."""
    num_blank = 0
    for line in iter(lambda: file.readline(MAX_ROW_CHARACTERS), ""):
        if line.strip():
            return line
        num_blank += len(line)
        if num_blank > MAX_BLANK_CHARACTERS:
            raise blank_error(path)
    return ""


def _kind_of_objects(path: DataFile, file: TextIO, line: str) -> str:
    """Tell JSON Lines from one JSON object: lines are whole objects, and a wrapper object holds a list of rows."""
    try:
        first = json_values.loads(line)
    except ValueError:
        return "json"
    wraps_rows = any(isinstance(value, list) and value and isinstance(value[0], dict) for value in first.values())
    return "json" if wraps_rows and not _next_line(path, file) else "jsonl"


def read_rows(
    path: DataFile, on_bad_row: BadRow | None = None, encoding: str = UTF_8, notes: dict[str, str] | None = None
) -> Iterator[tuple[int, Row]]:
    """Yield (number from 1, row) of a text file: of the line, in a JSON list of the item.

    Args:
        path: the file.
        on_bad_row: called with number and error for each malformed row, which is left out; None raises instead.
        encoding: a choice of SourceSpec.encoding, for a file without a byte order mark.
        notes: gets what a person should know once all is read: codes and sentences.

    Raises:
        UserError: `dataset-encoding` when the file is not UTF-8, which was said or assumed.
        UserError: `dataset-parse-error` with file, line, column and reason, also when every row was left out;
            `dataset-empty` when there is no row.
    """
    kind = file_kind(path)
    if kind in READ_BY_ENGINE:
        raise parse_error(path, "{kind} files are read by the engine only.", kind=kind)
    by_mark = text_encoding(path, read_head(path))
    if by_mark == "utf-8-sig" and encoding == UTF_8:
        check_is_utf_8(path)
    elif by_mark == "utf-8-sig":
        by_mark = encoding
    first_error: TunesmithError | None = None

    def bad(line: int, error: TunesmithError) -> None:
        nonlocal first_error
        first_error = first_error or error
        if on_bad_row is None:
            raise error
        on_bad_row(line, error)

    with open_text(path, by_mark, newline="" if kind in ("csv", "tsv") else None) as file:
        if kind == "jsonl":
            rows = jsonl_rows(path, file, bad)
        elif kind == "json":
            rows = _json_rows(path, file, bad, {} if notes is None else notes)
        elif kind in (PLAIN, MARKDOWN):
            rows = _document_rows(path, file, kind, bad)
        else:
            rows = _csv_rows(path, file, kind, bad)
        first = next(rows, None)
        if first is None:
            raise first_error or TunesmithError("dataset-empty", "{path}: the file has no rows.", path=path)
        yield first
        yield from rows


def _json_rows(path: DataFile, file: TextIO, bad: BadRow, notes: dict[str, str]) -> Iterator[tuple[int, Row]]:
    scanner = ArrayScanner(path, file, decode_row)
    yield from scanner.rows(bad)
    if scanner.unread:
        names = ", ".join(f'"{name}"' for name in scanner.unread)
        notes["dataset-parts-unread"] = Message(
            "{path} has lists of rows for evaluation, which are not read: {names}.", path=path, names=names
        )


def _document_rows(path: DataFile, file: TextIO, kind: str, bad: BadRow) -> Iterator[tuple[int, Row]]:
    for number, text in pieces(file, kind):
        if problem := text_problem(text):
            line = number + text.count("\n", 0, problem[0])
            bad(number, parse_error(path, "{reason}.", line, reason=problem[1]))
        else:
            yield number, {"text": text}


def table_head(path: Path, kind: str, encoding: str) -> tuple[str, int]:
    """Return what separates the fields of a table, and how many lines stand above its column names.

    Args:
        path: the file.
        kind: "csv" or "tsv".
        encoding: of the source.

    Returns:
        The delimiter and the number of lines above, blank ones not counted.

    Raises:
        UserError: when the file can't be read.
    """
    by_mark = text_encoding(path, read_head(path))
    with open_text(path, encoding if by_mark == "utf-8-sig" else by_mark) as file:
        return _begin_table(path, file, kind)


def _begin_table(path: DataFile, file: TextIO, kind: str) -> tuple[str, int]:
    line = _next_line(path, file)
    if DELIMITER_LINE.fullmatch(line):
        return _delimiter_of(line, kind), 1
    first, num_above = line, 0
    while line.startswith("#") and num_above < MOST_COMMENTS:
        following = _next_line(path, file)
        delimiter = _delimiter_of(following, kind)
        num_fields = line.count(delimiter)
        # A name may begin like a comment: such a line has as many fields as the next one.
        if num_fields == following.count(delimiter) and (num_fields or not following.startswith("#")):
            break
        line, num_above = following, num_above + 1
    delimiter = _delimiter_of(line, kind)
    return (delimiter, num_above) if delimiter in line else (_delimiter_of(first, kind), 0)


def _csv_rows(path: DataFile, file: TextIO, kind: str, bad: BadRow) -> Iterator[tuple[int, Row]]:
    delimiter, num_above = _begin_table(path, file, kind)
    file.seek(0)
    csv.field_size_limit(MAX_ROW_CHARACTERS)
    lines = _CsvLines(path, file, delimiter)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    header: list[str] = []
    empty: Row = {}
    num_blank = 0
    while record := _csv_record(path, reader, lines, bad if header else _refuse):
        number, values = record
        if not any(values):
            num_blank += 1
            if num_blank > MAX_BLANK_ROWS:
                raise blank_error(path, number)
            continue
        num_blank = 0
        if num_above:
            num_above -= 1
        elif not header:
            header = _checked_header(path, values, number)
            empty = dict.fromkeys(header, "")
        elif broken := text_problem("\n".join(values)):
            bad(number, parse_error(path, "{reason}.", number, reason=broken[1]))
        elif len(values) > len(header):
            bad(number, _too_many_fields(path, number, len(values), len(header)))
        elif len(values) == len(header):
            yield number, dict(zip(header, values, strict=False))
        else:
            # Many programs leave out the commas behind the last value.
            yield number, empty | dict(zip(header, values, strict=False))


def _delimiter_of(line: str, kind: str) -> str:
    said = DELIMITER_LINE.fullmatch(line)
    return said[1] if said else "\t" if kind == "tsv" else max(DELIMITERS, key=line.count)


def _too_many_fields(path: DataFile, number: int, num_fields: int, num_header: int) -> TunesmithError:
    return parse_error(
        path,
        "fields in this row: {num_fields}, in the header: {num_header}.",
        number,
        num_fields=num_fields,
        num_header=num_header,
    )


def _refuse(_number: int, error: TunesmithError) -> NoReturn:
    raise error


_TO_CLOSING_QUOTE = re.compile('[^"]*(?:""[^"]*)*"(?!")')


class _CsvLines:
    """Hands a CSV reader its lines, and stops it before a row takes more memory than a row may.

    Attributes:
        line: the last one.
        num_characters: of the row that is being read; whoever takes the row sets it to zero.
        opened: line and column of the quote with which the field began that goes on in the next line.
    """

    def __init__(self, path: DataFile, file: TextIO, delimiter: str) -> None:
        self._path = path
        self._file = file
        self._delimiter = delimiter
        self._begins_field = re.compile(f'(?:^|(?<={re.escape(delimiter)}))"')
        self.line = ""
        self.num_characters = 0
        self.opened: tuple[int, int] | None = None
        self._first = 1

    def __iter__(self) -> Iterator[str]:
        number = num_separators = 0
        while line := self._next(number):
            self.line = line
            number += 1
            self._first = self._first if self.num_characters else number
            self.num_characters += len(line)
            if self.num_characters > MAX_VALUES:
                if len(line) > MAX_ROW_CHARACTERS:
                    raise too_long_error(self._path, number)
                if self.num_characters > MAX_ROW_CHARACTERS:
                    raise parse_error(
                        self._path,
                        "the row that begins here is longer than {most:,} characters. Is a closing quote missing?",
                        self._first,
                        most=MAX_ROW_CHARACTERS,
                    )
                is_first = self._first == number
                num_separators = line.count(self._delimiter) + (0 if is_first else num_separators)
                if num_separators > MAX_VALUES:
                    problem = Message("one row holds more than {max_values:,} values", max_values=MAX_VALUES)
                    raise parse_error(self._path, "{reason}.", number, reason=problem)
            yield line


    def _next(self, number: int) -> str:
        """Return the next line; the reader asks for it within a row only where a quote is open."""
        if self.num_characters:
            self._find_open_quote(number)
        else:
            self.opened = None
        return self._file.readline(MAX_ROW_CHARACTERS + 1)

    def _find_open_quote(self, number: int) -> None:
        position = 0
        if self.opened:
            closed = _TO_CLOSING_QUOTE.match(self.line)
            if not closed:
                return
            position, self.opened = closed.end(), None
        while begun := self._begins_field.search(self.line, position):
            closed = _TO_CLOSING_QUOTE.match(self.line, begun.end())
            self.opened = None if closed else (number, begun.end())
            position = closed.end() if closed else len(self.line)


def _csv_record(
    path: DataFile, reader: Any, lines: _CsvLines, bad: BadRow
) -> tuple[int, list[str]] | None:  # Any: csv's reader has no public type
    """Return the next row that is CSV and the line where it begins, None at the end."""
    while True:
        number = reader.line_num + 1
        lines.num_characters = 0
        try:
            return number, next(reader)
        except StopIteration:
            return None
        except csv.Error as error:
            # Only behind a line with as many quotes as it needs is the next one known to begin a row.
            if reader.line_num > number or lines.line.count('"') % 2:
                line, column = lines.opened or (number, None)
                raise parse_error(
                    path,
                    "the quote that opens here has no closing quote at the end of its field, so nothing behind it can "
                    "be read. Close it, or write it twice if it belongs to the text.",
                    line,
                    column,
                ) from error
            bad(number, parse_error(path, "a quote inside a field is not written twice.", number))


def _checked_header(path: DataFile, fields: list[str], number: int) -> list[str]:
    header = header_names(fields)
    if problem := header_problem(header):
        raise parse_error(path, "{reason}.", number, reason=problem)
    return header


def header_names(fields: Iterable[str]) -> list[str]:
    """Return the names of columns; tables of other programs begin with a column of row numbers that has none."""
    return [field.strip() or f"column {place}" for place, field in enumerate(fields, start=1)]


def header_problem(header: list[str]) -> Message | None:
    """Return what is wrong with the names of columns, without a period."""
    if len(header) > MAX_COLUMNS:
        return Message(
            "the header names {num_columns:,} columns. The most is {max_columns:,}",
            num_columns=len(header),
            max_columns=MAX_COLUMNS,
        )
    if broken := text_problem("\n".join(header)):
        return Message(broken[1])
    twice = next((name for name, count in Counter(header).items() if count > 1), None)
    return Message('the header names the column "{name}" twice', name=twice) if twice else None
