"""The window's view of runs: starts, commands, and the list of those that are alive, also those others started.

Everything that touches files or processes happens on worker threads through `tunesmith_core.launch`; the numbers of
live runs come from their journals through one `JournalTail`. Runs outlive the window: `shutdown` ends threads only.
"""

from __future__ import annotations

import copy
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from PySide6.QtCore import QObject, QTimer, Signal

from tunesmith_core import launch, paths
from tunesmith_core.errors import TunesmithError
from tunesmith_core.protocol import Event
from tunesmith_core.run_queue import Place, place_of
from tunesmith_core.runs import Run, RunState, RunStatus, display_name
from tunesmith_core.spec import RunSpec
from tunesmith_gui.background import Job
from tunesmith_gui.services.journal_tail import Follow, JournalTail

log = logging.getLogger(__name__)

LOOK_S = 2.0
"""Seconds between two looks for runs that began or died without this window's doing."""


@dataclass(slots=True)
class LiveRun:
    """A run that is alive; `num_steps` is 0 and `eta_s` None when unknown, `place` is set while it waits its turn."""

    id: str
    name: str
    state: RunState = RunState.QUEUED
    step: int = 0
    num_steps: int = 0
    eta_s: float | None = None
    place: Place | None = None


@dataclass
class _Attached:
    """A live run with the tailing of its journal; `folded` belongs to the tailing thread."""

    run: Run
    live: LiveRun
    created_at: float
    folded: RunStatus = field(default_factory=RunStatus)
    first_step: tuple[float, int] | None = None
    num_steps: int = 0
    follow: Follow | None = None
    announced: bool = False

    def fold(self, events: list[Event]) -> tuple[RunStatus, float | None]:
        """Fold events on the tailing thread; return a copy of the status and the seconds left."""
        for event in events:
            if event.type == "hello":
                self.first_step, self.num_steps = None, 0
            self.folded.fold(event)
            self.num_steps += event.type == "step"
            if self.num_steps == 2 and self.first_step is None:
                # After the very first step the base model is evaluated and sampled, which never comes again.
                self.first_step = (event.t, self.folded.step)
        return copy.copy(self.folded), self._eta_s()

    def _eta_s(self) -> float | None:
        status = self.folded
        if self.first_step is None or status.state is not RunState.RUNNING or not status.total_steps:
            return None
        began, first = self.first_step
        if not first < status.step < status.total_steps or status.last_event_at is None:
            return None
        return (status.last_event_at - began) / (status.step - first) * (status.total_steps - status.step)


class RunService(QObject):
    """Runs as the window sees them.

    Signals:
        live_runs_changed: the list of live runs or one of its numbers changed.
        run_started: (id) a run is alive that was not before.
        run_updated: (id) its journal gained something.
        run_ended: (id, name, state) finished, stopped, failed or interrupted while the window was open.
        runs_changed: a run folder came or went, or a run became live or ended; lists should be read again.
        failed: (id or "", TunesmithError) a request of the person could not be done.
    """

    live_runs_changed = Signal()
    run_started = Signal(str)
    run_updated = Signal(str)
    run_ended = Signal(str, str, str)
    runs_changed = Signal()
    failed = Signal(str, object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.tail = JournalTail(self)
        self._attached: dict[str, _Attached] = {}
        self._ended: set[str] = set()
        self._known_folders: frozenset[str] = frozenset()
        self._looking = False
        self._closing = threading.Event()
        self._timer = QTimer(self)
        self._timer.setInterval(round(LOOK_S * 1000))
        self._timer.timeout.connect(self.look)
        self._timer.start()
        self.look()

    def live_runs(self) -> list[LiveRun]:
        """The runs that are alive, oldest first."""
        return [attached.live for attached in self._attached.values()]

    def place(self, run_id: str) -> Place | None:
        """What a run waits for, with the name of the run that uses the device; None when it does not wait."""
        attached = self._attached.get(run_id)
        return attached.live.place if attached is not None else None

    def start(
        self,
        spec: RunSpec,
        done: Callable[[str], object] | None = None,
        failed: Callable[[TunesmithError], object] | None = None,
    ) -> None:
        """Check a spec and start a run; `done` gets its id. Returns at once."""
        self._ask("", lambda: launch.start(spec).id, done, failed)

    def resume(self, run_id: str, done: Callable[[str], object] | None = None) -> None:
        """Continue an ended run from its newest checkpoint. Returns at once."""

        def work() -> str:
            launch.resume(self.run(run_id))
            return run_id

        self._ended.discard(run_id)
        self._ask(run_id, work, done)

    def stop(self, run_id: str, mode: str) -> None:
        """Ask a run to stop: mode "save" or "discard". Returns at once."""
        self._ask(run_id, lambda: launch.stop(self.run(run_id), mode))

    def send(
        self,
        run_id: str,
        command: str,
        failed: Callable[[TunesmithError], object] | None = None,
        **arguments: object,
    ) -> None:
        """Send checkpoint, evaluate or sample (prompt) to a live run. Returns at once."""
        self._ask(run_id, lambda: launch.send(self.run(run_id), command, **arguments), failed=failed)

    def delete(
        self, run_ids: list[str], remove: Callable[[Run], object], done: Callable[[], object] = lambda: None
    ) -> None:
        """Remove ended runs by `remove`, which deletes the folder or moves it to the trash. Returns at once.

        Args:
            run_ids: of the runs.
            remove: called for each on a worker thread.
            done: called on the UI thread once all are removed.
        """

        def work() -> str:
            for run_id in run_ids:
                remove(self.run(run_id))
            return ""

        def removed(_nothing: str) -> None:
            self.runs_changed.emit()
            done()

        self._ask("", work, removed, self._delete_failed)

    def run(self, run_id: str) -> Run:
        """The folder of a run; nothing is read."""
        return Run(paths.runs_dir() / run_id)

    def shutdown(self) -> None:
        """End the threads; the runs go on."""
        self._closing.set()
        self._timer.stop()
        self.tail.shutdown()

    def look(self) -> None:
        """Look for runs that are alive without this window knowing, and for attached ones that died."""
        if self._looking or self._closing.is_set():
            return
        self._looking = True
        attached = {run_id: each.created_at for run_id, each in self._attached.items()}
        ended = frozenset(self._ended)
        Job.start(self, lambda: _survey(attached, ended), self._take_survey, self._survey_failed)

    def _ask(
        self,
        run_id: str,
        work: Callable[[], str],
        done: Callable[[str], object] | None = None,
        failed: Callable[[TunesmithError], object] | None = None,
    ) -> None:
        def succeeded(answer: str) -> None:
            if done is not None:
                done(answer)
            self.look()

        Job.start(self, work, succeeded, failed or (lambda error: self.failed.emit(run_id, error)))

    def _delete_failed(self, error: TunesmithError) -> None:
        self.failed.emit("", error)
        self.runs_changed.emit()

    def _survey_failed(self, _error: TunesmithError) -> None:
        # The data root is away for a moment (network drive, USB disk): the next look tries again.
        self._looking = False

    def _take_survey(self, survey: _Survey) -> None:
        self._looking = False
        if self._closing.is_set():
            return
        for name, run, created_at, place in survey.alive:
            if run.id not in self._attached:
                self._attach(run, name, created_at)
            live = self._attached[run.id].live
            if live.place != place:
                live.place = place
                self.live_runs_changed.emit()
        self._ended.update(survey.dead)
        for run_id, state in survey.ended:
            self._detach(run_id, state)
        for run_id in survey.renamed:
            self._let_go(run_id)
        if survey.folders != self._known_folders:
            self._known_folders = survey.folders
            self.runs_changed.emit()

    def _attach(self, run: Run, name: str, created_at: float) -> None:
        attached = _Attached(run, LiveRun(run.id, name), created_at)
        self._attached[run.id] = attached
        self._ended.discard(run.id)
        attached.follow = self.tail.follow(
            run.journal_path,
            attached.fold,
            lambda folded: self._take_status(attached, *folded),
            lambda error: self.failed.emit(run.id, error),
        )
        self.run_started.emit(run.id)
        self.live_runs_changed.emit()
        self.runs_changed.emit()

    def _take_status(self, attached: _Attached, status: RunStatus, eta_s: float | None) -> None:
        live = attached.live
        live.state, live.step, live.num_steps, live.eta_s = status.state, status.step, status.total_steps, eta_s
        self.run_updated.emit(live.id)
        self.live_runs_changed.emit()
        if not attached.announced:
            attached.announced = True
            log.info("attached to run %s at step %d", live.id, live.step)
        if not status.state.live and attached.follow is not None and attached.follow.caught_up:
            # Whether this is the end or the journal of a run that is being resumed, only its supervisor can tell.
            self.look()

    def _let_go(self, run_id: str) -> _Attached | None:
        """Follow a run no more; nothing is told."""
        attached = self._attached.pop(run_id, None)
        if attached is not None:
            if attached.follow is not None:
                self.tail.cancel(attached.follow)
            self.live_runs_changed.emit()
        return attached

    def _detach(self, run_id: str, state: RunState) -> None:
        attached = self._let_go(run_id)
        if attached is None:
            return
        self._ended.add(run_id)
        self.run_ended.emit(run_id, attached.live.name, state.value)
        self.runs_changed.emit()


@dataclass(frozen=True, slots=True)
class _Survey:
    """What a look at the run folders found."""

    alive: list[tuple[str, Run, float, Place | None]]
    dead: list[str]
    renamed: list[str]
    ended: list[tuple[str, RunState]]
    folders: frozenset[str]


def _survey(attached: Mapping[str, float], ended: frozenset[str]) -> _Survey:
    alive: list[tuple[str, Run, float]] = []
    dead, over = [], []
    try:
        names = frozenset(name for name in os.listdir(paths.runs_dir()) if not name.startswith("."))
    except FileNotFoundError:
        names = frozenset()
    for name in sorted(names):
        run = Run(paths.runs_dir() / name)
        # A lease is gone at a run's end: where one is back, somebody resumed the run outside this window.
        if name in ended and not run.lease_path.exists():
            continue
        if run.is_supervised():
            alive.append((display_name(run), run, run.created_at))
        elif name in ended:
            continue
        elif name in attached:
            over.append((name, run.status().state))
        elif time.time() - run.created_at > launch.LEASE_WAIT_S:
            # A run that was just created has no supervisor yet, so it is looked at again.
            dead.append(name)
    # A folder that was renamed while its run trains is another name of the same run, and no end.
    new = {created_at for _, run, created_at in alive if run.id not in attached}
    vanished = attached.keys() - names
    renamed = [name for name in vanished if attached[name] in new]
    over.extend((name, RunState.INTERRUPTED) for name in vanished.difference(renamed))
    titles = {run.id: title for title, run, _ in alive}
    placed = [(title, run, created_at, _place(run, titles)) for title, run, created_at in alive]
    return _Survey(placed, dead, renamed, over, names)


def _place(run: Run, titles: dict[str, str]) -> Place | None:
    """The place of a run in the queue, with the title of the run that uses the device."""
    place = place_of(run)
    return place and replace(place, holder=titles.get(place.holder, place.holder))
