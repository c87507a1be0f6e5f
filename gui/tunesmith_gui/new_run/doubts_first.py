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
from tunesmith_gui.services.operation import OperationTask
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
            self._task.cancel()
            self._give_up()

    def begin(self, spec: RunSpec) -> None:
        """Look at the data of a run."""
        spec = copy.deepcopy(spec)
        task = self._task = OperationTask(DOUBTS, spec, parent=self)
        task.succeeded.connect(lambda found: self._ask(spec, found))
        task.failed.connect(self._fail)
        # It may also be canceled elsewhere in the window.
        task.ended.connect(lambda _outcome: self._give_up() if self._task is task else None)
        self.changed.emit()
        task.start()

    def _end(self) -> None:
        self._task = None
        self.changed.emit()

    def _fail(self, error: TunesmithError) -> None:
        self._end()
        self.failed.emit(error)

    def _give_up(self) -> None:
        self._end()
        self.given_up.emit()

    def _ask(self, spec: RunSpec, found: dict[str, Any]) -> None:  # Any: JSON values
        self._end()
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
