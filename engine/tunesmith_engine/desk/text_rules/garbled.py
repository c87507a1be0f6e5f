"""Text that somebody read in a wrong encoding before it was saved."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tunesmith_core.messages import Message
from tunesmith_engine.desk.sieve import TEXT
from tunesmith_engine.desk.text_rules.finding import Finding, TextRule

_BYTES = {bytes((byte,)).decode("windows-1252", "replace"): byte for byte in range(0x80, 0x100)}
BYTE_OF = {chr(byte): byte for byte in range(0x80, 0x100)} | {
    letter: byte for letter, byte in _BYTES.items() if letter != "\ufffd"
}
"""Bytes as Windows shows them; some stand for no letter there and stay what they are."""

_BEHIND = "".join(re.escape(letter) for letter, byte in BYTE_OF.items() if byte < 0xC0)
_PATTERN = re.compile(
    # One byte behind the first is usual in Western text, and only a run of several tells in others.
    rf"(?:[ÂÃ][{_BEHIND}]|[â-ï][{_BEHIND}]{{2}}|[ðñòóô][{_BEHIND}]{{3}})+"
    rf"|(?:[ÎÏÐÑ×ØÙ][{_BEHIND}]){{2,}}"
    "|\ufffd+|锟斤拷(?:锟斤拷)*|\ufeff"
)
LOST = frozenset("\ufffd锟\ufeff")
"""First letters of what can't be brought back."""


def find_garbled(text: str) -> Iterator[Finding]:
    """Yield runs of letters that were one letter each, and letters that were lost."""
    for found in _PATTERN.finditer(text):
        run = found.group()
        if run[0] in LOST:
            yield Finding(*found.span(), Message("a letter that was lost in a wrong encoding"), "")
            continue
        try:
            instead = bytes(BYTE_OF[letter] for letter in run).decode("utf-8")
        except UnicodeDecodeError:
            continue
        what = Message("{garbled}, which was probably {instead}", garbled=run[:20], instead=instead[:20])
        yield Finding(*found.span(), what, instead)


GARBLED = TextRule(
    "mojibake",
    # The first letter of a garbled one is one of Latin-1, which begins with 0xC3.
    ((TEXT, b"\xc3"), (TEXT, "\ufffd".encode()), (TEXT, "锟斤拷".encode()), (TEXT, "\ufeff".encode())),
    find_garbled,
)
