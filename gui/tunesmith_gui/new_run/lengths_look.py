"""How long the examples of a form are in the tokens of its model, looked at before anybody asks."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QObject, QTimer, Signal

from tunesmith_core.operations.kinds.engine import PREVIEW, PreviewSpec
from tunesmith_core.spec import RunSpec
from tunesmith_gui.services.operation import OperationTask

REST_MS = 700
"""Whoever is still typing has not decided."""


class LengthsLook(QObject):
    """Asks for a preview of one run at a time.

    Signals:
        found: (dict) the answer of PREVIEW.
        failed: there is none. Start says why.
    """

    found = Signal(object)
    failed = Signal()

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._asked: dict[str, Any] | None = None  # Any: JSON values
        self._spec: RunSpec | None = None
        self._task: OperationTask | None = None
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(REST_MS)
        self._timer.timeout.connect(self._begin)

    def ask(self, spec: RunSpec | None) -> None:
        """Look at the rows of a run, once for the same model and data; None gives up what is being looked at."""
        asked = {name: spec.to_dict()[name] for name in ("model", "data", "objective")} if spec else None
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
        task = self._task = OperationTask(PREVIEW, PreviewSpec(self._spec, num_rows=1), parent=self)
        task.succeeded.connect(self._take)
        task.failed.connect(self._give_up)
        task.start()

    @property
    def is_looking(self) -> bool:
        """Whether an answer is still to come."""
        return self._task is not None or self._timer.isActive()

    def _give_up(self, _error: object) -> None:
        self._task = None
        self.failed.emit()

    def _take(self, answer: dict[str, Any]) -> None:  # Any: JSON values
        self._task = None
        self.found.emit(answer)
