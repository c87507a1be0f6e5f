"""The library of data on the Data page: kept under a name, opened as it was read, told which runs used it, removed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tests.gui.data.conftest import PATIENCE_MS
from tests.gui.layout_checks import clipped, unnamed
from tunesmith_core import data_library
from tunesmith_core.data_library import DataSet, DataUse, DataVersion
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_gui.data.library_card import KeepDialog, LibraryCard
from tunesmith_gui.data.page import DataPage
from tunesmith_gui.widgets.confirm import ConfirmDialog
from tunesmith_gui.widgets.safe_label import SafeLabel

Open = Callable[[Path], DataPage]


def test_a_file_is_kept_with_how_it_is_read_and_opened_again(
    qtbot: QtBot, page: DataPage, opened: Open, table: Path
) -> None:
    opened(table)
    page.map_columns("prompt-completion", {"prompt": "Best answer", "completion": "Question text"})
    qtbot.waitUntil(lambda: bool(page.data and page.source.columns), timeout=PATIENCE_MS)
    settle()
    qtbot.mouseClick(page.summary.keep, Qt.MouseButton.LeftButton)
    (dialog,) = page.window().findChildren(KeepDialog)
    assert dialog.edit.text() == "table"
    dialog.edit.clear()
    assert not dialog.keep.isEnabled()
    qtbot.keyClicks(dialog.edit, "My table")
    assert clipped(dialog) == []
    with qtbot.waitSignal(page.notify, timeout=PATIENCE_MS) as said:
        qtbot.keyClick(dialog.edit, Qt.Key.Key_Return)
    assert said.args == ["ok", "My table is in the library now."]
    source = data_library.find("My table").sources[0]
    assert (source.path, source.columns["prompt"]) == (str(table), "Best answer")

    page.source = SourceSpec()
    page.home.library.names["My table"].click()
    assert page.source.columns == {"prompt": "Best answer", "completion": "Question text"}
    qtbot.waitUntil(lambda: page.rows is not None and page.rows.is_complete, timeout=PATIENCE_MS)


@pytest.mark.parametrize(
    ("code", "kept"),
    [
        (1, {"Mine": "table.csv"}),
        (ConfirmDialog.OTHER, {"Mine": "other.csv", "Mine-02": "table.csv"}),
        (0, {"Mine": "other.csv"}),
    ],
)
def test_a_name_that_is_taken_is_asked_about(
    qtbot: QtBot,
    page: DataPage,
    opened: Open,
    table: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    kept: dict[str, str],
) -> None:
    other = table.with_name("other.csv")
    other.write_bytes(table.read_bytes())
    data_library.add("Mine", [SourceSpec(path=str(other))])
    opened(table).keep()
    asked: list[tuple[str, str, str]] = []

    def ask(dialog: ConfirmDialog) -> int:
        words = " ".join(label.text() for label in dialog.findChildren(SafeLabel))
        asked.append((words, dialog.go.text(), dialog.other.text()))
        return code

    monkeypatch.setattr(ConfirmDialog, "exec", ask)
    (dialog,) = page.window().findChildren(KeepDialog)
    dialog.edit.setText("Mine")
    dialog.keep.click()
    qtbot.waitUntil(lambda: len(asked) == 1, timeout=PATIENCE_MS)
    words, *ways = asked[0]
    assert str(other) in words
    assert ways == ["Replace", "Add as Mine-02"]

    def found() -> dict[str, str]:
        return {each.name: Path(each.sources[0].path).name for each in data_library.sets()}

    qtbot.waitUntil(lambda: found() == kept, timeout=PATIENCE_MS)
    settle()
    assert len(asked) == 1


def test_a_set_says_its_version_and_who_used_it(qtbot: QtBot, tmp_path: Path) -> None:
    here = tmp_path / "a.jsonl"
    here.write_text("{}")
    versions = tuple(DataVersion(str(number), str(number), 2048, 1.0) for number in range(3))
    there = DataSet("There", (SourceSpec(path=str(here)),), 1.0, "messages", versions=versions)
    gone = DataSet("Gone", (SourceSpec(path=str(tmp_path / "gone.jsonl")),), 1.0)
    card = LibraryCard()
    qtbot.addWidget(card)
    card.resize(900, 200)
    card.show_sets([(there, [DataUse("run-1", "2")]), (gone, [])])
    card.show()

    assert card.facts["There"].text() == "Chat  ·  2 KiB  ·  version 3  ·  used by 1 run"
    assert "gone.jsonl is not there any more" in card.facts["Gone"].text()
    assert not card.names["Gone"].isEnabled()
    assert unnamed(card) == []


def test_files_of_one_name_in_two_folders_are_told_apart(qtbot: QtBot, tmp_path: Path) -> None:
    paths = [tmp_path / folder / "train.jsonl" for folder in ("first", "second")]
    for path in paths:
        path.parent.mkdir()
        path.write_text("{}")
    card = LibraryCard()
    qtbot.addWidget(card)
    assert card.proposed_name(str(paths[0])) == "train"
    one = DataSet("train", (SourceSpec(path=str(paths[0])),), 1.0, "messages")
    assert card.facts == {}
    card.show_sets([(one, [])])
    assert card.facts["train"].text().startswith("Chat")
    assert card.proposed_name(str(paths[0])) == "train", "it is the same file"
    name = card.proposed_name(str(paths[1]))
    assert name == "train in second"
    other = DataSet(name, (SourceSpec(path=str(paths[1])),), 1.0, "messages")
    card.show_sets([(one, []), (other, [])])
    assert card.facts["train"].text().startswith("train.jsonl in first  ·  Chat")
    assert card.facts[name].text().startswith("train.jsonl in second  ·  Chat")
    assert str(paths[1]) in card.names[name].toolTip()


def test_a_set_is_removed_and_its_file_stays(qtbot: QtBot, page: DataPage, table: Path) -> None:
    data_library.add("Mine", [SourceSpec(path=str(table))])
    page.on_shown()
    qtbot.waitUntil(lambda: "Mine" in page.home.library.names, timeout=PATIENCE_MS)
    page.home.library.remove_asked.emit("Mine")
    qtbot.waitUntil(lambda: not page.home.library.names, timeout=PATIENCE_MS)
    assert not page.home.library.isVisibleTo(page.home)
    assert table.is_file()
    assert data_library.sets() == []
