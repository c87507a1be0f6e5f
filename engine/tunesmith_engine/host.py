"""The engine's side of the run folder: what the host of every operation does, and heartbeat, sensors and hangs.

A thread shows a sign of life from the first second, also while PyTorch is imported; it never touches the model.
"""

from __future__ import annotations

import faulthandler
import statistics
import sys
import threading
import time
from collections import deque
from types import TracebackType
from typing import Self

from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_core.operations import host
from tunesmith_core.runs import Run, pause_fields
from tunesmith_engine.sensors import Sensors

HEARTBEAT_S = 1.0
SENSORS_EVERY_BEATS = 2
HANG_MINIMUM_S = 300.0
HANG_MEDIANS = 20


class Host(host.Host):
    """Connects a training process with its run folder; used as a context manager, which begins phase "starting".

    Attributes:
        run: the run folder.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.run = run
        self._sensors = Sensors()
        self._step_seconds: deque[float] = deque(maxlen=50)
        self._last_progress_s: float | None = None
        self._phase = ("starting", 0, 0, "")
        self._paused_for: str | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self.phase("starting")
        self._thread.start()
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        self._thread.join()
        super().__exit__(kind, error, trace)

    def phase(
        self, name: str, done: int = 0, total: int = 0, unit: str = "", **pace: float | None
    ) -> None:
        """Say which phase begins, or how far it is; `pace` may be rows_per_s and remaining_s."""
        self._last_progress_s = None
        self._phase = (name, done, total, unit)
        super().phase(name, done, total, unit, **pace)

    def rest(self) -> None:
        """Expect no progress until there is some again."""
        self._last_progress_s = None

    def pause(self, problem: TunesmithError) -> None:
        """Say that the run waits until the disk can be written, and why it can't; said once for each reason."""
        self.rest()
        if problem.message != self._paused_for:
            self._paused_for = problem.message
            self.event("phase", **pause_fields(problem))

    def end_pause(self) -> None:
        """Say that the phase before the pause continues."""
        self._paused_for = None
        self.phase(*self._phase)

    def progress(self, step_s: float | None = None) -> None:
        """Note that training moves: after a step with its seconds, after any other portion of work without."""
        self._last_progress_s = time.monotonic()
        if step_s is not None:
            self._step_seconds.append(step_s)

    # The heartbeat thread

    def _watch(self) -> None:
        beats = 0
        while True:
            try:
                self.run.heartbeat_path.touch()
                if beats % SENSORS_EVERY_BEATS == 0:
                    self.event("gpu", **self._sensors.read())
                self._check_hang()
            except (OSError, ValueError):
                # A read-only disk must not kill the sign of life; the training thread meets the same and pauses.
                pass
            beats += 1
            if self._closed.wait(HEARTBEAT_S):
                return

    def _check_hang(self) -> None:
        if self._last_progress_s is None:
            return
        limit_s = HANG_MINIMUM_S
        if self._step_seconds:
            limit_s = max(limit_s, HANG_MEDIANS * statistics.median(self._step_seconds))
        silent_s = time.monotonic() - self._last_progress_s
        if silent_s > limit_s:
            self._last_progress_s = None
            faulthandler.dump_traceback(file=sys.__stderr__ or sys.stderr, all_threads=True)
            self.warning("engine-hung", Message("No step has finished for {seconds} s.", seconds=round(silent_s)))
