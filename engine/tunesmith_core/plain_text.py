"""Text of others as letters: what would steer a terminal or turn a line around is shown instead of obeyed.

Names, files, errors and log lines come from anywhere. Escape sequences, carriage returns, backspaces and the controls
that reverse the direction of text would let them draw over our own words; a lone surrogate would end the program that
writes it. Tabs become spaces.
"""

from __future__ import annotations

import os
import re
import shlex
import unicodedata
from collections.abc import Sequence

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Everything of C0 and C1 but tab and newline, separators of lines, controls of direction, halves of a letter."""

ELLIPSIS = "…"


def visible(text: str) -> str:
    """Return a text with its controls spelled out, such as `\\x1b`; its lines stay lines."""
    return _CONTROL.sub(_spelled, text.replace("\r\n", "\n").replace("\t", "    "))


def one_line(text: str) -> str:
    """Return a text with its controls spelled out, newlines too."""
    return _CONTROL.sub(_spelled, text.replace("\t", "    ").replace("\n", "\\n"))


def visible_json(text: str) -> str:
    """Return the text of JSON with its controls as JSON spells them: the values stay the same."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def pasted(words: Sequence[str]) -> str:
    """Return a command as it is pasted into a terminal of this system."""
    # Imported here: `explain` starts in a moment, and needs it not.
    import subprocess

    return subprocess.list2cmdline(words) if os.name == "nt" else " ".join(map(_quoted, words))


def _quoted(text: str) -> str:
    spelled = one_line(text.replace("\\", "\\\\").replace("'", "\\'").replace("\t", "\\t"))
    # An escape sequence could end the paste, and what follows would be a command.
    return shlex.quote(text) if one_line(text) == text else f"$'{spelled}'"


def shortened(text: str, columns: int) -> str:
    """Return a text, or its beginning with an ellipsis where it is wider than some columns."""
    if len(text) <= columns // 2:
        return text
    width, end = 0, 0
    for number, letter in enumerate(text):
        width += _num_columns(letter)
        if width < columns:
            end = number + 1
        if width > columns:
            return text[:end] + ELLIPSIS
    return text


def num_columns(text: str) -> int:
    """Return how many columns of a terminal a text takes: Chinese letters take two, accents of their own none."""
    return len(text) if text.isascii() else sum(_num_columns(letter) for letter in text)


def _num_columns(letter: str) -> int:
    if unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def _spelled(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
