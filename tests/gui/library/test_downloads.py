"""Downloads in the window: how far they are, pause, continue, cancel, and what an earlier start left."""

from __future__ import annotations

from typing import Any

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tests.gui.library.conftest import Shelves, shown
from tests.gui.library.driving import GIB, Scripted, downloaded, hub_model, last, shelf_of
from tunesmith_core import downloads as core
from tunesmith_core.downloads import Download, part_of
from tunesmith_core.operations.folder import OperationState
from tunesmith_core.operations.runner import Outcome
from tunesmith_core.paths import config_dir
from tunesmith_core.settings import SettingsFile
from tunesmith_gui.library.download_row import DownloadRow
from tunesmith_gui.library.model_row import ModelRow
from tunesmith_gui.library.page import LibraryPage
from tunesmith_gui.library.sheet import ModelSheet
from tunesmith_gui.services.downloads import GOING_NAME, DownloadService, DownloadState, HubDownload
from tunesmith_gui.widgets.confirm import ConfirmDialog


def begun_on_disk(name: str, num_bytes: int = 1000) -> Download:
    """A download that an earlier start left unfinished."""
    record = Download(hub_model(name, num_bytes=4000), name)
    record.staging.mkdir(parents=True)
    record.save(record.staging)
    part_of(record.staging, record.files[-1]).write_bytes(b"x" * num_bytes)
    return record


def start(page: LibraryPage, name: str = "org/name") -> tuple[HubDownload, DownloadRow]:
    download = page.context.downloads.start(name)
    settle()
    return download, row_of(page, name)


def row_of(page: LibraryPage, name: str) -> DownloadRow:
    return next(row for row in page.findChildren(DownloadRow) if row.download.id == name)


def buttons(row: DownloadRow) -> list[str]:
    return [each.text() for each in (row.pause, row.resume, row.look, row.cancel) if each.isVisible()]


def test_progress_is_told_in_words_and_as_a_bar(page: LibraryPage) -> None:
    download, row = start(page)
    assert row.words.text() == "Asking the hub…"
    assert buttons(row) == ["Pause", "Cancel"]
    task = last("download")
    task.tell("plan", id="org/name", total_bytes=4 * GIB, num_files=2)
    task.tell(
        "progress", name="downloading", done_bytes=GIB, total_bytes=4 * GIB, bytes_per_s=40 * 2**20, remaining_s=75
    )
    assert row.words.text() == "1.0 GiB of 4.0 GiB  ·  40 MiB/s  ·  about 1 min left"
    assert row.meter.share == 0.25
    task.tell("waiting", name="waiting", code="hub-busy", message="org/name: the hub answered 429.", seconds=3)
    assert row.words.text() == "Waiting: The model hub refuses more requests now"
    task.tell("progress", name="downloading", done_bytes=GIB, total_bytes=4 * GIB, bytes_per_s=0.0)
    assert row.words.text().startswith("Waiting: "), "nothing has arrived since"
    task.tell("progress", name="downloading", done_bytes=2 * GIB, total_bytes=4 * GIB, bytes_per_s=0.0)
    assert row.words.text() == "2.0 GiB of 4.0 GiB"
    assert page.context.downloads.start("org/name") is download, "it is going already"


def test_pause_keeps_what_arrived_and_continue_goes_on(page: LibraryPage, qtbot: QtBot) -> None:
    begun_on_disk("org/name")
    shown(page, qtbot)
    qtbot.waitUntil(lambda: bool(page.findChildren(DownloadRow)))
    settle()
    row = row_of(page, "org/name")
    assert row.words.text() == "Paused at 1,000 B of 4 KiB"
    assert buttons(row) == ["Continue", "Cancel"]
    row.resume.click()
    task = last("download")
    assert (task.begun, task.spec.id) == (True, "org/name")
    settle()
    row.pause.click()
    settle()
    assert task.cancelled
    assert row.download.state is DownloadState.PAUSED
    assert buttons(row) == ["Continue", "Cancel"]
    assert list(core.unfinished()) != []


def test_cancel_asks_before_it_deletes_what_arrived(page: LibraryPage, qtbot: QtBot) -> None:
    begun_on_disk("org/name")
    shown(page, qtbot)
    qtbot.waitUntil(lambda: bool(page.findChildren(DownloadRow)))
    settle()
    row_of(page, "org/name").cancel.click()
    (dialog,) = [each for each in QApplication.topLevelWidgets() if isinstance(each, ConfirmDialog)]
    dialog.cancel.click()
    assert list(core.unfinished()) != []
    settle()
    row_of(page, "org/name").cancel.click()
    (dialog,) = [each for each in QApplication.topLevelWidgets() if isinstance(each, ConfirmDialog)]
    dialog.go.click()
    qtbot.waitUntil(lambda: not page.context.downloads.downloads)
    settle()
    assert list(core.unfinished()) == []
    assert page.findChildren(DownloadRow) == []


def test_cancel_before_anything_arrived_asks_nothing(page: LibraryPage, qtbot: QtBot) -> None:
    _download, row = start(page)
    row.cancel.click()
    assert last("download").cancelled
    qtbot.waitUntil(lambda: not page.context.downloads.downloads)
    settle()


def test_a_model_that_arrived_is_on_the_shelf(page: LibraryPage, shelves: Shelves, qtbot: QtBot) -> None:
    shown(page, qtbot)
    said: list[Any] = []
    page.notify.connect(lambda *words: said.append(words))
    start(page)
    shelves.shelf = shelf_of(downloaded("org/name"))
    last("download").answer("/models/org--name")
    qtbot.waitUntil(lambda: bool(page.findChildren(ModelRow)))
    settle()
    assert page.findChildren(DownloadRow) == []
    assert said == [("ok", "org/name is on this computer now.")]


def test_a_refused_download_leads_to_the_license_and_the_token(page: LibraryPage, qtbot: QtBot) -> None:
    _download, row = start(page)
    last("download").refuse("hub-gated-401", "org/name: the hub refused access (403).", link="https://hub.example")
    settle()
    assert "the hub refused access" in row.words.text()
    assert buttons(row) == ["Get access…", "Cancel"]
    row.look.click()
    (sheet,) = [each for each in QApplication.topLevelWidgets() if isinstance(each, ModelSheet)]
    assert sheet.id == "org/name"
    sheet.close()
    settle()
    row.cancel.click()
    qtbot.waitUntil(lambda: not page.context.downloads.downloads)
    settle()


def test_a_download_that_failed_stays_with_its_reason(page: LibraryPage, qtbot: QtBot) -> None:
    begun_on_disk("org/name")
    _download, row = start(page)
    last("download").refuse("hub-offline", "org/name: the connection broke.")
    settle()
    page.context.downloads.refresh()
    settle()
    assert "the connection broke" in row.words.text()
    assert buttons(row) == ["Continue", "Cancel"]
    row.resume.click()
    settle()
    assert "broke" not in row.words.text()


def test_what_another_process_downloads_is_only_shown(page: LibraryPage, qtbot: QtBot) -> None:
    record = begun_on_disk("org/name")
    with core.held(record.folder):
        page.context.downloads.refresh()
        qtbot.waitUntil(lambda: bool(page.findChildren(DownloadRow)))
        settle()
        row = row_of(page, "org/name")
        assert row.words.text() == "Another window or command is downloading it."
        assert buttons(row) == []
    page.context.downloads.refresh()
    settle()
    assert buttons(row) == ["Continue", "Cancel"]
    core.discard(record)
    page.context.downloads.refresh()
    settle()
    assert page.findChildren(DownloadRow) == []


def test_the_end_of_the_program_ends_what_is_going(home: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Scripted.made.clear()
    service = DownloadService(Scripted)
    download = service.start("org/name")
    abandoned: list[object] = []
    monkeypatch.setattr(Scripted, "abandon", lambda task: abandoned.append(task))
    service.shutdown()
    assert abandoned == [download.task]


def test_the_next_window_continues_what_was_not_paused(
    home: Any, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    def service() -> DownloadService:
        Scripted.made.clear()
        return DownloadService(Scripted)

    def resumed(next_one: DownloadService) -> list[str]:
        next_one.resume()
        settle()
        return [each.spec.id for each in Scripted.made]

    for name in ("org/going", "org/paused", "org/failed", "org/elsewhere"):
        begun_on_disk(name)
    first = service()
    assert resumed(first) == [], "they were begun elsewhere"
    for name in ("org/going", "org/paused", "org/failed", "org/elsewhere", "org/refused-at-once"):
        first.start(name)
    monkeypatch.setattr(Scripted.made[1], "cancel", lambda: None)  # its process takes a while to end
    first.downloads[1].stop()
    Scripted.made[2].refuse("hub-offline")
    settle()
    first.shutdown()
    with core.held(Download(hub_model("org/elsewhere"), "org/elsewhere").folder):
        assert resumed(service()) == ["org/going"]
    settings = SettingsFile()
    settings.change(offline=True)
    settings.save()
    assert resumed(service()) == []


def test_a_damaged_note_of_downloads_is_no_obstacle(home: Any) -> None:
    begun_on_disk("org/name")
    note = config_dir() / GOING_NAME
    for damaged in ("", "[[1]]", "{}", '"x"'):
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(damaged, encoding="utf-8")
        Scripted.made.clear()
        DownloadService(Scripted).resume()
        settle()
        assert Scripted.made == []


def test_a_stop_that_came_too_late_is_no_pause(home: Any) -> None:
    service = DownloadService(Scripted)
    finished: list[HubDownload] = []
    service.finished.connect(finished.append)
    download = service.start("org/name")
    task = last("download")
    download.state = DownloadState.STOPPING
    task.cancelled = True
    task.ended.emit(Outcome(OperationState.FINISHED, 0, "/models/org--name"))
    assert (download.state, finished) == (DownloadState.DONE, [download])
