"""Operations in the window: each on a thread of its own, its events and its end told on the UI thread."""

from __future__ import annotations

import copy
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, QTimer, Signal
from shiboken6 import isValid

from tunesmith_core.errors import wrap
from tunesmith_core.operations.folder import Operation, OperationState, OperationStatus
from tunesmith_core.operations.kind import Kind
from tunesmith_core.operations.runner import Outcome, conduct
from tunesmith_core.protocol import Event, post_command
from tunesmith_core.runs import Run, display_name
from tunesmith_gui import tr
from tunesmith_gui.services.journal_tail import DRAIN_BUDGET_S, REST_MS


class OperationTask(QObject):
    """Does one operation once; ends with its owner. `Operations.begin` makes one that no page ends.

    Attributes:
        spec: what it does, of kind.spec.
        owner: with which it ends.
        run_name: what the run is called that it works on, "" where it works on none.
        cut_short: what the person loses when it is ended now, as its kind says it; "" for nothing.
        rests: it only waits to be asked something, and ending it interrupts nothing.
        holds_page: what comes of it belongs to its page, which is not to be built again before.

    Signals:
        happened: an Event of its journal.
        succeeded: its answer.
        failed: a TunesmithError. Neither comes after `cancel`.
        ended: an Outcome, once, the last signal; also after `cancel`.
    """

    happened = Signal(object)
    succeeded = Signal(object)
    failed = Signal(object)
    ended = Signal(object)
    _woken = Signal()

    def __init__(self, kind: Kind, spec: Any, parent: QObject) -> None:  # Any: of kind.spec
        super().__init__()
        self.kind = kind
        self.status = OperationStatus()
        self.cancelled = False
        self.rests = self.holds_page = False
        self.cut_short = kind.cut_short
        self.spec = copy.deepcopy(spec)
        run = getattr(spec, "run", None)
        self._run = Run(Path(run)) if isinstance(run, str) else None
        self.run_name = self._run.id if self._run else ""
        self._doing: Callable[[], str] = lambda: tr.core_text(kind.title)
        # Not its Qt parent: the thread needs this object until it has ended.
        self.owner = parent
        self._cancel = threading.Event()
        self._operation: Operation | None = None
        self._created = threading.Event()
        self._queue: deque[Event | Outcome] = deque()
        self._over = False
        self._thread = threading.Thread(target=self._work, name=f"operation {kind.name}", daemon=True)
        self._woken.connect(self._drain)
        parent.destroyed.connect(self._cancel.set)

    @property
    def words(self) -> str:
        """What it does now, and with which run."""
        return tr.fill(self._doing(), self.run_name)

    def describe(self, doing: Callable[[], str], *, rests: bool = False) -> None:
        """Say what it does now, in the language of the moment; %1 stands for the name of its run."""
        self._doing, self.rests = doing, rests
        operations().changed.emit()

    def start(self) -> None:
        """Begins."""
        operations().add(self)
        self._thread.start()

    def post(self, command: str, **data: object) -> None:
        """Gives it a command; waits until it has begun. Called on a worker thread.

        Raises:
            OSError: when its folder can't be written.
        """
        self._created.wait()
        if self._operation is not None:
            post_command(self._operation.control_path, command, **data)

    def cancel(self) -> None:
        """Ends it with everything it started; nothing but `ended` is told any more."""
        self.cancelled = True
        self._cancel.set()

    def abandon(self) -> None:
        """Ends it without a further signal and waits for that: the program is closing."""
        self._over = True
        self._cancel.set()
        if self._thread.is_alive():
            self._thread.join()
        operations().remove(self)

    def _work(self) -> None:
        if self._run:
            self.run_name = display_name(self._run)
        try:
            outcome = conduct(
                self.kind, self.spec, on_event=self._tell, on_created=self._begin, cancel=self._cancel
            )
        except Exception as raised:
            error = wrap(raised)
            outcome = Outcome(OperationState.FAILED, error.exit_code, error=error)
        self._created.set()
        self._tell(outcome)

    def _begin(self, operation: Operation) -> None:
        self._operation = operation
        self._created.set()

    def _tell(self, news: Event | Outcome) -> None:
        self._queue.append(news)
        if len(self._queue) == 1:
            self._woken.emit()

    def _drain(self) -> None:
        deadline = time.perf_counter() + DRAIN_BUDGET_S
        while self._queue and not self._over:
            if time.perf_counter() > deadline:
                # The window looks at its other events in between.
                QTimer.singleShot(REST_MS, self, self._drain)
                return
            self._take(self._queue[0])
            self._queue.popleft()

    def _take(self, news: Event | Outcome) -> None:
        if isinstance(news, Outcome):
            self._end(news)
        elif isValid(self.owner):
            self.status.fold(news)
            operations().changed.emit()
            if not self.cancelled:
                self.happened.emit(news)

    def _end(self, outcome: Outcome) -> None:
        self._over = True
        # It has nothing left to do but to let this object go, which must end in the thread of the window.
        self._thread.join()
        operations().remove(self)
        if not isValid(self.owner):
            return
        if not self.cancelled and outcome.error is not None:
            self.failed.emit(outcome.error)
        elif not self.cancelled and outcome.state is OperationState.FINISHED:
            self.succeeded.emit(outcome.answer)
        self.ended.emit(outcome)


class Operations(QObject):
    """Every operation of this window that has not ended, for the activity panel.

    Signals:
        changed: one began, moved or ended.
    """

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.live: list[OperationTask] = []

    def begin(self, kind: Kind, spec: Any) -> OperationTask:  # Any: of kind.spec
        """Return one that belongs to the program, so that it goes on when its page is left or built again.

        Connect only signals and methods of widgets to it: a function would be called when its widget is gone.
        """
        return OperationTask(kind, spec, parent=self)

    def of(self, kind: Kind, spec: Any = None) -> list[OperationTask]:  # Any: of kind.spec
        """Return those of a kind that `begin` made and that nobody canceled, of all specs or of this one."""
        mine = (task for task in self.live if task.kind is kind and task.owner is self and not task.cancelled)
        return [task for task in mine if spec is None or task.spec == spec]

    def missed(self) -> list[OperationTask]:
        """Return those whose work would be lost or wait if the program was closed now."""
        return [task for task in self.live if task.cut_short and not task.cancelled]

    def shutdown(self) -> None:
        """End those that are live: the program is closing."""
        for task in list(self.live):
            task.abandon()

    def add(self, task: OperationTask) -> None:
        """Take one in; it lives at least until it has ended."""
        self.live.append(task)
        self.changed.emit()

    def remove(self, task: OperationTask) -> None:
        """Forget one that has ended."""
        if task in self.live:
            self.live.remove(task)
            self.changed.emit()


@cache
def operations() -> Operations:
    """The operations of this window."""
    return Operations()
