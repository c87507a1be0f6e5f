"""Where a value stands in the line of a file that holds its row."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from itertools import islice
from json.decoder import scanstring  # type: ignore[attr-defined]

Keys = Sequence[str | int]
"""The way to a value: names of an object and places in a list."""

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")
_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_LETTER = re.compile(_PAIR + r"|\\u[0-9a-fA-F]{4}|\\.|[^\\]", re.DOTALL)


def column_in_json(line: str, keys: Keys, offset: int | None = None) -> int | None:
    """Return the column, from 1, of a value in a line of JSON, or of a letter of a text there; None if it has none.

    Args:
        line: with or without white space around the JSON.
        keys: the way to the value.
        offset: of the letter in the text; None for the value as a whole.
    """
    place = _behind_space(line, 0)
    try:
        for key in keys:
            place = _member(line, place, key) if isinstance(key, str) else _item(line, place, key)
    except (ValueError, IndexError):
        return None
    if offset is not None and line[place] == '"':
        letters = islice(_LETTER.finditer(line, place + 1), offset, None)
        place = next((letter.start() for letter in letters), place)
    return place + 1


def _behind_space(line: str, place: int) -> int:
    found = _SPACE.match(line, place)
    return found.end() if found else place


def _member(line: str, place: int, name: str) -> int:
    """Return where the value of a name begins in the object that begins at a place; the last one of that name counts.

    Raises:
        ValueError, IndexError: when there is none.
    """
    found = None
    place = _behind_space(line, place + 1)
    while line[place] == '"':
        key, place = scanstring(line, place + 1, False)
        place = _behind_space(line, _behind_space(line, place) + 1)
        found = place if key == name else found
        _, place = _DECODER.raw_decode(line, place)
        place = _behind_space(line, place)
        if line[place] != ",":
            break
        place = _behind_space(line, place + 1)
    if found is None:
        raise ValueError(name)
    return found


def _item(line: str, place: int, number: int) -> int:
    """Return where an item begins in the list that begins at a place; see `_member`."""
    place = _behind_space(line, place + 1)
    for _ in range(number):
        _, place = _DECODER.raw_decode(line, place)
        place = _behind_space(line, _behind_space(line, place) + 1)
    return place


def column_in_table(line: str, header: list[str], delimiter: str, name: str) -> int | None:
    """Return the column, from 1, of a field's first letter in a line of CSV; None where the row has more lines."""
    try:
        fields = next(csv.reader([line], delimiter=delimiter, strict=True))
        number = header.index(name)
    except (csv.Error, ValueError, StopIteration):
        return None
    place, is_quoted, num_fields = 0, False, 0
    while num_fields < min(number, len(fields)) and place < len(line):
        if line[place] == '"':
            is_quoted = not is_quoted
        num_fields += line[place] == delimiter and not is_quoted
        place += 1
    return place + 1
