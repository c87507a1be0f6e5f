"""Closing the window: what continues, what is cut short, and when nothing is asked."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QSize, Qt, QTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from tests.gui.conftest import IdleTask
from tests.gui.fake_runs import FakeRuns, training
from tests.gui.layout_checks import clipped, unnamed
from tunesmith_core.operations.kind import RunFolder
from tunesmith_core.operations.kinds.evaluate import EVALUATE, EvaluateSpec
from tunesmith_core.operations.kinds.hub import DOWNLOAD, SEARCH, HubSpec, SearchSpec
from tunesmith_gui.context import Context
from tunesmith_gui.environment.setup_service import SetupService
from tunesmith_gui.services.operation import OperationTask, operations
from tunesmith_gui.shell.close_window import CloseChoice, CloseWindowDialog
from tunesmith_gui.shell.main_window import MainWindow
from tunesmith_gui.widgets.safe_label import SafeLabel

pytestmark = pytest.mark.qt_log_ignore("This plugin does not support grabbing the keyboard")  # offscreen pop-ups


@pytest.fixture
def runs(context: Context) -> FakeRuns:
    """The run service of the window, steered by the test; ask for it before `window`."""
    fake = FakeRuns()
    context.__dict__["runs"] = fake
    return fake


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> list[OperationTask]:
    """The operations of the window, in the hands of the test."""
    tasks: list[OperationTask] = []
    monkeypatch.setattr(operations(), "live", tasks)
    return tasks


class TestClosing:
    @pytest.mark.parametrize(
        ("words", "closes", "stopped"),
        [
            ("Keep running in the background", True, []),
            ("Stop and save", True, [("id-support-01", "save")]),
            ("Cancel", False, []),
        ],
    )
    def test_question_while_a_run_is_live(
        self, runs: FakeRuns, window: MainWindow, words: str, closes: bool, stopped: list[tuple[str, str]]
    ) -> None:
        runs.show(training())
        press_in_dialog(window, words)
        assert window.close() is closes
        assert runs.stopped == stopped

    def test_keep_running_is_what_enter_does(self, runs: FakeRuns, window: MainWindow) -> None:
        dialog = CloseWindowDialog([training(), training("b")], parent=window)
        dialog.show()
        assert clipped(dialog) == unnamed(dialog) == []
        QTest.keyClick(dialog, Qt.Key.Key_Return)
        assert dialog.choice is CloseChoice.CLOSE
        dialog.deleteLater()

    def test_no_question_without_a_run_or_when_switched_off(
        self, runs: FakeRuns, window: MainWindow, context: Context, qtbot: QtBot
    ) -> None:
        context.preferences.change(confirm_close=False)
        runs.show(training())
        with qtbot.waitSignal(window.closed):
            assert window.close()

    @pytest.mark.parametrize(("words", "closes"), [("Stop and close", True), ("Cancel", False)])
    def test_an_operation_that_would_be_missed_is_asked_about(
        self, runs: FakeRuns, window: MainWindow, live: list[OperationTask], words: str, closes: bool
    ) -> None:
        live.append(IdleTask(EVALUATE, EvaluateSpec(RunFolder("/runs/support-01")), window))
        said = press_in_dialog(window, words)
        assert window.close() is closes
        assert "1 operation ends with the window" in said
        assert "What has been measured is lost. The next evaluation starts from the beginning." in said

    @pytest.mark.parametrize(("words", "closes"), [("Stop and close", True), ("Cancel", False)])
    def test_an_installation_is_asked_about(
        self, window: MainWindow, live: list[OperationTask], words: str, closes: bool
    ) -> None:
        setup = SetupService(IdleTask)
        setup.install()
        assert setup._task is not None
        live.append(setup._task)
        said = press_in_dialog(window, words)
        assert window.close() is closes
        assert "It continues where it left off next time." in said

    @pytest.mark.parametrize("with_run", [True, False])
    def test_enter_ends_no_operation(
        self, window: MainWindow, live: list[OperationTask], with_run: bool
    ) -> None:
        live.append(IdleTask(EVALUATE, EvaluateSpec(RunFolder("/runs/support-01")), window))
        dialog = CloseWindowDialog([training()] if with_run else [], live, window)
        dialog.show()
        QTest.keyClick(dialog.focusWidget() or dialog, Qt.Key.Key_Return)
        assert (dialog.isVisible(), dialog.choice) == (False, CloseChoice.CANCEL)
        dialog.deleteLater()

    def test_runs_and_operations_are_one_question(
        self, runs: FakeRuns, window: MainWindow, live: list[OperationTask], context: Context
    ) -> None:
        live.extend(IdleTask(DOWNLOAD, HubSpec(f"org/{name}"), window) for name in "abcdefg")
        runs.show(training())
        dialog = CloseWindowDialog(runs.live_runs(), live, window)
        dialog.show()
        said = [label.text() for label in dialog.findChildren(SafeLabel)]
        assert said[0] == "support-01 is still running"
        assert said[2] == "7 operations end with the window"
        assert said.count("Downloading a model") == 5
        assert said[-1] == "and 2 more"
        assert clipped(dialog) == unnamed(dialog) == []
        dialog.deleteLater()

    def test_what_nobody_would_miss_is_not_asked_about(
        self, runs: FakeRuns, window: MainWindow, live: list[OperationTask], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(CloseWindowDialog, "exec", CloseWindowDialog.reject)
        canceled = IdleTask(EVALUATE, EvaluateSpec(RunFolder("/runs/support-01")), window)
        canceled.cancel()
        live.extend([IdleTask(SEARCH, SearchSpec(""), window), canceled])
        setup = SetupService(IdleTask)
        setup.check()
        assert setup._task is not None
        live.append(setup._task)
        assert window.close()

    def test_size_is_remembered(self, runs: FakeRuns, window: MainWindow, context: Context) -> None:
        window.resize(780, 700)
        window.close()
        again = MainWindow(context)
        assert again.size() == QSize(780, 700)
        again.close_without_asking()
        again.deleteLater()


def press_in_dialog(window: MainWindow, words: str) -> list[str]:
    """Presses a button of the close dialog as soon as it is open; what it says is in the list then."""
    said: list[str] = []

    def press() -> None:
        dialog = window.findChild(CloseWindowDialog)
        assert dialog is not None
        said.extend(label.text() for label in dialog.findChildren(SafeLabel))
        (found,) = [each for each in dialog.findChildren(QWidget) if each.accessibleName() == words]
        QTest.mouseClick(found, Qt.MouseButton.LeftButton)

    QTimer.singleShot(50, press)
    return said
