"""A model before it is downloaded: size and room, its card, and what stands in the way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tests.gui.layout_checks import clipped, unnamed
from tests.gui.library.conftest import Shelves, shown
from tests.gui.library.driving import GIB, banners, downloaded, hub_model, last, press, shelf_of
from tests.gui.run_folders import texts
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_gui.library import sheet as sheet_module
from tunesmith_gui.library.page import LibraryPage
from tunesmith_gui.library.sheet import ModelSheet
from tunesmith_gui.services import hub_token
from tunesmith_gui.widgets.token_dialog import TokenDialog


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The free space; a test may change it."""
    found = [100 * GIB]
    monkeypatch.setattr(sheet_module, "free_bytes", lambda: found[0])
    return found


@pytest.fixture
def opened(page: LibraryPage, qtbot: QtBot, free: list[int], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The pages that were opened in the browser."""
    result: list[str] = []

    class Browser:
        @staticmethod
        def openUrl(url: Any) -> None:
            result.append(url.toString())

    monkeypatch.setattr(sheet_module, "QDesktopServices", Browser)
    yield result
    for each in QApplication.topLevelWidgets():
        if isinstance(each, ModelSheet | TokenDialog):
            each.close()
    settle()


def look(page: LibraryPage, name: str = "org/name", answer: Any = None) -> ModelSheet:
    """Open a sheet and let the hub answer."""
    sheet = page.look_at(name)
    settle()
    if answer is not None:
        last("hub-facts").answer(answer.to_dict())
        settle()
    return sheet


def newest_sheet() -> ModelSheet:
    return [each for each in QApplication.topLevelWidgets() if isinstance(each, ModelSheet) and each.isVisible()][-1]


def test_size_and_room_come_first(page: LibraryPage, opened: list[str]) -> None:
    sheet = look(page)
    assert "Asking the hub" in texts(sheet)
    assert not sheet.download.isEnabled()
    last("hub-facts").answer(hub_model().to_dict())
    settle()
    assert sheet.room.text() == "3.0 GiB to download. 100.0 GiB are free."
    for words in ("1.5 B parameters", "mit", "context of 4,096 tokens"):
        assert words in sheet.facts.text()
    sheet.page.click()
    assert opened == ["https://hub.example/org/name"]
    sheet.download.click()
    task = last("download")
    assert (task.begun, task.spec.id) == (True, "org/name")
    assert not sheet.isVisible()


def test_the_card_is_plain_text(page: LibraryPage, opened: list[str]) -> None:
    sheet = look(page, answer=hub_model())
    assert not sheet.card.isVisible()
    last("hub-card").answer("# Name\n<b>bold</b> \x1b[31m <img src=x>")
    settle()
    assert sheet.card.isVisible()
    assert "<b>bold</b>" in sheet.card.toPlainText()
    assert "\x1b" not in sheet.card.toPlainText()
    assert (unnamed(sheet), clipped(sheet)) == ([], [])


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_head_of_the_card_is_for_programs(end: str, page: LibraryPage, opened: list[str]) -> None:
    sheet = look(page, answer=hub_model())
    lines = ["---", "license: mit", "tags:", "- a --- b", "---", "# Name", "---", "below a line"]
    last("hub-card").answer(end.join(lines))
    settle()
    assert sheet.card.toPlainText().split("\n") == ["# Name", "---", "below a line"]


@pytest.mark.parametrize("code", ["hub-not-found", "hub-token-refused"])
def test_another_token_may_help(code: str, page: LibraryPage, opened: list[str]) -> None:
    sheet = look(page)
    last("hub-facts").refuse(code)
    settle()
    assert [each.text() for each in sheet._problem.buttons] == ["Enter a token…"]  # type: ignore[union-attr]


def test_too_little_room_is_told_before(page: LibraryPage, opened: list[str], free: list[int]) -> None:
    free[0] = 2 * GIB
    sheet = look(page, answer=hub_model())
    assert sheet.room.text() == "Not enough room: 3.0 GiB to download, but only 2.0 GiB are free."
    assert not sheet.download.isEnabled()


def test_what_is_here_is_not_downloaded(page: LibraryPage, shelves: Shelves, opened: list[str], qtbot: QtBot) -> None:
    shelves.shelf = shelf_of(downloaded("org/name"))
    shown(page, qtbot)
    went: list[object] = []
    page.navigate.connect(lambda *words: went.append(words))
    sheet = look(page, answer=hub_model())
    assert sheet.room.text() == "It is on this computer."
    assert sheet.download.text() == "Train with it"
    sheet.download.click()
    assert went == [("train", [shelves.shelf.own[0].model.path])]


def test_access_is_asked_for_with_license_page_and_token(
    page: LibraryPage, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[str] = []
    monkeypatch.setattr(hub_token, "save", kept.append)
    sheet = look(page)
    last("hub-facts").refuse("hub-gated-401", "org/name: the hub refused access (401).", link="https://hub.example/o/n")
    settle()
    assert "You need access to this model" in banners(sheet)
    press(sheet, "Open the license page")
    assert opened == ["https://hub.example/o/n"]
    press(sheet, "Enter a token…")
    (dialog,) = [each for each in QApplication.topLevelWidgets() if isinstance(each, TokenDialog)]
    assert not dialog.save.isEnabled()
    dialog.edit.setText(" hf_secret ")
    first = last("hub-facts")
    dialog.save.click()
    settle()
    assert kept == ["hf_secret"]
    assert last("hub-facts") is not first, "the hub is asked again"
    assert banners(sheet) == ""


def test_a_keyring_that_refuses_keeps_the_dialog_open(
    page: LibraryPage, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_token: str) -> None:
        raise TunesmithError("keyring-missing", "The keyring refused the token.")

    monkeypatch.setattr(hub_token, "save", refuse)
    sheet = look(page)
    sheet.ask_token()
    (dialog,) = [each for each in QApplication.topLevelWidgets() if isinstance(each, TokenDialog)]
    dialog.edit.setText("hf_secret")
    dialog.save.click()
    settle()
    assert dialog.isVisible()
    assert "The keyring refused the token." in texts(dialog)
    assert "hf_secret" not in texts(dialog)


def test_another_owner_is_warned_of_and_the_new_name_offered(page: LibraryPage, opened: list[str]) -> None:
    sheet = look(page, "earlier/name", hub_model("other/name"))
    assert "earlier/name now leads to other/name, which belongs to other." in banners(sheet)
    assert not sheet.download.isEnabled()
    press(sheet, "Look at other/name")
    settle()
    assert newest_sheet().id == last("hub-facts").spec.id == "other/name"


def test_a_model_that_can_not_be_trained_is_refused(page: LibraryPage, opened: list[str]) -> None:
    files = {"files": [{"path": "pytorch_model.bin", "size_bytes": 10, "sha256": "", "git_sha1": "0" * 40}]}
    sheet = look(page)
    last("hub-facts").answer(hub_model().to_dict() | files)
    settle()
    assert "pickle" in banners(sheet)
    assert not sheet.download.isEnabled()


def test_gated_models_say_so_before_the_download(page: LibraryPage, opened: list[str]) -> None:
    sheet = look(page, answer=hub_model(gated="manual"))
    assert "Access on request" in banners(sheet)
    assert sheet.download.isEnabled(), "access may have been granted"


def test_other_errors_can_be_repeated(page: LibraryPage, opened: list[str]) -> None:
    sheet = look(page)
    last("hub-facts").refuse("hub-offline", Message("org/name: the connection broke."))
    settle()
    press(sheet, "Try again")
    last("hub-facts").answer(hub_model().to_dict())
    settle()
    assert sheet.download.isEnabled()
    went: list[Any] = []
    page.navigate.connect(lambda *words: went.append(words))
    sheet.ask()
    last("hub-facts").refuse("environment-missing", "none")
    settle()
    press(sheet, "Set up")
    assert went == [("setup", None)]


def test_closing_ends_what_is_asked(page: LibraryPage, opened: list[str]) -> None:
    sheet = look(page)
    sheet.reject()
    assert last("hub-facts").cancelled
