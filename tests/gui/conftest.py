"""Fixtures of the window's tests: a themed application, a window on its own data root, and guards against leftovers."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QCoreApplication, QEvent, QEventLoop, QThreadPool, QTimer
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot
from pytestqt.wait_signal import SignalBlocker
from shiboken6 import isValid

from tunesmith_core.operations.folder import OperationState
from tunesmith_core.operations.runner import Outcome
from tunesmith_core.settings import SettingsFile
from tunesmith_gui import tr
from tunesmith_gui.context import Context
from tunesmith_gui.environment.setup_service import SetupService
from tunesmith_gui.services.operation import OperationTask
from tunesmith_gui.services.preferences import Preferences
from tunesmith_gui.shell.main_window import MainWindow
from tunesmith_gui.theme import Scheme, theme

PATIENCE_S = 5.0
LEAST_TURNS, MOST_TURNS = 2, 20

MOST_WAIT_MS = 60_000
"""For what will come: a busy computer takes its time, and only a test that fails waits so long."""


class PatientBot(QtBot):
    """Waits for what a test expects at least as long as a busy computer may take."""

    def waitUntil(self, callback: Callable[[], bool | None], *, timeout: int = MOST_WAIT_MS) -> None:
        """Wait until something holds; see QtBot."""
        super().waitUntil(callback, timeout=max(timeout, MOST_WAIT_MS))

    def waitSignal(
        self, signal: Any, *, timeout: int = MOST_WAIT_MS, raising: bool | None = None, **options: Any
    ) -> SignalBlocker:
        """Wait for a signal, or for the time in which none shall come; see QtBot."""
        most = timeout if raising is False else max(timeout, MOST_WAIT_MS)
        return super().waitSignal(signal, timeout=most, raising=raising, **options)


@pytest.fixture
def qtbot(qapp: QApplication, request: pytest.FixtureRequest) -> PatientBot:
    """The driver of widgets, with patience."""
    return PatientBot(request)


@pytest.fixture(scope="session", autouse=True)
def themed(qapp: QApplication) -> None:
    """The application as it looks for a person: themed, in English."""
    theme().install(Scheme.LIGHT, 1.0)
    tr.install_language("en")


@pytest.fixture(autouse=True)
def same_appearance(themed: None) -> Iterator[None]:
    """Leave the next test the usual look, whatever this one tried."""
    yield
    if (theme().scheme, theme().font_scale) != (Scheme.LIGHT, 1.0):
        theme().set_appearance(Scheme.LIGHT, 1.0)


@pytest.fixture(autouse=True)
def no_leftovers(themed: None) -> Iterator[None]:
    """Fail a test that leaves a window, a thread or a running timer behind."""
    # Collecting looks at what this test made only: with PyTorch loaded, everything else takes seconds.
    gc.freeze()
    # By itself Python collects in any thread, where no widget may end; `settle` does it in this one.
    gc.disable()
    threads, windows = set(threading.enumerate()), set(QApplication.topLevelWidgets())
    yield
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        settle()
        left = _leftovers(threads, windows)
        if not left:
            gc.enable()
            return
        time.sleep(0.02)
    gc.enable()
    pytest.fail(f"left behind: {left}")


class IdleTask(OperationTask):
    """A command of the installer that never begins: tests of the window start no doctor."""

    def start(self) -> None:
        """Starts nothing."""

    def cancel(self) -> None:
        self.cancelled = True
        self.ended.emit(Outcome(OperationState.STOPPED, 5))

    def abandon(self) -> None:
        """Ends nothing."""


@pytest.fixture
def context(home: Path, themed: None) -> Iterator[Context]:
    """The services of a window; its installer stands still."""
    result = Context(Preferences(SettingsFile()))
    result.__dict__["setup"] = SetupService(IdleTask)
    yield result
    result.shutdown()
    settle()


@pytest.fixture
def window(qtbot: QtBot, context: Context) -> Iterator[MainWindow]:
    """The real window at the size that it first has on a screen with room for it."""
    result = MainWindow(context)
    result.resize(1280, 800)
    result.show()
    qtbot.waitExposed(result)
    yield result
    result.close_without_asking()
    result.deleteLater()
    settle()


def settle() -> None:
    """Lets worker threads finish, events arrive and deleted widgets go.

    What a worker found can start another one or give labels other words, and layouts ask for room in turns: it goes on
    until nothing happens any more, as far as a blinking cursor lets it.
    """
    events = QEventLoop()
    for turn in range(MOST_TURNS):
        QThreadPool.globalInstance().waitForDone(round(PATIENCE_S * 1000))
        has_worked = events.processEvents()
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)
        if not has_worked and turn >= LEAST_TURNS:
            break
    gc.collect()


def _leftovers(threads: set[threading.Thread], windows: set[object]) -> list[object]:
    alive = [
        each
        for each in threading.enumerate()
        if each not in threads and not isinstance(each, threading._DummyThread)  # the thread pool's own
    ]
    shown = [each for each in QApplication.topLevelWidgets() if each not in windows and isValid(each)]
    running = [each for each in gc.get_objects() if type(each) is QTimer and isValid(each) and each.isActive()]
    return [*alive, *shown, *running]
