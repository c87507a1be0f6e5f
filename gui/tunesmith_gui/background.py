"""Work off the UI thread with the answer back on it, and no answer to an owner that is gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from PySide6.QtCore import QObject, QRunnable, QThreadPool, QTimer, Signal
from shiboken6 import isValid

from tunesmith_core.errors import TunesmithError, wrap

Result = TypeVar("Result")

LOADING_AFTER_MS = 150
"""Looking at something takes long enough to say so."""

_waiting: set[Job] = set()
"""Jobs on their way. They belong to nobody else: a job must outlive an owner that is closed while the work goes on."""


class Job(QObject):
    """Carries one answer from a worker thread to the UI thread, where it lives; make one with `Job.start`."""

    _ended = Signal(bool, object)

    @classmethod
    def start(
        cls,
        owner: QObject,
        work: Callable[[], Result],
        done: Callable[[Result], object],
        failed: Callable[[TunesmithError], object],
    ) -> None:
        """Runs `work` on a worker thread, then `done(result)` or `failed(error)` on the UI thread, where it is called.

        Any other exception than a TunesmithError arrives wrapped into one. When `owner` is gone by then, nobody is
        called.
        """
        job = cls(owner, done, failed)
        _waiting.add(job)
        QThreadPool.globalInstance().start(_Work(job, work))

    def __init__(self, owner: QObject, done: Callable[..., object], failed: Callable[[TunesmithError], object]) -> None:
        super().__init__()
        self._owner = owner
        self._done = done
        self._failed = failed
        self._ended.connect(self._deliver)

    def end(self, succeeded: bool, value: object) -> None:
        """Hands over the result or the error, from the worker thread."""
        self._ended.emit(succeeded, value)

    def _deliver(self, succeeded: bool, value: object) -> None:
        _waiting.discard(self)
        if not isValid(self._owner):
            return
        if succeeded:
            self._done(value)
        else:
            assert isinstance(value, TunesmithError)
            self._failed(value)


class _Work(QRunnable, Generic[Result]):
    def __init__(self, job: Job, work: Callable[[], Result]) -> None:
        super().__init__()
        self._job = job
        self._work = work

    def run(self) -> None:
        try:
            value = self._work()
        except Exception as error:
            self._job.end(False, wrap(error))
        else:
            self._job.end(True, value)


class Latest(QObject):
    """Asks one kind of question; only the newest answer arrives.

    Signals:
        slow: the answer has not come within the time after which a person wonders.
    """

    slow = Signal()

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._ticket = 0
        self._patience = QTimer(self)
        self._patience.setSingleShot(True)
        self._patience.setInterval(LOADING_AFTER_MS)
        self._patience.timeout.connect(self.slow)

    def ask(
        self,
        work: Callable[[], Result],
        done: Callable[[Result], object],
        failed: Callable[[TunesmithError], object] = lambda _error: None,
    ) -> None:
        """Runs `work` on a worker thread, then `done`, or `failed` for an error that is not part of its result."""
        self.forget()
        ticket = self._ticket
        self._patience.start()

        def arrived(answer: Any, hand_over: Callable[[Any], object]) -> None:  # Any: result or error
            if ticket == self._ticket:
                self._patience.stop()
                hand_over(answer)

        Job.start(self, work, lambda result: arrived(result, done), lambda error: arrived(error, failed))

    def forget(self) -> None:
        """Drops an answer that is still to come."""
        self._ticket += 1
        self._patience.stop()
