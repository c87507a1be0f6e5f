"""The activity says what runs and of which run, keeps how an export ended, and stays inside a small window."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pytestqt.qtbot import QtBot

from tests.gui.conftest import IdleTask, settle
from tests.gui.export.test_sheet import ANSWER, end
from tests.gui.layout_checks import clipped, unnamed
from tests.gui.run_folders import make_run, texts
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.kind import RunFolder
from tunesmith_core.operations.kinds.chat import CHAT, TUNED, ChatSpec
from tunesmith_core.operations.kinds.engine import PLAN_CHECK
from tunesmith_core.operations.kinds.export import ExportSpec
from tunesmith_core.protocol import Event
from tunesmith_core.runs import Run
from tunesmith_core.sampling import Sampling
from tunesmith_core.spec import RunSpec
from tunesmith_core.votes import BASE_MODEL, Contender, Contest
from tunesmith_gui import tr
from tunesmith_gui.chat import service as service_module
from tunesmith_gui.chat.service import ChatService
from tunesmith_gui.context import Context
from tunesmith_gui.export.service import ExportService
from tunesmith_gui.services.operation import OperationTask, operations
from tunesmith_gui.shell.activity import _OperationRow
from tunesmith_gui.shell.main_window import MainWindow


class ListedTask(IdleTask):
    """An operation that is listed and does nothing."""

    def start(self) -> None:
        self.run_name = "support-01"
        operations().add(self)

    def cancel(self) -> None:
        operations().remove(self)
        super().cancel()

    def abandon(self) -> None:
        operations().remove(self)

    def post(self, command: str, **data: object) -> None:
        """Takes a command and does nothing."""


@pytest.fixture
def run(home: Path) -> Run:
    assert home.is_dir()
    return make_run("support-01")


@pytest.fixture
def exports(context: Context) -> ExportService:
    """Exports that begin nothing: a test says what happens to them."""
    context.__dict__["exports"] = ExportService(IdleTask)
    return context.exports


@pytest.fixture
def chat(run: Run, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A chat with the run whose model a test speaks for; ask for it after `window`."""
    monkeypatch.setattr(service_module, "OperationTask", ListedTask)
    service = ChatService()
    service.open(run)
    yield service
    settle()
    service.close()
    service.deleteLater()


def row(window: MainWindow) -> _OperationRow:
    (only,) = window.activity.operation_rows
    return only


def says(service: ChatService, kind: str, **data: Any) -> None:
    assert service._task is not None
    service._task.happened.emit(Event(1, 0.0, kind, data))


def test_a_chat_says_what_it_does_and_that_unloading_unloads(window: MainWindow, chat: ChatService) -> None:
    rail = window.rail.activity
    assert (rail.words, row(window).cancel.text()) == ("Chat with support-01, loading", "Cancel")
    says(chat, "ready", step=30)
    assert (rail.words, row(window).name.text()) == ("Model of support-01, ready",) * 2
    assert row(window).cancel.text() == "Unload"
    assert row(window).cancel.accessibleName() == "Unload: Model of support-01, ready"
    chat.ask((TUNED,), {TUNED: []}, Sampling(), "the page")
    assert (rail.words, row(window).cancel.text()) == ("Chat with support-01, answering", "Cancel")
    says(chat, "done", side=TUNED)
    assert rail.words == "Chat with support-01, ready"
    contest = Contest([{"role": "user", "content": "Who?"}], (Contender(), BASE_MODEL))
    chat.ask_contest(contest, Sampling())
    assert rail.words == "Blind vote on support-01"
    for _ in contest.order:
        says(chat, "done", side=TUNED)
    row(window).cancel.click()
    assert not chat.is_loaded(chat.run)  # type: ignore[arg-type]
    assert rail.words == "Idle"


def test_what_works_is_told_before_what_only_waits(window: MainWindow, chat: ChatService) -> None:
    says(chat, "ready", step=30)
    task = ListedTask(PLAN_CHECK, RunSpec(), window)
    task.start()
    assert window.rail.activity.words == "Checking the plan"
    task.cancel()
    assert window.rail.activity.words == "Model of support-01, ready"


def test_what_works_is_told_in_the_language_of_the_moment(window: MainWindow) -> None:
    task = OperationTask(CHAT, ChatSpec(RunFolder("/run")), window)
    english = task.words
    tr.install_language("zh_CN")
    try:
        assert task.words != english
        task.describe(lambda: tr.translate("Chat", "Chat with %1, ready"), rests=True)
        assert task.words == "与 run 对话，已就绪"
    finally:
        tr.install_language("en")
    assert task.words == "Chat with run, ready"


def test_a_run_is_called_by_its_name(home: Path, qtbot: QtBot, window: MainWindow) -> None:
    run = make_run("Support Bot")
    # Without a training environment it fails, after it has looked the name up.
    task = OperationTask(CHAT, ChatSpec(RunFolder(str(run.path))), window)
    task.describe(lambda: "Evaluating %1")
    assert task.words == "Evaluating support-bot-01"
    with qtbot.waitSignal(task.ended, timeout=10_000):
        task.start()
    assert task.words == "Evaluating Support Bot"


def test_the_side_bar_shortens_a_name_and_keeps_the_verdict(
    exports: ExportService, run: Run, window: MainWindow, tmp_path: Path
) -> None:
    settle()
    name = "qa-smollm2-135m-instruct-" + "long-" * 30
    end(exports.start(name, ExportSpec(RunFolder(str(run.path)))), ANSWER | {"path": str(tmp_path)})
    window.resize(1280, 800)
    window.show()
    settle()
    shown = " ".join(window.rail.activity.text().split())
    assert "Exported qa" in shown
    assert shown.endswith("only rounding differs")
    assert name in window.rail.activity.toolTip().replace("\n", "")


def test_a_run_that_has_ended_is_opened_from_the_activity(context: Context, window: MainWindow, qtbot: QtBot) -> None:
    settle()
    for name in ("first", "second"):
        context.runs.run_ended.emit(f"{name}-01", name, "finished")
    assert window.rail.activity.words == "Finished: second"
    window.rail.activity.click()
    assert not window.activity._empty.isVisible()
    long = "Short answers example (en) kto_answers-smollm2-135m-instruct"
    context.runs.run_ended.emit("long-01", long, "failed")
    settle()
    label = window.activity.run_ends["long-01"].label
    assert label.height() >= 2 * label.fontMetrics().height(), "the name is shown whole"
    assert clipped(window.activity) == unnamed(window.activity) == []
    window.activity.run_ends["long-01"].dismiss.click()
    went: list[tuple[str, object]] = []
    window.activity.opened.connect(lambda run_id: went.append(run_id))
    window.activity.run_ends["second-01"].open.click()
    assert went == ["second-01"]
    assert not window.activity.isVisible()
    assert window.rail.activity.words == "Finished: first"
    window.activity.run_ends["first-01"].dismiss.click()
    assert window.rail.activity.words == "Idle"


def test_the_end_of_an_export_stays_until_it_is_dismissed(
    exports: ExportService, run: Run, window: MainWindow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []
    monkeypatch.setattr(window.context.desktop, "reveal", lambda folder: bool(opened.append(folder)) or True)
    settle()
    export = exports.start("Support Bot", ExportSpec(RunFolder(str(run.path))))
    assert export.task.words == "Exporting Support Bot"
    end(export, ANSWER | {"path": str(tmp_path)})
    window.toast.hide()
    assert window.rail.activity.words == "Exported Support Bot as merged: Verified: only rounding differs"
    window.perform("activity")
    (left,) = window.activity.end_rows
    assert unnamed(window.activity) == []
    left.show_folder.click()
    settle()
    assert opened == [tmp_path]
    assert window.activity.end_rows == [left], "looking at it is not dismissing it"
    left.dismiss.click()
    assert window.activity.end_rows == []
    assert window.rail.activity.words == "Idle"
    assert exports.of(str(run.path)) is None


def test_a_failed_export_says_why_and_a_watched_one_is_not_kept(
    exports: ExportService, run: Run, window: MainWindow
) -> None:
    settle()
    spec = ExportSpec(RunFolder(str(run.path)))
    end(exports.start("Support Bot", spec), error=TunesmithError("disk-full", "The drive is full."))
    window.perform("activity")
    assert "The drive is full." in texts(window.activity)
    assert window.activity.end_rows[0].show_folder.isHidden()
    window.activity.hide()
    watched = exports.start("Support Bot", spec)
    watched.watched = True
    end(watched, ANSWER)
    assert window.activity.end_rows == []


def test_the_panel_stays_inside_a_small_window(exports: ExportService, run: Run, window: MainWindow) -> None:
    settle()
    window.resize(1024, 640)
    window.perform("activity")
    tasks = [ListedTask(PLAN_CHECK, RunSpec(), window) for _ in range(14)]
    for number, task in enumerate(tasks):
        task.start()
        settle()
        bottom = window.activity.geometry().bottom()
        assert bottom <= window.geometry().bottom(), f"{number + 1} operations"
        assert window.activity.geometry().top() >= window.geometry().top(), f"{number + 1} operations"
    assert window.activity.area.verticalScrollBar().maximum() > 0
    assert clipped(window.activity) == []
    for task in tasks[1:]:
        task.cancel()
    settle()
    assert window.activity.area.verticalScrollBar().maximum() == 0
    assert window.activity.geometry().bottom() <= window.geometry().bottom()
    tasks[0].cancel()
    window.activity.hide()


@pytest.mark.parametrize("words", ["Downloading a model", "Checking this computer", "45%, support-01"])
def test_what_goes_on_is_readable_in_the_rail(window: MainWindow, words: str) -> None:
    window.rail.activity.set_words(words)
    settle()
    shown = window.rail.activity.text()
    assert "".join(shown.split()) == "".join(words.split())
    assert window.rail.activity.height() >= window.rail.activity.fontMetrics().lineSpacing() * len(shown.split("\n"))


def test_a_name_is_shortened_before_what_is_said_of_it(window: MainWindow) -> None:
    window.rail.activity.set_words("Chat with support-example, loading", "support-example")
    settle()
    shown = "".join(window.rail.activity.text().split())
    # How much of the name fits depends on the font.
    assert re.fullmatch(r"Chatwithsupp[-a-z]*\N{HORIZONTAL ELLIPSIS}?,loading", shown), shown


def test_a_long_name_keeps_its_end(window: MainWindow) -> None:
    window.rail.activity.set_words("45%, " + "support-" * 9 + "01")
    settle()
    assert window.rail.activity.text().endswith("01")
    assert window.rail.activity.toolTip()
