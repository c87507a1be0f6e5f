"""Rows of spreadsheets, from the first sheet that has any, each cell as the text that a CSV file would hold."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from python_calamine import CalamineError, CalamineSheet, CalamineWorkbook, SheetVisibleEnum

from tunesmith_core.datafmt import Row
from tunesmith_core.datafmt.encoding import parse_error, row_error, text_problem
from tunesmith_core.datafmt.reading import BadRow, header_names, header_problem
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message, phrase


class WorkbookRows:
    """The rows of one spreadsheet.

    Attributes:
        unread: names of further sheets that hold something.
    """

    def __init__(self, path: Path, kind: str, bad: BadRow) -> None:
        """Open a file.

        Args:
            path: of the file.
            kind: of the file.
            bad: told each row that can't be read, which is left out unless it raises.

        Raises:
            UserError: `dataset-parse-error` when the file is damaged or locked by a password; `dataset-empty` when no
                sheet holds a row.
        """
        self._path, self._kind, self._bad = path, kind, bad
        try:
            book = CalamineWorkbook.from_path(path)
            shown = [each.name for each in book.sheets_metadata if each.visible is SheetVisibleEnum.Visible]
            sheets = [sheet for name in shown if (sheet := book.get_sheet_by_name(name)).total_height]
        except (CalamineError, OSError, ValueError) as error:
            raise parse_error(path, "the workbook can't be read: {error}.", error=phrase(str(error)[:200])) from error
        if not sheets:
            raise TunesmithError("dataset-empty", "{path}: the file has no rows.", path=path)
        self._sheet: CalamineSheet = sheets[0]
        self.unread = [sheet.name for sheet in sheets[1:]]

    def rows(self) -> Iterator[tuple[int, Row]]:
        """Yield (number of the row in the sheet, row).

        Raises:
            UserError: `dataset-parse-error` for a header that can't be used; `dataset-empty` when there is no row.
        """
        header: list[str] = []
        num_rows = 0
        first = self._sheet.start[0] + 1 if self._sheet.start else 1
        for number, cells in enumerate(self._sheet.to_python(skip_empty_area=True), start=first):
            values = [_text(cell) for cell in cells]
            if not any(values):
                continue
            if not header:
                header = self._header(values, number)
            elif problem := text_problem("\n".join(values)):
                self._bad(number, row_error(self._path, self._kind, number, Message("{reason}.", reason=problem[1])))
            else:
                num_rows += 1
                yield number, dict(zip(header, values, strict=True))
        if not num_rows:
            raise TunesmithError("dataset-empty", "{path}: the file has no rows.", path=self._path)

    def _header(self, values: list[str], number: int) -> list[str]:
        header = header_names(values)
        if problem := header_problem(header):
            raise row_error(self._path, self._kind, number, Message("{reason}.", reason=problem))
        return header


def _text(cell: Any) -> str:  # Any: what calamine makes of a cell
    """Return a cell as text: whole numbers without a fraction, dates as ISO 8601 has them."""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    if isinstance(cell, bool):
        return str(cell).upper()
    if isinstance(cell, datetime.date | datetime.time):
        return cell.isoformat()
    return str(cell)
