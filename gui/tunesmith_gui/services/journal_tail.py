"""Tails journals on one worker thread and hands what it found to the window in small bites.

The worker reads whole lines from a byte offset, turns them into whatever the follower wants (`transform` runs on the
worker), and queues the result. The window is woken at most ten times a second and takes from the queue for at most 8 ms
before it looks at its other events, so that a journal of a hundred thousand events never makes it stutter.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, QTimer, Signal

from tunesmith_core.errors import TunesmithError, wrap
from tunesmith_core.protocol import Event, JournalReader

POLL_S = 0.1
DRAIN_BUDGET_S = 0.008
REST_MS = 12
_BLOCK_BYTES = 1 << 16
_MAX_QUEUED = 16
"""Bites that may wait for the window; the worker stops reading ahead beyond them."""


class Follow:
    """One journal that somebody follows; made by `JournalTail.follow`.

    Attributes:
        caught_up: the end of the journal was reached at least once and all of it handed over.
    """

    def __init__(
        self,
        path: Path,
        transform: Callable[[list[Event]], object],
        receive: Callable[[Any], object],  # Any: what transform returns
        failed: Callable[[TunesmithError], object],
    ) -> None:
        self.reader = JournalReader(path)
        self.transform = transform
        self.receive = receive
        self.failed = failed
        self.queue: deque[tuple[bool, object]] = deque()
        self.caught_up = False
        self.cancelled = False
        self._reached_end = False

    def advance(self) -> bool:
        """Read one block on the worker thread; return whether there was anything to do."""
        if len(self.queue) >= _MAX_QUEUED:
            return False
        before = self.reader.offset
        try:
            events = self.reader.read(_BLOCK_BYTES)
            at_end = self.reader.offset == before
            if events or (at_end and not self._reached_end):
                self._reached_end = self._reached_end or at_end
                self.queue.append((at_end, self.transform(events)))
        except Exception as error:  # a journal of a newer version, or a disk that went away
            self.cancelled = True
            self.queue.append((True, wrap(error)))
            return True
        return not at_end


class JournalTail(QObject):
    """The tailing thread. Callbacks run on the thread that made this object."""

    _woken = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._follows: list[Follow] = []
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._closing = False
        self._wake_pending = False
        self._rest = QTimer(self)
        self._rest.setSingleShot(True)
        self._rest.setInterval(REST_MS)
        self._rest.timeout.connect(self._drain)
        self._woken.connect(self._drain)
        self._thread = threading.Thread(target=self._work, name="journal-tail", daemon=True)
        self._thread.start()

    def follow(
        self,
        path: Path,
        transform: Callable[[list[Event]], object],
        receive: Callable[[Any], object],  # Any: what transform returns
        failed: Callable[[TunesmithError], object],
        owner: QObject | None = None,
    ) -> Follow:
        """Hand over a journal from its beginning and everything that comes.

        Args:
            path: the journal; it need not exist yet.
            transform: makes something of each list of events, on the worker thread; gets [] once at the first end.
            receive: takes what transform made, on this object's thread.
            failed: told once when the journal can't be read; following has ended then.
            owner: following ends with it, as when a window is built again in another language.
        """
        follow = Follow(path, transform, receive, failed)
        if owner is not None:
            owner.destroyed.connect(lambda: self.cancel(follow))
        with self._lock:
            self._follows.append(follow)
        self._wanted.set()
        return follow

    def cancel(self, follow: Follow) -> None:
        """End following; nothing is called any more."""
        follow.cancelled = True
        # The worker may be the last to hold it, and must not be the last to hold a window.
        follow.receive = follow.failed = lambda _told: None
        follow.queue.clear()
        with self._lock:
            if follow in self._follows:
                self._follows.remove(follow)

    def shutdown(self) -> None:
        """End the thread."""
        self._closing = True
        self._wanted.set()
        self._thread.join(2.0)
        self._follows.clear()

    def _work(self) -> None:
        while not self._closing:
            with self._lock:
                follows = [follow for follow in self._follows if not follow.cancelled]
            busy = [follow.advance() for follow in follows]
            self._wake(follows)
            if not follows:
                self._wanted.wait()
            elif any(busy):
                # A breath between blocks: without it the parser keeps the interpreter lock from the window.
                time.sleep(0.001)
            else:
                self._wanted.wait(POLL_S)
            self._wanted.clear()

    def _wake(self, follows: list[Follow]) -> None:
        if not self._wake_pending and not self._closing and any(follow.queue for follow in follows):
            self._wake_pending = True
            self._woken.emit()

    def _drain(self) -> None:
        end = time.perf_counter() + DRAIN_BUDGET_S
        pending = True
        while pending and time.perf_counter() < end:
            pending = False
            for follow in list(self._follows):
                if follow.queue:
                    self._hand_over(follow)
                    pending = True
        if pending:
            self._rest.start()
            return
        self._wake_pending = False

    def _hand_over(self, follow: Follow) -> None:
        at_end, value = follow.queue.popleft()
        follow.caught_up = follow.caught_up or at_end
        if isinstance(value, TunesmithError):
            failed = follow.failed
            self.cancel(follow)
            failed(value)
            return
        try:
            follow.receive(value)
        except BaseException:
            # Whoever can't take it any more must not keep the others waiting.
            self.cancel(follow)
            self._rest.start()
            raise
