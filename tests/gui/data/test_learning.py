"""What a model learns, and what is wrong with the rows: asked of a scripted engine, shown, and led back to the rows."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tests.gui.data.conftest import PATIENCE_MS, close
from tests.gui.layout_checks import clipped, unnamed
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.folder import OperationState
from tunesmith_core.operations.kinds.rows import places_in
from tunesmith_core.operations.runner import Outcome
from tunesmith_core.protocol import Event
from tunesmith_core.spec import RunSpec
from tunesmith_gui.context import Context
from tunesmith_gui.data import kept_check, learned_rows, problems, saving
from tunesmith_gui.data.page import DataPage
from tunesmith_gui.data.token_view import TokenTable
from tunesmith_gui.services.operation import OperationTask
from tunesmith_gui.widgets.banner import Banner
from tunesmith_gui.widgets.empty_state import EmptyState

Open = Callable[[Path], DataPage]


class Scripted(OperationTask):
    """Never begins; the test says what it answers."""

    asked: list[Scripted] = []  # noqa: RUF012 - one list for the whole test

    def start(self) -> None:
        self.asked.append(self)

    def cancel(self) -> None:
        self.cancelled = True


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Scripted]:
    """What the engine is asked, in order."""
    Scripted.asked = []
    for module in (learned_rows, kept_check, saving):
        monkeypatch.setattr(module, "OperationTask", Scripted)
    return Scripted.asked


def token(text: str, *, trained: bool = False, special: str = "") -> dict[str, Any]:
    return {"id": 7, "text": text, "trained": trained, "special": special}


def row(line: int, **more: Any) -> dict[str, Any]:
    shown = [token("<s>", special="<s>"), token("Who?\n"), token("Me.", trained=True)]
    return {
        "line": line, "part": 1, "tokens": shown, "num_tokens": 3, "num_trained_tokens": 1,
        "num_lost_tokens": 0, "is_cut": False,
    } | more  # fmt: skip


def answer(*rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "rows": list(rows),
        "histogram": [{"from_tokens": 0, "to_tokens": 10, "num_rows": 3}],
        "num_rows": 3, "num_skipped": 0, "num_cut": 0, "num_untrained": 0, "longest_tokens": 9, "context_length": 5,
        "is_complete": True, "problems": [], "notes": [], "pairs": "chat",
        "num_tokens": 80, "num_trained_tokens": 20, "num_lost_tokens": 20,
    } | more  # fmt: skip


@pytest.fixture
def learns(qtbot: QtBot, opened: Open, table: Path, asked: list[Scripted], model_folder: Path) -> DataPage:
    """A file whose totals were asked for."""
    page = opened(table)
    page._choose_model(str(model_folder))
    page.parts.set_value("learns")
    qtbot.waitUntil(lambda: len(asked) == 1, timeout=PATIENCE_MS)
    return page


class TestLearning:
    def test_nothing_is_asked_before_somebody_looks(
        self, opened: Open, table: Path, asked: list[Scripted], model_folder: Path
    ) -> None:
        opened(table)._choose_model(str(model_folder))
        assert asked == []

    def test_what_another_model_makes_of_it_is_not_kept(
        self, learns: DataPage, asked: list[Scripted], tmp_path: Path
    ) -> None:
        asked[0].succeeded.emit(answer(row(2)))
        learns.parts.set_value("rows")
        learns._choose_model(str(tmp_path))
        assert len(asked) == 1
        learns.parts.set_value("learns")
        assert asked[1].spec.run.model.path == str(tmp_path)

    def test_totals_and_tokens_are_shown(self, learns: DataPage, asked: list[Scripted], table: Path) -> None:
        spec = asked[0].spec
        assert [each.path for each in spec.run.data.sources] == [str(table)]
        assert spec.tokens
        asked[0].succeeded.emit(answer(row(2, is_cut=True, num_lost_tokens=4), row(4)))
        pane = learns.learns
        for words in ("3 row", "80 tokens", "20 learned (25.0%)", "20.0% cut off at the context length of 5", "chat"):
            assert words in pane.totals.text()
        assert pane.place.text() == "Line 2  ·  3 tokens, 1 learned"
        text = pane.view.text.toPlainText()
        assert text.startswith("<s>Who?↵\nMe.")
        assert "Cut here: the context ends. Lost tokens: 4" in text
        assert pane.histogram.accessibleDescription() == pane.totals.text()

    def test_a_row_that_is_split_says_where(self, learns: DataPage, asked: list[Scripted]) -> None:
        asked[0].succeeded.emit(answer(row(2), row(2, part=2), row(4)))
        pane = learns.learns
        assert pane.place.text() == "Line 2  ·  6 tokens, 2 learned"
        whole = "<s>Who?↵\nMe."
        assert pane.view.text.toPlainText() == f"{whole}\nSplit here: the next example begins.\n{whole}"
        pane.step(2)
        assert pane.view.text.toPlainText() == whole

    def test_each_token_has_a_line_in_the_list(self, learns: DataPage, asked: list[Scripted]) -> None:
        asked[0].succeeded.emit(answer(row(2)))
        assert "underlined" in learns.learns.legend.text()
        learns.learns.part.set_value("list")
        assert learns.learns.legend.text() == "The model learns the tokens marked “yes”. The rest is context."
        model = learns.learns.view.list.model()
        assert isinstance(model, TokenTable)
        cells = [[model.data(model.index(line, column)) for column in range(4)] for line in range(3)]
        assert cells == [["<s>", "7", "no", "yes"], ["Who?↵", "7", "no", ""], ["Me.", "7", "yes", ""]]
        assert model.data(model.index(2, 0), Qt.ItemDataRole.BackgroundRole) is not None

    def test_both_answers_of_a_pair_stand_below_each_other(
        self, qtbot: QtBot, learns: DataPage, asked: list[Scripted]
    ) -> None:
        pair = (row(2, answer="better"), row(2, answer="worse", tokens=[token("You.", trained=True)], num_tokens=1))
        asked[0].succeeded.emit(answer(*pair, row(4, answer="better"), row(4, answer="worse")))
        pane = learns.learns
        assert pane.place.text() == "Line 2  ·  4 tokens, 2 learned"
        wanted = "Better answer\n<s>Who?↵\nMe.\nWorse answer\nYou."
        qtbot.waitUntil(lambda: pane.view.text.toPlainText() == wanted, timeout=PATIENCE_MS)
        model = pane.view.list.model()
        assert isinstance(model, TokenTable)
        assert [model.data(model.index(line, 4)) for line in range(model.rowCount())] == [*["better"] * 3, "worse"]
        pane.step(2)
        assert pane.place.text().startswith("Line 4")
        assert asked[1:] == [], "both rows of it are known"

    def test_what_the_train_page_does_with_pairs_is_not_asked_of_other_rows(
        self, opened: Open, table: Path, asked: list[Scripted], model_folder: Path, qtbot: QtBot
    ) -> None:
        page = opened(table)
        page.context.new_run_spec = RunSpec()
        page.context.new_run_spec.objective.kind = "dpo"
        page._choose_model(str(model_folder))
        page.parts.set_value("learns")
        qtbot.waitUntil(lambda: len(asked) == 1, timeout=PATIENCE_MS)
        assert asked[0].spec.run.objective.kind == "sft"

    def test_a_long_row_comes_bit_by_bit(self, qtbot: QtBot, learns: DataPage, asked: list[Scripted]) -> None:
        asked[0].succeeded.emit(answer(row(2, tokens=[token("ab")] * 5000, is_cut=True)))
        text = learns.learns.view.text
        assert len(text.toPlainText()) < 2000
        qtbot.waitUntil(lambda: text.toPlainText().endswith("The list shows all 5,000 tokens."), timeout=PATIENCE_MS)
        assert text.toPlainText().count("ab") == 4000

    def test_another_row_is_asked_for_as_it_stands_in_the_window(
        self, qtbot: QtBot, learns: DataPage, asked: list[Scripted]
    ) -> None:
        asked[0].succeeded.emit(answer(row(2)))
        assert learns.rows is not None
        learns.rows.edit(1, {"Question text": "Edited", "Best answer": "Yes"})
        qtbot.mouseClick(learns.learns.next, Qt.MouseButton.LeftButton)
        qtbot.waitUntil(lambda: len(asked) == 2, timeout=PATIENCE_MS)
        sent = Path(asked[1].spec.run.data.sources[0].path)
        assert sent.read_text("utf-8").splitlines()[0] == '{"Question text": "Edited", "Best answer": "Yes"}'
        left_out = {"line": 2, "message": "looked-at.jsonl, line 2: no answer."}
        asked[1].succeeded.emit(answer(row(1), problems=[left_out]))
        assert learns.learns.place.text() == "Line 3  ·  3 tokens, 1 learned  ·  edited, not saved yet"
        learns.learns.step(1)
        assert learns.learns.view.text.toPlainText() == "The run leaves this row out: no answer."
        assert learns.grid is not None
        assert learns.grid.current() == 2

    def test_rows_of_which_none_can_be_used_say_why(
        self, qtbot: QtBot, learns: DataPage, asked: list[Scripted]
    ) -> None:
        asked[0].succeeded.emit(answer(row(2)))
        learns.learns.step(1)
        qtbot.waitUntil(lambda: len(asked) == 2, timeout=PATIENCE_MS)
        error = TunesmithError("dataset-parse-error", "{place}: {problem}", place="x", problem="no answer")
        asked[1].failed.emit(error)
        assert learns.learns.view.text.toPlainText() == "The run leaves this row out: no answer"

    def test_without_an_environment_it_leads_to_the_setup(
        self, qtbot: QtBot, learns: DataPage, asked: list[Scripted]
    ) -> None:
        asked[0].failed.emit(TunesmithError("environment-missing", "{path} does not exist.", path="x"))
        settle()
        (state,) = [each for each in learns.learns.findChildren(EmptyState) if each.isVisible()]
        assert state.primary is not None
        with qtbot.waitSignal(learns.navigate) as gone:
            qtbot.mouseClick(state.primary, Qt.MouseButton.LeftButton)
        assert gone.args == ["setup", None]

    def test_a_failure_stands_right_below_the_choice_of_the_model(
        self, learns: DataPage, asked: list[Scripted]
    ) -> None:
        above = learns.learns.model.mapTo(learns.learns, QPoint()).y()
        asked[0].failed.emit(TunesmithError("dataset-empty", "{path}: the file has no rows.", path="t"))
        settle()
        (banner,) = [each for each in learns.learns.findChildren(Banner) if each.isVisible()]
        assert learns.learns.model.mapTo(learns.learns, QPoint()).y() == above
        assert banner.y() < learns.learns.height() // 4
        assert banner.height() <= banner.heightForWidth(banner.width())

    def test_another_model_asks_again(self, learns: DataPage, asked: list[Scripted], tmp_path: Path) -> None:
        learns.learns.model.path_chosen.emit(str(tmp_path))
        assert asked[0].cancelled
        assert asked[1].spec.run.model.path == str(tmp_path)

    def test_without_a_model_it_asks_for_one(self, opened: Open, table: Path, asked: list[Scripted]) -> None:
        page = opened(table)
        page._choose_model("")
        page.parts.set_value("learns")
        assert asked == []
        assert page.learns._waiting.text() == "Choose a model. Its tokenizer makes the tokens."


PROBLEMS = [
    {
        "rule": "empty-answer", "severity": "error", "count": 3, "action": "stop", "actions": ["skip", "stop"],
        "title": "Rows without an answer",
        "rows": [{"line": 3, "column": 1, "message": "is empty.", "row": {}}],
    },
    {
        "rule": "html", "severity": "note", "count": 1, "action": "keep", "actions": ["keep", "repair", "skip"],
        "title": "HTML in the text",
        "rows": [{"line": 4, "column": 1, "message": "HTML (<p>).", "row": {}, "keys": ["Best answer"]}],
    },
]  # fmt: skip
RESULT = {"num_rows": 3, "num_good_rows": 1, "num_problem_rows": 2, "languages": {"en": 2}}
Answer = dict[str, Any]


@pytest.fixture
def result(table: Path) -> Answer:
    """What the check of a table finds."""
    problems = [{**rule, "rows": [{"path": str(table), **row} for row in rule["rows"]]} for rule in PROBLEMS]
    return {**RESULT, "problems": problems}


@pytest.fixture
def checked(qtbot: QtBot, opened: Open, table: Path, asked: list[Scripted]) -> DataPage:
    """A file that is being checked."""
    page = opened(table)
    page.parts.set_value("problems")
    qtbot.waitUntil(lambda: len(asked) == 1, timeout=PATIENCE_MS)
    return page


class TestProblems:
    def test_progress_is_told_with_rate_and_remaining_time(self, checked: DataPage, asked: list[Scripted]) -> None:
        data = {"rows": 1200, "done_bytes": 5, "total_bytes": 10, "rows_per_s": 90_000.0, "remaining_s": 61.0}
        asked[0].happened.emit(Event(1, 1.0, "progress", data))
        pane = checked.problems
        assert pane.progress_words.text() == "1,200 rows checked, 90,000 per second, about 1 min left"
        assert pane.bar.value() == 500

    def test_a_rule_has_its_count_its_rows_and_a_choice(
        self, checked: DataPage, asked: list[Scripted], result: Answer
    ) -> None:
        asked[0].succeeded.emit(result)
        pane = checked.problems
        first = pane.tree.topLevelItem(0)
        assert first is not None
        assert (first.text(0), first.text(1)) == ("Rows without an answer", "3")
        assert first.childCount() == 0
        first.setExpanded(True)
        assert [first.child(place).text(0) for place in range(2)] == ["is empty.", "and 2 more"]
        assert first.child(0).text(1) == "Line 3"
        assert pane.chosen_actions() == {"empty-answer": "skip", "html": "keep"}
        assert "checked, 2 problems" in pane.summary.text()
        assert "languages: English 100%" in pane.summary.text()
        assert checked.grid is not None
        settle()
        assert checked.grid.model.problems == {1: "is empty.", 2: "HTML (<p>)."}
        settle()
        assert clipped(pane) == []
        assert unnamed(pane) == []

    def test_a_row_in_an_archive_names_its_file(
        self, checked: DataPage, asked: list[Scripted], table: Path
    ) -> None:
        rows = [{"path": path, **PROBLEMS[0]["rows"][0]} for path in (str(table), f"{table}{os.sep}b/more.csv")]
        asked[0].succeeded.emit(RESULT | {"problems": [{**PROBLEMS[0], "rows": rows}]})
        first = checked.problems.tree.topLevelItem(0)
        assert first is not None
        first.setExpanded(True)
        assert [first.child(place).text(1) for place in range(2)] == ["Line 3", "b/more.csv  ·  Line 3"]

    def test_a_click_on_a_row_jumps_to_it(self, checked: DataPage, asked: list[Scripted], result: Answer) -> None:
        asked[0].succeeded.emit(result)
        tree = checked.problems.tree
        rule = tree.topLevelItem(1)
        assert rule is not None
        tree.itemActivated.emit(rule, 0)
        assert rule.isExpanded()
        tree.itemActivated.emit(rule.child(0), 0)
        assert checked.parts.value == "rows"
        assert checked.grid is not None
        assert checked.grid.current() == 2
        assert checked.grid.table.currentIndex().column() == 1
        settle()
        assert checked.grid.pane.problems.words() == "HTML in the text\nHTML (<p>). What is done: Keep"
        checked.problems._combos["html"].setCurrentIndex(1)
        assert checked.grid.pane.problems.words().endswith("What is done: Repair")

    def test_choices_survive_a_window_in_another_language_but_not_other_data(
        self, qtbot: QtBot, context: Context, checked: DataPage, asked: list[Scripted], result: Answer, tmp_path: Path
    ) -> None:
        asked[0].succeeded.emit(result)
        checked.problems._combos["html"].setCurrentIndex(1)
        other = DataPage(context)
        other.remember(checked.memory())
        other.show()
        qtbot.waitUntil(lambda: bool(other.problems.chosen_actions()), timeout=PATIENCE_MS)
        assert other.problems.chosen_actions() == {"empty-answer": "skip", "html": "repair"}
        assert len(asked) == 1
        (tmp_path / "next.csv").write_text("Question text,Best answer\nWho?,Me.\n")
        other.open(str(tmp_path / "next.csv"))
        qtbot.waitUntil(lambda: other.rows is not None and other.rows.is_complete, timeout=PATIENCE_MS)
        other.parts.set_value("problems")
        qtbot.waitUntil(lambda: len(asked) == 2, timeout=PATIENCE_MS)
        asked[1].succeeded.emit(result)
        assert other.problems.chosen_actions() == {"empty-answer": "skip", "html": "keep"}
        close(other)

    def test_a_repaired_table_can_stay_one(
        self, checked: DataPage, asked: list[Scripted], result: Answer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked[0].succeeded.emit(result)
        proposed: list[tuple[str, ...]] = []
        monkeypatch.setattr(problems, "ask_for_copy", lambda *words: proposed.append(words[-1]))
        checked.problems.save.click()
        checked.problems.kind = "jsonl"
        checked.problems.save.click()
        assert proposed == [(".csv", ".jsonl"), (".jsonl",)]

    def test_fix_and_save_takes_choices_and_edits_along(
        self, checked: DataPage, asked: list[Scripted], tmp_path: Path, table: Path, result: Answer
    ) -> None:
        asked[0].succeeded.emit(result)
        assert checked.rows is not None
        checked.rows.delete([0])
        checked.problems.save_asked.emit(tmp_path / "fixed.jsonl", {"html": "repair"})
        spec = asked[1].spec
        assert asked[1].kind.name == "save-data"
        assert (spec.target, spec.actions) == (str(tmp_path / "fixed.jsonl"), {"html": "repair"})
        assert (spec.edited.edits, list(places_in(Path(spec.edited.deleted)))) == ({}, [0])
        asked[1].ended.emit(Outcome(OperationState.FINISHED, 0))

    @pytest.mark.parametrize("ends", [False, True])
    def test_a_check_continues_on_a_page_that_is_built_again(
        self, qtbot: QtBot, checked: DataPage, asked: list[Scripted], result: Answer, context: Context, ends: bool
    ) -> None:
        progress = Event(1, 1.0, "progress", {"rows": 1200, "done_bytes": 5, "total_bytes": 10})
        asked[0].happened.emit(progress)
        if ends:
            asked[0].succeeded.emit(result)
        checked.on_hidden()
        context.new_run_spec = RunSpec()
        context.new_run_spec.optimizer.learning_rate = 7.0
        checked.on_shown()
        settle()
        again = DataPage(context)
        again.show()
        again.remember(checked.memory())
        again.on_shown()
        qtbot.waitUntil(lambda: again.parts.value == "problems", timeout=PATIENCE_MS)
        settle()
        if not ends:
            assert again.problems.progress_words.text() == "1,200 rows checked"
            asked[0].succeeded.emit(result)
        assert [each.kind.name for each in asked].count("check-data") == 1
        assert again.problems.tree.topLevelItemCount() == 2
        close(again)

    def test_a_file_that_was_changed_is_checked_again(
        self, qtbot: QtBot, checked: DataPage, asked: list[Scripted], result: Answer, table: Path
    ) -> None:
        asked[0].succeeded.emit(result)
        checked.close_file()
        table.write_text("question,answer\nWho?,Me.\n")
        checked.open(str(table))
        qtbot.waitUntil(lambda: checked.rows is not None and checked.rows.is_complete, timeout=PATIENCE_MS)
        checked.parts.set_value("problems")
        qtbot.waitUntil(lambda: len(asked) == 2, timeout=PATIENCE_MS)

    def test_only_rows_with_problems_are_found_without_a_look_at_the_list(
        self, qtbot: QtBot, opened: Open, table: Path, asked: list[Scripted], result: Answer
    ) -> None:
        page = opened(table)
        assert page.grid is not None
        page.grid.only_problems.setChecked(True)
        assert "looking for problems…" in page.grid.count.text()
        asked[0].succeeded.emit(result)
        qtbot.waitUntil(lambda: page.grid.model.rowCount() == 2, timeout=PATIENCE_MS)
        assert page.parts.value == "rows"
        assert "looking" not in page.grid.count.text()
        page.context.new_run_spec = RunSpec()
        page.context.new_run_spec.data.context_length = 77
        page._show_for_model()
        asked[-1].succeeded.emit({**result, "problems": result["problems"][:1]})
        assert asked[-1].kind.name == "check-data"
        qtbot.waitUntil(lambda: page.grid.model.rowCount() == 1, timeout=PATIENCE_MS)

    def test_the_banner_about_rows_that_cannot_be_used_offers_to_fix_them(
        self, opened: Open, asked: list[Scripted], tmp_path: Path, result: Answer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "a.jsonl"
        path.write_text('{"prompt": "a", "completion": "b"}\n{"prompt": "broken\n')
        page = opened(path)
        banner = page.summary.message
        assert isinstance(banner, Banner)
        copy = tmp_path / "fixed.jsonl"
        monkeypatch.setattr(problems, "ask_for_copy", lambda *_words: copy)
        banner.buttons[1].click()
        assert page.parts.value == "problems"
        asked[0].succeeded.emit(result)
        settle()
        assert (asked[1].kind.name, asked[1].spec.target) == ("save-data", str(copy))
        asked[1].ended.emit(Outcome(OperationState.FINISHED, 0))

    def test_edits_are_said_to_be_unchecked_until_they_are_checked(
        self, qtbot: QtBot, opened: Open, asked: list[Scripted], tmp_path: Path, result: Answer
    ) -> None:
        path = tmp_path / "a.jsonl"
        path.write_text('{"prompt": "a", "completion": "b"}\n{"prompt": "c", "completion": ""}\n')
        page = opened(path)

        def banner() -> tuple[str, list[str]]:
            message = page.summary.message
            assert isinstance(message, Banner)
            said = f"{message.accessibleName()}: {message.accessibleDescription()}"
            return said, [each.text() for each in message.buttons]

        assert page.rows is not None
        assert page.grid is not None
        first, buttons = banner()
        assert "empty" in first
        page.parts.set_value("problems")
        wrong = {"path": str(path), "line": 2, "column": 1, "message": "is empty.", "row": {}, "keys": ["completion"]}
        found = {**result, "problems": [{**result["problems"][0], "rows": [wrong], "count": 1}]}
        asked[-1].succeeded.emit(found)
        settle()
        assert not page.problems.outdated.isVisible()
        assert banner() == (first, buttons)
        page.rows.edit(1, {"prompt": "c", "completion": " "})
        assert page.problems.outdated.isVisible()
        words, offered = banner()
        assert words.startswith("Your changes to the rows are not checked yet: Some rows of the file itself")
        assert offered == ["Check again", *buttons]
        message = page.summary.message
        assert isinstance(message, Banner)
        message.buttons[0].click()
        assert asked[-1].spec.edited.edits == {"1": {"prompt": "c", "completion": " "}}
        asked[-1].succeeded.emit(found)
        settle()
        assert not page.problems.outdated.isVisible()
        words, offered = banner()
        assert words.startswith("Some rows can't be used as they are: Line 2: is empty.\n")
        assert offered == buttons
        page.grid.go_to(1)
        assert "Is empty." in page.grid.pane.problems.words(), "of the row as it was edited"
        page.rows.delete([1])
        assert banner()[1][0] == "Check again"
        page.problems.check_again()
        asked[-1].succeeded.emit(RESULT | {"problems": [], "num_problem_rows": 0})
        settle()
        assert banner()[0].startswith("Every row can be used now: Your file stays as it is.")
        assert banner()[1] == ["Fix and save as…"]
        page.rows.undo()
        page.rows.undo()
        assert page.problems.outdated.isVisible()
        assert banner() == (first, buttons), "the rows are those of the file"

    def test_nothing_below_moves_and_the_keyboard_stays_when_rows_are_edited_and_checked(
        self, qtbot: QtBot, opened: Open, asked: list[Scripted], tmp_path: Path, result: Answer
    ) -> None:
        path = tmp_path / "a.jsonl"
        path.write_text('{"prompt": "a", "completion": "b"}\n{"prompt": "c", "completion": ""}\n')
        page = opened(path)
        page.resize(1280, 800)
        with qtbot.waitActive(page.window()):
            page.window().activateWindow()
        heights: list[int] = []

        def look() -> Banner:
            settle()
            assert isinstance(page.summary.message, Banner)
            heights.append(page.summary.message.height())
            return page.summary.message

        look()
        page.parts.set_value("problems")
        wrong = {"path": str(path), "line": 2, "column": 1, "message": "is empty.", "row": {}, "keys": ["completion"]}
        found = {**result, "problems": [{**result["problems"][0], "rows": [wrong], "count": 1}]}
        asked[-1].succeeded.emit(found)
        assert page.rows is not None
        page.rows.edit(1, {"prompt": "c", "completion": " "})
        again = look().buttons[0]
        again.setFocus()
        qtbot.keyClick(again, Qt.Key.Key_Space)
        asked[-1].succeeded.emit(found)
        banner = look()
        assert page.focusWidget() is banner.buttons[0]
        page.problems.again.setFocus()
        qtbot.keyClick(page.problems.again, Qt.Key.Key_Space)
        assert page.focusWidget() is page.problems.cancel
        asked[-1].succeeded.emit(RESULT | {"problems": [], "num_problem_rows": 0})
        assert look().accessibleName() == "Every row can be used now"
        focused = page.focusWidget()
        assert isinstance(focused, QPushButton)
        assert focused.text() == "Check again"
        assert len(set(heights)) == 1, heights

    def test_choices_are_equally_wide_and_stay_where_they_are(
        self, qtbot: QtBot, checked: DataPage, asked: list[Scripted], result: Answer
    ) -> None:
        wide, narrow = result["problems"]
        problems_found = [{**wide, "actions": ["skip", "keep"]}, {**narrow, "actions": ["keep"]}]
        asked[0].succeeded.emit({**result, "problems": problems_found})
        pane = checked.problems
        combos = list(pane._combos.values())
        qtbot.wait(100)  # in which Qt would make each as wide as its own words
        settle()
        before = [combo.geometry() for combo in combos]
        assert len({place.width() for place in before}) == 1
        assert all(combo.height() >= combo.sizeHint().height() for combo in combos)
        for combo in combos:
            combo.setCurrentIndex(combo.count() - 1)
        pane.tree.doItemsLayout()
        settle()
        assert [combo.geometry() for combo in combos] == before

    def test_no_problems_are_said_in_one_line(self, checked: DataPage, asked: list[Scripted]) -> None:
        asked[0].succeeded.emit(RESULT | {"problems": [], "num_problem_rows": 0})
        (state,) = [each for each in checked.problems.findChildren(EmptyState) if each.isVisible()]
        assert state.primary is not None
        assert state.primary.text() == "Check again"

    def test_a_check_is_canceled_and_begun_again(
        self, qtbot: QtBot, checked: DataPage, asked: list[Scripted]
    ) -> None:
        qtbot.mouseClick(checked.problems.cancel, Qt.MouseButton.LeftButton)
        assert asked[0].cancelled
        (again,) = [
            each for each in checked.problems.findChildren(QPushButton) if each.isVisible() and "again" in each.text()
        ]
        qtbot.mouseClick(again, Qt.MouseButton.LeftButton)
        assert len(asked) == 2

    def test_a_check_that_fails_says_why(self, checked: DataPage, asked: list[Scripted]) -> None:
        asked[0].failed.emit(TunesmithError("dataset-empty", "{path}: the file has no rows.", path="t"))
        settle()
        (banner,) = [each for each in checked.problems.findChildren(Banner) if each.isVisible()]
        assert banner.height() >= banner.heightForWidth(banner.width())
        assert "the file has no rows" in banner.accessibleDescription()
