"""Rows of JSON Lines: most files hold nothing but sound rows, which are decoded many at a time."""

from __future__ import annotations

import json
import math
import re
import secrets
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any, NoReturn, TextIO

from tunesmith_core import json_values
from tunesmith_core.datafmt.encoding import (
    MAX_BLANK_CHARACTERS,
    MAX_COLUMNS,
    MAX_ROW_CHARACTERS,
    DataFile,
    blank_error,
    parse_error,
    row_error,
    text_problem,
    too_long_error,
    too_wide,
)
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.messages import Message, json_problem

Row = dict[str, Any]  # Any: JSON values
BadRow = Callable[[int, TunesmithError], None]

CHUNK_CHARACTERS = 65536
"""Decoded at a time, with what is left of the last line: more is no quicker, and takes memory."""
MAX_DIGITS = 1000
"""Of a whole number: the time to read one grows with the square of them."""
MAX_SKIPPED_CHARACTERS = 16 * MAX_ROW_CHARACTERS
"""Of a line that is too long; behind more there is no next line to be expected."""

TOKENS = re.compile(r'"(?:[^"\\]|\\.)*+"|[-+.\w]+', re.DOTALL)
"""Texts, numbers and words of JSON."""

HALVES = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(\\u[dD][89a-fA-F])|\\.", re.DOTALL)
"""Escapes of JSON; the group is half a surrogate pair."""

SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


def jsonl_rows(path: DataFile, file: TextIO, bad: BadRow) -> Iterator[tuple[int, Row]]:
    """Yield (number of the line from 1, row) of a file of JSON Lines.

    Args:
        path: named in errors.
        file: its text, from the beginning.
        bad: called with number and error for each malformed row, which is left out.

    Raises:
        UserError: `dataset-parse-error` for a line or a gap without an end, and what `bad` raises.
    """
    number = num_blank = 0
    while chunk := file.read(CHUNK_CHARACTERS):
        rest = "" if chunk.endswith("\n") else file.readline(CHUNK_CHARACTERS)
        chunk += rest
        is_whole = chunk.endswith("\n") or len(rest) < CHUNK_CHARACTERS
        if is_whole and (rows := _sound_rows(chunk)) is not None:
            num_blank = 0
            yield from enumerate(rows, number + 1)
            number += len(rows)
            continue
        lines = StringIO(chunk, newline="\n")
        while text := lines.readline():
            number += 1
            if not text.endswith("\n"):
                text += file.readline(MAX_ROW_CHARACTERS + 1 - len(text))
            if len(text) > MAX_ROW_CHARACTERS:
                bad(number, too_long_error(path, number))
                _skip_line(path, file, number, text)
                continue
            stripped = text.strip()
            if not stripped:
                num_blank += len(text)
                if num_blank > MAX_BLANK_CHARACTERS:
                    raise blank_error(path, number)
                continue
            # Both would be kept: a line may take 64 MiB.
            indent = text.index(stripped[0])
            text, num_blank = stripped, 0
            try:
                row = _jsonl_row(path, text, number, indent)
            except UserError as error:
                bad(number, error)
            else:
                yield number, row


def _sound_rows(chunk: str) -> list[Row] | None:
    """Return the rows of whole lines that are all sound and none is blank, else None.

    The lines become one list with a word between each two that no file can know: where it stands between all values,
    each line is one value. A line end inside a text is none here, and no JSON either.
    """
    if json_values.may_exceed(chunk) or text_problem(chunk) or _has_half(chunk):
        return None
    lines = chunk.removesuffix("\n")
    try:
        values = _DECODER.decode(f"[{lines.replace(chr(10), _BETWEEN)}]")
    except ValueError:
        return None
    rows, between = values[::2], values[1::2]
    is_sound = between.count(_WORD) == len(between) == lines.count("\n") and set(map(type, rows)) == {dict}
    return rows if is_sound and max(map(len, rows)) <= MAX_COLUMNS else None


def _has_half(text: str) -> bool:
    has_escapes = "\\u" in text and SURROGATE_ESCAPE.search(text)
    return bool(has_escapes) and any(match[1] for match in HALVES.finditer(text))


def _skip_line(path: DataFile, file: TextIO, number: int, text: str) -> None:
    """Go behind a line that is too long, of which a part was read."""
    num_skipped = 0
    while text and not text.endswith("\n"):
        text = file.readline(MAX_ROW_CHARACTERS)
        num_skipped += len(text)
        if num_skipped > MAX_SKIPPED_CHARACTERS:
            raise too_long_error(path, number)


def _jsonl_row(path: DataFile, text: str, number: int, indent: int) -> Row:
    if json_values.may_exceed(text) and (problem := json_values.excess(text)):
        raise parse_error(path, "{reason}.", number, reason=problem)
    try:
        value, end = decode_row(text, 0)
    except json.JSONDecodeError as error:
        column = indent + error.pos + 1
        raise parse_error(path, "not valid JSON: {msg}.", number, column, msg=json_problem(error.msg)) from error
    if end < len(text):
        column = indent + len(text) - len(text[end:].lstrip()) + 1
        raise parse_error(path, "more text follows the JSON object.", number, column)
    if not isinstance(value, dict):
        raise parse_error(path, "the line must hold a JSON object such as {...}.", number)
    if len(value) > MAX_COLUMNS:
        raise row_error(path, "jsonl", number, too_wide(value))
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(Message("{name} is not a JSON number", name=name))


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(Message("the number {number} is too large", number=text[:20]))
    return value


def _whole_number(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(Message("the number {number} is too large", number=text[:20] + "..."))
    return int(text)


_DECODER = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite_float, parse_int=_whole_number)
_WORD = secrets.token_hex(8)
_BETWEEN = f',"{_WORD}",'


def decode_row(text: str, start: int) -> tuple[Any, int]:  # Any: JSON values
    """Decode one JSON value of a data file and return it with the position behind it.

    Raises:
        json.JSONDecodeError: with the position, for everything that is wrong: syntax, NUL, undecodable bytes, numbers
            that are not finite, half a surrogate pair.
    """
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError:
        problem = text_problem(text[start:])
        if problem is None:
            raise
        raise json.JSONDecodeError(problem[1], text, start + problem[0]) from None
    except ValueError as error:
        raise json.JSONDecodeError(error.args[0], text, _place_of_number(text, start)) from None
    # The decoder itself refuses NUL.
    problem = None if text.isascii() else text_problem(text[start:end])
    if problem is None and text.find("\\", start, end) >= 0 and SURROGATE_ESCAPE.search(text, start, end):
        half = text_problem(json.dumps(value, ensure_ascii=False))
        place = next((match.start() - start for match in HALVES.finditer(text, start, end) if match[1]), 0)
        problem = half and (place, half[1])
    if problem:
        raise json.JSONDecodeError(problem[1], text, start + problem[0])
    return value, end


def _place_of_number(text: str, start: int) -> int:
    """Return where the first number stands that is none or too large."""
    tokens = (match for match in TOKENS.finditer(text, start) if match[0][0] != '"')
    return next((match.start() for match in tokens if _is_no_number(match[0])), start)


def _is_no_number(token: str) -> bool:
    try:
        return len(token) > MAX_DIGITS or not math.isfinite(float(token))
    except ValueError:
        return False
