"""A run that names its model by a hub id: size and room first, then the download, then the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tests.gui.library.driving import GIB, Scripted, hub_model, last, script
from tests.gui.new_run.driving import fill_in, shown_words
from tunesmith_core.errors import TunesmithError
from tunesmith_core.spec import RunSpec
from tunesmith_gui.context import Context
from tunesmith_gui.new_run import hub_look
from tunesmith_gui.new_run.page import NewRunPage
from tunesmith_gui.services.downloads import DownloadService

Asked = list[tuple[str, Any]]


@pytest.fixture(autouse=True)
def scripted(context: Context, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Operations in the hands of the test, and the free space."""
    free = [100 * GIB]
    script(monkeypatch)
    monkeypatch.setattr(hub_look, "free_bytes", lambda: free[0])
    context.__dict__["downloads"] = DownloadService(Scripted)
    return free


@pytest.fixture
def started(page: NewRunPage, monkeypatch: pytest.MonkeyPatch) -> list[RunSpec]:
    """The specs of the runs that were started."""
    specs: list[RunSpec] = []

    def start(spec: RunSpec, done: Callable[[str], object], _failed: object) -> None:
        specs.append(spec)
        done("run-1")

    monkeypatch.setattr(page.context.runs, "start", start)
    return specs


@pytest.fixture
def asked(page: NewRunPage) -> Asked:
    result: Asked = []
    page.navigate.connect(lambda *words: result.append(words))
    page.notify.connect(lambda *words: result.append(words))
    return result


def choose(qtbot: QtBot, page: NewRunPage, data_file: Path, *, answered: bool = True) -> None:
    fill_in(qtbot, page, "org/name", data_file)
    qtbot.waitUntil(lambda: bool(Scripted.made))
    if answered:
        last("hub-facts").answer(hub_model().to_dict())
        qtbot.waitUntil(lambda: bool(page.facts.model and page.facts.model.offered))
    settle()


def test_size_and_room_are_shown(qtbot: QtBot, page: NewRunPage, data_file: Path) -> None:
    choose(qtbot, page, data_file)
    words = page.model_picker.facts.text()
    assert "3.0 GiB are downloaded when the run starts. 100.0 GiB are free." in words
    assert "context of 4,096 tokens" in words
    assert page.start_bar.start.isEnabled()


def test_without_room_the_run_does_not_start(
    qtbot: QtBot, page: NewRunPage, data_file: Path, scripted: list[int]
) -> None:
    scripted[0] = 2 * GIB
    choose(qtbot, page, data_file)
    assert "Not enough room" in page.model_picker.facts.text()
    assert page.start_bar.start.accessibleName() == "No room for the model"
    assert not page.start_bar.start.isEnabled()


def test_the_model_comes_before_the_run(
    qtbot: QtBot, page: NewRunPage, data_file: Path, started: list[RunSpec], asked: Asked
) -> None:
    choose(qtbot, page, data_file)
    page.start_bar.start.click()
    task = last("download")
    task.tell("progress", name="downloading", done_bytes=GIB, total_bytes=4 * GIB, bytes_per_s=2.0**20)
    settle()
    bar = page.start_bar
    assert bar.download.isVisible()
    assert (bar.download_words.text(), bar.meter.share) == ("1.0 GiB of 4.0 GiB  ·  1 MiB/s", 0.25)
    assert (bar.start.accessibleName(), bar.start.isEnabled()) == ("Downloading the model…", False)
    page.form.set_value("schedule.max_steps", 77)
    assert started == []
    task.answer("/models/org--name")
    settle()
    assert not bar.download.isVisible()
    assert [spec.model.path for spec in started] == ["org/name"]
    assert started[0].schedule.max_steps != 77, "the run is the one that was started"
    assert ("dashboard", "run-1") in asked


def test_cancel_gives_up_the_run_and_keeps_what_arrived(
    qtbot: QtBot, page: NewRunPage, data_file: Path, started: list[RunSpec], asked: Asked
) -> None:
    choose(qtbot, page, data_file)
    page.start_bar.start.click()
    page.start_bar.cancel.click()
    settle()
    assert last("download").cancelled
    assert not page.start_bar.download.isVisible()
    assert page.start_bar.start.isEnabled()
    assert started == []
    assert any("is kept" in str(words) for words in asked)


def test_a_run_that_was_given_up_does_not_start_when_the_model_arrives_all_the_same(
    qtbot: QtBot, page: NewRunPage, data_file: Path, started: list[RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(qtbot, page, data_file)
    page.start_bar.start.click()
    task = last("download")
    monkeypatch.setattr(task, "cancel", lambda: None)
    page.start_bar.cancel.click()
    task.answer("/models/org--name")
    settle()
    assert started == []
    assert not page.start_bar.download.isVisible()


def test_a_download_that_fails_is_told(
    qtbot: QtBot, page: NewRunPage, data_file: Path, started: list[RunSpec], asked: Asked
) -> None:
    choose(qtbot, page, data_file)
    page.start_bar.start.click()
    last("download").refuse("hub-gated-401", "org/name: the hub refused access (403).")
    settle()
    assert "You need access to this model" in shown_words(page)
    assert "tunesmith models get" not in shown_words(page)
    assert started == []
    banner = page._banner_slots["error"]
    next(each for each in banner.buttons if each.text() == "Open in Models").click()
    assert asked[-1] == ("models", "org/name")


def test_a_hub_that_refuses_is_told_beside_the_model(
    qtbot: QtBot, page: NewRunPage, data_file: Path, asked: Asked
) -> None:
    choose(qtbot, page, data_file, answered=False)
    last("hub-facts").refuse("hub-not-found", "The hub has no org/name.")
    settle()
    assert "The hub has no org/name." in shown_words(page)
    assert not page.start_bar.start.isEnabled()
    number = len(Scripted.made)
    next(each for each in page.model_picker._problem.buttons if each.text() == "Try again").click()  # type: ignore[union-attr]
    qtbot.waitUntil(lambda: len(Scripted.made) > number)
    last("hub-facts").answer(hub_model().to_dict())
    qtbot.waitUntil(lambda: page.start_bar.start.isEnabled())


def test_another_owner_of_the_name_is_told(qtbot: QtBot, page: NewRunPage, data_file: Path) -> None:
    choose(qtbot, page, data_file, answered=False)
    last("hub-facts").answer(hub_model("other/name").to_dict())
    qtbot.waitUntil(lambda: "belongs to other" in shown_words(page))
    assert not page.start_bar.start.isEnabled()


def test_an_answer_about_a_former_model_is_dropped(
    qtbot: QtBot, page: NewRunPage, data_file: Path, model: Path
) -> None:
    choose(qtbot, page, data_file, answered=False)
    former = last("hub-facts")
    fill_in(qtbot, page, str(model), data_file)
    assert former.cancelled
    assert page.facts.model is not None
    assert page.facts.model.card is not None
    assert page.facts.model.error is None


def test_without_an_environment_nothing_more_is_said_of_the_hub(
    qtbot: QtBot, page: NewRunPage, data_file: Path
) -> None:
    choose(qtbot, page, data_file, answered=False)
    last("hub-facts").failed.emit(TunesmithError("environment-missing", "none"))
    settle()
    assert "Downloaded from the hub when the run starts" in page.model_picker.facts.text()
