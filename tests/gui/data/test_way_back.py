"""The way back from an open file to the other data, and the files used lately in the order of their use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tests.gui.data.conftest import PATIENCE_MS
from tunesmith_gui.data.page import DataPage
from tunesmith_gui.services.form_memory import FormMemory
from tunesmith_gui.widgets.confirm import ConfirmDialog

Open = Callable[[Path], DataPage]


@pytest.mark.parametrize("by_key", [False, True])
def test_an_open_file_has_a_way_back(qtbot: QtBot, opened: Open, table: Path, by_key: bool) -> None:
    page = opened(table)
    assert page.grid is not None
    if by_key:
        page.activateWindow()
        page.grid.find_bar.search.setFocus()
        settle()
        qtbot.keyClick(page.grid.find_bar.search, Qt.Key.Key_Escape)
    else:
        qtbot.mouseClick(page.summary.back, Qt.MouseButton.LeftButton)
    assert page.home.isVisible()
    assert (page.title, page.rows) == ("", None)
    opened(table)
    assert page.summary.isVisible()


def test_the_way_back_asks_about_changes(opened: Open, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = opened(table)
    assert page.rows is not None
    page.rows.delete([0])
    monkeypatch.setattr(ConfirmDialog, "exec", lambda _dialog: 0)
    page.close_file()
    assert page.title == "table.csv"


def test_recent_files_are_all_that_were_opened_the_last_first(
    qtbot: QtBot, page: DataPage, opened: Open, table: Path, tmp_path: Path
) -> None:
    doubtful, broken = tmp_path / "doubtful.csv", tmp_path / "broken.json"
    doubtful.write_text("id,left,right\n1,How are you?,Fine\n")
    broken.write_text("{")
    for path in (doubtful, table, broken, doubtful):
        opened(path)
        settle()
    wanted = [str(doubtful), str(broken), str(table)]
    FormMemory().save({"data": [str(table)], "form": {}}, 1)  # an older list of the Train page
    assert FormMemory().load()["data"] == wanted
    qtbot.waitUntil(lambda: page.home._recent == wanted, timeout=PATIENCE_MS)
