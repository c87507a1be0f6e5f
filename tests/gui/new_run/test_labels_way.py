"""Teaching by answers that are labeled good or bad: the data that suits it, what is asked, and the sample."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tests.gui.layout_checks import clipped, unnamed
from tests.gui.new_run.driving import ANSWER, fill_in, scripted_tasks, shown_words
from tests.gui.new_run.test_ways import choose
from tunesmith_core.datafmt.formats import LABELED
from tunesmith_core.spec_sections import DataSpec, SourceSpec
from tunesmith_gui.new_run.data_picker import DataPicker
from tunesmith_gui.new_run.data_preview import DataPreviewDialog
from tunesmith_gui.new_run.form import BY_CLASS, BY_EXAMPLE, BY_LABEL, BY_PREFERENCE, Missing
from tunesmith_gui.new_run.page import NewRunPage
from tunesmith_gui.services.data_facts import look_at_data
from tunesmith_gui.widgets.banner import Banner
from tunesmith_gui.widgets.column_question import ColumnQuestion
from tunesmith_gui.widgets.safe_label import SafeLabel

Write = Callable[[list[dict[str, Any]]], Path]
ASKED = {"prompt": "Who?", "completion": "Me, of course."}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def rows(values: list[dict[str, Any]]) -> Path:
        path = tmp_path / "answers.jsonl"
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in values), encoding="utf-8")
        return path

    return rows


def questions(page: NewRunPage) -> list[ColumnQuestion]:
    return [each for each in page.data_picker.findChildren(ColumnQuestion) if each.isVisible()]


@pytest.mark.parametrize("way", ["Good and bad answers", "Prefer this over that"])
def test_two_columns_are_not_asked_for_three(
    qtbot: QtBot, page: NewRunPage, model: Path, tmp_path: Path, way: str
) -> None:
    path = tmp_path / "tickets.csv"
    path.write_text("Beschwerde,Abteilung\nKein Paket,Versand\nFalsche Rechnung,Buchhaltung\n")
    choose(qtbot, page, way)
    fill_in(qtbot, page, model, path)
    settle()
    assert questions(page) == []
    (banner,) = page.data_picker.findChildren(Banner)
    words = " ".join(label.text() for label in banner.findChildren(SafeLabel))
    assert "The columns of this file are: Beschwerde, Abteilung." in words
    assert page.start_bar.start.isEnabled() is False
    assert clipped(page.data_picker) == unnamed(page.data_picker) == []
    ways_out = {each.text(): each for each in banner.findChildren(QPushButton)}
    assert "Use the sample" in ways_out
    ways_out["Teach by example"].click()
    settle()
    assert page.form.way == BY_EXAMPLE
    assert len(questions(page)) == 1, "two columns may be a prompt and its response"


def test_labeled_answers_and_pairs_taken_apart_can_start(
    qtbot: QtBot, page: NewRunPage, model: Path, write: Write
) -> None:
    choose(qtbot, page, "Good and bad answers")
    assert "whether it is good or bad" in page.data_picker.facts.text()
    fill_in(qtbot, page, model, write([ASKED | {"thumbs": "👍"}, ASKED | {"thumbs": "👎"}]))
    assert (page.form.way, page.form.missing()) == (BY_LABEL, Missing.NOTHING)
    pairs = write([{"prompt": "Who?", "chosen": "Me.", "rejected": "It depends."}] * 3)
    page.actions_.choose_data(str(pairs.rename(pairs.with_name("pairs.jsonl"))))
    qtbot.waitUntil(lambda: page.facts.data is not None and "pairs" in page.facts.data.path, timeout=5000)
    assert page.form.missing() is Missing.NOTHING


def test_the_one_missing_column_is_asked_for(qtbot: QtBot, page: NewRunPage, model: Path, write: Write) -> None:
    choose(qtbot, page, "Good and bad answers")
    fill_in(qtbot, page, model, write([ASKED | {"nice": "yes"}, ASKED | {"nice": "no"}]))
    assert page.start_bar.start.text() == "Check the labels"
    assert (clipped(page), unnamed(page)) == ([], [])
    (question,) = questions(page)
    assert {role: combo.currentData() for role, combo in question.combos.items()} == {"label": "nice"}
    qtbot.mouseClick(question.use, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: page.form.missing() is Missing.NOTHING, timeout=5000)
    assert page.form.value("data.sources[0].columns") == {"label": "nice"}
    assert questions(page) == []


def test_unknown_columns_are_asked_for_with_the_label(
    qtbot: QtBot, page: NewRunPage, model: Path, write: Write
) -> None:
    choose(qtbot, page, "Good and bad answers")
    rows = [{"aa": f"What is {n}?", "bb": "A number that is quite long.", "cc": n % 2} for n in range(4)]
    fill_in(qtbot, page, model, write(rows))
    (question,) = questions(page)
    found = {role: combo.currentData() for role, combo in question.combos.items()}
    assert found == {"prompt": "aa", "completion": "bb", "label": "cc"}
    qtbot.mouseClick(question.use, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: page.form.missing() is Missing.NOTHING, timeout=5000)


def test_a_scale_of_numbers_is_never_guessed(qtbot: QtBot, page: NewRunPage, model: Path, write: Write) -> None:
    choose(qtbot, page, "Good and bad answers")
    fill_in(qtbot, page, model, write([ASKED | {"label": number} for number in (1, 3, 5)]))
    assert page.form.missing() is Missing.LABELS
    assert "holds numbers from 1 to 5" in shown_words(page)
    assert (clipped(page), unnamed(page)) == ([], [])
    (ways,) = [
        each
        for each in page.data_picker.findChildren(QPushButton)
        if each.text() == "Teach by example" and each.isVisible()
    ]
    qtbot.mouseClick(ways, Qt.MouseButton.LeftButton)
    settle()
    assert (page.form.way, page.form.missing()) == (BY_EXAMPLE, Missing.NOTHING)


def test_columns_of_pairs_are_asked_for_where_pairs_are_wanted(
    qtbot: QtBot, page: NewRunPage, model: Path, write: Write
) -> None:
    choose(qtbot, page, "Prefer this over that")
    rows = [{"aa": f"What is {n}?", "bb": "A number, as you know.", "cc": "No idea, sorry."} for n in range(4)]
    fill_in(qtbot, page, model, write(rows))
    (question,) = questions(page)
    assert list(question.combos) == ["prompt", "chosen", "rejected"]
    assert not question.use.isEnabled(), "which answer is better is never guessed"


def test_the_sample_needs_three_decisions(qtbot: QtBot, page: NewRunPage, model: Path) -> None:
    page.facts.refresh()
    qtbot.waitUntil(lambda: page.facts.survey is not None and bool(page.facts.survey.models), timeout=5000)
    choose(qtbot, page, "Good and bad answers")
    qtbot.mouseClick(page.data_picker.sample, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: page.form.missing() is Missing.NOTHING, timeout=5000)
    assert page.form.value("model.path") == str(model)
    assert Path(page.form.value("data.sources[0].path")).name == "labels.jsonl"


def test_a_preview_shows_the_label(
    qtbot: QtBot, page: NewRunPage, model: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(qtbot, page, "Good and bad answers")
    fill_in(qtbot, page, model, write([ASKED | {"label": True}, ASKED | {"label": False}]))
    tasks = scripted_tasks(monkeypatch)
    page._open_preview()
    (dialog,) = page.findChildren(DataPreviewDialog)
    assert any("less like bad" in each.text() for each in dialog.findChildren(SafeLabel))
    (row,) = ANSWER["rows"]
    rows = [{**row, "line": line, "answer": each} for line, each in enumerate(("good", "bad"), 1)]
    tasks[0].succeeded(ANSWER | {"rows": rows, "num_rows": 2})
    assert dialog.text.toPlainText().startswith("Good answer\n")
    dialog.next.click()
    assert dialog.text.toPlainText().startswith("Bad answer\n")
    dialog.close()


def test_label_smoothing_shows_for_losses_that_use_it(page: NewRunPage) -> None:
    form = page.form
    form.choose_way("dpo")
    assert form.uses("objective.label_smoothing")
    form.set_value("objective.dpo_loss", "hinge")
    assert not form.uses("objective.label_smoothing")
    form.set_value("objective.label_smoothing", 0.1)
    assert form.uses("objective.label_smoothing"), "it must be taken back"


def test_no_beta_is_the_usual_one_and_a_number_is_that_number(page: NewRunPage) -> None:
    form = page.form
    form.choose_way("dpo")
    form.set_text("objective.sft_weight", "0")
    form.set_text("objective.beta", "0.25")
    assert (form.value("objective.sft_weight"), form.value("objective.beta")) == (0.0, 0.25)
    form.set_text("objective.sft_weight", " ")
    assert form.value("objective.sft_weight") is None
    form.set_text("objective.beta", "0")
    assert "objective.beta" in form.problems()


def test_rows_of_pairs_are_counted_with_both_answers(
    qtbot: QtBot, page: NewRunPage, model: Path, write: Write
) -> None:
    pairs = [{"prompt": f"Who {n}?", "chosen": "Me.", "rejected": "Me." if n == 2 else "You."} for n in range(5)]
    fill_in(qtbot, page, model, write(pairs))
    assert page.form.missing() is Missing.NOTHING, "the better answers alone can be learned"
    choose(qtbot, page, "Prefer this over that")
    qtbot.waitUntil(lambda: page.form.missing() is Missing.DATA_BROKEN, timeout=5000)
    assert "line 3" in shown_words(page)
    page.actions_.choose_way(BY_EXAMPLE)
    qtbot.waitUntil(lambda: page.form.missing() is Missing.NOTHING, timeout=5000)


def test_a_label_that_is_none_is_told_before_a_run_begins(
    qtbot: QtBot, page: NewRunPage, model: Path, write: Write
) -> None:
    choose(qtbot, page, "Good and bad answers")
    fill_in(qtbot, page, model, write([ASKED | {"label": label} for label in ("yes", "no", "maybe")]))
    qtbot.waitUntil(lambda: page.form.missing() is Missing.DATA_BROKEN, timeout=5000)
    assert "line 3" in shown_words(page)
    words = page.data_picker.facts.text()
    assert "told apart by “label”" in words
    assert "Not used" not in words
    page.data_picker.skip_asked.emit()
    qtbot.waitUntil(lambda: page.form.missing() is Missing.NOTHING, timeout=5000)
    assert page.data_picker.facts.text().startswith("2 of 3 rows, 1 skipped")


def test_a_pair_without_its_worse_answer_is_named_by_its_line(
    qtbot: QtBot, page: NewRunPage, model: Path, write: Write
) -> None:
    pairs = [{"prompt": f"Who {n}?", "chosen": "Me.", "rejected": "You."} for n in range(5)]
    del pairs[3]["rejected"]
    choose(qtbot, page, "Prefer this over that")
    fill_in(qtbot, page, model, write(pairs))
    qtbot.waitUntil(lambda: page.form.missing() is Missing.DATA_BROKEN, timeout=5000)
    assert questions(page) == []
    assert "1 row can't be used as it is" in shown_words(page)
    assert "line 4" in shown_words(page)
    page.data_picker.skip_asked.emit()
    qtbot.waitUntil(lambda: page.form.missing() is Missing.NOTHING, timeout=5000)


@pytest.mark.parametrize(
    ("way", "row", "words"),
    [
        (BY_PREFERENCE, {"prompt": "Who?", "chosen": "Me.", "rejected": "Me."}, "None of the 12 rows can be used"),
        (BY_CLASS, {"text": "Four.", "label": "number"}, 'All rows (12) have the label "number"'),
        (BY_LABEL, ASKED | {"label": True}, "Every answer is labeled good (12)"),
    ],
)
def test_rows_of_which_nothing_can_be_learned_are_counted(
    qtbot: QtBot, write: Write, way: str, row: dict[str, Any], words: str
) -> None:
    file_format = LABELED if way == BY_CLASS else "auto"
    data = DataSpec(sources=[SourceSpec(path=str(write([row] * 12)), format=file_format)])
    facts = look_at_data(data, in_pairs=way == BY_PREFERENCE, in_labels=way == BY_LABEL)
    picker = DataPicker()
    qtbot.addWidget(picker)
    picker.show()
    picker.show_data(facts, way=way, lacks_labels=facts.labels_problem)
    settle()
    assert words in shown_words(picker)
    assert "Skip" not in shown_words(picker), "nothing would be left"
    assert look_at_data(DataSpec(sources=data.sources * 2), in_labels=True).labels_problem is None, "others may differ"
