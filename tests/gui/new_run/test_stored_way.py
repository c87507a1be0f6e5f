"""Learning from stored probabilities in the window: they are found in the data, and no bigger model is asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from tests.gui.layout_checks import clipped, unnamed
from tests.gui.new_run.driving import fill_in
from tests.gui.new_run.test_ways import choose
from tunesmith_core.datafmt.stored import stored_column
from tunesmith_gui.new_run.form import BY_TEACHER, FROM_STORED
from tunesmith_gui.new_run.page import NewRunPage
from tunesmith_gui.new_run.setting_paths import OBJECTIVE, TEACHER
from tunesmith_gui.new_run.surroundings import Missing

WAY = "Learn from a bigger model"


@pytest.fixture
def stored_file(tmp_path: Path) -> Path:
    path = tmp_path / "stored.jsonl"
    kept = stored_column([1], [[(1, -0.1)]], "abc")
    rows = [{"prompt": f"Question {number}?", "completion": "a", "logprobs": kept} for number in range(30)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_data_with_probabilities_needs_no_bigger_model(
    qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, stored_file: Path
) -> None:
    """Three decisions: the way, the model and the data."""
    form, card = page.form, page.teacher_card
    choose(qtbot, page, WAY)
    fill_in(qtbot, page, model, stored_file)
    qtbot.waitUntil(lambda: form.value(OBJECTIVE) == FROM_STORED and form.missing() is Missing.NOTHING, timeout=5000)
    assert form.way == BY_TEACHER
    assert form.value(TEACHER) == ""
    assert form.changed_paths() == [], "it was found, not chosen"
    assert "none has to be loaded" in card.facts.text()
    assert card.combo.isHidden()
    assert clipped(card) == unnamed(card) == []
    assert form.uses("objective.written_share")
    assert form.uses("hardware.kernels")
    assert not form.uses("teacher.beta")
    choose(qtbot, page, "Teach by example")
    assert not form.uses("objective.written_share")
    choose(qtbot, page, WAY)
    assert form.value(OBJECTIVE) == FROM_STORED
    page.data_picker.combo.show_path(str(data_file))
    form.set_value("data.sources[0].path", str(data_file))
    qtbot.waitUntil(lambda: form.value(OBJECTIVE) == BY_TEACHER, timeout=5000)
    assert form.missing() is Missing.TEACHER
    assert not card.combo.isHidden()
