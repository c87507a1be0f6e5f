"""Small workbooks, written by hand as ECMA-376 and OpenDocument have them."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr


class Shown(NamedTuple):
    """A number with a number format.

    Attributes:
        value: that is kept.
        number_format: one that every program knows by its number, or the words of another.
    """

    value: float
    number_format: int | str


Cell = str | int | float | bool | Shown | None
FIRST_OWN_FORMAT = 164

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml"


def write_workbook(path: Path, sheets: Mapping[str, Sequence[Sequence[Cell]]], hidden: Sequence[str] = ()) -> Path:
    """Write a workbook and return its path; a row that is empty takes its place all the same.

    Args:
        path: of the file.
        sheets: rows by the name of the sheet.
        hidden: names of sheets that are not shown.
    """
    numbered = list(enumerate(sheets.items(), start=1))
    types = "".join(
        f'<Override PartName="/xl/worksheets/sheet{n}.xml" ContentType="{TYPE}.worksheet+xml"/>' for n, _ in numbered
    )
    listed = "".join(
        f'<sheet name={quoteattr(name)} sheetId="{n}" r:id="r{n}" state="{"hidden" if name in hidden else "visible"}"/>'
        for n, (name, _) in numbered
    )
    links = "".join(
        f'<Relationship Id="r{n}" Type="{RELATIONS}/worksheet" Target="worksheets/sheet{n}.xml"/>' for n, _ in numbered
    )
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{PACKAGE}/content-types"><Default Extension="rels" '
        f'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{TYPE}.sheet.main+xml"/>{types}</Types>',
        "_rels/.rels": f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="r1" '
        f'Type="{RELATIONS}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{RELATIONS}"><sheets>{listed}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{PACKAGE}/relationships">{links}</Relationships>',
    }
    formats = list(dict.fromkeys(cell.number_format for rows in sheets.values() for row in rows for cell in row
                                 if isinstance(cell, Shown)))  # fmt: skip
    if formats:
        parts["xl/styles.xml"] = _styles(formats)
    for number, (_, rows) in numbered:
        parts[f"xl/worksheets/sheet{number}.xml"] = _sheet(rows, formats)
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, '<?xml version="1.0" encoding="UTF-8"?>' + text)
    return path


def _styles(formats: Sequence[int | str]) -> str:
    """Return cell styles with number formats, from style 1; as Excel does, it lists others in other places."""
    numbers = [each if isinstance(each, int) else FIRST_OWN_FORMAT + place for place, each in enumerate(formats)]
    own = "".join(
        f'<numFmt numFmtId="{number}" formatCode={quoteattr(each)}/>'
        for number, each in zip(numbers, formats, strict=True)
        if isinstance(each, str)
    )
    used = "".join(f'<xf numFmtId="{number}" xfId="0"/>' for number in numbers)
    return (
        f'<styleSheet xmlns="{MAIN}"><numFmts>{own}</numFmts><cellStyleXfs><xf numFmtId="9"/><xf numFmtId="9"/>'
        f'</cellStyleXfs><cellXfs><xf numFmtId="0" xfId="0"/>{used}</cellXfs><dxfs><dxf>'
        '<numFmt numFmtId="2" formatCode="0%"/></dxf></dxfs></styleSheet>'
    )


def _sheet(rows: Sequence[Sequence[Cell]], formats: Sequence[int | str]) -> str:
    written = "".join(
        f'<row r="{number}">{"".join(_cell(column, number, cell, formats) for column, cell in enumerate(row))}</row>'
        for number, row in enumerate(rows, start=1)
    )
    return f'<worksheet xmlns="{MAIN}"><sheetData>{written}</sheetData></worksheet>'


def _cell(column: int, row: int, value: Cell, formats: Sequence[int | str]) -> str:
    place = f'r="{chr(ord("A") + column)}{row}"'
    match value:
        case None:
            return ""
        case bool():
            return f'<c {place} t="b"><v>{int(value)}</v></c>'
        case int() | float():
            return f"<c {place}><v>{value}</v></c>"
        case Shown():
            return f'<c {place} s="{formats.index(value.number_format) + 1}"><v>{value.value}</v></c>'
        case _:
            return f'<c {place} t="inlineStr"><is><t xml:space="preserve">{escape(value)}</t></is></c>'


def write_open_document(path: Path, tables: str) -> Path:
    """Write an OpenDocument spreadsheet of tables, as it has them, and return its path."""
    spaces = "".join(
        f' xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("office", "table", "text")
    )
    content = f"<office:body><office:spreadsheet>{tables}</office:spreadsheet></office:body>"
    kind = "application/vnd.oasis.opendocument.spreadsheet"
    manifest = "urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mimetype", kind)
        archive.writestr("content.xml", f"<office:document-content{spaces}>{content}</office:document-content>")
        archive.writestr(
            "META-INF/manifest.xml",
            f'<manifest xmlns="{manifest}"><file-entry full-path="/" media-type="{kind}"/></manifest>',
        )
    return path
