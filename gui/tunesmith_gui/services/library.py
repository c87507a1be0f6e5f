"""The window's view of the index of runs: read and refreshed on a worker thread, handed over as table rows."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PySide6.QtCore import QObject, Signal

from tunesmith_core import paths
from tunesmith_core.errors import TunesmithError
from tunesmith_core.store import Library as Index
from tunesmith_core.store import RunSummary
from tunesmith_gui.background import Job
from tunesmith_gui.models.metric_series import smooth, thin
from tunesmith_gui.models.run_row import RunRow

SPARK_POINTS = 48
_SPARK_SMOOTHING = 0.6


class Library(QObject):
    """All runs as rows, newest first.

    Signals:
        rows_changed: `rows` is another list.
        failed: a TunesmithError; the rows stay as they were.

    Attributes:
        rows: what the last refresh found.
        loaded: whether there was a refresh.
    """

    rows_changed = Signal()
    failed = Signal(object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.rows: list[RunRow] = []
        self.loaded = False
        self._running = False
        self._again = False
        self._sparklines: dict[str, tuple[int, tuple[float, ...]]] = {}
        self._lock = threading.Lock()

    def refresh(self) -> None:
        """Look at all run folders again; a call while one is under way makes one more follow."""
        if self._running:
            self._again = True
            return
        self._running, self._again = True, False
        Job.start(self, self._read, self._take, self._refuse)

    def row(self, run_id: str) -> RunRow | None:
        """The row of a run as of the last refresh."""
        return next((row for row in self.rows if row.id == run_id), None)

    def shutdown(self) -> None:
        """Nothing to end: a refresh under way finishes by itself."""
        self._again = False

    def _take(self, rows: list[RunRow]) -> None:
        self.rows, self.loaded, self._running = rows, True, False
        self.rows_changed.emit()
        if self._again:
            self.refresh()

    def _refuse(self, error: TunesmithError) -> None:
        self._running = False
        self.failed.emit(error)

    def _read(self) -> list[RunRow]:
        with self._lock, contextlib.closing(Index(paths.library_path())) as index:
            index.refresh_all()
            return [self._row(index, summary) for summary in index.list_runs()]

    def _row(self, index: Index, summary: RunSummary) -> RunRow:
        status = summary.status
        cached = self._sparklines.get(summary.run.id)
        if cached is None or cached[0] != status.step:
            name = "loss" if status.reward is None else "reward"
            values = (value for _, value, _ in index.series(summary.run.id, name))
            cached = (status.step, sparkline(values))
            self._sparklines[summary.run.id] = cached
        is_rewarded = status.eval_reward is not None or status.reward is not None
        final, best = status.final_eval_loss, status.best_eval_loss
        return RunRow(
            id=summary.run.id,
            path=summary.run.path,
            name=summary.name,
            state=status.state,
            model=Path(summary.model).name,
            data=Path(summary.data).name,
            eval_loss=None if is_rewarded else final,
            best_eval_loss=None if is_rewarded else best,
            eval_reward=-final if is_rewarded and final is not None else None,
            best_reward=-best if is_rewarded and best is not None else None,
            is_rewarded=is_rewarded,
            duration_s=status.lasted_s(time.time()),
            created_at=summary.created,
            size_bytes=summary.size_bytes,
            sparkline=cached[1],
            step=status.step,
            total_steps=status.total_steps,
            last_checkpoint_step=status.last_checkpoint_step,
            obstacle=status.obstacle,
        )


def sparkline(values: Iterable[float | None]) -> tuple[float, ...]:
    """A loss curve as at most SPARK_POINTS smoothed numbers; what is not finite is left out."""
    losses = np.array([value for value in values if value is not None], dtype=np.float64)
    losses = losses[np.isfinite(losses)]
    if len(losses) < 2:
        return ()
    smoothed = smooth(losses, _SPARK_SMOOTHING)
    return tuple(thin(np.arange(len(smoothed), dtype=np.float64), smoothed, SPARK_POINTS)[1].tolist())
