"""Names in settings that the base model does not have, as the Train page tells them."""

from __future__ import annotations

import json
from pathlib import Path

from pytestqt.qtbot import QtBot

from tests.conftest import write_safetensors
from tests.gui.new_run.driving import fill_in
from tunesmith_gui.new_run.page import NewRunPage
from tunesmith_gui.new_run.surroundings import Missing


def test_a_layer_that_is_certainly_not_there_keeps_a_run_from_starting(
    page: NewRunPage, model: Path, data_file: Path, qtbot: QtBot
) -> None:
    fill_in(qtbot, page, model, data_file)
    page.form.set_value("adapter.layers", ["99"])
    assert page.form.problem("adapter.layers") == "The model has no layer 99. Its layers are 0 to 0."
    assert page.form.missing() is Missing.SETTING
    page.form.set_value("adapter.layers", [])
    assert page.form.missing() is not Missing.SETTING
    page.form.choose_way("full")
    page.form.set_value("adapter.parts", ["nosuchpart"])
    assert "no part named nosuchpart" in page.form.problem("adapter.parts")
    page.form.reset("adapter.parts")
    assert not page.form.problems()


def test_a_name_that_the_files_do_not_have_is_a_note_on_the_plan(
    page: NewRunPage, model: Path, data_file: Path, qtbot: QtBot
) -> None:
    fill_in(qtbot, page, model, data_file)
    page.form.set_value("adapter.target_modules", ["nosuch_proj"])
    qtbot.waitUntil(lambda: "no layer named nosuch_proj" in page.plan_card.notes.text(), timeout=5000)
    assert not page.form.problems()


def test_experts_that_dropout_leaves_untrained_are_a_note_on_the_plan(
    page: NewRunPage, model: Path, data_file: Path, qtbot: QtBot
) -> None:
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"model_type": "mixtral"}))
    experts = {"model.layers.0.self_attn.q_proj.weight": [8, 8], "model.layers.0.mlp.experts.0.w1.weight": [8, 8]}
    write_safetensors(model / "model.safetensors", {"model.embed_tokens.weight": [16, 8], **experts})
    fill_in(qtbot, page, model, data_file)
    page.form.set_value("adapter.dropout", 0.1)
    words = "The model's experts are not trained. With dropout they can have no adapter"
    qtbot.waitUntil(lambda: words in page.plan_card.notes.text(), timeout=5000)
    page.form.set_value("adapter.dropout", 0.0)
    qtbot.waitUntil(lambda: "experts" not in page.plan_card.notes.text(), timeout=5000)
