"""Looks for rows in a process of its own; what was found so far is there while it looks on."""

from __future__ import annotations

import contextlib
from array import array
from itertools import count
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.kind import AbsolutePath
from tunesmith_core.operations.kinds.rows import FIND_ROWS, PLACE_BYTES, FindSpec
from tunesmith_core.protocol import Event
from tunesmith_gui.data.rows import Rows
from tunesmith_gui.services.operation import OperationTask


class Finder(QObject):
    """One search at a time.

    Signals:
        found: more places were found, or the search ended.
        failed: (TunesmithError).

    Attributes:
        text: what is looked for, "" for nothing.
        places: of the rows that hold it, as far as they are known.
        share: how much of the rows was looked at, 1 once all were.
    """

    found = Signal()
    failed = Signal(object)

    def __init__(self, rows: Rows, parent: QObject) -> None:
        super().__init__(parent)
        self.text = ""
        self.places: array[int] = array("Q")
        self.share = 1.0
        self._rows = rows
        self._task: OperationTask | None = None
        self._target = Path()
        self._numbers = count(1)

    @property
    def is_looking(self) -> bool:
        """Whether a search is under way."""
        return self._task is not None

    def look_for(self, text: str) -> None:
        """Begins a search; one under way is given up."""
        self.cancel()
        self.text, self.places, self.share = text, array("Q"), 0.0 if text else 1.0
        if text and self._rows.folder is not None and len(self._rows):
            self._target = self._rows.folder / f"found-{next(self._numbers)}"
            folder, target = AbsolutePath(str(self._rows.folder)), AbsolutePath(str(self._target))
            self._task = OperationTask(FIND_ROWS, FindSpec(folder, text, target), parent=self)
            self._task.happened.connect(self._follow)
            self._task.succeeded.connect(self._end)
            self._task.failed.connect(self._fail)
            self._task.start()
        self.found.emit()

    def cancel(self) -> None:
        """Gives a search up; what was found stays."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
            self.found.emit()

    def _follow(self, event: Event) -> None:
        if event.type == "progress" and self._task is not None:
            self.share = self._task.status.share or 0.0
            self._take()
            self.found.emit()

    def _take(self) -> None:
        with contextlib.suppress(OSError), self._target.open("rb") as file:
            file.seek(len(self.places) * PLACE_BYTES)
            content = file.read()
            self.places.frombytes(content[: len(content) // PLACE_BYTES * PLACE_BYTES])

    def _end(self, _answer: object) -> None:
        self._take()
        self.places = self._rows.corrected(self.places, self.text)
        self._task, self.share = None, 1.0
        self.found.emit()

    def _fail(self, error: TunesmithError) -> None:
        self._task = None
        self.failed.emit(error)
        self.found.emit()
