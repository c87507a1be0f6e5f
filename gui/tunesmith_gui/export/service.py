"""Exports started in this window: closing the sheet does not stop one, and opening it again from the run shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QObject, Signal

from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.folder import OperationState, OperationStatus
from tunesmith_core.operations.kind import Kind
from tunesmith_core.operations.kinds.export import EXPORT, ExportSpec
from tunesmith_core.operations.runner import Outcome
from tunesmith_core.protocol import Event
from tunesmith_gui.services.operation import OperationTask

MakeTask = Callable[[Kind, ExportSpec, QObject], OperationTask]


class Export(QObject):
    """One export, from its start until somebody has seen how it ended.

    Attributes:
        name: of its run.
        spec: what is exported.
        warnings: what the engine told on the way.
        answer: of one that is done, else None.
        error: why it failed, else None.
        canceled: the person ended it.
        watched: a sheet shows it.

    Signals:
        changed: it moved, warned or ended.
    """

    changed = Signal()

    def __init__(self, name: str, spec: ExportSpec, make_task: MakeTask, parent: QObject) -> None:
        super().__init__(parent)
        self.name, self.spec = name, spec
        self.warnings: list[str] = []
        self.answer: dict[str, Any] | None = None  # Any: JSON values
        self.error: TunesmithError | None = None
        self.canceled = self.watched = False
        self.task = make_task(EXPORT, spec, self)
        self.task.happened.connect(self._on_event)

    @property
    def live(self) -> bool:
        """Whether it has not ended."""
        return self.answer is None and self.error is None and not self.canceled

    @property
    def status(self) -> OperationStatus:
        """How far it is."""
        return self.task.status

    def unwatch(self) -> None:
        """No sheet shows it any more."""
        self.watched = False

    def end(self, outcome: Outcome) -> None:
        """Take in how its operation ended."""
        self.error = None if self.task.cancelled else outcome.error
        if outcome.state is OperationState.FINISHED and not self.task.cancelled:
            self.answer = outcome.answer
        self.canceled = self.answer is None and self.error is None
        self.changed.emit()

    def _on_event(self, event: Event) -> None:
        if event.type == "warning":
            self.warnings.append(event.data.get("message") or event.data.get("code") or "")
        self.changed.emit()


class ExportService(QObject):
    """The exports, one for each run at a time.

    Signals:
        changed: one began or ended.
        ended: an Export that was not canceled.
    """

    changed = Signal()
    ended = Signal(object)

    def __init__(self, make_task: MakeTask = OperationTask) -> None:
        super().__init__()
        self._make_task = make_task
        self._exports: dict[str, Export] = {}

    def of(self, run: str) -> Export | None:
        """Return the export of a run, by its folder, that is live or whose end nobody has seen."""
        return self._exports.get(run)

    def live(self) -> list[Export]:
        """Return those that have not ended."""
        return [each for each in self._exports.values() if each.live]

    def start(self, name: str, spec: ExportSpec) -> Export:
        """Begin an export of a run that is not being exported."""
        export = self._exports[spec.run] = Export(name, spec, self._make_task, self)
        export.task.ended.connect(lambda outcome: self._end(export, outcome))
        export.task.start()
        self.changed.emit()
        return export

    def forget(self, export: Export) -> None:
        """Somebody has seen how it ended."""
        if self._exports.get(export.spec.run) is export and not export.live:
            del self._exports[export.spec.run]
            export.deleteLater()

    def shutdown(self) -> None:
        """End those that are live: the program is closing."""
        for each in self.live():
            each.task.abandon()

    def _end(self, export: Export, outcome: Outcome) -> None:
        export.end(outcome)
        self.changed.emit()
        if export.canceled:
            self.forget(export)
        else:
            self.ended.emit(export)
