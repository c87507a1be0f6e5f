"""Web pages, Word documents and PDF files as rows of text: pieces like those of a Markdown file."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from tunesmith_core.datafmt import Row
from tunesmith_core.datafmt.documents import MARKDOWN, PLAIN, pieces
from tunesmith_core.datafmt.encoding import (
    DOCX,
    MAX_ROW_CHARACTERS,
    PDF,
    DataFile,
    open_bytes,
    parse_error,
    row_error,
)
from tunesmith_core.datafmt.json_rows import BadRow
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message, phrase

UNSHOWN = ["script", "style", "noscript", "template", "head", "nav", "svg", "img", "iframe", "object", "button", "form"]
"""Parts of a web page that are no text of it."""

BLANK_LINES = re.compile(r"\n{3,}")
UNTEXTUAL = re.compile("[\0\ud800-\udfff]")
"""What broken fonts of a PDF make of letters, and no text holds."""

SENTENCE_END = re.compile(r"[.!?:;\u2026\u3002\uff01\uff1f]['\")\]\u2019\u201d\u00bb]*$")
LIST_ITEM = re.compile(r"\w{1,4}[.)]\s")
WORD_BREAK = re.compile(r"[^\W_][-\u2010\u00ad]$")

MAX_DOCUMENT_BYTES = 64 * 1024**2
"""Of a web page, or of the parts of a Word document unpacked: both are read as a whole."""

Notes = dict[str, str]


def document_rows(path: DataFile, kind: str, bad: BadRow, notes: Notes) -> Iterator[tuple[int, Row]]:
    """Yield (number, row of text): the number is that of the page in a PDF, else of the piece from 1.

    Args:
        path: the file.
        kind: PDF, DOCX or HTML.
        bad: told each page that can't be read, which is left out unless it raises.
        notes: gets what a person should know once all is read: codes and sentences.

    Raises:
        UserError: `dataset-parse-error` when the file is damaged, too large or locked by a password, or holds pictures
            of pages only; `dataset-empty` when it has no text.
    """
    if kind == PDF:
        yield from _pdf_rows(path, bad, notes)
        return
    text = _word_text(path) if kind == DOCX else _web_text(path, _content(path))
    number = 0
    for number, (_, piece) in enumerate(pieces(io.StringIO(text), MARKDOWN), 1):
        yield number, {"text": piece}
    if not number:
        raise TunesmithError("dataset-empty", "{path}: the document has no text.", path=path)


def _content(path: DataFile) -> bytes:
    with open_bytes(path) as file:
        content = file.read(MAX_DOCUMENT_BYTES + 1)
    if len(content) > MAX_DOCUMENT_BYTES:
        raise _too_large(path)
    return content


def _too_large(path: DataFile) -> TunesmithError:
    return parse_error(path, "the document is larger than {most} MiB.", most=MAX_DOCUMENT_BYTES >> 20)


def _web_text(path: DataFile, content: bytes | str) -> str:
    # Imported here as in the other functions, because older environments lack the libraries.
    from bs4 import BeautifulSoup
    from markdownify import ATX, MarkdownConverter

    try:
        page = BeautifulSoup(content, "html.parser")
        for part in page(UNSHOWN):
            part.decompose()
        converter = MarkdownConverter(
            heading_style=ATX,
            bullets="-",
            # Of a link only its text: addresses inside of a site say nothing outside of it.
            strip=["a"],
            escape_misc=False,
            escape_asterisks=False,
            escape_underscores=False,
        )
        text = converter.convert_soup(page)
    except RecursionError as error:
        raise parse_error(path, "the parts of the page are nested too deeply.") from error
    lines = "\n".join(line.rstrip() for line in UNTEXTUAL.sub("\ufffd", text).splitlines())
    return BLANK_LINES.sub("\n\n", lines).strip()


def _word_text(path: DataFile) -> str:
    import mammoth

    try:
        with open_bytes(path) as file, zipfile.ZipFile(cast(Any, file)) as archive:
            num_bytes = sum(info.file_size for info in archive.infolist() if info.filename.endswith((".xml", ".rels")))
        page = ""
        if num_bytes <= MAX_DOCUMENT_BYTES:
            with open_bytes(path) as file:
                page = mammoth.convert_to_html(file, convert_image=lambda _image: []).value
    except MemoryError:
        raise
    except Exception as error:
        # The library raises whatever its XML parser, zipfile and its own look-ups do.
        words = phrase(str(error).partition("\n")[0][:200] or type(error).__name__)
        raise parse_error(path, "the Word document is damaged: {error}.", error=words) from error
    if num_bytes > MAX_DOCUMENT_BYTES:
        raise _too_large(path)
    return _web_text(path, page)


def _pdf_rows(path: DataFile, bad: BadRow, notes: Notes) -> Iterator[tuple[int, Row]]:
    with open_bytes(path) as file:
        reader = _pdf_reader(path, file)
        without_text: list[int] = []
        num_rows = num_bad = 0
        num_pages = _num_pages(path, reader)
        for number in range(1, num_pages + 1):
            try:
                text = _page_text(path, reader, number)
            except TunesmithError as error:
                num_bad += 1
                bad(number, error)
                continue
            if not text:
                without_text.append(number)
            for _, piece in pieces(io.StringIO(text), PLAIN):
                num_rows += 1
                yield number, {"text": piece}
    if not num_rows and not num_bad:
        raise TunesmithError(
            "dataset-parse-error",
            "{path}: the pages are pictures without text ({num_pages}).",
            hint="Recognize the text with a program for scans (OCR), and choose the file that it saves.",
            path=path,
            num_pages=num_pages,
        )
    if without_text:
        listed = ", ".join(map(str, without_text[:10])) + ("..." if len(without_text) > 10 else "")
        notes["dataset-parts-unread"] = Message(
            "{path} has pages without text, which are pictures or empty ({num}): {pages}.",
            path=path,
            num=len(without_text),
            pages=listed,
        )


def _pdf_reader(path: DataFile, file: BinaryIO) -> Any:  # Any: pypdf is not checked
    import logging

    import pypdf

    # What it repairs in a file it tells on the standard output.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        reader = pypdf.PdfReader(file, strict=False)
        is_locked = reader.is_encrypted and not reader.decrypt("")
    except MemoryError:
        raise
    except Exception as error:
        if type(error).__name__ == "DependencyError":
            raise _locked(path) from error
        raise _damaged(path, error) from error
    if is_locked:
        raise _locked(path)
    return reader


def _locked(path: DataFile) -> TunesmithError:
    return TunesmithError(
        "dataset-parse-error",
        "{path}: the PDF is encrypted.",
        hint="Open it in a PDF program and save or print it as a PDF without a password.",
        path=path,
    )


def _num_pages(path: DataFile, reader: Any) -> int:  # Any: pypdf is not checked
    try:
        num_pages = len(reader.pages)
    except MemoryError:
        raise
    except Exception as error:
        raise _damaged(path, error) from error
    if not num_pages:
        raise TunesmithError("dataset-empty", "{path}: the document has no text.", path=path)
    return num_pages


def _page_text(path: DataFile, reader: Any, number: int) -> str:  # Any: pypdf is not checked
    """Return the text of a page.

    Raises:
        UserError: `dataset-parse-error` that names the page.
    """
    try:
        text = str(reader.pages[number - 1].extract_text())
    except MemoryError:
        raise
    except Exception as error:
        # A library for a format of a thousand pages, in files of a thousand programs, raises anything.
        words = phrase(str(error).partition("\n")[0][:200] or type(error).__name__)
        raise row_error(path, PDF, number, Message("the page can't be read: {error}.", error=words)) from error
    if len(text) > MAX_ROW_CHARACTERS:
        problem = Message("more than {num_bytes:,} bytes", num_bytes=MAX_ROW_CHARACTERS)
        raise row_error(path, PDF, number, Message("the page can't be read: {error}.", error=problem))
    return _joined_lines(UNTEXTUAL.sub("\ufffd", text)).strip()


def _joined_lines(text: str) -> str:
    """Return the text of a page with the lines of a paragraph in one: where they end is the page's business."""
    lines: list[str] = []
    for line in text.split("\n"):
        before, start = lines[-1].rstrip() if lines else "", line.lstrip()
        continues = start[:1].islower() and not LIST_ITEM.match(start) and not SENTENCE_END.search(before)
        if WORD_BREAK.search(before) and start[:1].isalnum():
            # A hyphen before a capital or a number is a part of the word.
            lines[-1] = (before[:-1] if continues and before[-2].isalpha() else before) + start
        elif before and continues:
            lines[-1] = f"{before} {start}"
        else:
            lines.append(line)
    return "\n".join(lines)


def _damaged(path: DataFile, error: Exception) -> TunesmithError:
    words = phrase(str(error).partition("\n")[0][:200] or type(error).__name__)
    return parse_error(path, "the PDF is damaged: {error}.", error=words)
