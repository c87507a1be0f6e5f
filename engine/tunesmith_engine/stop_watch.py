"""A stop that waits for no step, evaluation or import: a thread ends the run while the main thread computes.

The main thread holds the run's state, except inside `at_rest`. There it computes what may be thrown away (gradients, a
held-out loss, an answer, everything before the first step), and nothing that would be saved changes. When a stop is
asked for, the watch takes the state at such a place, ends the run as after its last whole step and leaves the process.
The main thread never gets the state back, whatever it is doing: a product of large matrices that can't be interrupted,
or a loop without an end. What the watch can't reach (an update of the weights that hangs, a library that never lets
other threads run) is left to the supervisor, see `tunesmith_core.forced_stop`.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import TracebackType
from typing import Any, Self

from tunesmith_engine.host import Host

POLL_S = 0.1
PATIENCE_S = 2.0
"""How long a step may take to end by itself once a stop that saves was asked for, so that it isn't lost."""

NUM_TRIES, RETRY_S = 3, 0.5

End = Callable[[], dict[str, Any]]  # Any: JSON values


class StopWatch:
    """Watches over one run; a context manager of the main thread.

    Attributes:
        end: ends the run and returns the fields of its result event; replaced as the run comes further.
        patience_s: how long a stop that saves waits for the main thread.
    """

    def __init__(
        self, host: Host, end: End, conclude: Callable[[End], int], leave: Callable[[int], object] | None
    ) -> None:
        """Watch from `with` on.

        Args:
            host: of the run.
            end: see above.
            conclude: writes the result event of an end and returns the exit code.
            leave: ends the process with that code, without a return; with None nothing is watched.
        """
        self.end, self.patience_s = end, 0.0
        self._host, self._conclude = host, conclude
        self._state = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=[leave], name="stop-watch", daemon=True)
        self._watches = leave is not None

    def __enter__(self) -> Self:
        self._state.acquire()
        if self._watches:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._watches:
            self._thread.join()

    @contextlib.contextmanager
    def at_rest(self) -> Iterator[None]:
        """Let the watch end the run here; who is inside then never comes out."""
        self._state.release()
        try:
            yield
        finally:
            self._state.acquire()

    def _watch(self, leave: Callable[[int], object]) -> None:
        asked_s = 0.0
        while not self._over.wait(POLL_S):
            if not self._host.stop_requested():
                continue
            asked_s = asked_s or time.monotonic()
            patience_s = 0.0 if self._host.stop_mode == "discard" else self.patience_s
            if time.monotonic() - asked_s >= patience_s and self._state.acquire(timeout=POLL_S):
                self._end_here(leave)
                return

    def _end_here(self, leave: Callable[[int], object]) -> None:
        for _ in range(NUM_TRIES):
            try:
                outcome = self.end()
            except Exception:
                # Nothing can be read from a GPU while its work is being recorded, and a step may take all memory.
                logging.getLogger(__name__).exception("the run could not be ended beside its step")
                self._over.wait(RETRY_S)
                continue
            # Nothing follows the result.
            self._host.turn.acquire()
            code = self._conclude(partial(dict, outcome))
            sys.stderr.flush()
            leave(code)
            return
        # The main thread does it when it is through.
        self._state.release()
