"""What is asked before a run begins: which rows it uses, and whether chats may lose what the template can't write."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.kinds.engine import DOUBTS
from tunesmith_core.spec import RunSpec
from tunesmith_gui.services.operation import OperationTask, operations
from tunesmith_gui.tr import core_text
from tunesmith_gui.widgets.confirm import ConfirmDialog
from tunesmith_gui.widgets.which_rows import ask_which_rows


class DoubtsFirst(QObject):
    """Looks at the data of one run while the page stays usable, then asks.

    Signals:
        changed: `live` is another.
        cleared: (RunSpec) the run can start like this.
        given_up: it is not to start.
        failed: (TunesmithError) it would fail.
    """

    changed = Signal()
    cleared = Signal(object)
    given_up = Signal()
    failed = Signal(object)

    def __init__(self, window: Callable[[], QWidget], parent: QObject) -> None:
        super().__init__(parent)
        self._window = window
        self._task: OperationTask | None = None

    @property
    def live(self) -> bool:
        """Whether it is looking."""
        return self._task is not None

    def cancel(self) -> None:
        """Gives up the run."""
        if self._task is not None:
            task = self._task
            self._give_up()
            task.cancel()

    def begin(self, spec: RunSpec) -> None:
        """Look at the data of a run."""
        task = operations().begin(DOUBTS, spec)
        self._follow(task)
        task.start()

    def resume(self) -> None:
        """Follow the look that a page before this one began."""
        for task in operations().of(DOUBTS):
            self._follow(task)

    def leave(self) -> None:
        """Look no longer; it goes on."""
        if self._task is not None:
            self._task.succeeded.disconnect(self._ask)
            self._task.failed.disconnect(self._fail)
            self._task.ended.disconnect(self._give_up)
            self._task = None
            self.changed.emit()

    def _follow(self, task: OperationTask) -> None:
        self._task = task
        task.succeeded.connect(self._ask)
        task.failed.connect(self._fail)
        # It may also be canceled elsewhere in the window.
        task.ended.connect(self._give_up)
        self.changed.emit()

    def _fail(self, error: TunesmithError) -> None:
        self.leave()
        self.failed.emit(error)

    def _give_up(self, _outcome: object = None) -> None:
        self.leave()
        self.given_up.emit()

    def _ask(self, found: dict[str, Any]) -> None:  # Any: JSON values
        assert self._task is not None
        spec = copy.deepcopy(self._task.spec)
        self.leave()
        if self._chose_rows(spec, found) and self._agreed(found["warnings"]):
            self.cleared.emit(spec)
        else:
            self.given_up.emit()

    def _chose_rows(self, spec: RunSpec, found: dict[str, Any]) -> bool:  # Any: JSON values
        sources = found["sources"]
        num_rows, num_unreviewed = (sum(each[name] for each in sources) for name in ("num_rows", "num_unreviewed"))
        if not num_unreviewed:
            return True
        note = self.tr("Your files stay as they are.")
        answer = ask_which_rows(self._window(), num_unreviewed, num_rows, note, are_all=found["is_complete"])
        if answer == ConfirmDialog.DialogCode.Accepted:
            for source, counts in zip(spec.data.sources, sources, strict=True):
                source.reviewed_only = source.reviewed_only or counts["num_unreviewed"] > 0
        return answer != ConfirmDialog.DialogCode.Rejected

    def _agreed(self, warnings: list[str]) -> bool:
        if not warnings:
            return True
        words = "\n\n".join(core_text(each) for each in warnings)
        title, start = self.tr("Train without a part of the data?"), self.tr("Start run")
        dialog = ConfirmDialog(title, words, "", start, self._window())
        answer = dialog.exec()
        dialog.deleteLater()
        return answer == ConfirmDialog.DialogCode.Accepted
