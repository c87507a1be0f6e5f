"""Several data files on the Train page: weights, caps, what comes of them, and groups that stay whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tests.gui.new_run.driving import ANSWER, type_into
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_gui.new_run.form import Missing, NewRunForm
from tunesmith_gui.new_run.page import NewRunPage

WriteRows = Callable[[str, int], Path]


@pytest.fixture
def rows(tmp_path: Path) -> WriteRows:
    """Write a file of questions, answers and customers."""

    def write(name: str, count: int) -> Path:
        lines = [{"question": f"{name} {row}?", "answer": "Yes.", "customer": row % 5} for row in range(count)]
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
        return tmp_path / name

    return write


def open_files(qtbot: QtBot, page: NewRunPage, model: Path, paths: list[Path]) -> None:
    spec = RunSpec()
    spec.model.path, spec.evaluation.percent = str(model), 0.0
    spec.data.sources = [SourceSpec(path=str(path)) for path in paths]
    page.on_shown(spec)
    qtbot.waitUntil(lambda: len(page.facts.rows_of_files) == len(paths), timeout=8000)
    qtbot.waitUntil(lambda: page.facts.plan is not None, timeout=8000)
    settle()


def shares(page: NewRunPage) -> list[str]:
    return [row.share.text() for row in page.sources_card.rows]


class TestSourcesCard:
    def test_two_files_get_weights_and_the_plan_counts_both(
        self, qtbot: QtBot, page: NewRunPage, model: Path, rows: WriteRows
    ) -> None:
        card = page.sources_card
        open_files(qtbot, page, model, [rows("a.jsonl", 20)])
        assert card.isHidden()
        open_files(qtbot, page, model, [rows("a.jsonl", 20), rows("b.jsonl", 60)])
        assert card.isVisible()
        assert [row.name.text() for row in card.rows] == ["a.jsonl", "b.jsonl"]
        assert shares(page) == ["about 20  ·  25%", "about 60  ·  75%"]
        assert page.facts.num_rows == 80
        type_into(qtbot, card.rows[0].boxes["weight"], "3")
        assert page.form.missing() is Missing.SETTING
        type_into(qtbot, card.rows[1].boxes["weight"], "1")
        assert card.problems.isHidden()
        assert shares(page) == ["about 60  ·  75%  ·  × 3", "about 20  ·  25%"]
        assert card.capped.isHidden()
        type_into(qtbot, card.rows[1].boxes["most_rows"], "40")
        assert "not how often" in card.capped.text()
        assert card.capped.isVisible()
        assert page.facts.num_rows == 60
        assert shares(page) == ["about 45  ·  75%  ·  × 2.2", "about 15  ·  25%"]
        assert [(each.weight, each.most_rows) for each in page.form.spec.data.sources] == [(3.0, None), (1.0, 40)]
        for name in ("weight", "most_rows"):
            box = card.rows[1].boxes[name]
            type_into(qtbot, box, "9")
            qtbot.keyClick(box, Qt.Key.Key_Backspace)
        assert (page.form.spec.data.sources[1].weight, page.form.spec.data.sources[1].most_rows) == (0.0, None)
        type_into(qtbot, card.rows[1].boxes["most_rows"], "40")
        assert page.form.spec.data.sources[1].most_rows == 40
        assert card.capped.isHidden(), "without a weight nothing repeats"

    def test_a_wrong_number_is_told_below_the_table_and_led_to(
        self, qtbot: QtBot, page: NewRunPage, model: Path, rows: WriteRows
    ) -> None:
        open_files(qtbot, page, model, [rows("a.jsonl", 20), rows("b.jsonl", 60)])
        card = page.sources_card
        type_into(qtbot, card.rows[1].boxes["most_rows"], "0")
        assert card.problems.text().startswith("b.jsonl, Most rows: Must be at least 1")
        type_into(qtbot, card.rows[1].boxes["weight"], "x")
        assert "not “x”" in card.problems.text()
        assert shares(page) == ["", ""]
        page.reveal_setting("data.sources[1].most_rows")
        assert card.rows[1].boxes["most_rows"].hasFocus()
        page.reveal_setting("data.sources[7].path")
        assert not card.rows[1].boxes["most_rows"].hasFocus()

    def test_a_lonely_weight_is_told_once_both_were_left_and_nothing_moves(
        self, qtbot: QtBot, page: NewRunPage, model: Path, rows: WriteRows
    ) -> None:
        open_files(qtbot, page, model, [rows("a.jsonl", 20), rows("b.jsonl", 60)])
        card = page.sources_card
        first, second = (row.boxes["weight"] for row in card.rows)
        widgets = [widget for row in card.rows for widget in (row.name, *row.boxes.values(), row.share)]
        before = [widget.geometry() for widget in widgets]
        type_into(qtbot, first, "3")
        card.rows[0].boxes["most_rows"].setFocus()
        second.setFocus()
        settle()
        assert (card.problems.text(), page.form.told_problems()) == ("", {})
        assert [widget.geometry() for widget in widgets] == before
        card.rows[1].boxes["most_rows"].setFocus()
        settle()
        assert "is the only file with a weight" in card.problems.text()
        assert page.form.told_problems() != {}
        assert [widget.geometry() for widget in widgets] == before
        type_into(qtbot, second, "1")
        settle()
        assert card.problems.isHidden()
        assert [widget.geometry() for widget in widgets] == before

    def test_a_lonely_weight_is_told_when_the_table_was_left(
        self, qtbot: QtBot, page: NewRunPage, model: Path, rows: WriteRows
    ) -> None:
        open_files(qtbot, page, model, [rows("a.jsonl", 20), rows("b.jsonl", 60)])
        type_into(qtbot, page.sources_card.rows[1].boxes["weight"], "3")
        assert page.sources_card.problems.isHidden()
        page.goal_card.name.setFocus()
        assert "is the only file with a weight" in page.sources_card.problems.text()

    def test_a_file_is_added_looked_at_and_removed(
        self, qtbot: QtBot, page: NewRunPage, model: Path, rows: WriteRows, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, second = rows("a.jsonl", 20), rows("b.jsonl", 60)
        open_files(qtbot, page, model, [first])
        monkeypatch.setattr(QFileDialog, "getOpenFileName", lambda *_: (str(second), ""))
        qtbot.mouseClick(page.data_picker.add, Qt.MouseButton.LeftButton)
        qtbot.waitUntil(lambda: page.facts.num_rows == 80, timeout=8000)
        second.write_text("{")
        page.facts.refresh()
        qtbot.waitUntil(lambda: page.form.missing() is Missing.DATA_BROKEN, timeout=8000)
        settle()
        assert "b.jsonl, line 1" in page.sources_card.problems.text()
        remove = page.sources_card.rows[1].remove
        assert remove is not None
        qtbot.mouseClick(remove, Qt.MouseButton.LeftButton)
        qtbot.waitUntil(lambda: page.form.missing() is Missing.NOTHING, timeout=8000)
        assert page.sources_card.isHidden()
        assert [each.path for each in page.form.spec.data.sources] == [str(first)]
        settle()

    def test_several_dropped_files_are_trained_together(
        self, qtbot: QtBot, page: NewRunPage, model: Path, rows: WriteRows
    ) -> None:
        open_files(qtbot, page, model, [rows("old.jsonl", 3)])
        page.on_shown([rows("a.jsonl", 20), rows("b.jsonl", 30)])
        qtbot.waitUntil(lambda: page.facts.num_rows == 50, timeout=8000)
        settle()
        assert [Path(each.path).name for each in page.form.spec.data.sources] == ["a.jsonl", "b.jsonl"]


class TestGroups:
    def test_a_column_is_offered_where_a_share_is_held_out(
        self, qtbot: QtBot, page: NewRunPage, model: Path, rows: WriteRows
    ) -> None:
        card = page.goal_card
        open_files(qtbot, page, model, [rows("a.jsonl", 20)])
        assert not card.groups.isVisible()
        page.form.set_keeps_evaluation_split(True)
        assert card.groups.isVisible()
        offered = [card.groups.itemData(place) for place in range(card.groups.count())]
        assert offered == ["", "question", "answer", "customer"]
        card.groups.setCurrentIndex(3)
        card.groups.activated.emit(3)
        assert page.form.spec.evaluation.group_column == "customer"
        page.form.set_value("evaluation.path", "/held.jsonl")
        assert not card.groups.isVisible()

    def test_columns_of_all_files_are_offered_and_a_chosen_one_stays(
        self, qtbot: QtBot, page: NewRunPage, model: Path, rows: WriteRows, tmp_path: Path
    ) -> None:
        other = tmp_path / "other.jsonl"
        other.write_text('{"question": "a", "answer": "b"}\n')
        open_files(qtbot, page, model, [rows("a.jsonl", 20), other])
        page.form.set_value("evaluation.group_column", "gone")
        groups = page.goal_card.groups
        assert [groups.itemData(place) for place in range(groups.count())] == ["", "question", "answer", "gone"]
        assert groups.currentData() == "gone"
        page.form.set_keeps_evaluation_split(True)
        assert "no such column" in page.form.problem("evaluation.group_column")
        assert page.form.missing() is Missing.SETTING
        page.form.set_value("evaluation.group_column", "question")
        assert page.form.missing() is not Missing.SETTING


def test_texts_that_are_split_are_counted_as_examples(
    qtbot: QtBot, page: NewRunPage, model: Path, tmp_path: Path, rows: WriteRows, previewed: Any
) -> None:
    (tmp_path / "long.md").write_text("# Long\n\n" + "word " * 1000)
    spec = RunSpec()
    spec.model.path, spec.evaluation.percent, spec.data.overlong = str(model), 0.0, "split"
    spec.data.sources = [SourceSpec(path=str(path)) for path in (tmp_path / "long.md", rows("a.jsonl", 20))]
    spec.data.context_length = 64
    page.on_shown(spec)
    qtbot.waitUntil(lambda: page.facts.plan is not None and bool(shares(page)[0]), timeout=8000)
    assert page.facts.may_split
    assert page.sources_card.whole.isVisible()
    page.facts.know_preview(ANSWER | {"rows_looked_at": [20, 20], "rows_used": [60, 20], "num_rows": 80})
    qtbot.waitUntil(lambda: shares(page) == ["about 60  ·  75%", "about 20  ·  25%"], timeout=8000)
    assert page.sources_card.whole.isHidden()


def test_removing_a_file_forgets_its_refused_texts_and_a_lonely_weight(qapp: object) -> None:
    del qapp
    form = NewRunForm()
    form.set_value("data.sources[0].path", "/a.jsonl")
    for name in ("b", "c"):
        form.add_source(SourceSpec(path=f"/{name}.jsonl"))
    form.set_text("data.sources[0].weight", "2")
    form.set_text("data.sources[2].most_rows", "many")
    assert form.text("data.sources[2].most_rows") == "many"
    assert "data.sources[2].most_rows" in form.problems()
    form.remove_source(1)
    assert [each.path for each in form.spec.data.sources] == ["/a.jsonl", "/c.jsonl"]
    assert form.text("data.sources[1].most_rows") == ""
    form.remove_source(1)
    assert form.spec.data.sources == [SourceSpec(path="/a.jsonl")]
    assert "data.sources[0].weight" not in form.problems()
