"""Any row of a data file at once, of millions too: an index of where each row begins, and rows as JSON lines.

A JSONL file serves as it is. Of any other file a copy as JSONL is made by its reader; why a row could not be read
stands there instead of the row. Index and copy grow from their beginning, so the first rows can be seen
while the rest is read. Nothing here changes the file itself.
"""

from __future__ import annotations

import json
import os
import struct
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from tunesmith_core import files
from tunesmith_core.datafmt.encoding import HEAD_BYTES, UTF_8, WORKBOOK_MAGIC, open_bytes, read_head, text_encoding
from tunesmith_core.datafmt.json_rows import Row, decode_row
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message, packed, restored

INDEX, PARTS, COPY, FACTS = "rows.index", "rows.parts", "rows.jsonl", "rows.json"
TELL_EVERY_S = 0.1
PIECE_BYTES = 1024**2
"""A line may be as long as a file; so much of it is read at a time."""

_ENTRY = struct.Struct("<QQQ")
"""Where a row begins, where it ends, and its number in the file."""
ENTRIES_TOGETHER = 4096
_REASON = "reason"
"""Key of the message that stands in place of a row, in a list, which is no row."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

Position = tuple[str, int, int]
"""Where a row is read: its file, its number there, and how many rows of that number come before: a page has several."""
Tell = Callable[[int, int], object]
"""Told how many rows are indexed and how many bytes of the file are done, now and then."""


class IndexWriter:
    """Writes an index; a context manager.

    Args:
        folder: where it lies.
        rows_path: the file of JSON lines.
        source: the data file.
        tell: told how far it is.
    """

    def __init__(self, folder: Path, rows_path: Path, source: Path, tell: Tell) -> None:
        self.num_rows = 0
        self._tell, self._told_s = tell, time.monotonic()
        state = source.stat()
        facts = {"rows": str(rows_path), "source": str(source), "size": state.st_size, "changed_ns": state.st_mtime_ns}
        files.atomic_write_json(folder / FACTS, facts)
        self._file = (folder / INDEX).open("wb")
        # Unbuffered: no row is seen before its part.
        self._parts = (folder / PARTS).open("wb", buffering=0)
        self._last_file = ""

    def __enter__(self) -> IndexWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._parts.close()

    def add(self, begin: int, end: int, number: int, file: str) -> None:
        """Add a row of a file; an archive or a folder holds several, and rows are numbered in each."""
        if file != self._last_file:
            self._parts.write(json_line([self.num_rows, file]))
            self._last_file = file
        self._file.write(_ENTRY.pack(begin, end, number))
        self.num_rows += 1

    def is_due(self) -> bool:
        """Return whether it is time to tell."""
        return time.monotonic() - self._told_s > TELL_EVERY_S

    def tell(self, done_bytes: int) -> None:
        """Let others see the rows so far, and say so."""
        self._file.flush()
        self._told_s = time.monotonic()
        self._tell(self.num_rows, done_bytes)


def serves_as_it_is(path: Path, kind: str, encoding: str) -> bool:
    """Return whether the lines of a file are rows as they stand: JSONL in UTF-8."""
    if kind != "jsonl" or encoding != UTF_8:
        return False
    head = read_head(path, HEAD_BYTES)
    is_utf_8 = not head.startswith(WORKBOOK_MAGIC) and text_encoding(path, head) == "utf-8-sig"
    return is_utf_8 and b"\r" not in head.replace(b"\r\n", b"")


def index_lines(path: Path, folder: Path, tell: Tell) -> int:
    """Write the index of a file that serves as it is; return how many rows it has. Raises UserError or OSError."""
    name = str(path)
    with open_bytes(path) as file, IndexWriter(folder, path, path, tell) as index:
        for begin, end, number in _lines(file):
            index.add(begin, end, number, name)
            if not index.num_rows % 1024 and index.is_due():
                index.tell(end)
        index.tell(path.stat().st_size)
    return index.num_rows


def _lines(file: IO[bytes]) -> Iterator[tuple[int, int, int]]:
    """Yield begin, end and number of each line that is not blank."""
    position = len(_BYTE_ORDER_MARK) if file.read(len(_BYTE_ORDER_MARK)) == _BYTE_ORDER_MARK else 0
    file.seek(position)
    number, begin, is_blank = 1, position, True
    while piece := file.readline(PIECE_BYTES):
        position += len(piece)
        is_blank = is_blank and piece.isspace()
        if piece.endswith(b"\n"):
            if not is_blank:
                yield begin, position, number
            number, begin, is_blank = number + 1, position, True
    if not is_blank:
        yield begin, position, number


def copy_rows(rows: Iterable[tuple[str, int, Row | str]], source: Path, folder: Path, tell: Tell) -> int:
    """Write rows as JSON lines with their index, and why one can't be read; return how many there are.

    Args:
        rows: files, numbers there, and rows or messages.
        source: the file, folder or archive that they come from.
        folder: where copy and index are written.
        tell: told how far it is; the bytes are those of the copy.
    """
    position = 0
    with (folder / COPY).open("wb") as copy, IndexWriter(folder, folder / COPY, source, tell) as index:
        for file, number, row in rows:
            text = json_line(row)
            copy.write(text)
            index.add(position, position + len(text), number, file)
            position += len(text)
            if index.is_due():
                copy.flush()
                index.tell(position)
        copy.flush()
        index.tell(position)
    return index.num_rows


def json_line(row: Any) -> bytes:  # Any: JSON values, and what a Parquet file holds beside these
    """Return a row, or why it can't be read, as a line of JSON."""
    row = [packed({_REASON: row})] if isinstance(row, Message) else row
    return (json.dumps(row, ensure_ascii=False, default=str) + "\n").encode("utf-8", "backslashreplace")


class RowIndex:
    """Reads the rows that are indexed so far. Used by one thread at a time.

    Attributes:
        source: the data file.
    """

    def __init__(self, folder: Path) -> None:
        """Open it. Raises OSError or ValueError when there is none."""
        self._facts = files.read_json(folder / FACTS)
        self.source = Path(self._facts["source"])
        self._index = (folder / INDEX).open("rb")
        self._parts = (folder / PARTS).open("rb")
        self._rows = open_bytes(Path(self._facts["rows"]))
        self._num_rows = 0
        # Of each file its place in these lists.
        self._begins: list[int] = []
        self._files: list[str] = []
        self._parts_of: dict[str, int] = {}
        self.refresh()

    def close(self) -> None:
        """Let go of the files."""
        self._index.close()
        self._parts.close()
        self._rows.close()

    def __len__(self) -> int:
        return self._num_rows

    def refresh(self) -> int:
        """Look how many rows there are by now."""
        self._num_rows = os.fstat(self._index.fileno()).st_size // _ENTRY.size
        while (line := self._parts.readline()).endswith(b"\n"):
            begin, file = json.loads(line)
            self._parts_of[file] = len(self._files)
            self._begins.append(begin)
            self._files.append(file)
        # The rest of a line that is being written comes with the next look.
        self._parts.seek(-len(line), os.SEEK_CUR)
        return self._num_rows

    def number(self, place: int) -> int:
        """Return the number of a row in the file: its line, or which row it is where rows are no lines."""
        return self._entry(place)[2]

    def positions(self) -> Iterator[Position]:
        """Yield where each row is read, in their order; a million take a second."""
        begins, files_of_parts = iter([*self._begins[1:], self._num_rows]), iter(self._files)
        end, file, before, num_before = 0, "", 0, 0
        for place, number in enumerate(self._numbers(self._num_rows)):
            if place == end:
                end, file, before = next(begins), next(files_of_parts), 0
            num_before = num_before + 1 if number == before else 0
            before = number
            yield file, number, num_before

    def _numbers(self, num_rows: int) -> Iterator[int]:
        self._index.seek(0)
        for start in range(0, num_rows, ENTRIES_TOGETHER):
            piece = self._index.read(_ENTRY.size * min(ENTRIES_TOGETHER, num_rows - start))
            yield from (number for _, _, number in _ENTRY.iter_unpack(piece))

    def places_of(self, file: str, number: int) -> range:
        """Return the places of the rows of a file with a number: one, or several where a page has several."""
        part = self._parts_of.get(file)
        if part is None:
            return range(0)
        entries = range(self._num_rows)
        # A part may be known before its first row.
        begin, end = (min(each, self._num_rows) for each in (*self._begins, self._num_rows)[part : part + 2])
        first = bisect_left(entries, number, begin, end, key=self.number)
        return range(first, bisect_right(entries, number, first, end, key=self.number))

    def num_bytes(self, place: int) -> int:
        """Return the length of a row."""
        begin, end, _ = self._entry(place)
        return end - begin

    def raw(self, place: int, most: int = -1) -> bytes:
        """Return the line of a row, or its beginning."""
        begin, end, _ = self._entry(place)
        self._rows.seek(begin)
        return self._rows.read(end - begin if most < 0 else min(end - begin, most)).strip()

    def row(self, place: int) -> Row | str:
        """Return a row; the text itself, or why it can't be read, of one that is no row."""
        return read_line(self.raw(place))

    def line(self, place: int) -> bytes:
        """Return a row as it is saved: as it is, or why it can't be read, in English for whoever reads the file."""
        raw = self.raw(place)
        reason = read_line(raw) if raw.startswith(b"[") else ""
        return json_line(str(reason)) if isinstance(reason, Message) else raw + b"\n"

    def has_changed(self) -> bool:
        """Return whether the data file is another since it was indexed, or gone."""
        try:
            state = self.source.stat()
        except OSError:
            return True
        return (state.st_size, state.st_mtime_ns) != (self._facts["size"], self._facts["changed_ns"])

    def check_unchanged(self) -> None:
        """Raise UserError `usage` when the data file is another since it was indexed."""
        if self.has_changed():
            raise TunesmithError(
                "usage",
                "{path} has changed since it was opened.",
                hint="Open the file again, then repeat your changes.",
                path=self.source,
            )

    def _entry(self, place: int) -> tuple[int, int, int]:
        self._index.seek(place * _ENTRY.size)
        begin, end, number = _ENTRY.unpack(self._index.read(_ENTRY.size))
        return begin, end, number


def read_line(raw: bytes) -> Row | str:
    """Return the row of a line, or the message why it can't be read; its text where that is neither."""
    text = raw.decode("utf-8", "replace")
    try:
        value, end = decode_row(text, 0)
        value = value if isinstance(value, dict | str) else _reason(value)
    except (ValueError, RecursionError):
        return text
    return text if value is None or end != len(text) else value


def _reason(value: Any) -> Message | None:  # Any: JSON values
    """Return the message that `json_line` wrote, None for what a file holds itself."""
    match value:
        case [dict() as told]:
            reason = restored(told).get(_REASON)
            return reason if isinstance(reason, Message) else None
    return None


def find(index: RowIndex, text: str) -> Iterator[tuple[int, bool]]:
    """Yield each place and whether a value of its row contains a text; upper and lower case are the same."""
    wanted = text.casefold()
    for place in range(len(index)):
        raw = index.raw(place)
        line = raw.decode("utf-8", "replace").casefold()
        # Only what is written with escapes can hold what is not there to be read.
        yield place, (wanted in line or "\\" in line) and holds(read_line(raw), wanted)


def holds(value: Any, wanted: str) -> bool:  # Any: JSON values
    """Return whether a value, or one inside it, contains a text that is casefolded already."""
    if isinstance(value, dict):
        return any(holds(each, wanted) for each in value.values())
    if isinstance(value, list):
        return any(holds(each, wanted) for each in value)
    return value is not None and wanted in str(value).casefold()


def save(
    index: RowIndex, target: Path, edits: Mapping[int, Row], deleted: frozenset[int], tell: Tell
) -> int:
    """Write the rows as JSONL into a file that appears when it is whole; return how many there are.

    Args:
        index: the rows as they are.
        target: the new file.
        edits: what stands in place of rows.
        deleted: places of rows that are left out.
        tell: told how many rows are written.

    Raises:
        UserError: `usage` when the target is the data file, or this has changed since it was indexed.
        OSError: when it can't be written.
    """
    if target.exists() and target.samefile(index.source):
        raise TunesmithError(
            "usage",
            "{path} is the file that you opened. Save under another name.",
            hint="Choose another name. The file that you opened stays as it is.",
            path=target,
        )
    index.check_unchanged()
    part = target.with_name(f".{target.name}.part")
    num_rows, told_s = 0, time.monotonic()
    try:
        with part.open("wb") as file:
            for place in range(len(index)):
                if place in deleted:
                    continue
                file.write(json_line(edits[place]) if place in edits else index.line(place))
                num_rows += 1
                if time.monotonic() - told_s > TELL_EVERY_S:
                    told_s = time.monotonic()
                    tell(place + 1, file.tell())
        files.fsync_file(part)
        files.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    return num_rows
