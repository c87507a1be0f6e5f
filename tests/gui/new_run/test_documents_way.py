"""Teaching by reading documents: what the way brings, which settings it shows, the data that it takes, and its sample.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from tests.gui.layout_checks import clipped, unnamed
from tests.gui.new_run.driving import fill_in
from tests.gui.new_run.test_ways import choose
from tunesmith_assets import samples
from tunesmith_core.spec import RunSpec
from tunesmith_gui.new_run.form import BY_EXAMPLE, BY_READING, Missing, NewRunForm
from tunesmith_gui.new_run.page import NewRunPage
from tunesmith_gui.new_run.setting_paths import OF_CHATS

LOSS_ON, OVERLONG = "data.train_on", "data.overlong"


@pytest.fixture
def form(qapp: object) -> NewRunForm:
    del qapp
    return NewRunForm()


def values(form: NewRunForm) -> tuple[str, str, str]:
    return form.way, form.value(LOSS_ON), form.value(OVERLONG)


def test_every_token_counts_and_long_texts_are_split(form: NewRunForm) -> None:
    form.choose_way(BY_READING)
    assert (values(form), form.value("objective.kind")) == ((BY_READING, "all", "split"), "sft")
    assert form.changed_paths() == []
    form.choose_preset("fast-try")
    assert (values(form), form.changed_paths()) == ((BY_READING, "all", "split"), [])
    form.choose_way("dpo")
    assert (values(form), form.changed_paths()) == (("dpo", "assistant", "truncate"), [])
    form.choose_way(BY_READING)
    form.choose_way(BY_EXAMPLE)
    assert (values(form), form.changed_paths()) == ((BY_EXAMPLE, "assistant", "truncate"), [])


def test_a_choice_of_ones_own_stays_and_is_no_other_way(form: NewRunForm) -> None:
    form.choose_way(BY_READING)
    form.set_value(OVERLONG, "skip")
    form.set_value("objective.kind", "sft")
    assert (form.way, form.changed_paths()) == (BY_READING, [OVERLONG])
    form.reset_all()
    assert values(form) == (BY_READING, "all", "split")
    form.choose_way(BY_EXAMPLE)
    form.set_value(LOSS_ON, "all")
    form.set_value(OVERLONG, "split")
    assert form.way == BY_EXAMPLE


def test_settings_of_chats_are_hidden_until_one_must_be_taken_back(form: NewRunForm) -> None:
    form.set_value("data.system_prompt", "Be kind.")
    assert all(form.uses(path) for path in OF_CHATS)
    form.choose_way(BY_READING)
    assert {path for path in OF_CHATS if form.uses(path)} == {"data.system_prompt"}


def test_another_kind_of_adapter_is_no_other_way(form: NewRunForm) -> None:
    form.choose_way(BY_READING)
    form.set_value("adapter.kind", "oft")
    assert values(form) == (BY_READING, "all", "split")
    form.set_value("adapter.kind", "lora")
    assert values(form) == (BY_READING, "all", "split")


def test_a_draft_and_a_run_to_repeat_keep_the_way(form: NewRunForm) -> None:
    form.choose_way(BY_READING)
    form.set_value(OVERLONG, "skip")
    again = NewRunForm()
    assert again.load_draft(json.loads(json.dumps(form.to_draft())))
    assert (values(again), again.changed_paths()) == ((BY_READING, "all", "skip"), [OVERLONG])
    again.load_spec(RunSpec())
    assert again.way == BY_EXAMPLE
    again.load_spec(RunSpec.from_dict(samples.document_spec("en", "/models/a")))
    assert again.way == BY_READING
    final = NewRunForm()
    assert final.load_draft(json.loads(json.dumps(again.to_draft())))
    final.leave_sample()
    assert (values(final), final.changed_paths()) == ((BY_READING, "all", "split"), [])
    final.choose_way(BY_EXAMPLE)
    assert values(final) == (BY_EXAMPLE, "assistant", "truncate")


def test_text_files_can_start(qtbot: QtBot, page: NewRunPage, model: Path, tmp_path: Path) -> None:
    choose(qtbot, page, "Read documents")
    assert "PDF, Word" in page.way_bar.words.text()
    assert "PDF, Word" in page.data_picker.facts.text()
    text = tmp_path / "town.txt"
    text.write_text("Quellmar lies at the Grey Lake.\n\nIts market is on Thursdays.\n", encoding="utf-8")
    fill_in(qtbot, page, model, text)
    assert (page.form.way, page.form.missing()) == (BY_READING, Missing.NOTHING)
    assert (clipped(page), unnamed(page)) == ([], [])


def test_the_sample_needs_three_decisions(qtbot: QtBot, page: NewRunPage, model: Path) -> None:
    page.facts.refresh()
    qtbot.waitUntil(lambda: page.facts.survey is not None and bool(page.facts.survey.models), timeout=5000)
    choose(qtbot, page, "Read documents")
    qtbot.mouseClick(page.data_picker.sample, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: page.form.missing() is Missing.NOTHING, timeout=5000)
    assert page.form.value("model.path") == str(model)
    assert Path(page.form.value("data.sources[0].path")).name == "documents.jsonl"
    assert page.form.way == BY_READING
