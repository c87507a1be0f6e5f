"""Data of other columns than a way to teach expects: what is asked, what is never claimed, and the ways out."""

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
from tests.gui.new_run.driving import fill_in, shown_words
from tests.gui.new_run.test_labels_way import questions
from tests.gui.new_run.test_ways import choose
from tunesmith_core.datafmt.formats import LABELED, STEPS
from tunesmith_core.spec_sections import DataSpec, SourceSpec
from tunesmith_gui.new_run.fitting import fitting_way
from tunesmith_gui.new_run.form import BY_CLASS, BY_EXAMPLE, BY_PREFERENCE, BY_READING, BY_STEPS, WAYS, NewRunForm
from tunesmith_gui.new_run.page import NewRunPage
from tunesmith_gui.new_run.surroundings import Missing
from tunesmith_gui.services.data_facts import look_at_data
from tunesmith_gui.widgets.column_question import asked_columns
from tunesmith_gui.widgets.row_words import mapping_words

Write = Callable[..., Path]
SORT, CHECK = "Sort texts into classes", "Check the steps of an answer"
DEPARTMENTS = ("Versand", "Buchhaltung", "Technik")
TICKETS = [{"Beschwerde": f"Mein Paket {n} fehlt", "Abteilung": DEPARTMENTS[n % 3]} for n in range(30)]
ASKED = "\n\nHuman: What is {n}+1?\n\nAssistant: "
PAIRS = [{role: ASKED.format(n=n) + f"So {role}." for role in ("chosen", "rejected")} for n in range(12)]
STEPPED = [{"aa": f"What is {n} + 1?", "bb": ["Count on.", "Done."], "cc": [True, n % 2 == 0]} for n in range(6)]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def rows(values: list[dict[str, Any]], name: str = "rows.jsonl") -> Path:  # Any: JSON values
        path = tmp_path / name
        if path.suffix == ".csv":
            lines = [",".join(values[0]), *(",".join(map(str, row.values())) for row in values)]
        else:
            lines = [json.dumps(row, ensure_ascii=False) for row in values]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return rows


def facts(page: NewRunPage) -> str:
    return page.data_picker.facts.text()


def shown_buttons(page: NewRunPage) -> list[str]:
    return [each.text() for each in page.data_picker.findChildren(QPushButton) if each.isVisible() and each.text()]


@pytest.mark.parametrize("turned", [False, True], ids=["text first", "label first"])
def test_text_and_label_are_asked_for_and_lead_to_start(
    turned: bool, qtbot: QtBot, page: NewRunPage, model: Path, write: Write
) -> None:
    rows = [dict(reversed(row.items())) for row in TICKETS] if turned else TICKETS
    choose(qtbot, page, SORT)
    fill_in(qtbot, page, model, write(rows, "tickets.csv"))
    (question,) = questions(page)
    assert question.accessibleName() == "Which column is the text, and which the label?"
    assert {role: combo.currentData() for role, combo in question.combos.items()} == {
        "text": "Beschwerde",
        "class": "Abteilung",
    }
    assert ("Text with label" in facts(page), "Format not recognized" in facts(page)) == (False, True)
    assert (page.form.missing(), shown_words(page.data_picker)) == (Missing.COLUMNS, "")
    assert (clipped(page), unnamed(page)) == ([], [])
    qtbot.mouseClick(question.use, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: page.form.missing() is Missing.NOTHING, timeout=5000)
    settle()
    source = page.form.spec.data.sources[0]
    assert (source.format, source.columns) == (LABELED, {"text": "Beschwerde", "class": "Abteilung"})
    assert (questions(page), shown_words(page.data_picker), page.form.problems()) == ([], "", {})
    assert "Text with label  ·  Beschwerde → text, Abteilung → label" in facts(page)
    assert "“Versand” 10" in facts(page)


def test_the_answer_holds_for_the_next_file_of_the_same_columns(
    qtbot: QtBot, page: NewRunPage, model: Path, write: Write
) -> None:
    choose(qtbot, page, SORT)
    fill_in(qtbot, page, model, write(TICKETS, "first.csv"))
    (question,) = questions(page)
    qtbot.mouseClick(question.use, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: page.form.missing() is Missing.NOTHING, timeout=5000)
    said = {"text": "Beschwerde", "class": "Abteilung"}
    page.actions_.choose_data(str(write(TICKETS, "second.csv")))
    assert page.form.spec.data.sources[0].columns == {}
    qtbot.waitUntil(lambda: page.form.spec.data.sources[0].columns == said, timeout=5000)
    qtbot.waitUntil(lambda: page.form.missing() is Missing.NOTHING, timeout=5000)
    choose(qtbot, page, "Teach by example")
    qtbot.waitUntil(lambda: page.form.missing() is Missing.COLUMNS, timeout=5000)
    assert page.form.spec.data.sources[0].columns == {}, "what holds for labels says nothing of prompts"


def test_numbers_are_proposed_as_labels(qtbot: QtBot, page: NewRunPage, model: Path, write: Write) -> None:
    choose(qtbot, page, SORT)
    page.form.set_value("objective.regression", True)
    rows = [{"Ware": f"Ein Stuhl aus Holz, Nummer {n}", "Preis": n * 1.5} for n in range(20)]
    fill_in(qtbot, page, model, write(rows))
    (question,) = questions(page)
    assert {role: combo.currentData() for role, combo in question.combos.items()} == {"text": "Ware", "class": "Preis"}
    qtbot.mouseClick(question.use, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: page.form.missing() is Missing.NOTHING, timeout=5000)


def test_steps_of_other_names_are_asked_for(qtbot: QtBot, page: NewRunPage, model: Path, write: Write) -> None:
    choose(qtbot, page, CHECK)
    fill_in(qtbot, page, model, write(STEPPED))
    (question,) = questions(page)
    assert "which holds the steps" in question.accessibleName()
    assert [combo.currentData() for combo in question.combos.values()] == ["aa", "bb", "cc"]
    qtbot.mouseClick(question.use, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: page.form.missing() is Missing.NOTHING, timeout=5000)
    assert page.form.spec.data.sources[0].format == STEPS


@pytest.mark.parametrize("way", [CHECK, SORT])
def test_pairs_are_called_what_they_are_and_lead_to_the_way_that_suits_them(
    way: str, qtbot: QtBot, page: NewRunPage, model: Path, write: Write
) -> None:
    fill_in(qtbot, page, model, write(PAIRS))
    choose(qtbot, page, way)
    qtbot.waitUntil(lambda: page.start_bar.start.text() == "The data can't be used", timeout=5000)
    settle()
    assert "12 rows  ·  JSONL" in facts(page)
    assert "Preference pairs" in facts(page)
    assert "with label" not in facts(page)
    assert questions(page) == []
    words = shown_words(page.data_picker)
    assert "The data doesn't suit the way to teach" in words
    assert ("steps and their labels" in words) is (way == CHECK)
    assert "The columns are chosen, rejected." in words
    assert page.form.lacking_words == "The plan appears once the data suits the way to teach."
    assert (clipped(page), unnamed(page)) == ([], [])
    assert shown_buttons(page).count("Use the sample") == 2
    (prefer,) = [
        each
        for each in page.data_picker.findChildren(QPushButton)
        if each.text() == "Prefer this over that" and each.isVisible()
    ]
    qtbot.mouseClick(prefer, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: page.form.missing() is Missing.NOTHING, timeout=5000)
    assert page.form.way == BY_PREFERENCE


def test_steps_lead_to_their_way_from_others(qtbot: QtBot, page: NewRunPage, model: Path, write: Write) -> None:
    path = write([{"prompt": row["aa"], "completions": row["bb"], "labels": row["cc"]} for row in STEPPED])
    fill_in(qtbot, page, model, path)
    assert "Format not recognized" in facts(page)
    assert [text for text in shown_buttons(page) if text in (CHECK, "Map columns…")] == [CHECK, "Map columns…"]
    choose(qtbot, page, SORT)
    qtbot.waitUntil(lambda: "must hold a single label" in shown_words(page.data_picker), timeout=5000)
    assert "Text with label" not in facts(page), "no row has one"


@pytest.mark.parametrize(
    ("rows", "way"),
    [
        (PAIRS, BY_PREFERENCE),
        (STEPPED, BY_STEPS),
        ([{"text": "a", "label": "b"}], BY_CLASS),
        ([{"text": "a"}], BY_READING),
        ([{"prompt": "a", "completion": "b"}], BY_EXAMPLE),
        (TICKETS, ""),
    ],
)
def test_a_way_is_offered_by_what_the_rows_are(rows: list[dict[str, Any]], way: str, write: Write) -> None:
    assert fitting_way(look_at_data(DataSpec(sources=[SourceSpec(path=str(write(rows)))]))) == way


def test_a_file_that_is_broken_offers_no_other_way(
    qtbot: QtBot, page: NewRunPage, model: Path, tmp_path: Path
) -> None:
    path = tmp_path / "broken.json"
    path.write_text(json.dumps([{"text": "a", "label": "b"}] * 3)[:-4], encoding="utf-8")
    fill_in(qtbot, page, model, path)
    assert page.facts.data is not None
    assert page.facts.data.sniffed is not None, "it begins with rows that another way to teach suits"
    assert "Choose another file…" in shown_buttons(page)
    assert not {SORT, CHECK, "Read documents"} & set(shown_buttons(page))


def test_a_draft_whose_rows_are_read_in_the_way_of_another_method_is_put_right(qapp: object) -> None:
    del qapp
    form = NewRunForm()
    form.choose_way(BY_CLASS)
    draft = form.to_draft()
    wrong = {"format": "prompt-completion", "columns": {"prompt": "a", "completion": "b"}}
    draft["spec"]["data"]["sources"][0] |= wrong
    assert form.load_draft(draft)
    source = form.spec.data.sources[0]
    assert (form.way, source.format, source.columns) == (BY_CLASS, LABELED, {})


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ({"prompt": "prompt", "completion": "response"}, ""),
        ({"prompt": "Frage", "completion": "Response"}, "Frage → prompt"),
        ({"text": "text", "class": "label"}, ""),
        ({"class": "Abteilung"}, "Abteilung → label"),
    ],
)
def test_a_column_that_has_its_name_already_is_not_told(mapping: dict[str, str], words: str) -> None:
    assert mapping_words(mapping) == words


def test_no_way_asks_for_columns_of_another() -> None:
    formats = {way: asked_columns(way).format for way in WAYS}
    assert [way for way in WAYS if formats[way] in (LABELED, STEPS)] == [BY_STEPS, BY_CLASS]
