"""Work off the UI thread: the answer comes back on it, and never to an owner that is gone."""

from __future__ import annotations

import threading

from PySide6.QtCore import QObject, QThreadPool
from pytestqt.qtbot import QtBot
from shiboken6 import delete

from tests.gui.conftest import settle
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_gui.background import Job


def test_result_arrives_on_the_calling_thread(qtbot: QtBot) -> None:
    owner = QObject()
    threads: list[int] = []
    results: list[int] = []

    def work() -> int:
        threads.append(threading.get_ident())
        return 42

    def done(value: int) -> None:
        threads.append(threading.get_ident())
        results.append(value)

    Job.start(owner, work, done, results.append)
    qtbot.waitUntil(lambda: results == [42])
    assert threads[0] != threading.get_ident() == threads[1]


def test_errors_arrive_wrapped(qtbot: QtBot) -> None:
    owner = QObject()
    errors: list[TunesmithError] = []

    def refuse() -> None:
        raise UserError("usage", "no")

    Job.start(owner, refuse, errors.append, errors.append)
    Job.start(owner, lambda: 1 / 0, errors.append, errors.append)
    qtbot.waitUntil(lambda: len(errors) == 2)
    assert {error.code for error in errors} == {"usage", "bug"}


def test_nobody_is_called_when_the_owner_is_gone() -> None:
    owner = QObject()
    go = threading.Event()
    called: list[object] = []
    Job.start(owner, lambda: go.wait(5), called.append, called.append)
    delete(owner)
    go.set()
    QThreadPool.globalInstance().waitForDone(5000)
    settle()
    assert called == []


def test_an_owner_ends_in_the_thread_that_made_it() -> None:
    ended_in: list[threading.Thread] = []

    class Owner(QObject):
        def __del__(self) -> None:
            ended_in.append(threading.current_thread())

        def work(self) -> None:
            pass

        def done(self, _result: None) -> None:
            pass

    for _ in range(300):
        owner = Owner()
        Job.start(owner, owner.work, owner.done, owner.done)
    del owner
    settle()
    assert len(ended_in) == 300
    assert set(ended_in) == {threading.current_thread()}
