"""Exports started in this window: closing the sheet does not stop one, and opening it again from the run shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QObject, Signal

from tunesmith_core.errors import TunesmithError
from tunesmith_core.exports import FORMATS
from tunesmith_core.operations.folder import OperationState, OperationStatus
from tunesmith_core.operations.kind import AbsolutePath, Kind
from tunesmith_core.operations.kinds.export import EXPORT, GGUF_CHECK, ExportFormat, ExportSpec
from tunesmith_core.operations.kinds.hub import PUSH, PushSpec
from tunesmith_core.operations.runner import Outcome
from tunesmith_core.protocol import Event
from tunesmith_core.spec import RunSpec
from tunesmith_gui.export.model import Push
from tunesmith_gui.services.operation import OperationTask
from tunesmith_gui.tr import translate

UNSUPPORTED = "export-unsupported"
"""The code of what the engine can't export."""

MakeTask = Callable[[Kind, Any, QObject], OperationTask]  # Any: the spec of the kind


class Export(QObject):
    """One export, from its start until somebody has seen how it ended.

    Attributes:
        name: of its run.
        spec: what is exported.
        push: where it is uploaded to then, None for nowhere.
        warnings: what the engine told on the way.
        answer: of one that is done, else None.
        error: why it failed, else None.
        canceled: the person ended it.
        watched: a sheet shows it.

    Signals:
        changed: it moved, warned or ended.
        ended: nothing more happens to it.
    """

    changed = Signal()
    ended = Signal()

    def __init__(
        self, name: str, spec: ExportSpec, push: Push | None, make_task: MakeTask, parent: QObject
    ) -> None:
        super().__init__(parent)
        self.name, self.spec, self.push = name, spec, push
        self.warnings: list[str] = []
        self.answer: dict[str, Any] | None = None  # Any: JSON values
        self.error: TunesmithError | None = None
        self.canceled = self.watched = False
        self._make_task = make_task
        self._exported: dict[str, Any] | None = None  # Any: JSON values
        self.task = self._made(EXPORT, spec, lambda: translate("Export", "Exporting %1"))

    def _made(self, kind: Kind, spec: ExportSpec | PushSpec, doing: Callable[[], str]) -> OperationTask:
        task = self._make_task(kind, spec, self)
        task.run_name = self.name
        task.describe(doing)
        task.happened.connect(self._on_event)
        task.ended.connect(self._on_ended)
        return task

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

    def _on_ended(self, outcome: Outcome) -> None:
        done = outcome.state is OperationState.FINISHED and not self.task.cancelled
        if done and self.push is not None and self._exported is None:
            self._exported = outcome.answer
            spec = PushSpec(AbsolutePath(outcome.answer["path"]), self.push.id, self.push.public)
            self.task = self._made(PUSH, spec, lambda: translate("Export", "Uploading %1"))
            self.task.start()
            self.changed.emit()
            return
        self._end(outcome)

    def _end(self, outcome: Outcome) -> None:
        self.error = None if self.task.cancelled else outcome.error
        if outcome.state is OperationState.FINISHED and not self.task.cancelled:
            self.answer = {**self._exported, "hub": outcome.answer} if self._exported else outcome.answer
        self.canceled = self.answer is None and self.error is None
        self.changed.emit()
        self.ended.emit()

    def _on_event(self, event: Event) -> None:
        if event.type == "warning":
            self.warnings.append(event.data.get("message") or event.data.get("code") or "")
        self.changed.emit()


class ExportService(QObject):
    """The exports, one for each run at a time.

    Signals:
        changed: one began, ended or was seen.
        ended: an Export that was not canceled.
    """

    changed = Signal()
    ended = Signal(object)

    def __init__(self, make_task: MakeTask = OperationTask) -> None:
        super().__init__()
        self._make_task = make_task
        self._exports: dict[str, Export] = {}
        self._refused: set[tuple[str, ExportFormat]] = set()

    def of(self, run: str) -> Export | None:
        """Return the export of a run, by its folder, that is live or whose end nobody has seen."""
        return self._exports.get(run)

    def refused(self, run: str) -> frozenset[ExportFormat]:
        """Return the formats that the engine has said it can't export a run in, by the run's folder."""
        return frozenset(name for folder, name in self._refused if folder == run)

    def check_gguf(self, run: str, spec: RunSpec, owner: QObject) -> OperationTask:
        """Begin to look whether a run, by its folder, can become a GGUF file; `failed` of the task tells why not."""
        task = self._make_task(GGUF_CHECK, spec, owner)
        task.failed.connect(lambda error: self._take_refusal(run, error))
        task.start()
        return task

    def _take_refusal(self, run: str, error: TunesmithError) -> None:
        if error.code == UNSUPPORTED:
            self._refused |= {(run, each) for each in FORMATS if "gguf" in each}

    def live(self) -> list[Export]:
        """Return those that have not ended."""
        return [each for each in self._exports.values() if each.live]

    def unseen(self) -> list[Export]:
        """Return those that have ended and that nobody has seen since."""
        return [each for each in self._exports.values() if not each.live and not each.watched]

    def start(self, name: str, spec: ExportSpec, push: Push | None = None) -> Export:
        """Begin an export of a run that is not being exported."""
        export = self._exports[spec.run] = Export(name, spec, push, self._make_task, self)
        export.ended.connect(lambda: self._end(export))
        export.task.start()
        self.changed.emit()
        return export

    def forget(self, export: Export) -> None:
        """Somebody has seen how it ended."""
        if self._exports.get(export.spec.run) is export and not export.live:
            del self._exports[export.spec.run]
            export.deleteLater()
            self.changed.emit()

    def shutdown(self) -> None:
        """End those that are live: the program is closing."""
        for each in self.live():
            each.task.abandon()

    def _end(self, export: Export) -> None:
        if export.error is not None and export.error.code == UNSUPPORTED:
            self._refused.add((export.spec.run, export.spec.format))
        self.changed.emit()
        if export.canceled:
            self.forget(export)
        else:
            self.ended.emit(export)
