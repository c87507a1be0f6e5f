"""What is typed into the pane beside the rows: kept when another row is chosen, and never a trap for the next key."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tunesmith_gui.data.grid import Grid
from tunesmith_gui.data.page import DataPage

Open = Callable[[Path], DataPage]


@pytest.fixture
def grid(opened: Open, tmp_path: Path) -> Grid:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"question": f"Question {n}", "answer": "yes"}) + "\n" for n in range(10)))
    result = opened(path).grid
    assert result is not None
    return result


def click_row(qtbot: QtBot, grid: Grid, row: int) -> None:
    spot = grid.table.visualRect(grid.model.index(row, 0)).center()
    qtbot.mouseClick(grid.table.viewport(), Qt.MouseButton.LeftButton, pos=spot)
    settle()


def test_another_row_applies_what_was_typed_into_a_cell(qtbot: QtBot, grid: Grid) -> None:
    grid.pane.text.setPlainText("typed")
    click_row(qtbot, grid, 3)
    assert grid.rows.edits == {0: {"question": "typed", "answer": "yes"}}
    assert (grid.current(), grid.pane.text.toPlainText()) == (3, "Question 3")
    grid.undo_change()
    assert not grid.rows.has_changes


def test_the_other_tab_applies_it_too(grid: Grid) -> None:
    grid.pane.text.setPlainText("typed")
    grid.pane.part.set_value("row")
    assert json.loads(grid.pane.text.toPlainText()) == {"question": "typed", "answer": "yes"}


def test_a_whole_row_that_is_not_valid_keeps_its_place_and_says_so(qtbot: QtBot, grid: Grid) -> None:
    grid.pane.part.set_value("row")
    grid.pane.text.setPlainText('{"question": "half')
    click_row(qtbot, grid, 3)
    assert (grid.current(), list(grid.chosen())) == (0, [0])
    assert grid.pane.text.toPlainText() == '{"question": "half'
    assert grid.pane.problem.text().startswith("Correct this before you leave the row: Not valid JSON")
    grid.pane.part.set_value("cell")
    assert grid.pane.part.value == "row"
    grid.pane.text.setPlainText('{"question": "whole"}')
    click_row(qtbot, grid, 3)
    assert (grid.current(), grid.rows.edits) == (3, {0: {"question": "whole"}})


def test_after_apply_the_space_bar_deletes_nothing(qtbot: QtBot, grid: Grid) -> None:
    grid.pane.text.setFocus()
    grid.pane.text.setPlainText("typed")
    qtbot.mouseClick(grid.pane.apply, Qt.MouseButton.LeftButton)
    focused = grid.window().focusWidget()
    assert focused is grid.table
    qtbot.keyClick(focused, Qt.Key.Key_Space)
    assert grid.rows.edits
    assert not grid.rows.deleted
