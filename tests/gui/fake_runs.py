"""A run service that tests steer: it starts nothing and remembers what it was asked."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from tunesmith_core import paths
from tunesmith_core.runs import Run, RunState
from tunesmith_gui.services.run_service import LiveRun


class FakeRuns(QObject):
    """Stands in for `RunService` in tests of the shell."""

    live_runs_changed = Signal()
    run_started = Signal(str)
    run_updated = Signal(str)
    run_ended = Signal(str, str, str)
    runs_changed = Signal()
    failed = Signal(str, object)

    def __init__(self) -> None:
        super().__init__()
        self.live: list[LiveRun] = []
        self.stopped: list[tuple[str, str]] = []

    def live_runs(self) -> list[LiveRun]:
        return self.live

    def run(self, run_id: str) -> Run:
        return Run(paths.runs_dir() / run_id)

    def stop(self, run_id: str, mode: str) -> None:
        self.stopped.append((run_id, mode))

    def show(self, *runs: LiveRun) -> None:
        """Makes these the live runs."""
        self.live = list(runs)
        self.live_runs_changed.emit()

    def shutdown(self) -> None:
        """Nothing to end."""


def training(name: str = "support-01", step: int = 210, num_steps: int = 465) -> LiveRun:
    """A run in the middle of its training."""
    return LiveRun(id=f"id-{name}", name=name, state=RunState.RUNNING, step=step, num_steps=num_steps, eta_s=1140.0)
