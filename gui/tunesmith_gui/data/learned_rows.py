"""What the engine says a model learns from rows: the totals of the file, and any of its rows token by token."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Signal

from tunesmith_core.datafmt.row_index import json_line
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.kinds.engine import PREVIEW, PreviewSpec
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_gui.background import Job
from tunesmith_gui.data.rows import Rows
from tunesmith_gui.services.operation import OperationTask
from tunesmith_gui.tr import core_text

NUM_ROWS = 12
"""Shown rows that are asked for at once; starting the libraries takes a second or two."""

MOST_LEFT_OUT = 500
"""Rows that are looked through for the next one of an answer."""

Answer = dict[str, Any]  # Any: JSON values


class LearnedRows(QObject):
    """Asks for what is looked at and keeps it until model, data or settings change.

    Rows are sent as they are in the window, changes included, to the same code that prepares a run.

    Signals:
        totals_known: `totals` has a value.
        row_known: (place) the row is known, or why it is left out.
        failed: (TunesmithError) nothing can be shown.
    """

    totals_known = Signal()
    row_known = Signal(int)
    failed = Signal(object)

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self.totals: Answer | None = None
        self._known: dict[int, Answer | str] = {}
        self._spec: RunSpec | None = None
        self._rows: Rows | None = None
        self._tasks: dict[str, OperationTask] = {}
        self._asked: list[int] = []

    def begin(self, spec: RunSpec, rows: Rows) -> None:
        """Asks for the totals of a file that a spec names as its only source."""
        self.end()
        self._spec, self._rows = copy.deepcopy(spec), rows
        self._ask("totals", self._spec, self._take_totals)

    def end(self) -> None:
        """Gives up what is under way, and forgets what is known."""
        for task in self._tasks.values():
            task.cancel()
        self._tasks, self._known, self.totals, self._asked = {}, {}, None, []

    def forget(self, places: list[int]) -> None:
        """A person changed rows."""
        for place in places:
            self._known.pop(place, None)

    def row(self, place: int) -> Answer | str | None:
        """A row as the trainer sees it; why it is left out; None while that is not known."""
        return self._known.get(place)

    def want(self, place: int) -> None:
        """Asks for a row and those after it, unless it is known or asked for."""
        if self._rows is None or place in self._known or "totals" in self._tasks or place in self._asked:
            return
        if "rows" in self._tasks:
            self._tasks.pop("rows").cancel()
        last = min(place + NUM_ROWS, len(self._rows))
        self._asked = [each for each in range(place, last) if each not in self._known]
        shown = [self._rows.whole(each).values for each in self._asked]
        path = self._path()
        lines = b"".join(json_line(row if row is not None else "") for row in shown)
        Job.start(self, lambda: path.write_bytes(lines), lambda _size: self._ask_rows(path), self.failed.emit)

    def _path(self) -> Path:
        assert self._rows is not None
        assert self._rows.folder is not None
        return self._rows.folder / "looked-at.jsonl"

    def _ask_rows(self, path: Path) -> None:
        if self._spec is None:
            return
        spec = copy.deepcopy(self._spec)
        said = spec.data.sources[0]
        spec.data.sources = [SourceSpec(path=str(path), format=said.format, columns=said.columns)]
        self._ask("rows", spec, self._take_rows, self._take_refusal)

    def _ask(self, name: str, spec: RunSpec, done: Any, failed: Any = None) -> None:  # Any: slots
        task = OperationTask(PREVIEW, PreviewSpec(spec, NUM_ROWS, tokens=True), parent=self)
        self._tasks[name] = task
        task.succeeded.connect(lambda answer: self._over(name, done, answer))
        task.failed.connect(lambda error: self._over(name, failed or self.failed.emit, error))
        task.start()

    def _over(self, name: str, done: Any, value: Any) -> None:  # Any: a slot and what it takes
        self._tasks.pop(name, None)
        done(value)

    def _take_totals(self, answer: Answer) -> None:
        assert self._rows is not None
        self.totals = answer
        last = -1
        for row in _whole(answer["rows"]):
            # Rows come in order, and each file of an archive numbers its own; between them are those that are left out.
            ahead = range(last + 1, min(last + 1 + MOST_LEFT_OUT, len(self._rows)))
            place = next((place for place in ahead if self._rows.number(place) == row["line"]), None)
            if place is None:
                break
            last = place
            if place not in self._rows.edits:
                self._known[place] = row
        self.totals_known.emit()

    def _take_rows(self, answer: Answer) -> None:
        for row in _whole(answer["rows"]):
            self._known[self._asked[row["line"] - 1]] = row
        for problem in answer["problems"]:
            self._known[self._asked[problem["line"] - 1]] = _reason(problem["message"])
        self._tell_asked()

    def _take_refusal(self, error: TunesmithError) -> None:
        """None of the rows can be used: the error names the first."""
        if error.code not in ("dataset-parse-error", "dataset-empty"):
            self._asked = []
            self.failed.emit(error)
            return
        for place in self._asked:
            self._known[place] = _reason(error.message)
        self._tell_asked()

    def _tell_asked(self) -> None:
        asked, self._asked = self._asked, []
        for place in asked:
            self.row_known.emit(place)


def _whole(rows: list[Answer]) -> list[Answer]:
    """Rows with all their parts in one; `splits` says before which of the tokens a part begins.

    A pair is its better answer with `worse`, and both are counted.
    """
    found: list[Answer] = []
    for row in rows:
        if row.get("answer") == "worse":
            pair = found[-1]
            pair["worse"] = {**row, "splits": []}
            for name in ("num_tokens", "num_trained_tokens"):
                pair[name] = pair[name] + row[name]
            continue
        if row["part"] == 1:
            found.append({**row, "splits": []})
            continue
        whole = found[-1]
        whole["splits"].append(len(whole["tokens"]))
        for name in ("tokens", "num_tokens", "num_trained_tokens"):
            whole[name] = whole[name] + row[name]
    return found


def _reason(message: str) -> str:
    """What is wrong with a row, without the name of the file that it was sent in."""
    words = core_text(message)
    return words.partition(": ")[2] or words
