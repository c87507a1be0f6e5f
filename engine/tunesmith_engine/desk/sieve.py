"""Which rows of a batch may have something, told from all of them at once: most rows have nothing.

Looking for bytes in a joined batch takes a hundredth of what regular expressions take row by row, and dropping the
letters that don't matter takes less time than looking at them.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass

TEXT, NUMBERS, NAMES, WORDS = "text", "numbers", "names", "words"
"""Views of a batch: as it is; digits and capitals as 0, without what stands between the digits of a long number; small
letters and "=" as ":", without what stands between a name and its value; what keys are made of as 0."""

Mark = tuple[str, bytes]
"""A view and what stands in it."""


@dataclass(frozen=True, slots=True)
class Group:
    """Marks that are looked for in few rows only.

    Attributes:
        first: one of them stands in each row with what the marks are for, and they are found sooner.
        marks: looked for in those rows.
    """

    first: tuple[Mark, ...]
    marks: tuple[Mark, ...]


END = b"\xff"
"""Behind each row: no text in UTF-8 has this byte."""

_SIGNS = string.ascii_uppercase.encode() + string.digits.encode()
_IN_WORDS = string.ascii_letters.encode() + string.digits.encode() + b"_.-"
# Behind the signs are the bytes of a space that breaks no line.
_IN_NUMBERS, _IN_NAMES = b" ()./+-\xc2\xa0", b" \t\r\n\xc2\xa0\"'_-"


_FOLDED: dict[str, tuple[bytes, bytes]] = {
    NUMBERS: (bytes.maketrans(_SIGNS, b"0" * len(_SIGNS)), _IN_NUMBERS),
    NAMES: (bytes.maketrans(string.ascii_uppercase.encode() + b"=", string.ascii_lowercase.encode() + b":"), _IN_NAMES),
    WORDS: (bytes.maketrans(_IN_WORDS, b"0" * len(_IN_WORDS)), b""),
}
"""By view: what each byte becomes, and which ones are left out."""


class Sieve:
    """The texts of a batch of rows.

    Args:
        texts: of each row, as UTF-8.
    """

    def __init__(self, texts: Sequence[bytes]) -> None:
        self._texts = texts
        self._views = {TEXT: END.join(texts)}
        self._is_ascii = all(map(bytes.isascii, texts))
        self._rows: dict[Mark, list[int]] = {}

    def rows_with(self, marks: Sequence[Mark], groups: Sequence[Group] = ()) -> list[int]:
        """Return which rows, from 0, have one of the marks, also of those in groups, in order."""
        rows = {row for mark in marks for row in self._with(mark)}
        for group in groups:
            if few := self.rows_with(group.first):
                rows.update(few[place] for place in Sieve([self._texts[row] for row in few]).rows_with(group.marks))
        return sorted(rows)

    def _with(self, mark: Mark) -> list[int]:
        view, needle = mark
        if self._is_ascii and not needle.isascii():
            return []
        if mark not in self._rows:
            self._rows[mark] = _rows_with(self._view(view), needle)
        return self._rows[mark]

    def _view(self, name: str) -> bytes:
        if name not in self._views:
            table, left_out = _FOLDED[name]
            self._views[name] = self._views[TEXT].translate(table, left_out)
        return self._views[name]


def _rows_with(view: bytes, needle: bytes) -> list[int]:
    rows: list[int] = []
    row = start = 0
    while (place := view.find(needle, start)) >= 0:
        row += view.count(END, start, place)
        rows.append(row)
        end = view.find(END, place)
        if end < 0:
            break
        row, start = row + 1, end + 1
    return rows
