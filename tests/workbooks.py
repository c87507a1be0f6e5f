"""Small Excel workbooks, written by hand as ECMA-376 has them."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

Cell = str | int | float | bool | None

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
    for number, (_, rows) in numbered:
        parts[f"xl/worksheets/sheet{number}.xml"] = _sheet(rows)
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, '<?xml version="1.0" encoding="UTF-8"?>' + text)
    return path


def _sheet(rows: Sequence[Sequence[Cell]]) -> str:
    written = "".join(
        f'<row r="{number}">{"".join(map(_cell, range(len(row)), [number] * len(row), row))}</row>'
        for number, row in enumerate(rows, start=1)
    )
    return f'<worksheet xmlns="{MAIN}"><sheetData>{written}</sheetData></worksheet>'


def _cell(column: int, row: int, value: Cell) -> str:
    place = f'r="{chr(ord("A") + column)}{row}"'
    match value:
        case None:
            return ""
        case bool():
            return f'<c {place} t="b"><v>{int(value)}</v></c>'
        case int() | float():
            return f"<c {place}><v>{value}</v></c>"
        case _:
            return f'<c {place} t="inlineStr"><is><t xml:space="preserve">{escape(value)}</t></is></c>'
