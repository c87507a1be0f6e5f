"""Plain text and Markdown as rows of text: pieces of a document, cut at headings and between paragraphs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TextIO

PLAIN, MARKDOWN = "txt", "md"
"""Kinds of such files."""

MAX_PIECE = 2000
"""Characters of a piece: some 500 tokens of English, so that none is cut at a usual context length."""

HEADING = re.compile(r" {0,3}#{1,6}(?:\s|$)")
FENCE = re.compile(r" {0,3}(?:```|~~~)")


def pieces(file: TextIO, kind: str) -> Iterator[tuple[int, str]]:
    """Yield (line where it begins, text) of the pieces of a document, in order and without a gap.

    A heading of Markdown begins a piece, and so does a paragraph that would make one too long. Headings with nothing
    between them stay with what they are about, where that is short enough.
    """
    begins, piece, is_bare = 1, "", False
    for number, paragraph in _paragraphs(file, kind):
        is_section = kind == MARKDOWN and HEADING.match(paragraph) is not None
        if piece and ((is_section and not is_bare) or len(piece) + len(paragraph) > MAX_PIECE):
            yield begins, piece.strip()
            piece = ""
        is_bare = is_section and "\n" not in paragraph.strip() and (is_bare or not piece)
        begins = begins if piece else number
        piece += paragraph
    if piece:
        yield begins, piece.strip()


def _paragraphs(file: TextIO, kind: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text with the blank lines behind it); a block of code is one paragraph where it is short enough."""
    begins, paragraph, is_open, is_code = 1, "", False, False
    for number, line in _lines(file):
        is_code ^= kind == MARKDOWN and FENCE.match(line) is not None
        is_blank = not line.strip()
        begins_next = not is_blank and not is_open
        begins_next |= kind == MARKDOWN and not is_code and HEADING.match(line) is not None
        if paragraph and (begins_next or len(paragraph) + len(line) > MAX_PIECE):
            yield begins, paragraph
            paragraph = ""
        if paragraph or not is_blank:
            begins = begins if paragraph else number
            paragraph += line
        is_open = is_code or not is_blank
    if paragraph:
        yield begins, paragraph


def _lines(file: TextIO) -> Iterator[tuple[int, str]]:
    """Yield (line, text); a line that is too long comes in several parts, cut behind a space where it has one."""
    number, rest = 1, ""
    while text := rest + file.readline(MAX_PIECE - len(rest)):
        rest = ""
        if len(text) == MAX_PIECE and not text.endswith("\n") and (cut := text.rfind(" ") + 1):
            text, rest = text[:cut], text[cut:]
        yield number, text
        number += text.endswith("\n")
