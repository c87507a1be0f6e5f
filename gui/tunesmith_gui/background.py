"""Work off the UI thread with the answer back on it, and no answer to an owner that is gone."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from itertools import count
from typing import Any, Generic, TypeVar

from PySide6.QtCore import QObject, QThreadPool, QTimer, Signal
from shiboken6 import isValid

from tunesmith_core.errors import TunesmithError, wrap

Result = TypeVar("Result")

LOADING_AFTER_MS = 150
"""Looking at something takes long enough to say so."""


class Job(Generic[Result]):
    """Work on its way to a worker thread and its answer on the way back; make one with `Job.start`.

    A worker thread never holds the last reference to it: whoever lets a window go last is the one who destroys it, and
    what Qt destroys in a thread other than its own may take the program with it.
    """

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
        jobs().start(cls(owner, work, done, failed))

    def __init__(
        self,
        owner: QObject,
        work: Callable[[], Result],
        done: Callable[[Result], object],
        failed: Callable[[TunesmithError], object],
    ) -> None:
        self._owner = owner
        self._work = work
        self._done = done
        self._failed = failed
        self._deliver: Callable[[], object] = lambda: None

    def work(self) -> None:
        """Does the work, on a worker thread, and keeps the answer."""
        try:
            self._deliver = partial(self._done, self._work())
        except Exception as error:
            self._deliver = partial(self._failed, wrap(error))

    def deliver(self) -> None:
        """Hands the answer to the owner, on the UI thread, unless the owner is gone."""
        if isValid(self._owner):
            self._deliver()


class Jobs(QObject):
    """The jobs on their way, by number: they outlive an owner that is closed while the work goes on."""

    _ended = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self._jobs: dict[int, Job[Any]] = {}  # Any: whatever a job results in
        self._numbers = count()
        self._ended.connect(self._deliver)

    def start(self, job: Job[Any]) -> None:
        """Sends one to a worker thread."""
        number = next(self._numbers)
        self._jobs[number] = job
        QThreadPool.globalInstance().start(partial(self._work, number))

    def _work(self, number: int) -> None:
        self._jobs[number].work()
        self._ended.emit(number)

    def _deliver(self, number: int) -> None:
        self._jobs.pop(number).deliver()


@cache
def jobs() -> Jobs:
    """The jobs of this window."""
    return Jobs()


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
