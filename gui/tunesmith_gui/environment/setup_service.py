"""The one place of the window that starts commands of the installer and doctor, and folds what they tell.

The Environment page, the wizard and the banners all show its `model`, so they can't disagree. One command goes on at a
time: reading ones wait for each other, and one that changes something ends those that only read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import QObject, QTimer, Signal

from tunesmith_core.errors import BugError, TunesmithError
from tunesmith_core.operations.kinds.setup import SETUP, SetupSpec
from tunesmith_core.operations.runner import Outcome
from tunesmith_core.protocol import Event
from tunesmith_gui.background import Job
from tunesmith_gui.environment.installed import read_disk, read_installed
from tunesmith_gui.environment.model import DiskUse, EnvironmentModel, Installed
from tunesmith_gui.environment.setup_activity import Activity, Command
from tunesmith_gui.environment.setup_events import parse
from tunesmith_gui.services.operation import OperationTask

REPAINT_MS = 100
"""Events are told to the pages at most this often."""

NETWORK_CODES = ("hub-offline", "hub-ssl-or-proxy")
NETWORK_CHECK = "network"

MakeTask = Callable[..., OperationTask]


@dataclass(frozen=True, slots=True)
class _Order:
    command: Command
    arguments: tuple[str, ...]
    detail: str = ""


class SetupService(QObject):
    """Starts, follows and cancels; `model` is what is known.

    Signals:
        changed: the model is another one (at most every REPAINT_MS).
        ended: (Activity) a command ended.
    """

    changed = Signal()
    ended = Signal(object)

    def __init__(self, make_task: MakeTask = OperationTask) -> None:
        super().__init__()
        self.model = EnvironmentModel()
        self.profile = ""
        self._make_task = make_task
        self._task: OperationTask | None = None
        self._waiting: list[_Order] = []
        self._closed = False
        self._repaint = QTimer(self)
        self._repaint.setSingleShot(True)
        self._repaint.setInterval(REPAINT_MS)
        self._repaint.timeout.connect(self.changed)

    # What can be asked

    def look(self) -> None:
        """Read the files, ask the computer and run the quick checks; does nothing while something goes on."""
        self.refresh_files()
        if not self.model.busy:
            self.probe()
            self.check()

    def probe(self) -> None:
        """Ask the computer for its facts."""
        self._order(Command.PROBE, "probe")

    def check(self, *, full: bool = False) -> None:
        """Run all checks; `full` reads every installed byte."""
        command = Command.FULL_CHECK if full else Command.CHECK
        self._order(command, "doctor", *(("--full",) if full else ()))

    def plan(self, profile: str = "") -> None:
        """Find out what an installation takes; nothing is fetched or changed."""
        self._order(Command.PLAN, "install", "--plan", "--training-only", *_profile(profile))

    def install(self, profile: str = "") -> None:
        """Install, or go on with, the training environment."""
        self._order(Command.INSTALL, "install", "--training-only", *_profile(profile))

    def repair(self, check_id: str = "", title: str = "") -> None:
        """Repair what one check found, or everything."""
        one = ("--check", check_id) if check_id else ()
        self._order(Command.REPAIR, "repair", "--yes", *one, detail=title)

    def roll_back(self) -> None:
        """Go back to the environment before."""
        self._order(Command.ROLL_BACK, "rollback")

    def set_up_wsl(self) -> None:
        """Set up Linux inside Windows, with the same environment in it; the person has agreed."""
        self._order(Command.WSL, "wsl", "install", "--yes")

    def cancel(self) -> None:
        """End the present command and forget those that wait."""
        self._waiting.clear()
        if self._task is not None and self.model.activity is not None:
            self.model.activity.cancelling = True
            self._task.cancel()
            self._tell()

    def refresh_files(self) -> None:
        """Read what is installed and how much room it takes, in the background."""
        Job.start(self, read_installed, self._take_installed, self._take_read_error)
        Job.start(self, read_disk, self._take_disk, self._take_read_error)

    def shutdown(self) -> None:
        """The program closes: end the command; every one of them survives that."""
        self._closed = True
        self._waiting.clear()
        self._repaint.stop()
        if self._task is not None:
            self._task.abandon()
            self._task = None

    # Running

    def _order(self, command: Command, *arguments: str, detail: str = "") -> None:
        order = _Order(command, arguments, detail)
        if self._closed or self.model.changing:
            return
        if command.changes:
            self._waiting = [order]
            if self._task is not None:
                self._task.cancel()
        elif order not in self._waiting:
            self._waiting.append(order)
        self._start_next()

    def _start_next(self) -> None:
        if self._task is not None or not self._waiting or self._closed:
            return
        order = self._waiting.pop(0)
        self.model.begin(Activity(order.command, detail=order.detail))
        self._task = self._make_task(SETUP, SetupSpec(order.arguments), parent=self)
        if not order.command.changes:
            self._task.cut_short = ""
            self._task.describe(lambda: self.tr("Checking this computer"))
        self._task.happened.connect(self._on_event)
        self._task.ended.connect(self._on_ended)
        self._task.start()
        self._tell()

    def _on_event(self, event: Event) -> None:
        told = parse(event)
        if told is not None:
            self.model.apply(told, time.time())
            self._tell()

    def _on_ended(self, end: Outcome) -> None:
        cancelled, self._task = self._task is not None and self._task.cancelled, None
        activity = self.model.activity
        assert activity is not None
        error = None if cancelled else end.error
        if activity.command is Command.PROBE and error is None and not cancelled:
            error = self._take_probe(end)
        if end.output.strip():
            activity.note(end.output, time.time(), "warning")
        self.model.end(error, cancelled=cancelled)
        if activity.command is Command.PROBE and not cancelled:
            self.model.machine_problem = error
        self._learn_network(error)
        self._tell()
        self.ended.emit(activity)
        if activity.command.changes:
            self.refresh_files()
            if error is None:
                # After a failure a check would take the place of what went wrong before anybody has read it.
                self.check()
        self._start_next()

    def _take_probe(self, end: Outcome) -> TunesmithError | None:
        try:
            self.model.know_machine(end.answer)
        except ValueError as error:
            return BugError("bug", f"The answer of the probe can't be read: {error}.")
        return None

    def _learn_network(self, error: TunesmithError | None) -> None:
        check = self.model.checks.get(NETWORK_CHECK)
        if error is not None and error.code in NETWORK_CODES:
            self.model.offline = True
        elif check is not None:
            self.model.offline = check.state == "failed"
        elif error is None:
            self.model.offline = False

    def _take_installed(self, installed: Installed) -> None:
        self.model.installed = installed
        self._tell()

    def _take_disk(self, disk: tuple[DiskUse, ...]) -> None:
        self.model.disk = disk
        self._tell()

    def _take_read_error(self, error: TunesmithError) -> None:
        self.model.installed = Installed(problem=error)
        self._tell()

    def _tell(self) -> None:
        if not self._closed and not self._repaint.isActive():
            self._repaint.start()


def _profile(name: str) -> tuple[str, ...]:
    return ("--profile", name) if name else ()
