"""The objects of one big JSON array, one at a time: a file of many gigabytes never has to fit into memory."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, KeysView
from typing import Any, TextIO

from tunesmith_core import json_values
from tunesmith_core.datafmt.encoding import (
    BY_COLUMNS,
    MAX_BLANK_CHARACTERS,
    MAX_COLUMNS,
    MAX_NAME,
    MAX_ROW_CHARACTERS,
    DataFile,
    blank_error,
    parse_error,
    row_error,
    too_wide,
)
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message, json_problem

CHUNK_CHARACTERS = 16384
"""So few that most chunks have few brackets, which makes `may_exceed` cheap."""
SPACES = re.compile(r"[ \t\n\r]*")
LONGEST_TOKEN_CHARACTERS = 64
"""A number or literal that touches the end of the buffer may go on in the next chunk."""

HELD_OUT = frozenset(
    ("test", "testing", "validation", "valid", "val", "dev", "eval", "evaluation", "heldout", "held_out")
)
"""Names of the lists of rows in a file that are not for training."""
MAX_FIRST_OBJECT = 1 << 20
"""A longer one is taken for a wrapper of rows."""


def _are_rows(value: object) -> bool:
    first = value[0] if isinstance(value, list) and value else None
    return isinstance(first, dict) and "role" not in first and "from" not in first


class ArrayScanner:
    """Reads `[{...}, ...]`, the first list of objects inside `{"data": [...], ...}`, or `{...} {...}` over any lines.

    The file is read chunk by chunk. A list whose name says that it is for evaluation is not read.

    Args:
        path: named in errors.
        file: the open text.
        decode: decodes one JSON value at a position of a text; raises json.JSONDecodeError.

    Attributes:
        unread: names of the lists that were not read.
    """

    def __init__(self, path: DataFile, file: TextIO, decode: Callable[[str, int], tuple[Any, int]]) -> None:
        self.unread: list[str] = []
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
        self._may_exceed = False
        """Whether a value in the buffer may be too deep or too big to be decoded."""

    def rows(self, bad: Callable[[int, TunesmithError], None]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield (number of the item from 1, object); items that are no objects go to `bad`.

        Many programs write the whole list on one line, so the line would say nothing.

        Raises:
            UserError: `dataset-parse-error` with line and column; broken JSON ends the reading, there is no next row.
        """
        number = 0
        found = begins_with = self._peek()
        are_loose = found == "{" and self._objects_follow()
        # Lists that were put behind each other, as `cat` does, are read as one.
        while found:
            if found != begins_with:
                raise self._error(Message("more text follows the list of rows."), self._position)
            if found == "{" and not are_loose:
                self._enter_wrapper()
            columns: KeysView[str] | None = None
            for value in self._loose_objects() if are_loose else self._items():
                number += 1
                if isinstance(value, dict) and len(value) <= MAX_COLUMNS:
                    columns = columns or value.keys()
                    yield number, value
                else:
                    no_object = Message("each item of the list must be an object such as {...}.")
                    problem = too_wide(value) if isinstance(value, dict) else no_object
                    bad(number, row_error(self._path, "json", number, problem))
            if found == "{" and not are_loose:
                self._leave_wrapper(columns)
            found = self._peek()

    def _objects_follow(self) -> bool:
        """Return whether the object at the position is a row and another follows, as `jq` prints them."""
        while True:
            if self._may_exceed and json_values.excess(self._text, self._position):
                return False
            try:
                first, end = self._decode(self._text, self._position)
            except json.JSONDecodeError:
                if len(self._text) < MAX_FIRST_OBJECT and self._fill():
                    continue
                return False
            following = SPACES.match(self._text, end).end()  # type: ignore[union-attr] # matches "" too
            if following == len(self._text) < MAX_FIRST_OBJECT and self._fill():
                continue
            return self._text[following : following + 1] == "{" and not any(map(_are_rows, first.values()))

    def _loose_objects(self) -> Iterator[Any]:  # Any: JSON values
        while self._peek() == "{":
            yield self._value()

    def _items(self) -> Iterator[Any]:  # Any: JSON values
        """Yield the values of the list at the position, and go behind it."""
        self._expect("[")
        found = self._peek()
        while found != "]":
            yield self._value()
            found = self._peek()
            if found != "]":
                self._expect(",")
                found = self._peek()
        self._expect("]")

    def _enter_wrapper(self) -> None:
        """Go to the first list of objects inside an object."""
        self._expect("{")
        num_columns = 0
        while self._peek() != "}":
            name = self._value()
            self._expect(":")
            if self._list_of_objects() and not self._is_held_out(name):
                return
            is_list = self._peek() == "["
            num_columns += isinstance(self._skip(), str) and is_list
            if self._peek() != "}":
                self._expect(",")
        if self.unread:
            names = ", ".join(f'"{name}"' for name in self.unread)
            raise parse_error(self._path, 'the lists of rows are {names}, and none is named "train".', names=names)
        if num_columns > 1:
            raise parse_error(self._path, BY_COLUMNS.template)
        raise parse_error(self._path, 'no list of rows: the file must hold [{...}, ...] or {"data": [{...}, ...]}.')

    def _leave_wrapper(self, columns: KeysView[str] | None) -> None:
        """Go behind the object whose rows are read.

        Raises:
            UserError: `dataset-parse-error` when it holds another list of rows with the same columns.
        """
        while self._peek() != "}":
            self._expect(",")
            self._peek()
            name = self._value()
            self._expect(":")
            line = self._line_at(self._position)
            is_list = self._list_of_objects() and not self._is_held_out(name)
            first = self._skip()
            if is_list and isinstance(first, dict) and first.keys() == columns:
                raise parse_error(
                    self._path,
                    'a second list of rows begins here, "{name}". Put all rows into one list.',
                    line,
                    name=str(name)[:MAX_NAME],
                )
        self._expect("}")

    def _is_held_out(self, name: object) -> bool:
        """Return whether a list of rows is for evaluation, and remember it then."""
        is_held_out = isinstance(name, str) and name.lower() in HELD_OUT
        if is_held_out:
            self.unread.append(str(name)[:MAX_NAME])
        return is_held_out

    def _skip(self) -> Any:  # Any: JSON values
        """Go behind a value, item by item where it is a list; return the value or the first item."""
        if self._peek() != "[":
            return self._value()
        items = self._items()
        first = next(items, None)
        for _ in items:
            pass
        return first

    def _list_of_objects(self) -> bool:
        if self._peek() != "[":
            return False
        while True:
            end = SPACES.match(self._text, self._position + 1).end()  # type: ignore[union-attr] # matches "" too
            if end < len(self._text):
                return self._text[end] == "{"
            if end - self._position > MAX_BLANK_CHARACTERS or not self._fill():
                return False

    def _peek(self) -> str:
        """Return the next character that is no white space, "" at the end."""
        position = self._position
        if position < len(self._text) and self._text[position] > " ":
            return self._text[position]
        num_blank = 0
        while True:
            start = self._position
            self._position = SPACES.match(self._text, start).end()  # type: ignore[union-attr] # matches "" too
            if self._position < len(self._text):
                return self._text[self._position]
            num_blank += self._position - start
            if num_blank > MAX_BLANK_CHARACTERS:
                raise blank_error(self._path, self._line_at(self._position))
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
        """Decode the value that begins at the position, reading on until it is complete."""
        while True:
            if self._may_exceed and (problem := json_values.excess(self._text, self._position)):
                raise self._error(Message("{reason}.", reason=problem), self._position)
            try:
                value, end = self._decode(self._text, self._position)
            except json.JSONDecodeError as error:
                if len(self._text) - self._position < MAX_ROW_CHARACTERS and self._fill():
                    continue
                if not self._at_end and not json_values.ends(self._text, self._position):
                    most = Message(
                        "the row is longer than {max_row_characters:,} characters.",
                        max_row_characters=MAX_ROW_CHARACTERS,
                    )
                    raise self._error(most, self._position) from error
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
        self._may_exceed = json_values.may_exceed(self._text)
        return True

    def _line_at(self, position: int) -> int:
        self._line += self._text.count("\n", self._counted, position)
        self._counted = position
        return self._line

    def _error(self, problem: str, position: int) -> TunesmithError:
        line_start = self._text.rfind("\n", 0, position) + 1
        column = position - line_start + (0 if line_start else self._column_base) + 1
        return parse_error(self._path, problem, self._line_at(position), column)
