"""Checking the steps of an answer in the window: three decisions with the sample, and data of other shapes."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from tests.gui.new_run.driving import fill_in
from tests.gui.new_run.test_ways import choose
from tunesmith_core.datafmt.formats import STEPS
from tunesmith_gui.new_run.form import BY_STEPS
from tunesmith_gui.new_run.page import NewRunPage
from tunesmith_gui.new_run.surroundings import Missing
from tunesmith_gui.widgets.column_mapping import ColumnMappingDialog

WAY = "Check the steps of an answer"


@pytest.mark.long
def test_the_sample_is_ready_in_three_decisions(qtbot: QtBot, page: NewRunPage, model: Path) -> None:
    page.facts.refresh()
    qtbot.waitUntil(lambda: page.facts.survey is not None and bool(page.facts.survey.models), timeout=5000)
    choose(qtbot, page, WAY)
    assert "which steps of a solution are right" in page.way_bar.words.text()
    qtbot.mouseClick(page.data_picker.sample, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: page.form.missing() is Missing.NOTHING, timeout=5000)
    assert page.form.way == BY_STEPS
    assert page.form.value("model.path") == str(model)
    assert Path(page.form.value("data.sources[0].path")).name == "steps.jsonl"
    qtbot.waitUntil(lambda: "Solution steps with labels" in page.data_picker.facts.text(), timeout=5000)
    assert page.form.missing() is Missing.NOTHING
    assert not page.form.uses("data.train_on")


def test_other_data_is_not_asked_for_steps(
    qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path
) -> None:
    choose(qtbot, page, WAY)
    fill_in(qtbot, page, model, data_file)
    assert page.form.value("data.sources[0].format") == STEPS
    assert page.form.missing() is Missing.DATA_BROKEN
    dialog = ColumnMappingDialog([{"q": "2 + 2?", "s": ["4"], "l": [True]}], STEPS, STEPS, {}, page)
    assert [dialog.format.itemData(place) for place in range(dialog.format.count())] == [STEPS]
    choose(qtbot, page, "Teach by example")
    assert page.form.value("data.sources[0].format") == "auto"
