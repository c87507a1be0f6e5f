"""The objects of one big JSON array, one at a time: a file of many gigabytes never has to fit into memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from tunesmith_core.datafmt.encoding import MAX_ROW_CHARACTERS, parse_error
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message, json_problem

CHUNK_CHARACTERS = 1024**2
WHITESPACE = " \t\n\r"
LONGEST_TOKEN_CHARACTERS = 64
"""A number or literal that touches the end of the buffer may go on in the next chunk."""


class ArrayScanner:
    """Reads `[{...}, ...]`, or the first list of objects inside `{"data": [...], ...}`, chunk by chunk.

    Args:
        path: named in errors.
        file: the open text.
        decode: decodes one JSON value at a position of a text; raises json.JSONDecodeError.
    """

    def __init__(self, path: Path, file: TextIO, decode: Callable[[str, int], tuple[Any, int]]) -> None:
        self._path = path
        self._file = file
        self._decode = decode
        self._text = ""
        self._position = 0
        self._line = 1
        """Line of the place up to which line ends were counted, which is `_counted`."""
        self._counted = 0
        self._column_base = 0
        """Characters of the buffer's first line that were dropped already."""
        self._at_end = False

    def rows(self, bad: Callable[[int, TunesmithError], None]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield (number of the item from 1, object); items that are no objects go to `bad`.

        Many programs write the whole list on one line, so the line would say nothing.

        Raises:
            UserError: `dataset-parse-error` with line and column; broken JSON ends the reading, there is no next row.
        """
        if self._peek() == "{":
            self._enter_wrapper()
        self._expect("[")
        number = 0
        while self._peek() != "]":
            number += 1
            line = self._line_at(self._position)
            value = self._value()
            if isinstance(value, dict):
                yield number, value
            else:
                bad(number, parse_error(self._path, "each item of the list must be an object such as {...}.", line))
            if self._peek() != "]":
                self._expect(",")

    def _enter_wrapper(self) -> None:
        """Go to the first list of objects inside an object."""
        self._expect("{")
        while self._peek() != "}":
            self._value()
            self._expect(":")
            if self._peek() == "[" and self._list_of_objects():
                return
            self._value()
            if self._peek() != "}":
                self._expect(",")
        raise parse_error(self._path, 'no list of rows: the file must hold [{...}, ...] or {"data": [{...}, ...]}.')

    def _list_of_objects(self) -> bool:
        while not self._text[self._position + 1 :].strip(WHITESPACE) and self._fill():
            pass
        return self._text[self._position + 1 :].lstrip(WHITESPACE)[:1] == "{"

    def _peek(self) -> str:
        """Return the next character that is no white space, "" at the end."""
        while True:
            while self._position < len(self._text):
                character = self._text[self._position]
                if character not in WHITESPACE:
                    return character
                self._position += 1
            if not self._fill():
                return ""

    def _expect(self, character: str) -> None:
        found = self._peek()
        if found != character:
            what = f'"{found}"' if found else Message("the end of the file")
            problem = Message('not valid JSON: expected "{character}", found {what}.', character=character, what=what)
            raise self._error(problem, self._position)
        self._position += 1

    def _value(self) -> Any:  # Any: JSON values
        """Decode the value at the position, reading on until it is complete."""
        self._peek()
        while True:
            try:
                value, end = self._decode(self._text, self._position)
            except json.JSONDecodeError as error:
                if len(self._text) - self._position < MAX_ROW_CHARACTERS and self._fill():
                    continue
                raise self._error(Message("not valid JSON: {msg}.", msg=json_problem(error.msg)), error.pos) from error
            if end - self._position <= LONGEST_TOKEN_CHARACTERS and end == len(self._text) and self._fill():
                continue
            self._position = end
            return value

    def _fill(self) -> bool:
        """Drop what is read and append a chunk that doubles with what is still unread; False at the end."""
        if self._at_end:
            return False
        rest = self._text[self._position :]
        chunk = self._file.read(max(CHUNK_CHARACTERS, len(rest)))
        if not chunk:
            self._at_end = True
            return False
        self._line_at(self._position)
        line_start = self._text.rfind("\n", 0, self._position) + 1
        self._column_base = self._position - line_start + (0 if line_start else self._column_base)
        self._text, self._position, self._counted = rest + chunk, 0, 0
        return True

    def _line_at(self, position: int) -> int:
        self._line += self._text.count("\n", self._counted, position)
        self._counted = position
        return self._line

    def _error(self, problem: str, position: int) -> TunesmithError:
        line_start = self._text.rfind("\n", 0, position) + 1
        column = position - line_start + (0 if line_start else self._column_base) + 1
        return parse_error(self._path, problem, self._line_at(position), column)
