"""Changes that are in no file yet: nothing trains without them, drops them or closes over them unasked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tests.gui.data.conftest import PATIENCE_MS, close
from tunesmith_core import data_library
from tunesmith_core.operations.kinds.data import SaveDataSpec
from tunesmith_gui.context import Context
from tunesmith_gui.data.grid import Grid
from tunesmith_gui.data.library_card import KeepDialog
from tunesmith_gui.data.page import DataPage
from tunesmith_gui.data.saving import Answer, Saving
from tunesmith_gui.widgets.banner import Banner
from tunesmith_gui.widgets.confirm import ConfirmDialog
from tunesmith_gui.widgets.safe_label import SafeLabel

Open = Callable[[Path], DataPage]
ROWS = [{"question": f"Question {n}", "answer": "yes"} for n in range(10)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


@pytest.fixture
def changed(opened: Open, data: Path) -> DataPage:
    """A page whose first row is edited."""
    page = opened(data)
    assert page.rows is not None
    page.rows.edit(0, {"question": "new", "answer": "no"})
    return page


def answer(monkeypatch: pytest.MonkeyPatch, code: int) -> list[ConfirmDialog]:
    """Answers every question alike; returns those that were asked."""
    asked: list[ConfirmDialog] = []
    monkeypatch.setattr(ConfirmDialog, "exec", lambda dialog: asked.append(dialog) or code)
    return asked


def is_open(page: DataPage, path: Path) -> bool:
    return page.source.path == str(path) and page.rows is not None and page.rows.is_complete and not page.saving.is_busy


class TestTraining:
    @pytest.mark.parametrize("code", [0, ConfirmDialog.OTHER])
    def test_unsaved_changes_are_asked_about(
        self, qtbot: QtBot, changed: DataPage, data: Path, monkeypatch: pytest.MonkeyPatch, code: int
    ) -> None:
        gone: list[str] = []
        changed.navigate.connect(lambda _page, source: gone.append(source.source.path))
        asked = answer(monkeypatch, code)
        changed.summary.train.click()
        assert len(asked) == 1
        assert gone == ([str(data)] if code else [])

    def test_the_saved_copy_is_trained(
        self, qtbot: QtBot, changed: DataPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        copy = tmp_path / "copy.jsonl"
        answer(monkeypatch, 1)
        monkeypatch.setattr(Grid, "ask_where", lambda _grid: copy)
        with qtbot.waitSignal(changed.navigate, timeout=PATIENCE_MS) as gone:
            changed.summary.train.click()
        assert gone.args is not None
        assert gone.args[1].source.path == str(copy)
        assert json.loads(copy.read_text().splitlines()[0]) == {"question": "new", "answer": "no"}
        qtbot.waitUntil(lambda: is_open(changed, copy), timeout=PATIENCE_MS)
        assert changed.rows is not None
        assert not changed.rows.has_changes


class TestLibrary:
    @pytest.mark.parametrize("code", [0, ConfirmDialog.OTHER])
    def test_unsaved_changes_are_asked_about(
        self, changed: DataPage, monkeypatch: pytest.MonkeyPatch, code: int
    ) -> None:
        asked = answer(monkeypatch, code)
        changed.summary.keep.click()
        (dialog,) = asked
        assert (dialog.other.text(), dialog.go.text()) == ("Keep without the changes", "Save and keep")
        assert len(changed.window().findChildren(KeepDialog)) == bool(code)

    def test_the_saved_copy_is_kept(
        self, qtbot: QtBot, changed: DataPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        copy = tmp_path / "copy.jsonl"
        answer(monkeypatch, 1)
        monkeypatch.setattr(Grid, "ask_where", lambda _grid: copy)
        changed.summary.keep.click()
        qtbot.waitUntil(lambda: is_open(changed, copy), timeout=PATIENCE_MS)
        (dialog,) = changed.window().findChildren(KeepDialog)
        dialog.keep.click()
        qtbot.waitUntil(lambda: [each.name for each in data_library.sets()] == ["copy"], timeout=PATIENCE_MS)
        assert data_library.sets()[0].sources[0].path == str(copy)


def test_text_that_is_no_row_is_shown_before_anything_is_saved(
    changed: DataPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert changed.grid is not None
    changed.grid.pane.part.set_value("row")
    changed.grid.pane.text.setPlainText("{")
    changed.parts.set_value("problems")
    answer(monkeypatch, 1)
    changed.summary.train.click()
    assert not changed.saving.is_busy
    assert changed.grid.pane.problem.isVisible()
    changed.grid.pane.drop_typed()


def test_a_row_changed_while_the_copy_is_written_is_not_lost(
    qtbot: QtBot, changed: DataPage, data: Path, tmp_path: Path
) -> None:
    assert changed.grid is not None
    changed.grid.save_asked.emit(tmp_path / "copy.jsonl")
    changed.grid.rows.edit(1, {"question": "later", "answer": "no"})
    qtbot.waitUntil(lambda: not changed.saving.is_busy, timeout=PATIENCE_MS)
    assert is_open(changed, data)
    assert set(changed.grid.rows.edits) == {0, 1}


def test_a_window_in_another_language_goes_on_where_this_one_was(
    qtbot: QtBot, context: Context, changed: DataPage
) -> None:
    assert changed.grid is not None
    changed.grid.rows.delete([4])
    changed.grid.go_to(4)
    changed.parts.set_value("problems")
    other = DataPage(context)
    other.remember(changed.memory())
    qtbot.waitUntil(lambda: other.rows is not None and other.rows.is_complete, timeout=PATIENCE_MS)
    grid = other.grid
    assert grid is not None
    assert (grid.current(), other.parts.value) == (4, "problems")
    assert grid.undo.isEnabled()
    assert grid.pane.delete.text() == "Restore row"
    grid.pane.delete.click()
    assert not grid.rows.deleted
    assert grid.pane.delete.text() == "Delete row"
    grid.undo_change()
    assert grid.rows.deleted == {4}
    grid.undo_change()
    grid.undo_change()
    assert not grid.rows.has_changes
    close(other)


def test_dropping_changes_offers_to_save_them_first(
    qtbot: QtBot, changed: DataPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, other = tmp_path / "copy.jsonl", tmp_path / "other.jsonl"
    other.write_text('{"question": "a", "answer": "b"}\n')
    asked = answer(monkeypatch, ConfirmDialog.OTHER)
    monkeypatch.setattr(Grid, "ask_where", lambda _grid: copy)
    changed.open(str(other))
    (dialog,) = asked
    assert (dialog.other.text(), dialog.go.text()) == ("Save as…", "Drop the changes")
    assert dialog.cancel.isDefault()
    assert dialog.focusWidget() is dialog.cancel
    qtbot.waitUntil(lambda: is_open(changed, other), timeout=PATIENCE_MS)
    assert json.loads(copy.read_text().splitlines()[0]) == {"question": "new", "answer": "no"}


def test_a_repaired_copy_is_opened_by_one_click(
    qtbot: QtBot, changed: DataPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "fixed.jsonl"
    asked = answer(monkeypatch, 0)

    def save(_saving: Saving, _kind: object, spec: SaveDataSpec, done: Callable[[Answer], object]) -> None:
        assert spec.edited.edits
        copy.write_text('{"question": "new", "answer": "no"}\n')
        numbers = {"num_edited_rows": 1, "num_deleted_rows": 1}
        done({"num_read_rows": 9, "num_repaired_rows": 2, "num_left_out_rows": 3, **numbers})

    monkeypatch.setattr(Saving, "_start", save)
    changed.problems.save_asked.emit(copy, {})
    settle()
    (banner,) = [each for each in changed.findChildren(Banner) if each.isVisible()]
    assert banner.buttons[0].text() == "Open the copy"
    words = [each.text() for each in banner.findChildren(SafeLabel)]
    assert "6 rows, 1 of them edited, 2 of them repaired, 2 left out, 1 deleted by hand" in words
    banner.buttons[0].click()
    assert asked == [], "the copy has the changes"
    qtbot.waitUntil(lambda: is_open(changed, copy), timeout=PATIENCE_MS)
    assert not [each for each in changed.findChildren(Banner) if each.isVisible()]


def test_another_file_is_opened_without_a_question_once_a_copy_has_the_changes(
    qtbot: QtBot, changed: DataPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = answer(monkeypatch, 0)
    numbers = dict.fromkeys(("read", "repaired", "left_out", "edited", "deleted"), 0)
    saved = {f"num_{name}_rows": number for name, number in numbers.items()}
    monkeypatch.setattr(Saving, "_start", lambda _saving, _kind, _spec, done: done(saved))
    changed.problems.save_asked.emit(tmp_path / "fixed.jsonl", {})
    settle()
    other = tmp_path / "other.jsonl"
    other.write_text('{"question": "a", "answer": "b"}\n')
    assert changed.grid is not None
    changed.train()
    assert len(asked) == 1, "training reads the file, which has them not"
    changed.grid.rows.edit(1, {"question": "newer", "answer": "no"})
    changed.open(str(other))
    assert len(asked) == 2, "what came later is in no copy"
    changed.grid.undo_change()
    again = DataPage(changed.context)
    again.remember(changed.memory())
    qtbot.waitUntil(lambda: again.rows is not None and again.rows.is_complete, timeout=PATIENCE_MS)
    assert again.may_close(), "another window knows of the copy"
    close(again)
    changed.open(str(other))
    assert len(asked) == 2
    qtbot.waitUntil(lambda: is_open(changed, other), timeout=PATIENCE_MS)


def test_the_ending_decides_what_is_saved(
    changed: DataPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds: list[str] = []
    monkeypatch.setattr(Saving, "_start", lambda _saving, kind, _spec, _done: kinds.append(kind.name))
    for name in ("a.jsonl", "a.CSV", "a.parquet"):
        changed.saving.save_rows(tmp_path / name, lambda _path: None)
    assert kinds == ["save-rows", "save-table", "save-table"]
