"""What only the training environment can tell of a form's model and data, looked at before anybody asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QObject, QTimer, Signal

from tunesmith_core.operations.kind import Kind
from tunesmith_core.operations.kinds.engine import MODEL_CHECK, PREVIEW, PreviewSpec
from tunesmith_core.spec import RunSpec
from tunesmith_gui.services.operation import OperationTask

REST_MS = 700
"""Whoever is still typing has not decided."""


class RestedLook(QObject):
    """Does an operation for one run at a time, once the person has rested.

    Signals:
        found: (object) its answer.
        failed: (TunesmithError) there is none.
    """

    found = Signal(object)
    failed = Signal(object)

    def __init__(
        self,
        kind: Kind,
        spec_of: Callable[[RunSpec], Any],
        about: Callable[[RunSpec], object],
        parent: QObject,
    ) -> None:
        """Asks nothing yet.

        Args:
            kind: of the operation.
            spec_of: its spec for a run.
            about: of a run what the answer depends on.
            parent: owns it.
        """
        super().__init__(parent)
        self._kind, self._spec_of, self._about = kind, spec_of, about
        self._asked: object = None
        self._spec: RunSpec | None = None
        self._task: OperationTask | None = None
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(REST_MS)
        self._timer.timeout.connect(self._begin)

    def ask(self, spec: RunSpec | None) -> None:
        """Look at a run, once for the same of what matters; None gives up what is being looked at."""
        asked = self._about(spec) if spec else None
        if asked == self._asked:
            return
        self._asked, self._spec = asked, spec
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if spec is None:
            self._timer.stop()
        else:
            self._timer.start()

    def _begin(self) -> None:
        assert self._spec is not None
        task = self._task = OperationTask(self._kind, self._spec_of(self._spec), parent=self)
        task.succeeded.connect(self._take)
        task.failed.connect(self._give_up)
        task.start()

    @property
    def is_looking(self) -> bool:
        """Whether an answer is still to come."""
        return self._task is not None or self._timer.isActive()

    def _give_up(self, error: object) -> None:
        self._task = None
        self.failed.emit(error)

    def _take(self, answer: object) -> None:
        self._task = None
        self.found.emit(answer)


def lengths_look(parent: QObject) -> RestedLook:
    """Looks at how long the examples of a run are in the tokens of its model; found with the answer of PREVIEW."""

    def about(spec: RunSpec) -> object:
        values = spec.to_dict()
        return [values[name] for name in ("model", "data", "objective")]

    return RestedLook(PREVIEW, lambda spec: PreviewSpec(spec, num_rows=1), about, parent)


def weights_look(parent: QObject) -> RestedLook:
    """Looks at whether the files of a run's model hold all its weights; failed with what a run would be refused by."""
    return RestedLook(
        MODEL_CHECK,
        lambda spec: spec,
        lambda spec: (spec.model.path, spec.model.revision, spec.objective.kind),
        parent,
    )
