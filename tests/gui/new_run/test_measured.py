"""What runs measured replaces the estimate in the plan of the Train page."""

from __future__ import annotations

from pathlib import Path

from pytestqt.qtbot import QtBot

from tests.finished_runs import finish, trained
from tests.gui.new_run.driving import fill_in
from tunesmith_gui.new_run.page import NewRunPage


def test_the_plan_says_by_which_run_it_tells_the_time(
    qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path
) -> None:
    fill_in(qtbot, page, model, data_file)
    spec = page.form.spec
    spec.name, spec.optimizer.learning_rate = "earlier", 1e-5
    trained(spec)
    page.on_shown()
    qtbot.waitUntil(lambda: "“earlier”" in page.plan_card.pace.text(), timeout=5000)
    words = [label.text() for label in page.plan_card._cells if hasattr(label, "text")]
    assert words[words.index("Time") + 1] != "not known yet"


def test_the_plan_shows_what_the_last_run_took(qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path) -> None:
    fill_in(qtbot, page, model, data_file)
    words = [label.text() for label in page.plan_card._cells if hasattr(label, "text")]
    assert words[words.index("Time") + 1] == "not known yet"
    assert page.plan_card.pace.text().startswith("No run like this one has finished on this device.")
    assert page.plan_card.pace.isVisibleTo(page)
    finish(page.form.spec)
    page.on_shown()
    qtbot.waitUntil(lambda: page.plan_card.total.text().startswith("2.0 of"), timeout=5000)
    words = [label.text() for label in page.plan_card._cells if hasattr(label, "text")]
    assert words[words.index("Accuracy") + 1] == "measured"
    assert words[words.index("Time") + 1] != "not known yet"
    assert not page.plan_card.pace.isVisibleTo(page)
