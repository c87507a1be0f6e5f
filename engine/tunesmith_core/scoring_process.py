"""The limited process that scores answers for a whole run, and is started again where it fails after a while."""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tunesmith_core import files
from tunesmith_core.errors import TunesmithError, wrap
from tunesmith_core.operations.folder import Operation
from tunesmith_core.operations.kinds.score import (
    LONGEST_POLL_S,
    POLL_S,
    SCORE,
    Row,
    ScoreSpec,
    answers_path,
    scores_path,
)
from tunesmith_core.operations.runner import Outcome, conduct

LEAVE_S = 2.0
"""So long the end of the process is waited for."""


class _Child:
    """One life of the process; it dies with the thread that conducts it."""

    def __init__(self, spec: ScoreSpec) -> None:
        self.num_requests = 0
        self._spec = spec
        self._folder: Path | None = None
        self._outcome: Outcome | None = None
        self._error: TunesmithError | None = None
        self._created, self._cancel = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._conduct, name="scoring", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._cancel.set()
        self._thread.join(LEAVE_S)

    def ask(self, rows: Sequence[Row]) -> list[float | None]:
        """Return the scores; raises why there are none."""
        self._created.wait()
        if self._folder is None:
            raise self._failure()
        place = scores_path(self._folder, self.num_requests)
        # Its folder is gone once it has ended, which is told below.
        with contextlib.suppress(OSError):
            files.atomic_write_json(answers_path(self._folder, self.num_requests), list(rows))
        pause_s = POLL_S
        while self._thread.is_alive():
            if place.exists():
                found: list[float | None] = files.read_json(place)
                place.unlink()
                self.num_requests += 1
                return found
            time.sleep(pause_s)
            pause_s = min(LONGEST_POLL_S, pause_s * 1.1)
        raise self._failure()

    def _failure(self) -> TunesmithError:
        self._thread.join()
        if self._outcome is not None and self._outcome.error is not None:
            return self._outcome.error
        return self._error or TunesmithError("engine-crashed", "The process that scores answers has ended.")

    def _conduct(self) -> None:
        try:
            self._outcome = conduct(SCORE, self._spec, on_created=self._begin, cancel=self._cancel)
        except Exception as error:
            self._error = wrap(error)
        finally:
            self._created.set()

    def _begin(self, operation: Operation) -> None:
        self._folder = operation.path
        self._created.set()


class ScoringProcess:
    """Scores answers by what others made.

    Args:
        spec: what scores.
    """

    def __init__(self, spec: ScoreSpec) -> None:
        self._spec = spec
        self._children: list[_Child] = []
        self._finalizer = weakref.finalize(self, _close, self._children)

    def scores(self, rows: Sequence[Row]) -> list[float | None]:
        """Return the score of each answer, None for NaN and infinite ones.

        Raises:
            TunesmithError: `reward-failed` with file and line; `foreign-limit` for what takes too much time or memory,
                or ends its process; it is tried again when that process had scored others before.
        """
        try:
            return self._ask(rows)
        except TunesmithError as error:
            has_lasted = bool(self._children and self._children[0].num_requests)
            self.close()
            if error.code == "reward-failed" or not has_lasted:
                raise
        try:
            return self._ask(rows)
        except TunesmithError:
            self.close()
            raise

    def close(self) -> None:
        """End the process; it is started again when answers come."""
        _close(self._children)

    def _ask(self, rows: Sequence[Row]) -> list[float | None]:
        if not self._children:
            self._children.append(_Child(self._spec))
        return self._children[0].ask(rows)


def _close(children: list[Any]) -> None:  # Any: _Child
    while children:
        children.pop().close()
