"""The rows of a file in the window: read as they come, found, filtered, changed, taken back, saved as another file."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QTableView
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tests.gui.data.conftest import PATIENCE_MS, close
from tunesmith_core.operations.kinds.rows import places_in
from tunesmith_gui import tr
from tunesmith_gui.context import Context
from tunesmith_gui.data import rows as rows_module
from tunesmith_gui.data.grid import Grid
from tunesmith_gui.data.page import DataPage
from tunesmith_gui.data.row_problems import RowProblem
from tunesmith_gui.services.operation import OperationTask
from tunesmith_gui.widgets.banner import Banner
from tunesmith_gui.widgets.confirm import ConfirmDialog
from tunesmith_gui.widgets.safe_label import SafeLabel

Open = Callable[[Path], DataPage]
ROWS = [{"q": f"Question {n}", "a": "yes" if n % 10 else "Über", "n": n} for n in range(100)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


@pytest.fixture
def grid(opened: Open, data: Path) -> Grid:
    result = opened(data).grid
    assert result is not None
    return result


def test_closing_waits_for_no_disk(qtbot: QtBot, opened: Open, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, remove = opened(data), rows_module.shutil.rmtree
    folder = page.rows.folder  # type: ignore[union-attr]
    removed_by: list[threading.Thread] = []
    assert folder is not None
    assert folder.exists()

    def record(path: Path, **options: bool) -> None:
        if path == folder:
            removed_by.append(threading.current_thread())
        remove(path, **options)

    monkeypatch.setattr(rows_module.shutil, "rmtree", record)
    page.file.close_rows()
    settle()
    qtbot.waitUntil(lambda: not folder.exists(), timeout=PATIENCE_MS)
    assert len(removed_by) == 1
    assert removed_by[0] is not threading.main_thread()


def shown(grid: Grid) -> list[str]:
    return [str(grid.model.data(grid.model.index(row, 0))) for row in range(grid.model.rowCount())]


def search(qtbot: QtBot, grid: Grid, text: str) -> None:
    grid.find_bar.search.setFocus()
    grid.find_bar.search.setText(text)  # QTest types no letters beyond ASCII
    qtbot.keyClick(grid.find_bar.search, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: not grid.finder.is_looking and grid.finder.text == text, timeout=PATIENCE_MS)


class TestTable:
    def test_every_row_is_there_with_its_number(self, grid: Grid) -> None:
        assert shown(grid) == [str(row["q"]) for row in ROWS]
        assert grid.model.headerData(99, Qt.Orientation.Vertical) == "100"
        assert grid.count.text().startswith("100 row")
        assert grid.model.data(grid.model.index(3, 2)) == "3"

    def test_a_few_numbers_tell_how_wide_all_are(self, grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[int] = []
        monkeypatch.setattr(grid.rows, "number", lambda place: asked.append(place) or place + 1)
        header = grid.table.verticalHeader()
        assert header.sizeHint().width() > header.fontMetrics().horizontalAdvance("100")
        assert 0 < len(asked) <= 10

    def test_the_model_keeps_qts_rules(
        self, qtmodeltester: Any, grid: Grid, capsys: pytest.CaptureFixture[str]
    ) -> None:
        qtmodeltester.check(grid.model)
        assert "Qt C++ tester" in capsys.readouterr().out

    def test_a_long_row_is_shown_by_its_beginning_and_not_edited(
        self, opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(rows_module, "MOST_SHOWN_BYTES", 64)
        monkeypatch.setattr(rows_module, "MOST_EDITED_BYTES", 128)
        path = tmp_path / "long.jsonl"
        path.write_text(json.dumps({"text": "a" * 100}) + "\n" + json.dumps({"text": "b" * 1000}) + "\n")
        grid = opened(path).grid
        assert grid is not None
        assert [text[:4] for text in shown(grid)] == ['{"te', '{"te']
        assert grid.rows.whole(0).values == {"text": "a" * 100}
        grid.go_to(1)
        assert grid.pane.text.isReadOnly()
        assert "too long" in grid.pane.problem.text()

    def test_a_row_that_cannot_be_read_is_marked_and_repaired(
        self, qtbot: QtBot, opened: Open, tmp_path: Path
    ) -> None:
        path = tmp_path / "a.jsonl"
        path.write_text('{"q": "a", "a": "b"}\n{"q": "broken\n')
        grid = opened(path).grid
        assert grid is not None
        grid.go_to(1)
        assert "can't be read" in grid.pane.problem.text()
        assert "can't be read" in str(grid.model.data(grid.model.index(1, 0), Qt.ItemDataRole.AccessibleTextRole))
        grid.pane.text.setPlainText('{"q": "fixed"')
        assert "Not valid JSON in line 1, column" in grid.pane.problem.text()
        grid.pane.text.setPlainText('["no", "row"]')
        assert "A row is an object" in grid.pane.problem.text()
        grid.pane.text.setPlainText('{"q": "fixed", "new": 1}')
        qtbot.mouseClick(grid.pane.apply, Qt.MouseButton.LeftButton)
        assert shown(grid) == ["a", "fixed"]
        assert grid.model.columns == ["q", "a", "new"]

    def test_why_a_row_cannot_be_read_is_said_in_the_language_in_force(self, opened: Open, tmp_path: Path) -> None:
        path = tmp_path / "a.csv"
        path.write_text("q,a\n1,2,3\nWho?,Me\n")
        grid = opened(path).grid
        assert grid is not None
        assert shown(grid)[0].startswith("line 2")
        tr.install_language("zh_CN")
        try:
            grid = opened(path).grid
            assert grid is not None
            assert shown(grid)[0] == "第 2 行：此行有 3 个字段，表头有 2 个。"
        finally:
            tr.install_language("en")


class TestFinding:
    def test_return_finds_and_goes_on(self, qtbot: QtBot, grid: Grid) -> None:
        search(qtbot, grid, "über")
        assert list(grid.finder.places) == list(range(0, 100, 10))
        assert "10 match" in grid.find_bar.found.text()
        assert grid.current() == 0
        qtbot.keyClick(grid.find_bar.search, Qt.Key.Key_Return)
        assert grid.current() == 10
        grid.step(-1)
        grid.step(-1)
        assert grid.current() == 90

    def test_only_matches_are_shown_on_request(self, qtbot: QtBot, grid: Grid) -> None:
        search(qtbot, grid, "über")
        grid.only_found.setChecked(True)
        assert shown(grid) == [f"Question {n}" for n in range(0, 100, 10)]
        assert grid.model.headerData(1, Qt.Orientation.Vertical) == "11"
        grid.go_to(5)
        assert not grid.only_found.isChecked()
        assert grid.current() == 5

    def test_no_match_leaves_nothing_to_edit(self, qtbot: QtBot, grid: Grid) -> None:
        search(qtbot, grid, "nowhere")
        assert grid.table.isVisible()
        grid.only_found.setChecked(True)
        assert (grid.none.isVisible(), grid.table.isVisible()) == (True, False)
        assert grid.none.text() == "No row matches."
        assert (grid.pane.place.text(), grid.pane.text.toPlainText()) == ("No row is chosen", "")
        assert not grid.pane.text.isEnabled()
        assert not grid.pane.delete.isEnabled()
        grid.only_found.setChecked(False)
        assert grid.table.isVisible()
        assert grid.pane.text.isEnabled()
        assert grid.pane.delete.isEnabled()

    def test_what_was_edited_is_found_as_it_is_now(self, qtbot: QtBot, grid: Grid) -> None:
        grid.rows.edit(0, {"q": "none"})
        grid.rows.edit(5, {"q": "ÜBER"})
        search(qtbot, grid, "über")
        assert list(grid.finder.places) == [5, *range(10, 100, 10)]

    def test_a_search_is_given_up_by_a_click(self, qtbot: QtBot, grid: Grid) -> None:
        grid.finder.look_for("question")
        assert grid.find_bar.stop.isVisible()
        qtbot.mouseClick(grid.find_bar.stop, Qt.MouseButton.LeftButton)
        assert not grid.finder.is_looking
        assert not grid.find_bar.stop.isVisible()

    def test_an_empty_box_finds_nothing(self, qtbot: QtBot, grid: Grid) -> None:
        search(qtbot, grid, "über")
        grid.find_bar.search.clear()
        assert not grid.finder.places
        assert not grid.find_bar.next.isEnabled()

    def test_rows_with_problems_are_filtered_and_marked(self, grid: Grid) -> None:
        said = {7: "no answer", 3: "too long"}
        grid.show_problems({place: [RowProblem("rule", "Rule", words)] for place, words in said.items()})
        grid.only_problems.setChecked(True)
        assert shown(grid) == ["Question 3", "Question 7"]
        index = grid.model.index(1, 0)
        assert "no answer" in str(grid.model.data(index, Qt.ItemDataRole.ToolTipRole)).lower()


    def test_rows_with_problems_can_be_asked_for_before_they_are_known(
        self, qtbot: QtBot, page: DataPage, grid: Grid
    ) -> None:
        assert grid.only_problems.isEnabled()
        num_rows = len(shown(grid))
        grid.only_problems.setChecked(True)
        assert page.parts.value == "problems", "where it is said that its columns are not known"
        assert not grid.only_problems.isChecked()
        grid.problems_asked.disconnect()
        with qtbot.waitSignal(grid.problems_asked):
            grid.only_problems.setChecked(True)
        assert len(shown(grid)) == num_rows, "nothing is hidden until it is known"
        grid.show_problems({7: [RowProblem("rule", "Rule", "no answer")]})
        assert shown(grid) == ["Question 7"]
        grid.only_problems.setChecked(False)
        grid.show_problems({})
        assert not grid.only_problems.isEnabled()

    def test_a_chat_is_shown_as_it_is_spoken(self, opened: Open, tmp_path: Path) -> None:
        path = tmp_path / "chats.jsonl"
        turns = [{"from": "human", "value": "Hi\nthere"}, {"from": "gpt", "value": "Hello"}]
        path.write_text(json.dumps({"conversations": turns, "n": [1]}))
        grid = opened(path).grid
        assert grid is not None
        assert [grid.model.index(0, column).data() for column in (0, 1)] == [
            "human: Hi ↵ there · gpt: Hello",
            "[1]",
        ]
        assert json.loads(grid.pane.text.toPlainText()) == turns, "what is edited stays as it is in the file"


class TestChanging:
    def test_a_cell_is_edited_and_the_edit_taken_back(self, qtbot: QtBot, grid: Grid, data: Path) -> None:
        before = data.read_bytes()
        grid.go_to(4)
        grid.pane.text.setPlainText("Another question")
        qtbot.keyClick(grid.pane.text, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
        assert shown(grid)[4] == "Another question"
        assert "1 edited" in grid.count.text()
        qtbot.mouseClick(grid.undo, Qt.MouseButton.LeftButton)
        assert shown(grid)[4] == "Question 4"
        assert not grid.undo.isEnabled()
        assert data.read_bytes() == before

    def test_a_number_stays_a_number(self, qtbot: QtBot, grid: Grid) -> None:
        grid.go_to(4)
        grid.table.setCurrentIndex(grid.model.index(4, 2))
        grid.pane.text.setPlainText("44")
        qtbot.mouseClick(grid.pane.apply, Qt.MouseButton.LeftButton)
        assert grid.rows.edits[4]["n"] == 44
        grid.pane.text.setPlainText("44 and more")
        assert "Not valid JSON in line 1, column 3" in grid.pane.problem.text()
        assert not grid.pane.apply.isEnabled()

    def test_selected_rows_are_deleted_by_key_and_come_back(self, qtbot: QtBot, grid: Grid) -> None:
        grid.table.setFocus()
        grid.go_to(2)
        qtbot.keyClick(grid.table, Qt.Key.Key_Down, Qt.KeyboardModifier.ShiftModifier)
        qtbot.keyClick(grid.table, Qt.Key.Key_Delete)
        assert grid.rows.deleted == {2, 3}
        font = grid.model.data(grid.model.index(2, 0), Qt.ItemDataRole.FontRole)
        assert font.strikeOut()  # type: ignore[attr-defined]
        assert "deleted" in str(grid.model.data(grid.model.index(2, 0), Qt.ItemDataRole.AccessibleTextRole))
        grid.rows.undo()
        assert not grid.rows.deleted

    def test_an_edit_brings_a_deleted_row_back_until_it_is_undone(self, grid: Grid) -> None:
        grid.rows.delete([1, 2])
        grid.rows.edit(1, {"q": "back"})
        assert grid.rows.deleted == {2}
        grid.rows.undo()
        assert (grid.rows.deleted, grid.rows.edits) == ({1, 2}, {})
        grid.rows.delete([2, 3])
        grid.rows.undo()
        assert grid.rows.deleted == {1, 2}

    def test_save_as_writes_another_file(self, qtbot: QtBot, page: DataPage, grid: Grid, tmp_path: Path) -> None:
        grid.rows.edit(0, {"q": "new"})
        grid.rows.delete([1, 2])
        target = tmp_path / "copy.jsonl"
        told: list[str] = []
        page.notify.connect(lambda *_words: told.append("covers what is behind it"))
        num_rows = len(grid.rows)
        grid.save_asked.emit(target)
        qtbot.waitUntil(target.exists, timeout=PATIENCE_MS)
        saved = [json.loads(text) for text in target.read_text().splitlines()]
        assert saved == [{"q": "new"}, *ROWS[3:]]
        qtbot.waitUntil(lambda: page.title == "copy.jsonl" and page.rows is not None, timeout=PATIENCE_MS)
        assert page.rows is not None
        qtbot.waitUntil(lambda: page.rows.is_complete and not page.saving.is_busy, timeout=PATIENCE_MS)
        assert not page.rows.has_changes
        (banner,) = [each for each in page.findChildren(Banner) if each.isVisible()]
        words = [each.text() for each in banner.findChildren(SafeLabel)]
        assert "Saved as copy.jsonl" in words
        assert f"{num_rows - 2} rows, 1 of them edited, 2 deleted by hand" in words
        assert not told

    def test_another_file_drops_changes_only_when_told(
        self, page: DataPage, grid: Grid, data: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        grid.rows.delete([1])
        monkeypatch.setattr(ConfirmDialog, "exec", lambda _dialog: 0)
        page.open(str(data.with_name("other.jsonl")))
        assert page.source.path == str(data)
        assert page.rows is grid.rows

    def test_the_window_asks_before_it_closes_over_changes(
        self, page: DataPage, grid: Grid, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert page.may_close()
        grid.rows.delete([1])
        monkeypatch.setattr(ConfirmDialog, "exec", lambda _dialog: 0)
        assert not page.may_close()

    def test_changes_survive_a_window_in_another_language(
        self, qtbot: QtBot, context: Context, page: DataPage, grid: Grid
    ) -> None:
        grid.rows.edit(0, {"q": "new"})
        grid.rows.delete([1])
        other = DataPage(context)
        other.remember(page.memory())
        qtbot.waitUntil(lambda: other.rows is not None and other.rows.is_complete, timeout=PATIENCE_MS)
        assert other.grid is not None
        assert shown(other.grid)[0] == "new"
        assert other.rows is not None
        assert other.rows.deleted == {1}
        close(other)

    def test_edits_are_told_by_place_to_operations_on_data(self, grid: Grid) -> None:
        grid.rows.edit(0, {"q": "new"})
        grid.rows.delete([4])
        edited = grid.rows.edited_rows()
        assert edited.edits == {"0": {"q": "new"}}
        assert (Path(edited.folder), list(places_in(Path(edited.deleted)))) == (grid.rows.folder, [4])


def test_find_puts_the_cursor_into_the_box(page: DataPage, grid: Grid) -> None:
    page.parts.set_value("problems")
    assert page.perform("find")
    assert page.parts.value == "rows"
    settle()
    assert isinstance(grid.table, QTableView)


def test_typing_finds_after_a_short_pause(qtbot: QtBot, grid: Grid) -> None:
    grid.find_bar.search.setText("que")
    grid.find_bar.search.setText("Question 42")
    assert grid.finder.text == ""
    qtbot.waitUntil(lambda: grid.finder.text == "Question 42" and not grid.finder.is_looking, timeout=PATIENCE_MS)
    assert grid.current() == 42


def test_before_the_first_row_is_there_the_grid_says_that_it_reads(
    qtbot: QtBot, page: DataPage, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = OperationTask.start
    held: list[OperationTask] = []
    monkeypatch.setattr(OperationTask, "start", lambda task: held.append(task))
    page.open(str(data))
    qtbot.waitUntil(lambda: bool(held), timeout=PATIENCE_MS)
    grid = page.grid
    assert grid is not None
    assert grid.reading.isVisibleTo(grid)
    assert not grid.table.isVisibleTo(grid)
    assert not grid.count.isVisibleTo(grid)
    start(held[0])
    qtbot.waitUntil(lambda: grid.rows.is_complete, timeout=PATIENCE_MS)
    assert grid.table.isVisibleTo(grid)
    assert grid.count.isVisibleTo(grid)
    assert not grid.reading.isVisibleTo(grid)
