"""Notices when the window stands still: a timer that compares its own lateness and says where the UI thread was."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable

from PySide6.QtCore import QObject, Qt, QTimer, Signal

logger = logging.getLogger(__name__)

TICK_S = 0.020
LIMIT_S = 0.050


def watch_if_asked(page: Callable[[], str], parent: QObject) -> StallWatchdog | None:
    """A running watchdog where TUNESMITH_DEBUG or CI is set in the environment, else None."""
    return StallWatchdog(page, parent) if os.environ.get("TUNESMITH_DEBUG") or os.environ.get("CI") else None


class StallWatchdog(QObject):
    """Measures the lateness of a 20 ms timer on the UI thread; a second thread catches the stack while it is late.

    Args:
        page: says which page is in front, for the log.

    Signals:
        stalled: (seconds, stack of the UI thread) after each stall of more than LIMIT_S.

    Attributes:
        worst_s: the longest lateness so far.
    """

    stalled = Signal(float, str)

    def __init__(self, page: Callable[[], str] = lambda: "", parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.worst_s = 0.0
        self._page = page
        self._ui_thread = threading.get_ident()
        self._due = time.perf_counter() + TICK_S
        self._stack = ""
        self._closing = threading.Event()
        self._timer = QTimer(self)
        self._timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._timer.setInterval(round(TICK_S * 1000))
        self._timer.timeout.connect(self._tick)
        self._timer.start()
        self._watcher = threading.Thread(target=self._watch, name="stall-watchdog", daemon=True)
        self._watcher.start()

    def shutdown(self) -> None:
        """Stop measuring."""
        self._timer.stop()
        self._closing.set()
        self._watcher.join(1.0)

    def _tick(self) -> None:
        now = time.perf_counter()
        late_s = now - self._due
        self._due = now + TICK_S
        self.worst_s = max(self.worst_s, late_s)
        if late_s > LIMIT_S:
            logger.warning("window stood still for %.0f ms on page %r\n%s", late_s * 1000, self._page(), self._stack)
            self.stalled.emit(late_s, self._stack)
        self._stack = ""

    def _watch(self) -> None:
        while not self._closing.wait(TICK_S):
            if not self._stack and time.perf_counter() - self._due > LIMIT_S:
                frame = sys._current_frames().get(self._ui_thread)
                self._stack = "".join(traceback.format_stack(frame)) if frame else ""
