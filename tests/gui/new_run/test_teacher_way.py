"""Learning from a bigger model in the window: three decisions, a model that suits, and why another one doesn't."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tests.gui.layout_checks import clipped, unnamed
from tests.gui.new_run.driving import fill_in
from tests.gui.new_run.test_ways import choose
from tunesmith_core.model_cards import read_model_card
from tunesmith_gui.new_run import teacher_card
from tunesmith_gui.new_run.form import BY_TEACHER
from tunesmith_gui.new_run.page import NewRunPage
from tunesmith_gui.new_run.setting_paths import TEACHER
from tunesmith_gui.new_run.surroundings import Missing

WAY = "Learn from a bigger model"


def write_tokenizer(folder: Path, vocabulary: dict[str, int]) -> None:
    values = {"model": {"vocab": vocabulary}, "added_tokens": []}
    (folder / "tokenizer.json").write_text(json.dumps(values), encoding="utf-8")


@pytest.fixture
def bigger(model: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another model of the library, with the same tokens and taken for a bigger one."""
    folder = model.with_name("Bigger")
    shutil.copytree(model, folder)
    for each in (model, folder):
        write_tokenizer(each, {"a": 0, "b": 1})
    read = teacher_card.read_model_card

    def smaller(path: Path) -> object:
        card = read(path)
        return card if path == folder else _Smaller(card)

    monkeypatch.setattr(teacher_card, "read_model_card", smaller)
    return folder


class _Smaller:
    def __init__(self, card: object) -> None:
        self.path, self.num_parameters = card.path, card.num_parameters - 1  # type: ignore[attr-defined]


@pytest.mark.long
def test_the_sample_is_ready_in_three_decisions(qtbot: QtBot, page: NewRunPage, model: Path, bigger: Path) -> None:
    page.facts.refresh()
    qtbot.waitUntil(lambda: page.facts.survey is not None and len(page.facts.survey.models) == 2, timeout=5000)
    page.actions_.choose_model(str(model))
    choose(qtbot, page, WAY)
    assert "word by word" in page.way_bar.words.text()
    qtbot.mouseClick(page.data_picker.sample, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: page.form.missing() is Missing.NOTHING, timeout=5000)
    assert page.form.value(TEACHER) == str(bigger)
    assert Path(page.form.value("data.sources[0].path")).name == "questions.jsonl"
    card = page.teacher_card
    assert card.isVisible()
    assert clipped(card) == unnamed(card) == []
    assert page.settings_list.rows == {} or TEACHER not in page.settings_list.rows
    choose(qtbot, page, "Teach by example")
    assert not card.isVisible()


def test_a_model_with_other_tokens_is_refused(
    qtbot: QtBot, page: NewRunPage, model: Path, bigger: Path, data_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tokenizer(bigger, {"a": 1, "b": 0})
    choose(qtbot, page, WAY)
    fill_in(qtbot, page, model, data_file)
    settle()
    assert page.form.missing() is Missing.TEACHER
    assert page.start_bar.start.text() == "Choose a bigger model"
    qtbot.waitUntil(lambda: "once a bigger model is chosen" in page.plan_card.summary, timeout=5000)
    page.actions_.start()
    assert page.window().focusWidget() is page.teacher_card.combo
    monkeypatch.setattr(QFileDialog, "getExistingDirectory", lambda *_: str(bigger))
    page.teacher_card.browse.click()
    qtbot.waitUntil(lambda: "tokenizers differ" in page.teacher_card.problem.text(), timeout=5000)
    assert page.form.value(TEACHER) == str(bigger)
    assert page.form.missing() is Missing.TEACHER
    write_tokenizer(bigger, {"a": 0, "b": 1})
    monkeypatch.setattr(teacher_card, "read_model_card", read_model_card)  # now both are of the same size
    page.form.set_value(TEACHER, str(bigger) + "/")
    qtbot.waitUntil(lambda: page.form.missing() is Missing.NOTHING, timeout=5000)
    assert page.teacher_card.problem.text().startswith("Bigger is not bigger than the base model.")


def test_settings_of_a_teacher_are_shown_with_it_only(qtbot: QtBot, page: NewRunPage) -> None:
    form = page.form
    assert not form.uses("teacher.beta")
    choose(qtbot, page, WAY)
    assert form.way == BY_TEACHER
    assert form.uses("teacher.beta")
    assert not form.uses("teacher.max_tokens")
    assert not form.uses("hardware.kernels")
    form.set_value("teacher.own_answers", 0.5)
    assert form.uses("teacher.max_tokens")
    assert form.changed_paths() == ["teacher.own_answers"]


def test_without_a_bigger_model_the_card_leads_to_the_models(
    qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path
) -> None:
    asked: list[str] = []
    page.navigate.connect(lambda place, _what: asked.append(place))
    choose(qtbot, page, WAY)
    fill_in(qtbot, page, model, data_file)
    card = page.teacher_card
    qtbot.waitUntil(lambda: "no bigger one of it on this computer" in card.facts.text(), timeout=5000)
    assert not card.library.isHidden()
    card.library.click()
    assert asked == ["models"]


def test_the_base_model_is_no_bigger_model(
    qtbot: QtBot, page: NewRunPage, model: Path, bigger: Path, data_file: Path
) -> None:
    choose(qtbot, page, WAY)
    page.facts.refresh()
    fill_in(qtbot, page, model, data_file)
    card = page.teacher_card
    qtbot.waitUntil(lambda: page.form.value(TEACHER) == str(bigger), timeout=5000)
    assert [card.combo.itemData(place) for place in range(card.combo.count())] == [str(bigger)]
    assert card.library.isHidden()
    page.form.set_value(TEACHER, f"{model}/")
    qtbot.waitUntil(lambda: "is the base model itself" in card.problem.text(), timeout=5000)
    assert page.form.missing() is Missing.TEACHER
