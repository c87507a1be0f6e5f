"""The Models page, its operations told by the test, and a shelf that the test fills."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tests.gui.fake_runs import FakeRuns
from tests.gui.library.driving import Scripted, script, shelf_of
from tunesmith_gui.context import Context
from tunesmith_gui.library import on_computer
from tunesmith_gui.library.page import LibraryPage
from tunesmith_gui.library.shelf import Shelf
from tunesmith_gui.services.downloads import DownloadService


class Shelves:
    """What the next look at the computer finds."""

    def __init__(self) -> None:
        self.shelf = shelf_of()
        self.error: Exception | None = None

    def look(self) -> Shelf:
        if self.error is not None:
            raise self.error
        return self.shelf


@pytest.fixture
def shelves(monkeypatch: pytest.MonkeyPatch) -> Shelves:
    found = Shelves()
    monkeypatch.setattr(on_computer, "look_around", found.look)
    return found


@pytest.fixture
def page(qtbot: QtBot, context: Context, shelves: Shelves, monkeypatch: pytest.MonkeyPatch) -> Iterator[LibraryPage]:
    """The page, shown, with its runs and downloads in the hands of the test."""
    script(monkeypatch)
    context.__dict__["runs"] = FakeRuns()
    context.__dict__["downloads"] = DownloadService(Scripted)
    result = LibraryPage(context)
    result.resize(1080, 800)
    result.show()
    qtbot.waitExposed(result)
    yield result
    result.hide()
    settle()
    result.deleteLater()
    settle()


def shown(page: LibraryPage, qtbot: QtBot) -> LibraryPage:
    """Show the page and wait for its shelf."""
    page.here.shelf = None
    page.on_shown()
    qtbot.waitUntil(lambda: page.here.shelf is not None, timeout=5000)
    settle()
    return page
