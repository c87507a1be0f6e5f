"""Which cells of a spreadsheet are shown as percentages: calamine tells no number formats, so the XML does."""

from __future__ import annotations

import posixpath
import re
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from xml.parsers import expat

Attributes = dict[str, str]
Element = Callable[[str, Attributes], None]
Span = tuple[range, range]
"""Rows and columns, from 0, of cells that are percentages; of no cell where it only says which row is reached."""

CHUNK_BYTES = 64 * 1024
MOST_COLUMNS = 16_384
"""Of a sheet, in every spreadsheet program."""

PERCENTAGE = b'office:value-type="percentage"'
BUILT_IN = frozenset({"9", "10"})
"""Numbers of the formats "0%" and "0.00%", which no workbook spells out."""

UNSHOWN = re.compile(r'"[^"]*"|\[[^\]]*\]|[\\_*].')
"""Parts of a number format in which a percent sign is only a letter."""


class PercentCells:
    """Tells row by row which cells of a sheet are percentages.

    The sheet is read beside its rows, so that it takes no memory however long it is.

    Attributes:
        is_known: whether that can be told; not of the binary kinds, nor where the XML is broken.
    """

    def __init__(self, path: Path, kind: str, sheet: str) -> None:
        """Begin above the first row of a sheet."""
        self.is_known = kind in SPANS
        self._spans = self._until_broken(SPANS[kind](path, sheet)) if self.is_known else iter(())
        self._next = next(self._spans, None)
        self._open: list[Span] = []

    def of_row(self, row: int) -> set[int]:
        """Return the columns of a row that are percentages; rows are asked for in their order."""
        while self._next and self._next[0].start <= row:
            self._open.append(self._next)
            self._next = next(self._spans, None)
        self._open = [span for span in self._open if row in span[0]]
        return {column for _, columns in self._open for column in columns[:MOST_COLUMNS]}

    def _until_broken(self, spans: Iterator[Span]) -> Iterator[Span]:
        try:
            yield from spans
        except (expat.ExpatError, zipfile.BadZipFile, KeyError, ValueError, RuntimeError, OSError):
            self.is_known = False


def _parsed(path: Path, part: str, on_element: Element) -> Iterator[None]:
    """Tell the beginning of every element of a part of the workbook, and pause after each piece of it."""
    parser = expat.ParserCreate()
    parser.StartElementHandler = on_element
    with zipfile.ZipFile(path) as archive, archive.open(part) as stream:
        while piece := stream.read(CHUNK_BYTES):
            parser.Parse(piece)
            yield
        parser.Parse(b"", True)
        yield


def _taken(path: Path, part: str, on_element: Element, found: list[Span]) -> Iterator[Span]:
    """Yield what was found in each piece of a part."""
    for _ in _parsed(path, part, on_element):
        yield from found
        found.clear()


def _whole(path: Path, part: str, on_element: Element) -> None:
    for _ in _parsed(path, part, on_element):
        pass


def _speaks_of_percentages(path: Path) -> bool:
    """Return whether an OpenDocument holds any; to search bytes takes a moment where to parse them takes long."""
    before = b""
    with zipfile.ZipFile(path) as archive, archive.open("content.xml") as stream:
        while piece := stream.read(CHUNK_BYTES):
            if PERCENTAGE in before + piece:
                return True
            before = piece[-len(PERCENTAGE) :]
    return False


def _reach(row: int, found: list[Span]) -> None:
    """Let whoever asks for an earlier row wait no longer, once in a piece."""
    if not found:
        found.append((range(row, row), range(0)))


def _local(name: str) -> str:
    return name.rpartition(":")[2]


# Excel, as ECMA-376 has it


def _excel_spans(path: Path, sheet: str) -> Iterator[Span]:
    styles = _percent_styles(path)
    if not styles:
        return
    found: list[Span] = []
    row = column = -1

    def on_element(name: str, attributes: Attributes) -> None:
        nonlocal row, column
        if name.endswith("c") and _local(name) == "c":
            column = _column(attributes["r"]) if "r" in attributes else column + 1
            if attributes.get("s") in styles:
                found.append((range(row, row + 1), range(column, column + 1)))
        elif name.endswith("row") and _local(name) == "row":
            row, column = int(attributes.get("r", row + 2)) - 1, -1
            _reach(row, found)

    yield from _taken(path, _sheet_part(path, sheet), on_element, found)


@cache
def _letters_column(letters: str) -> int:
    column = 0
    for letter in letters.upper():
        column = 26 * column + ord(letter) - ord("A") + 1
    return column - 1


def _column(reference: str) -> int:
    return _letters_column(reference.rstrip("0123456789"))


def _percent_styles(path: Path) -> set[str]:
    """Return the numbers of the cell styles that show percentages."""
    with zipfile.ZipFile(path) as archive:
        if "xl/styles.xml" not in archive.namelist():
            return set()
    formats, styles = set(BUILT_IN), set[str]()
    section, number = "", -1

    def on_element(name: str, attributes: Attributes) -> None:
        nonlocal section, number
        match _local(name):
            case "cellStyleXfs" | "cellXfs" as list_name:
                section = list_name
            case "numFmt" if "%" in UNSHOWN.sub("", attributes["formatCode"]):
                formats.add(attributes["numFmtId"])
            case "xf" if section == "cellXfs":
                number += 1
                if attributes.get("numFmtId") in formats:
                    styles.add(str(number))

    _whole(path, "xl/styles.xml", on_element)
    return styles


def _sheet_part(path: Path, sheet: str) -> str:
    """Return where in the workbook a sheet is. Raises KeyError."""
    links: dict[str, str] = {}
    targets: dict[str, str] = {}

    def on_sheet(name: str, attributes: Attributes) -> None:
        if _local(name) == "sheet":
            links[attributes["name"]] = next(text for key, text in attributes.items() if key.endswith(":id"))

    def on_target(name: str, attributes: Attributes) -> None:
        if _local(name) == "Relationship":
            targets[attributes["Id"]] = attributes["Target"]

    _whole(path, "xl/workbook.xml", on_sheet)
    _whole(path, "xl/_rels/workbook.xml.rels", on_target)
    return posixpath.normpath(posixpath.join("/xl", targets[links[sheet]])).lstrip("/")


# OpenDocument


def _open_document_spans(path: Path, sheet: str) -> Iterator[Span]:
    if not _speaks_of_percentages(path):
        return
    found: list[Span] = []
    is_wanted = False
    # Equal rows and cells that follow each other are written once, with their number.
    row = behind_row = column = 0

    def on_element(name: str, attributes: Attributes) -> None:
        nonlocal is_wanted, row, behind_row, column
        if name == "table:table":
            is_wanted = attributes.get("table:name") == sheet
        elif not is_wanted:
            return
        elif name == "table:table-row":
            row, column = behind_row, 0
            behind_row += int(attributes.get("table:number-rows-repeated", 1))
            _reach(row, found)
        elif name in ("table:table-cell", "table:covered-table-cell"):
            behind = column + int(attributes.get("table:number-columns-repeated", 1))
            if attributes.get("office:value-type") == "percentage":
                found.append((range(row, behind_row), range(column, behind)))
            column = behind

    yield from _taken(path, "content.xml", on_element, found)


SPANS: dict[str, Callable[[Path, str], Iterator[Span]]] = {"xlsx": _excel_spans, "ods": _open_document_spans}
