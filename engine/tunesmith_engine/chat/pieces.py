"""Text of an answer as it grows: no half characters, no half emoji, and thinking apart from the answer."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence

from tunesmith_engine.data.prompts import THINKING

BEGIN, END = THINKING, "</think>"

_BROKEN = "\ufffd"
_MOST_BROKEN = 3
"""Tokens of bytes that a character may still miss its last one of."""

_JOINER = "\u200d"
_SKIN_TONES, _TAGS = range(0x1F3FB, 0x1F400), range(0xE0020, 0xE0080)
_EXTENDERS = {_JOINER, "\ufe0e", "\ufe0f", "\u20e3", *map(chr, _SKIN_TONES), *map(chr, _TAGS)}
"""Joiner, variants, keycap, skin tones and the letters of a flag: they belong to the character before them."""

_FLAG_LETTERS = frozenset(map(chr, range(0x1F1E6, 0x1F200)))
"""Two of them are a flag."""

_WINDOW, _KEPT = 256, 16
"""Tokens after which only the last ones are decoded again."""


class Detokenizer:
    """Makes text of tokens that come a few at a time."""

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._tokens: list[int] = []
        self._told = ""

    def take(self, tokens: Sequence[int]) -> str:
        """Return the text that is certain now and was not before."""
        self._tokens += tokens
        text = self._decode(self._tokens)
        ready = text[: num_whole(text)]
        if not ready.startswith(self._told):
            # The bytes of the last character are being completed: for a moment all of them decode to nothing.
            return ""
        piece, self._told = ready[len(self._told) :], ready
        if len(self._tokens) > _WINDOW and ready == text:
            self._tokens = self._tokens[-_KEPT:]
            self._told = self._decode(self._tokens)
        return piece

    def finish(self) -> str:
        """Return the rest, once no token follows."""
        return self._decode(self._tokens)[len(self._told) :]


def num_whole(text: str) -> int:
    """Return how many letters of a text no further token can change."""
    end = len(text)
    while end and len(text) - end < _MOST_BROKEN and text[end - 1] == _BROKEN:
        end -= 1
    start = end
    while start:
        start -= 1
        joined = start > 0 and text[start - 1] == _JOINER
        if not joined and not _extends(text[start]):
            break
    first = text[start:end][:1]
    if first in _FLAG_LETTERS:
        letters = len(text[:end]) - len(text[:end].rstrip("".join(_FLAG_LETTERS)))
        return end - letters % 2
    return start if first and _is_pictogram(first) else end


def _extends(letter: str) -> bool:
    return letter in _EXTENDERS or unicodedata.category(letter) in ("Mn", "Me", "Mc")


def _is_pictogram(letter: str) -> bool:
    return letter in _EXTENDERS or (letter >= "\u2190" and unicodedata.category(letter) == "So")


class Thinking:
    """Tells what a model thinks from what it answers.

    Args:
        begins: whether the prompt has already opened the thinking.
    """

    def __init__(self, begins: bool = False) -> None:
        self._thinks = begins
        self._held = ""

    def take(self, text: str) -> list[tuple[str, bool]]:
        """Return (text, whether it is thought) in order; what may be the beginning of a mark is held back."""
        self._held += text
        found: list[tuple[str, bool]] = []
        while True:
            before, mark, after = self._held.partition(END if self._thinks else BEGIN)
            if not mark:
                break
            found.append((before, self._thinks))
            self._thinks, self._held = not self._thinks, after
        mark = END if self._thinks else BEGIN
        held = next((size for size in range(len(mark) - 1, 0, -1) if self._held.endswith(mark[:size])), 0)
        found.append((self._held[: len(self._held) - held], self._thinks))
        self._held = self._held[len(self._held) - held :]
        return [(words, thought) for words, thought in found if words]

    def finish(self) -> list[tuple[str, bool]]:
        """Return the rest, once no text follows."""
        rest, self._held = self._held, ""
        return [(rest, self._thinks)] if rest else []
