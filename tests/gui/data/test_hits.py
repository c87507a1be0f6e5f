"""What is looked for is marked in cells and in the pane beside them, and so is what is wrong with a row."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QTextEdit
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tests.gui.data.conftest import PATIENCE_MS
from tunesmith_gui.data.grid import Grid
from tunesmith_gui.data.hits import MOST_HITS, hits
from tunesmith_gui.data.page import DataPage
from tunesmith_gui.data.row_problems import RowProblem
from tunesmith_gui.theme import tokens

LONG = "Water it in the evening. " * 8
ROWS = [
    {"q": "Where?", "a": LONG + "Keep the SOIL wet."},
    {"q": "Who, 🌱?", "a": "🌱 ask anna@example.com or bob@example.com"},
    {"q": "When?", "a": {"text": 'say "now"'}},
]


@pytest.fixture
def grid(opened: Callable[[Path], DataPage], tmp_path: Path) -> Grid:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS) + '{"q": broken}\n')
    result = opened(path).grid
    assert result is not None
    return result


def find(qtbot: QtBot, grid: Grid, text: str) -> None:
    grid.finder.look_for(text)
    qtbot.waitUntil(lambda: not grid.finder.is_looking, timeout=PATIENCE_MS)


def marked(grid: Grid) -> list[str]:
    selections: list[QTextEdit.ExtraSelection] = grid.pane.text.extraSelections()
    return [each.cursor.selectedText() for each in selections]


@pytest.mark.parametrize(
    ("text", "wanted", "found"),
    [
        ("Soil and soil", "SOIL", [(0, 4), (9, 13)]),
        ("Straße, STRASSE", "strasse", [(0, 6), (8, 15)]),
        ("aaa", "aa", [(0, 2)]),
        ("nothing", "", []),
        ("nothing", "more", []),
    ],
)
def test_where_a_text_holds_another(text: str, wanted: str, found: list[tuple[int, int]]) -> None:
    assert hits(text, wanted) == found


def test_no_more_are_marked_than_anybody_sees() -> None:
    assert len(hits("a" * 10_000, "a")) == MOST_HITS


class TestFound:
    def test_the_cell_with_the_match_is_in_front_and_shows_it(self, qtbot: QtBot, grid: Grid) -> None:
        find(qtbot, grid, "soil")
        assert (grid.current(), grid.table.currentIndex().column()) == (0, 1)
        assert marked(grid) == ["SOIL"]
        shown = str(grid.model.data(grid.model.index(0, 1)))
        assert "SOIL" in shown[:20]
        assert shown.startswith("…")
        grid.finder.look_for("")
        assert marked(grid) == []
        assert str(grid.model.data(grid.model.index(0, 1))).startswith("Water")

    def test_it_is_painted_in_the_cell(self, qtbot: QtBot, grid: Grid) -> None:
        find(qtbot, grid, "soil")
        settle()
        rect = grid.table.visualRect(grid.model.index(0, 1))
        picture = grid.table.viewport().grab(rect).toImage()
        points = ((x, y) for x in range(0, picture.width(), 2) for y in range(0, picture.height(), 2))
        colors = {picture.pixelColor(x, y).name() for x, y in points}
        assert QColor(tokens().accent).name() in colors

    def test_letters_beyond_the_first_plane_move_no_mark(self, qtbot: QtBot, grid: Grid) -> None:
        find(qtbot, grid, "anna")
        assert marked(grid) == ["anna"]


class TestWrong:
    def problem(self, **more: object) -> RowProblem:
        return RowProblem("personal-data", "Probable personal data", "an email address.", **more)  # type: ignore[arg-type]

    def test_the_pane_says_what_is_wrong_and_what_is_done(self, grid: Grid) -> None:
        at = ROWS[1]["a"]
        assert isinstance(at, str)
        spans = tuple((at.index(each), at.index(each) + len(each)) for each in ("anna@example.com", "bob@example.com"))
        grid.show_actions({"personal-data": "Keep"})
        grid.show_problems({1: [self.problem(keys=("a",), spans=spans)]})
        assert not grid.pane.problems.isVisible()
        grid.go_to(1, 1)
        words = grid.pane.problems.words()
        assert words == "Probable personal data\nAn email address. What is done: Keep"
        assert marked(grid) == ["anna@example.com", "bob@example.com"]
        grid.show_actions({"personal-data": "Leave out"})
        assert "Leave out" in grid.pane.problems.words()
        grid.pane.part.set_value("row")
        assert marked(grid) == ["anna@example.com", "bob@example.com"]
        grid.rows.edit(1, {"q": "Who?", "a": "ask"})
        assert not grid.pane.problems.isVisible()

    def test_a_part_of_a_value_in_another_is_marked_as_it_is_shown(self, grid: Grid) -> None:
        grid.show_problems({2: [self.problem(keys=("a", "text"), spans=((4, 9),))]})
        grid.go_to(2, 1)
        assert marked(grid) == ['\\"now\\"']

    def test_of_a_row_that_cannot_be_read_the_letter_is_marked(self, grid: Grid) -> None:
        grid.show_problems({3: [self.problem(letter=7)]})
        grid.go_to(3)
        assert marked(grid) == ["b"]

    def test_a_way_that_leads_nowhere_marks_nothing(self, grid: Grid) -> None:
        grid.show_problems({0: [self.problem(keys=("gone", 3), spans=((0, 1),))] * 5})
        grid.go_to(0)
        assert marked(grid) == []
        assert grid.pane.problems.words().endswith("and 2 more")
