"""Opening a data file as text: which encoding it has, and exactly where bytes break it.

Undecodable bytes are read as surrogate escapes, so that a reader can go on to the next row and name line and column.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import re
from collections.abc import Callable, Sized
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, TextIO, cast

from tunesmith_core import files
from tunesmith_core.errors import TunesmithError, wrap
from tunesmith_core.messages import Message
from tunesmith_core.spec_sections import CHOICE_WORDS

MAX_ROW_CHARACTERS = 16 * 1024**2
"""Longest line or row that is read; longer ones are no training example but a damaged file."""

MAX_BLANK_CHARACTERS = 4 * 1024**2
"""White space in a row that is skipped; behind more of it there is no next row to be expected."""

MAX_COLUMNS = 4096
"""Of a row; those of a table with fewer fields get the others empty, so that each takes the memory of all."""

MAX_NAME = 100
"""Letters of a name of theirs that an error repeats."""

HEAD_BYTES = 4096

FOREIGN_MAGIC = {
    b"7z\xbc\xaf": Message("a 7-Zip archive"),
    b"Rar!\x1a\x07": Message("a RAR archive"),
    b"BZh": Message("a bzip2 archive"),
    b"\xfd7zXZ": Message("an XZ archive"),
    b"SQLite format 3": Message("an SQLite database"),
    b"\xd0\xcf\x11\xe0": Message("a document of an old Office program"),
}

FORMATS = Message(
    "Choose JSONL, JSON, CSV, TSV, Excel, Parquet, Arrow, PDF, Word, HTML, text or Markdown, or a ZIP, gz or zst file "
    "of these."
)
"""What can be read, as errors say it."""

WORKBOOKS = {".xlsx": "xlsx", ".xlsm": "xlsx", ".xlsb": "xlsb", ".xls": "xls", ".ods": "ods"}
"""Kinds of spreadsheets by the endings of their names."""

ZIP_MAGIC = b"PK\x03\x04"
WORKBOOK_MAGIC = (ZIP_MAGIC, b"\xd0\xcf\x11\xe0")
PDF, DOCX, HTML = "pdf", "docx", "html"
ARROW, GZ, ZST, ZIP, FOLDER = "arrow", "gz", "zst", "zip", "folder"
MAGIC_KINDS = {
    b"PAR1": "parquet",
    b"ARROW1": ARROW,
    b"\xff\xff\xff\xff": ARROW,
    b"%PDF": PDF,
    b"\x1f\x8b": GZ,
    b"(\xb5/\xfd": ZST,
    ZIP_MAGIC: ZIP,
    b"PK\x05\x06": ZIP,
}
"""Kinds of files by their first bytes; what is a ZIP archive may be a workbook or a document too."""

NUMBERED_KINDS = frozenset({"json", "parquet", ARROW, *WORKBOOKS.values()})
"""Kinds of files whose rows are no lines."""

PART_KINDS = frozenset({DOCX, HTML})
"""Kinds of documents of which neither lines nor pages are known."""

UTF_8 = "utf-8"
READ_AS = "read-as-"
"""Beginning of the names of actions that read a file in an encoding."""

UTF_16, UTF_32 = "utf-16", "utf-32"
HALF_CHARACTERS = "tunesmith-half-characters"
WESTERN_SIGNS = "€ŒœŠšŽžŸ\u2018\u2019“”„\u2013—…«»°§¿¡\u00a0"
"""Beside letters, what Western text has beyond ASCII: quotation marks, dashes and the like."""

SCRIPTS = (
    ("cp949", "euc_kr", re.compile("[\uac00-\ud7a3]"), 0.9, 8),
    ("euc_jp", "euc_jp", re.compile("[\u3040-\u30ff]"), 0.25, 1),
    ("cp932", "cp932", re.compile("[\u3040-\u30ff]"), 0.25, 1),
    ("gb18030", "gb2312", re.compile("[\u4e00-\u9fff]"), 0.51, 1),
    ("cp950", "cp950", re.compile("[\u4e00-\u9fff]{2,}"), 0.5, 2),
    ("windows-1251", "windows-1251", re.compile("[\u0400-\u04ff]{3,}"), 0.6, 3),
)
"""Encodings, by what they are judged, and the least share and number of a script among the letters beyond ASCII.

Nearly any bytes can be read as the large successors of an encoding, so the smaller one judges. Western accents stand
alone, where the same bytes in Cyrillic make words. A few Chinese characters may be Korean ones too.
"""

JUDGED_BYTES = 1024**2
"""Of a file, from its beginning, to tell a foreign encoding from a damaged row."""

UNDECODABLE = re.compile("[\ud800-\udfff]")


BY_COLUMNS = Message(
    "the file holds one list for each column. Save it as a list of rows instead, each with all columns (in pandas: "
    'orient="records").'
)


@dataclass(frozen=True, slots=True)
class Member:
    """A file inside of another: one of an archive, or the only one of a compressed file.

    Attributes:
        place: where it is, as errors name it.
        name: its own, with the folders above it.
        opener: returns its bytes from the beginning.
        path: where it is unpacked; None while it is not.
        num_bytes: that it takes in the other one.
    """

    place: str
    name: str
    opener: Callable[[], BinaryIO]
    path: Path | None = None
    num_bytes: int = 0

    def __str__(self) -> str:
        """Return the place."""
        return self.place

    @property
    def suffix(self) -> str:
        """The ending of the name."""
        return PurePosixPath(self.name).suffix


DataFile = Path | Member
"""What rows are read from."""


def parse_error(
    path: DataFile, problem: str, line: int | None = None, column: int | None = None, **values: object
) -> TunesmithError:
    """Return a `dataset-parse-error` that names file, line and column."""
    return TunesmithError(
        "dataset-parse-error",
        "{place}: {problem}",
        place=place(path, line, column),
        problem=Message(problem, **values),
        hint=None if line else Message("Choose another file."),
    )


def row_error(path: DataFile, kind: str, number: int, problem: Message) -> TunesmithError:
    """Return a `dataset-parse-error` that names file and row; see `row_place`."""
    return TunesmithError(
        "dataset-parse-error", "{place}: {problem}", place=row_place(path, kind, number), problem=problem
    )


def too_long_error(path: DataFile, number: int) -> TunesmithError:
    """Return the error for a line that no reader keeps."""
    return parse_error(
        path,
        "the line is longer than {max_row_characters:,} characters.",
        number,
        max_row_characters=MAX_ROW_CHARACTERS,
    )


def blank_error(path: DataFile, line: int | None = None) -> TunesmithError:
    """Return the error of a file in which nothing more is to be expected."""
    return parse_error(path, "too many blank lines follow each other.", line)


def too_wide(row: Sized) -> Message:
    """Say that a row has more columns than one may have."""
    return Message(
        "the row has {num_columns:,} columns. The most is {max_columns:,}.",
        num_columns=len(row),
        max_columns=MAX_COLUMNS,
    )


def place(path: DataFile, line: int | None = None, column: int | None = None) -> str:
    """Return "file, line 3, column 7" with as much as is known."""
    if column:
        return Message("{path}, line {line}, column {column}", path=path, line=line, column=column)
    return Message("{path}, line {line}", path=path, line=line) if line else str(path)


def row_place(path: DataFile, kind: str, number: int) -> str:
    """Return "file, line 3", or "file, row 3" where rows are no lines: lists in JSON, Parquet and workbooks.

    Of a PDF it is the page; other documents are counted in the parts that they are cut into.
    """
    if kind in NUMBERED_KINDS:
        return Message("{path}, row {row}", path=path, row=number)
    if kind == PDF:
        return Message("{path}, page {page}", path=path, page=number)
    if kind in PART_KINDS:
        return Message("{path}, part {part}", path=path, part=number)
    return place(path, number)


def read_head(path: DataFile, num_bytes: int = HEAD_BYTES) -> bytes:
    """Return the first bytes of a file.

    Raises:
        UserError: `dataset-parse-error` when it can't be opened.
    """
    with open_bytes(path) as file:
        return file.read(num_bytes)


def open_bytes(path: DataFile) -> BinaryIO:
    """Open a data file; a pipe or a device, which would never end, is none.

    Raises:
        UserError: `dataset-parse-error` when it can't be opened.
        EnvironmentProblem: `path-too-long`.
    """
    if isinstance(path, Member):
        return path.opener()
    try:
        return cast(BinaryIO, files.open_file(path))
    except OSError as error:
        problem = wrap(error)
        if problem.code == "path-too-long":
            raise problem from error
        raise parse_error(path, "the file can't be read: {reason}.", reason=Message(str(error.strerror))) from error
    except ValueError as error:
        raise parse_error(path, "the file can't be read: {reason}.", reason=Message("Not an ordinary file")) from error


def text_encoding(path: DataFile, head: bytes) -> str:
    """Return the encoding in which a data file is to be opened, judged by its first bytes.

    Raises:
        UserError: `dataset-parse-error` for files that are no text or of an encoding we don't read.
    """
    for magic, name in FOREIGN_MAGIC.items():
        if head.startswith(magic):
            raise parse_error(path, "the file is {name}. {formats}", name=name, formats=FORMATS)
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return UTF_32
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return UTF_16
    nuls = (head[0::2].count(0), head[1::2].count(0))
    if max(nuls) > len(head) // 4 and min(nuls) <= max(nuls) // 10:
        return "utf-16-be" if nuls[0] > nuls[1] else "utf-16-le"
    return "utf-8-sig"


def check_is_utf_8(path: DataFile) -> None:
    """Refuse a file of another encoding, which is told from damaged rows by having no line beyond ASCII that is UTF-8.

    Raises:
        UserError: `dataset-encoding`, with an action for each way to read the file; `dataset-parse-error` when it can't
            be opened.
    """
    head = read_head(path, JUDGED_BYTES)
    with contextlib.suppress(UnicodeDecodeError):
        codecs.getincrementaldecoder(UTF_8)().decode(head, final=len(head) < JUDGED_BYTES)
        return
    lines = [line.decode(UTF_8, "surrogateescape") for line in head.splitlines()]
    beyond = [(number, line, UNDECODABLE.search(line)) for number, line in enumerate(lines, 1) if not line.isascii()]
    likely = _guess("".join(line for _, line, _ in beyond))
    number, _, first = beyond[0]
    if first and likely and all(broken for _, _, broken in beyond):
        raise TunesmithError(
            "dataset-encoding",
            "{place}: byte 0x{byte:02X} is not UTF-8. The file looks like {encoding}.",
            actions=(READ_AS + likely,),
            place=place(path, number, first.start() + 1),
            byte=ord(first.group()) - 0xDC00,
            encoding=Message(CHOICE_WORDS[likely]),
            likely=likely,
        )


def open_text(path: DataFile, encoding: str, newline: str | None = None) -> TextIO:
    """Open a data file so that undecodable UTF-8 bytes become surrogate escapes.

    Raises:
        UserError: `dataset-parse-error` when it can't be opened.
    """
    errors = HALF_CHARACTERS if encoding.startswith((UTF_16, UTF_32)) else "surrogateescape"
    return io.TextIOWrapper(open_bytes(path), encoding, errors, newline)


def _half_character(error: UnicodeError) -> tuple[str, int]:
    """Read what is no UTF-16 as half a character, which `text_problem` names."""
    return "\ud800", cast(UnicodeDecodeError, error).end


codecs.register_error(HALF_CHARACTERS, _half_character)


def text_problem(text: str) -> tuple[int, str] | None:
    """Return the position and the kind, without a period, of the first character that no text file holds, or None."""
    nul = text.find("\0")
    if nul >= 0:
        return nul, Message("a NUL byte. The file is damaged or not a text file")
    if text.isascii():
        return None
    broken = UNDECODABLE.search(text)
    if broken is None:
        return None
    code = ord(broken.group())
    if not 0xDC80 <= code <= 0xDCFF:
        return broken.start(), Message("half a surrogate pair. The text is damaged")
    return broken.start(), Message("byte 0x{byte:02X} does not fit the encoding of the file", byte=code - 0xDC00)


def _guess(text: str) -> str | None:
    """Return the encoding that lines with undecodable bytes most likely have, or None."""
    raw = text.encode(UTF_8, "surrogateescape")
    for name, strict, script, share, least in SCRIPTS:
        with contextlib.suppress(UnicodeDecodeError):
            decoded = raw.decode(strict)
            num = sum(map(len, script.findall(decoded)))
            if num >= max(least, share * sum(not letter.isascii() for letter in decoded)):
                return name
    try:
        decoded = raw.decode("windows-1252")
    except UnicodeDecodeError:
        return None
    # Nearly any bytes can be read as it, Japanese ones too: Western text has few letters beyond ASCII, and usual ones.
    beyond = [letter for letter in decoded if not letter.isascii()]
    num_usual = sum(letter in WESTERN_SIGNS or "\u00c0" <= letter <= "\u00ff" for letter in beyond)
    is_western = num_usual >= 0.8 * len(beyond) and len(beyond) <= 0.4 * len("".join(decoded.split()))
    return "windows-1252" if is_western else None
