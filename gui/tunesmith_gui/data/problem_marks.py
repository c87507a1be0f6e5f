"""Where the rows with problems are: looked up in portions, so a window with thousands of them never stands still."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from PySide6.QtCore import QObject, QTimer, Signal

from tunesmith_gui.data.row_problems import RowProblem
from tunesmith_gui.data.rows import Rows

MARKED_AT_ONCE = 100
_SEVERITIES = ("error", "warning", "note")

Answer = dict[str, Any]  # Any: JSON values


class ProblemMarks(QObject):
    """What is wrong with rows, by their places.

    Signals:
        found: (dict of place -> list of RowProblem) all places are known.

    Attributes:
        rows: of the file that was checked, None while none is open.
    """

    found = Signal(object)

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self.rows: Rows | None = None
        self._unmarked: Iterator[tuple[Answer, Answer]] = iter(())
        self._marks: dict[int, list[RowProblem]] = {}

    def find(self, problems: Sequence[Answer]) -> None:
        """Looks for the rows of the rules that a check names."""
        worst_first = sorted(problems, key=lambda rule: _SEVERITIES.index(rule["severity"]))
        self._unmarked = iter([(rule, row) for rule in worst_first for row in rule["rows"] if row.get("line")])
        self._marks = {}
        self._find_some()

    def _find_some(self) -> None:
        """Finds some, and lets the window look at its other events before the next."""
        if self.rows is None:
            return
        some = list(islice(self._unmarked, MARKED_AT_ONCE))
        for rule, row in some:
            place = self.rows.place_of(row["path"], row["line"], row.get("row"))
            if place is not None:
                self._marks.setdefault(place, []).append(RowProblem.from_answer(rule, row))
        if some:
            QTimer.singleShot(0, self, self._find_some)
        else:
            self.found.emit(self._marks)
