"""Rows of spreadsheets, from the first sheet that is recognized or a chosen one: cells are texts as CSV has them."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any

from python_calamine import CalamineError, CalamineSheet, CalamineWorkbook, SheetVisibleEnum

from tunesmith_core.datafmt import Row
from tunesmith_core.datafmt.encoding import MAX_NAME, DataFile, parse_error, row_error, text_problem
from tunesmith_core.datafmt.formats import MAX_LISTED
from tunesmith_core.datafmt.json_rows import BadRow
from tunesmith_core.datafmt.reading import header_names, header_problem
from tunesmith_core.datafmt.sniffing import LAYOUT_ROWS
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.messages import Message, phrase
from tunesmith_engine.data.members import path_of
from tunesmith_engine.data.percent_cells import PercentCells, Shown

MOST_TITLES = 3
"""Rows of one cell that may stand above a heading; more of them are rows."""

SHOWN_DIGITS = 15
"""Of a number in a cell, in every spreadsheet program."""


class WorkbookRows:
    """The rows of one spreadsheet.

    Attributes:
        sheet: name of the sheet that is read.
        titles: lines above the heading, which are no rows.
        sheets: names of the sheets that are shown and hold more than a heading, in the order of the workbook.
        notes: what a person should know, codes and sentences; there can be more once rows are read.
    """

    def __init__(
        self,
        path: DataFile,
        kind: str,
        bad: BadRow,
        sheet: str = "",
        is_recognized: Callable[[list[Row]], bool] = lambda _rows: True,
    ) -> None:
        """Open a file.

        Args:
            path: of the file.
            kind: of the file.
            bad: told each row that can't be read, which is left out unless it raises.
            sheet: name of the sheet that is read, a hidden one too; "" for the first that is shown and recognized, or
                the first with rows where none is.
            is_recognized: whether the first rows of a sheet tell which column holds what.

        Raises:
            UserError: `dataset-parse-error` when the file is damaged or locked by a password, or has no such sheet.
        """
        self._path, self._kind, self._bad = path, kind, bad
        try:
            book = CalamineWorkbook.from_path(path_of(path))
            shown = [each.name for each in book.sheets_metadata if each.visible is SheetVisibleEnum.Visible]
            if sheet and sheet not in book.sheet_names:
                raise _no_sheet(path, sheet, [name[:MAX_NAME] for name in shown[:MAX_LISTED]])
            self.sheets = [name for name in shown if book.get_sheet_by_name(name).total_height]
            several = self.sheets if len(self.sheets) > 1 and not sheet else []
            recognized = (name for name in several if self._is_recognized(book, name, is_recognized))
            self._take(book, sheet or next(recognized, next(iter(self.sheets), "")))
        except (CalamineError, OSError, ValueError) as error:
            raise _refusal(path, error) from error
        # Whoever named a sheet knows that the others are not read.
        unread = [] if sheet else [name for name in self.sheets if name != self.sheet]
        if unread:
            self.notes["dataset-parts-unread"] = Message(
                '{path}: the sheet "{sheet}" is read. These are not: {names}.',
                path=path,
                sheet=self.sheet,
                names=", ".join(f'"{name}"' for name in unread),
            )
        if self.titles:
            self.notes["dataset-titles-unread"] = Message(
                "{path}: lines above the heading of the sheet are not read: {lines}.",
                path=path,
                lines=", ".join(f'"{title[:MAX_NAME]}"' for title in self.titles),
            )

    def _take(self, book: CalamineWorkbook, sheet: str) -> None:
        """Begin with the rows of a sheet, "" for none."""
        self.sheet = sheet
        self.notes: dict[str, str] = {}
        self._sheet: CalamineSheet | None = book.get_sheet_by_name(sheet) if sheet else None
        self.titles, self._rows = self._below_titles()

    def _is_recognized(self, book: CalamineWorkbook, sheet: str, is_recognized: Callable[[list[Row]], bool]) -> bool:
        tell, self._bad = self._bad, lambda _number, _error: None
        self._take(book, sheet)
        try:
            return is_recognized([row for _, row in islice(self.rows(), LAYOUT_ROWS)])
        except UserError:
            return False
        finally:
            self._bad = tell

    def rows(self) -> Iterator[tuple[int, Row]]:
        """Yield (number of the row in the sheet, row).

        Raises:
            UserError: `dataset-parse-error` for a header that can't be used; `dataset-empty` when there is no row.
        """
        header: list[str] = []
        num_rows = 0
        for number, values in self._rows:
            if not header:
                header = self._header(values, number)
            elif problem := text_problem("\n".join(values)):
                self._bad(number, row_error(self._path, self._kind, number, Message("{reason}.", reason=problem[1])))
            else:
                num_rows += 1
                yield number, dict(zip(header, values, strict=True))
        if not num_rows:
            raise TunesmithError("dataset-empty", "{path}: the file has no rows.", path=self._path)

    def _below_titles(self) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
        """Return the titles of the sheet, which are single cells above a row with several, and the rows below them."""
        rows, above = self._filled(), []
        for numbered in islice(rows, MOST_TITLES + 1):
            above.append(numbered)
            if _num_filled(numbered[1]) > 1:
                titles = [next(filter(None, values)) for _, values in above[:-1]]
                return titles, chain(above[-1:], rows)
        return [], chain(above, rows)

    def _filled(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the rows that hold something, with their numbers."""
        if self._sheet is None:
            return
        first_row, first_column = self._sheet.start or (0, 0)
        percentages = PercentCells(path_of(self._path), self._kind, self.sheet)
        for row, cells in enumerate(self._sheet.to_python(skip_empty_area=True), start=first_row):
            shown = percentages.of_row(row)
            values = [_text(cell, shown.get(column)) for column, cell in enumerate(cells, start=first_column)]
            if not percentages.is_known and any(map(_is_fraction, cells)):
                self.notes["dataset-percentages-unknown"] = Message(
                    "{path}: number formats are not read, so that 5% is read as 0.05 and €12.50 as 12.5.",
                    path=self._path,
                )
            if any(values):
                yield row + 1, values

    def _header(self, values: list[str], number: int) -> list[str]:
        header = header_names(values)
        if problem := header_problem(header):
            raise row_error(self._path, self._kind, number, Message("{reason}.", reason=problem))
        return header


def _num_filled(values: list[str]) -> int:
    return sum(map(bool, values))


def _no_sheet(path: DataFile, sheet: str, sheets: list[str]) -> TunesmithError:
    """Say which sheets there are, also to whoever knows how one is chosen."""
    return TunesmithError(
        "dataset-parse-error",
        '{path}: there is no sheet "{sheet}". It has: {names}.',
        hint="Choose one of its sheets.",
        path=path,
        sheet=sheet,
        names=", ".join(f'"{name}"' for name in sheets),
        sheets=json.dumps(sheets),
    )


def _refusal(path: DataFile, error: Exception) -> TunesmithError:
    """Say what is wrong with a workbook without the words of the library: it speaks of the ZIP archive inside."""
    if "password" in str(error).lower():
        return parse_error(path, "the workbook is locked by a password. Save it without one.")
    if isinstance(error, OSError) and error.strerror:
        return parse_error(path, "the workbook can't be read: {error}.", error=phrase(error.strerror))
    return parse_error(path, "the workbook is damaged, or only a part of it was copied.")


def _is_fraction(cell: object) -> bool:
    return isinstance(cell, float) and not cell.is_integer()


def _text(cell: Any, shown: Shown | None) -> str:  # Any: what calamine makes of a cell
    """Return a cell as text: whole numbers without a fraction, percentages as "12.5%", amounts of money with their
    currency, dates as ISO 8601 has them.

    Other number formats say nothing new: a number with separators is the number.
    """
    if isinstance(cell, float):
        if shown is None:
            return _number(cell)
        return f"{_number(100 * cell)}%" if shown.is_percentage else _amount(cell, shown)
    if isinstance(cell, bool):
        return str(cell).upper()
    if isinstance(cell, datetime.date | datetime.time):
        return cell.isoformat()
    return str(cell)


def _amount(value: float, shown: Shown) -> str:
    if shown.decimals is None:
        number = _number(abs(value))
    else:
        number = format(abs(value), f"{',' if shown.has_groups else ''}.{shown.decimals}f")
    return f"{'-' if value < 0 else ''}{shown.before}{number}{shown.after}"


def _number(value: float) -> str:
    # A spreadsheet shows 15 digits; what a binary fraction has behind them, nobody has typed.
    shown = value if value.is_integer() else float(f"{value:.{SHOWN_DIGITS}g}")
    return str(int(shown) if shown.is_integer() else shown)
