"""The last check of data, which outlives the pane that asked for it: the page is left, or built in another language."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from PySide6.QtCore import QCoreApplication, QObject, Signal

from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.kinds.data import CHECK_DATA, CheckDataSpec
from tunesmith_core.operations.kinds.rows import EditedRows
from tunesmith_core.protocol import Event
from tunesmith_gui.data.place_set import PlaceSet
from tunesmith_gui.data.rows import Changed, Rows
from tunesmith_gui.services.operation import OperationTask


class KeptCheck(QObject):
    """One check at a time.

    Signals:
        happened, succeeded, failed: as of an OperationTask.

    Attributes:
        answer: of the check; None while it is under way.
        latest: what it told last.
        actions: what the person chose for its rules, by their names.
        changed: what was changed in the rows that it looks at.
    """

    happened = Signal(object)
    succeeded = Signal(object)
    failed = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.answer: dict[str, Any] | None = None  # Any: JSON values
        self.latest: Event | None = None
        self.actions: dict[str, str] = {}
        self.changed: Changed = ({}, PlaceSet())
        self._of: tuple[CheckDataSpec, str] | None = None
        self._task: OperationTask | None = None
        app = QCoreApplication.instance()
        assert app is not None
        app.aboutToQuit.connect(self._end)

    def is_of(self, spec: CheckDataSpec, state: str) -> bool:
        """Whether it is of this data, the files of which have not changed since, and neither failed nor was given up.
        """
        return self._of == (spec, state)

    def begin(self, spec: CheckDataSpec, state: str, rows: Rows | None) -> None:
        """Checks other data, or the same once more, with what was changed in the rows that are open.

        Raises:
            OSError: when that can't be handed over.
        """
        if not self.is_of(spec, state):
            self.actions = {}
        self.cancel()
        edited, self.changed = EditedRows(), ({}, PlaceSet())
        if rows is not None and rows.is_complete and rows.has_changes:
            edited, self.changed = rows.edited_rows(), rows.state()
        self._of, self.answer, self.latest = (spec, state), None, None
        self._task = OperationTask(CHECK_DATA, replace(spec, edited=edited), parent=self)
        self._task.happened.connect(self._follow)
        self._task.succeeded.connect(self._take)
        self._task.failed.connect(self._fail)
        self._task.start()

    def cancel(self) -> None:
        """Gives up what is under way; an answer stays."""
        if self._task is not None:
            self._task.cancel()
            self._task = self._of = None

    def _follow(self, event: Event) -> None:
        self.latest = event
        self.happened.emit(event)

    def _take(self, answer: dict[str, Any]) -> None:  # Any: JSON values
        self._task, self.answer = None, answer
        self.succeeded.emit(answer)

    def _fail(self, error: TunesmithError) -> None:
        self._task = self._of = None
        self.failed.emit(error)

    def _end(self) -> None:
        if self._task is not None:
            self._task.abandon()


@cache
def kept_check() -> KeptCheck:
    """The check of this window."""
    return KeptCheck()
