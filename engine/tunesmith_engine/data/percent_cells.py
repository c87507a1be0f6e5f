"""Which cells of a spreadsheet are shown as percentages or amounts: calamine tells no number formats, the XML does."""

from __future__ import annotations

import posixpath
import re
import unicodedata
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from xml.parsers import expat

Attributes = dict[str, str]
Element = Callable[[str, Attributes], None]


@dataclass(frozen=True, slots=True)
class Shown:
    """How a number is shown: as a percentage, or as an amount of money.

    Attributes:
        before, after: what stands around an amount.
        decimals: of an amount; None for as many as it has.
        has_groups: whether commas part the thousands.
    """

    is_percentage: bool = False
    before: str = ""
    after: str = ""
    decimals: int | None = None
    has_groups: bool = False


PERCENT = Shown(is_percentage=True)
Span = tuple[range, range, Shown]
"""Rows and columns, from 0, of cells that are shown so; of no cell where it only says which row is reached."""

CHUNK_BYTES = 64 * 1024
MOST_COLUMNS = 16_384
"""Of a sheet, in every spreadsheet program."""

MARKS = (b'office:value-type="percentage"', b'office:value-type="currency"')
MOST_MARK_BYTES = max(map(len, MARKS))
BUILT_IN = frozenset({"9", "10"})
"""Numbers of the formats "0%" and "0.00%", which no workbook spells out."""

UNSHOWN = re.compile(r'"[^"]*"|\[[^\]]*\]|[\\_*].')
"""Parts of a number format in which a percent sign is only a letter."""

LITERAL = re.compile(r'"([^"]*)"|\[\$([^\]-]*)[^\]]*\]|\[[^\]]*\]|\\(.)|_.|\*.')
"""Parts of a number format that are shown as they are, or stand for a sign or for room."""

CURRENCY = re.compile(r"\[\$[^\]-]")
"""The beginning of a part of a number format that names a currency; it may name a language alone."""

AMOUNT = re.compile(r"([^#0?]*)([#0?,]+)(?:\.([#0?]+))?([^#0?]*)")


class PercentCells:
    """Tells row by row which cells of a sheet are percentages or amounts of money.

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

    def of_row(self, row: int) -> dict[int, Shown]:
        """Return how the columns of a row are shown that are such; rows are asked for in their order."""
        while self._next and self._next[0].start <= row:
            self._open.append(self._next)
            self._next = next(self._spans, None)
        self._open = [span for span in self._open if row in span[0]]
        return {column: shown for _, columns, shown in self._open for column in columns[:MOST_COLUMNS]}

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


def _speaks_of_formats(path: Path) -> bool:
    """Return whether an OpenDocument holds any; to search bytes takes a moment where to parse them takes long."""
    before = b""
    with zipfile.ZipFile(path) as archive, archive.open("content.xml") as stream:
        while piece := stream.read(CHUNK_BYTES):
            if any(mark in before + piece for mark in MARKS):
                return True
            before = piece[-MOST_MARK_BYTES:]
    return False


def _reach(row: int, found: list[Span]) -> None:
    """Let whoever asks for an earlier row wait no longer, once in a piece."""
    if not found:
        found.append((range(row, row), range(0), PERCENT))


def _local(name: str) -> str:
    return name.rpartition(":")[2]


# Excel, as ECMA-376 has it


def _excel_spans(path: Path, sheet: str) -> Iterator[Span]:
    styles = _shown_styles(path)
    if not styles:
        return
    found: list[Span] = []
    row = column = -1

    def on_element(name: str, attributes: Attributes) -> None:
        nonlocal row, column
        if name.endswith("c") and _local(name) == "c":
            column = _column(attributes["r"]) if "r" in attributes else column + 1
            if shown := styles.get(attributes.get("s", "")):
                found.append((range(row, row + 1), range(column, column + 1), shown))
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


def _shown_styles(path: Path) -> dict[str, Shown]:
    """Return how the cell styles show numbers that show percentages or amounts, by their numbers."""
    with zipfile.ZipFile(path) as archive:
        if "xl/styles.xml" not in archive.namelist():
            return {}
    formats, styles = dict.fromkeys(BUILT_IN, PERCENT), dict[str, Shown]()
    section, number = "", -1

    def on_element(name: str, attributes: Attributes) -> None:
        nonlocal section, number
        match _local(name):
            case "cellStyleXfs" | "cellXfs" as list_name:
                section = list_name
            case "numFmt" if shown := shown_by(attributes["formatCode"]):
                formats[attributes["numFmtId"]] = shown
            case "xf" if section == "cellXfs":
                number += 1
                if shown := formats.get(attributes.get("numFmtId", "")):
                    styles[str(number)] = shown

    _whole(path, "xl/styles.xml", on_element)
    return styles


def shown_by(code: str) -> Shown | None:
    """Return how a number format shows a number, None where that says no more than the number."""
    if "%" in UNSHOWN.sub("", code):
        return PERCENT
    # What is shown of negative numbers and of nothing stands behind semicolons.
    plain = LITERAL.sub(_literal, code).split(";")[0]
    amount = AMOUNT.fullmatch(plain)
    is_money = CURRENCY.search(code) or any(unicodedata.category(letter) == "Sc" for letter in plain)
    if amount is None or not is_money:
        return None
    before, digits, decimals, after = amount.groups()
    if digits.endswith(","):
        # It shows thousands.
        return None
    return Shown(False, before.lstrip(), after.rstrip(), len(decimals or ""), "," in digits)


def _literal(part: re.Match[str]) -> str:
    """Return what is shown of a part of a number format; what would be taken for a digit or a section is left out."""
    text = part[1] or part[2] or part[3] or (" " if part[0][0] == "_" else "")
    return re.sub("[#0?;]", "", text)


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
    if not _speaks_of_formats(path):
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
            value_type, currency = attributes.get("office:value-type"), attributes.get("office:currency", "")
            if value_type == "percentage" or (value_type == "currency" and currency):
                # The sign stands in a style of its own; the file names the currency.
                shown = PERCENT if value_type == "percentage" else Shown(after=f" {currency}")
                found.append((range(row, behind_row), range(column, behind), shown))
            column = behind

    yield from _taken(path, "content.xml", on_element, found)


SPANS: dict[str, Callable[[Path, str], Iterator[Span]]] = {"xlsx": _excel_spans, "ods": _open_document_spans}
