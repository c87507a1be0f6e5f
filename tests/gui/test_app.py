"""The program: settings reach the window, a language change builds it anew, errors become one line, budgets hold."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QtMsgType
from PySide6.QtWidgets import QApplication, QComboBox
from pytestqt.qtbot import QtBot
from shiboken6 import isValid

from tests.gui.conftest import IdleTask, settle
from tests.gui.fake_runs import FakeRuns, training
from tests.gui.library.driving import Scripted, last, script
from tests.processes import run_while_read_only
from tests.tiny_run import make_tiny_run
from tunesmith_core import environments
from tunesmith_core.environments import own_command
from tunesmith_core.errors import UserError
from tunesmith_core.operations.kinds.rows import SAVE_ROWS
from tunesmith_core.protocol import JournalWriter
from tunesmith_core.runs import create_run
from tunesmith_core.settings import SettingsFile
from tunesmith_core.spec import RunSpec
from tunesmith_gui import app as app_module
from tunesmith_gui import tr
from tunesmith_gui.app import App
from tunesmith_gui.environment.setup_activity import Command
from tunesmith_gui.environment.setup_service import SetupService
from tunesmith_gui.environment.wizard import SetupWizard
from tunesmith_gui.new_run.form import Missing
from tunesmith_gui.new_run.page import NewRunPage
from tunesmith_gui.services.downloads import DownloadService
from tunesmith_gui.services.operation import operations
from tunesmith_gui.theme import Scheme, theme
from tunesmith_gui.tokens import DARK
from tunesmith_gui.widgets.banner import Banner


@pytest.fixture
def app(home: Path, qapp: QApplication, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    file = SettingsFile()
    file.change(theme="dark", font_scale_percent=125, language="en")
    file.save()
    monkeypatch.setattr(qapp, "quit", lambda: None)
    result = App(qapp)
    result.context.__dict__["runs"] = FakeRuns()
    result.window.show()
    settle()
    yield result
    result.window.close_without_asking()
    result.window.deleteLater()
    result.shutdown()
    result.deleteLater()
    tr.install_language("en")
    theme().set_appearance(Scheme.LIGHT, 1.0)
    settle()


def test_settings_reach_the_window(app: App) -> None:
    assert (theme().tokens, theme().font_scale) == (DARK, 1.25)
    app.context.preferences.change(font_scale_percent=200)
    assert theme().font_scale == 2.0
    settle()


def test_new_language_builds_the_window_anew_and_keeps_runs(app: App, qtbot: QtBot) -> None:
    runs = app.context.runs
    runs.show(training())  # type: ignore[attr-defined]
    old = app.window
    old.show_page("runs")
    runs.run_ended.emit("earlier", "rates-02", "failed")
    # As the command line does it.
    file = SettingsFile()
    file.change(language="zh_CN")
    file.save()
    qtbot.waitUntil(lambda: app.window is not old)
    settle()
    assert app.window is not old
    assert app.window.isVisible()
    assert app.window.rail.buttons["runs"].isChecked()
    assert app.window.rail.buttons["train"].words == "训练"
    assert app.window.rail.activity.words == "45%，support-01"
    assert app.context.runs is runs
    assert [row.words for row in app.window.activity.run_ends.values()] == ["失败：rates-02"]
    runs.run_ended.emit("id", "support-01", "finished")
    assert app.window.toast.label.text() == "已完成：support-01"


def test_what_services_say_reaches_no_window_that_is_gone(app: App, qtbot: QtBot) -> None:
    old = app.window
    for page in ("runs", "models", "data", "train", "settings", "environment"):
        old.show_page(page)
        settle()
    app.context.preferences.change(language="zh_CN")
    qtbot.waitUntil(lambda: app.window is not old)
    qtbot.waitUntil(lambda: not isValid(old))
    context = app.context
    with qtbot.captureExceptions() as errors:
        context.exports.changed.emit()
        context.library.failed.emit(UserError("usage", "gone"))
        context.library.rows_changed.emit()
        context.downloads.changed.emit()
        context.downloads.failed.emit(UserError("usage", "gone"))
        context.runs.run_updated.emit("id")
        context.runs.runs_changed.emit()
        context.hardware.changed.emit(context.hardware.latest)
        settle()
    assert errors == []


def test_a_new_language_waits_for_a_copy_that_is_being_saved(
    app: App, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations(), "live", [])
    old = app.window
    task = IdleTask(SAVE_ROWS, None, old)
    task.holds_page = True
    operations().add(task)
    app.context.preferences.change(language="zh_CN")
    qtbot.waitUntil(old.toast.isVisible)
    assert old.toast.label.text() == "The language changes once this is done: Saving a copy of the rows"
    assert app.window is old
    operations().remove(task)
    task.cancel()
    qtbot.waitUntil(lambda: app.window is not old)
    assert app.window.rail.buttons["train"].words == "训练"


def test_a_new_language_keeps_what_was_typed(app: App, qtbot: QtBot, home: Path) -> None:
    def train_page() -> NewRunPage:
        page = app.window.pages.page("train")
        assert isinstance(page, NewRunPage)
        return page

    qtbot.waitUntil(lambda: train_page().facts.survey is not None)
    before = train_page()
    before.form.set_value("data.sources[0].path", str(home / "chats.jsonl"))
    before.form.set_text("adapter.rank", "twelve")
    before.form.set_name("support")
    before.actions_.recent_data = [str(home / "chats.jsonl")]
    before.settings_list.set_open(True)
    old = app.window
    old.show_page("settings")
    combo = old.pages.page("settings").findChildren(QComboBox)[0]
    combo.setCurrentIndex(combo.findData("zh_CN"))
    combo.activated.emit(combo.currentIndex())
    qtbot.waitUntil(lambda: app.window is not old)
    settle()
    after = train_page()
    assert after is not before
    assert after.form.to_draft() == before.form.to_draft()
    assert (after.form.text("adapter.rank"), after.form.value("data.sources[0].path")) == (
        "twelve",
        str(home / "chats.jsonl"),
    )
    assert after.actions_.recent_data == [str(home / "chats.jsonl")]
    assert after.settings_list.is_open
    focused = app.window.pages.page("settings").focusWidget()
    assert isinstance(focused, QComboBox)
    assert focused.currentData() == "zh_CN", "one can go back at once"


def test_the_first_look_offers_the_set_up_once(app: App, qtbot: QtBot) -> None:
    app.context.__dict__["setup"] = SetupService(IdleTask)
    app.first_look()
    qtbot.waitUntil(lambda: app.window.findChild(SetupWizard) is not None, timeout=15_000)
    wizard = app.window.findChild(SetupWizard)
    assert wizard is not None
    assert wizard.isVisible()
    wizard.close()
    settle()


def test_the_first_look_checks_what_is_installed(app: App, home: Path, qtbot: QtBot) -> None:
    service = app.context.__dict__["setup"] = SetupService(IdleTask)
    python = environments.environment_python(home / "envs" / "t")
    python.parent.mkdir(parents=True)
    python.touch()
    (home / "envs" / "train.current").write_text("t\n", encoding="utf-8")
    app.first_look()
    qtbot.waitUntil(lambda: service.model.busy, timeout=15_000)
    assert service.model.activity is not None
    assert service.model.activity.command is Command.CHECK
    assert app.window.findChild(SetupWizard) is None


def test_another_start_brings_the_window_and_its_files(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[list[str]] = []
    monkeypatch.setattr(app.window, "open_files", taken.append)
    app.window.showMinimized()
    app.open_files(["/data/chats.jsonl"])
    assert not app.window.isMinimized()
    assert taken == [["/data/chats.jsonl"]]


def test_logging_out_asks_nothing(app: App, qapp: QApplication) -> None:
    app.context.runs.show(training())  # type: ignore[attr-defined]
    qapp.commitDataRequest.emit(None)
    assert app.window.close()


def test_error_nobody_caught_is_one_line_and_in_the_log(app: App, caplog: pytest.LogCaptureFixture) -> None:
    app_module._on_uncaught(app, ValueError, ValueError("odd"), None)
    assert app.window.toast.label.text() == "Tunesmith made a mistake"
    assert "ValueError: odd" in caplog.text
    app.report_error(UserError("usage", "no such file"))
    assert app.window.toast.label.text() == "no such file"


def test_messages_of_qt_go_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="qt"):
        app_module._on_qt_message(QtMsgType.QtWarningMsg, None, "odd")  # type: ignore[arg-type]
        app_module._on_qt_message(QtMsgType.QtInfoMsg, None, "fine")  # type: ignore[arg-type]
    assert [(record.levelname, record.message) for record in caplog.records] == [("WARNING", "odd"), ("INFO", "fine")]


def test_warm_up_loads_the_next_pages_and_finds_interrupted_runs(app: App, qtbot: QtBot) -> None:
    run = create_run(RunSpec(name="night-shift"))
    os.utime(run.path, (0, 0))
    JournalWriter(run.journal_path).write("hello", protocol="1.0")
    app.warm_up()
    qtbot.waitUntil(lambda: app.window.banners.isVisible(), timeout=30_000)
    assert "tunesmith_gui.dashboard.charts" in sys.modules
    titles = [each.accessibleName() for each in app.window.banners.findChildren(Banner)]
    assert titles == ["The run night-shift-01 was interrupted at step 0"]


STARTS = """
import sys
sys.path[:0] = {path}
from PySide6.QtCore import QTimer
import tunesmith_gui.app as app
show = app.MainWindow.show
def shown(window):
    show(window)
    heavy = {{"numpy", "pyqtgraph", "psutil", "pynvml", "platformdirs", "tunesmith_gui.dashboard.page"}}
    sys.stderr.write(",".join(sorted(heavy & set(sys.modules))))
    QTimer.singleShot(0, window.close_without_asking)
app.MainWindow.show = shown
sys.exit(app.main([]))
"""


def test_first_picture_needs_no_heavy_library(home: Path) -> None:
    """What a start loads decides how long it takes; seconds are measured in tests/bench."""
    code = STARTS.format(path=sys.path)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_program_starts_and_ends_with_its_window(home: Path, qtbot: QtBot) -> None:
    """The very command of the menu entry: `start.py tunesmith_gui`, closed by ending the process politely."""
    program = subprocess.Popen(own_command("tunesmith_gui"), stderr=subprocess.PIPE)
    try:
        lock = home / "locks" / "window.lock"
        qtbot.waitUntil(lambda: lock.exists() or program.poll() is not None, timeout=60_000)
        assert program.poll() is None
    finally:
        program.terminate()
        _out, err = program.communicate(timeout=20)
    assert b"Traceback" not in err


LOOKS = """
import sys
from PySide6.QtCore import QTimer
import tunesmith_gui.app as app
from tunesmith_gui import early
from tunesmith_gui.widgets.banner import Banner
early.open_crash_file()
show = app.MainWindow.show
def look(window):
    if not window.context.library.rows:
        return QTimer.singleShot(50, lambda: look(window))
    titles = [each.accessibleName() for each in window.banners.findChildren(Banner)]
    print(window.context.library.rows[0].id, titles, window.toast.label.text(), flush=True)
    window.close_without_asking()
def shown(window):
    show(window)
    window.show_page("runs", None)
    window.context.library.refresh()
    look(window)
app.MainWindow.show = shown
sys.exit(app.main([]))
"""


def test_a_read_only_data_root_is_shown_and_says_so(home: Path) -> None:
    make_tiny_run(home / "runs" / "tiny-01")
    done = run_while_read_only(home, [sys.executable, "-c", LOOKS])
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == """tiny-01 ["A file or folder can't be written or read"]"""
    assert [path.name for path in home.iterdir()] == ["runs"]


def test_a_log_on_a_full_disk_says_nothing_in_the_terminal(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    monkeypatch.setattr(logging, "raiseExceptions", True)
    monkeypatch.setattr(app_module, "qInstallMessageHandler", lambda _handler: None)
    app_module._open_log()
    (handler,) = root.handlers

    def refuse() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(handler, "flush", refuse)
    logging.getLogger("tunesmith").error("a line")
    monkeypatch.undo()
    handler.close()
    assert capsys.readouterr().err == ""


class TestNewLanguageMeanwhile:
    """What the Train page has under way when the window is built again in another language."""

    @pytest.fixture
    def scripted(self, app: App, monkeypatch: pytest.MonkeyPatch) -> type[Scripted]:
        script(monkeypatch)
        monkeypatch.setattr(operations(), "live", [])
        app.context.__dict__["downloads"] = DownloadService(Scripted)
        return Scripted

    def train_page(self, app: App) -> NewRunPage:
        page = app.window.pages.page("train")
        assert isinstance(page, NewRunPage)
        return page

    def change_language(self, app: App) -> None:
        app.context.preferences.change(language="zh_CN")
        app._language = "zh_CN"
        app._rebuild_window()  # at once: the page of the old window still lives when this returns

    def begun(self, kind: str) -> Scripted:
        """The newest operation of a kind, in the list of what is live as a real one would be."""
        task = last(kind)
        operations().add(task)
        return task

    def test_a_run_starts_whose_data_is_looked_at(self, app: App, scripted: type[Scripted]) -> None:
        started: list[RunSpec] = []
        app.context.runs.start = lambda spec, *_told: started.append(spec)  # type: ignore[method-assign]
        page = self.train_page(app)
        page.actions_._start(page.form.spec)
        look = self.begun("doubts")
        self.change_language(app)
        look.answer({"sources": [{"num_rows": 3, "num_unreviewed": 0}], "is_complete": True, "warnings": []})
        assert len(started) == 1
        settle()

    def test_a_look_at_the_data_can_be_canceled_afterwards(self, app: App, scripted: type[Scripted]) -> None:
        page = self.train_page(app)
        page.actions_._start(page.form.spec)
        look = self.begun("doubts")
        self.change_language(app)
        settle()
        page = self.train_page(app)
        assert page.form.surroundings.starting
        page.actions_.doubts.cancel()
        assert look.cancelled
        assert not page.form.surroundings.starting

    def test_a_run_starts_once_its_model_has_arrived(self, app: App, scripted: type[Scripted]) -> None:
        page = self.train_page(app)
        spec = page.form.spec
        spec.model.path = "org/name"
        page.actions_.download.begin(app.context.downloads, spec)
        self.change_language(app)
        last("download").answer({})
        assert [task.spec.model.path for task in scripted.made if task.kind.name == "doubts"] == ["org/name"]
        settle()

    def test_a_check_of_the_plan_continues(self, app: App, scripted: type[Scripted]) -> None:
        page = self.train_page(app)
        page.form.missing = lambda: Missing.NOTHING  # type: ignore[method-assign]
        page.actions_.check_plan()
        check = self.begun("check")
        self.change_language(app)
        settle()
        page = self.train_page(app)
        assert page.plan_card.check.text() == "取消检查"
        assert not check.cancelled
        check.answer({"peak_bytes": 1 << 30, "longest_tokens": 9, "micro_batch_size": 1, "step_s": 0.5})
        operations().remove(check)
        assert page.plan_card.check.text() == "检查计划"

    def test_a_check_canceled_in_the_activity_has_ended_on_the_page(self, app: App, scripted: type[Scripted]) -> None:
        page = self.train_page(app)
        page.form.missing = lambda: Missing.NOTHING  # type: ignore[method-assign]
        page.actions_.check_plan()
        assert page.plan_card.check.text() == "Cancel the check"
        last("check").cancel()
        assert page.plan_card.check.text() == "Check the plan"
