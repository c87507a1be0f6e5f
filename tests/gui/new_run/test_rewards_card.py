"""Learning from rewards on the Train page: what is rewarded, what is missing, and the sample."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QPoint, Qt
from PySide6.QtWidgets import QApplication, QCheckBox, QFileDialog, QLineEdit, QPushButton
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tests.gui.layout_checks import clipped, unnamed
from tests.gui.new_run.driving import fill_in, shown_words
from tests.gui.new_run.test_ways import choose
from tunesmith_core.spec_rollouts import MOST_REWARDS, OF_KINDS
from tunesmith_core.spec_rollouts import REWARDS as REWARDS_OF_ALL_KINDS
from tunesmith_core.start_choices import StartChoice
from tunesmith_gui.new_run import rewards_card
from tunesmith_gui.new_run.form import BY_EXAMPLE, BY_PREFERENCE, BY_REWARD, Missing, NewRunForm
from tunesmith_gui.new_run.page import NewRunPage
from tunesmith_gui.new_run.setting_paths import OBJECTIVE, REWARDS, reward_path
from tunesmith_gui.theme import Scheme, theme
from tunesmith_gui.widgets.buttons import IconButton
from tunesmith_gui.widgets.path_combo import PathCombo

WAY = "Reward what is right"


@pytest.fixture
def rewarded(qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path) -> NewRunPage:
    """A Train page with model and data that learns from rewards."""
    choose(qtbot, page, WAY)
    fill_in(qtbot, page, model, data_file)
    return page


def test_each_way_brings_back_its_objective(qapp: object) -> None:
    del qapp
    form = NewRunForm()
    form.choose_way(BY_REWARD)
    assert (form.value(OBJECTIVE), form.value("optimizer.learning_rate"), form.changed_paths()) == ("grpo", 5e-5, [])
    form.set_value(OBJECTIVE, "rloo")
    form.choose_way(BY_PREFERENCE)
    form.choose_way(BY_EXAMPLE)
    form.choose_way(BY_REWARD)
    assert (form.way, form.value(OBJECTIVE)) == (BY_REWARD, "rloo")


def test_only_what_a_kind_needs_is_shown(qtbot: QtBot, rewarded: NewRunPage) -> None:
    card, form = rewarded.rewards_card, rewarded.form
    assert card.isVisible()
    assert form.missing() is Missing.NOTHING
    for kind in REWARDS_OF_ALL_KINDS:
        form.set_value(reward_path(0, "kind"), kind)
        settle()
        wanted = {"kind", "weight"} | {name for name, of_kind in OF_KINDS.items() if of_kind == kind}
        assert set(card.rows[0].inputs) == wanted
        assert unnamed(rewarded) == []
    choose(qtbot, rewarded, "Teach by example")
    assert not card.isVisible()


def test_rewards_are_added_and_removed(qtbot: QtBot, rewarded: NewRunPage) -> None:
    card, form = rewarded.rewards_card, rewarded.form
    assert card.rows[0].remove is None, "one is left"
    qtbot.mouseClick(card.add, Qt.MouseButton.LeftButton)
    form.set_value(reward_path(1, "kind"), "length")
    form.set_text(reward_path(1, "longest"), "x")
    settle()
    assert "Reward 2, Longest answer:" in card.problems.text()
    assert form.missing() is Missing.SETTING
    assert clipped(card) == []
    assert card.rows[1].remove is not None
    card.rows[1].remove.click()
    settle()
    assert len(card.rows) == 1
    assert form.missing() is Missing.NOTHING, "what was wrong is gone with it"
    while card.add.isVisible():
        card.add.click()
    assert len(form.spec.rollouts.rewards) == MOST_REWARDS


def test_a_file_is_chosen_and_what_is_missing_is_led_to(
    qtbot: QtBot, rewarded: NewRunPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card, form = rewarded.rewards_card, rewarded.form
    form.set_value(reward_path(0, "kind"), "python")
    settle()
    edit = card.rows[0].inputs["path"]
    assert isinstance(edit, QLineEdit)
    assert edit.property("invalid")
    assert "Reward 1, Python file: Must be a file. Choose one" in card.problems.text()
    (link,) = rewarded.start_bar.problems.findChildren(QPushButton)
    link.click()
    assert edit.hasFocus()
    own = tmp_path / "own.py"
    monkeypatch.setattr(QFileDialog, "getOpenFileName", lambda *_: (str(own), ""))
    (browse,) = card.rows[0].details.findChildren(IconButton)
    browse.click()
    assert form.value(reward_path(0, "path")) == str(own)
    assert edit.text() == str(own)
    assert card.problems.text() == ""
    edit.clear()
    qtbot.keyClicks(edit, "a.py")
    assert form.value(reward_path(0, "path")) == "a.py"
    assert card.reveal(REWARDS) is card.add
    assert card.reveal("adapter.rank") is None


def test_reward_models_of_earlier_runs_are_offered(
    qtbot: QtBot, rewarded: NewRunPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card, form = rewarded.rewards_card, rewarded.form
    mine = StartChoice("Scores", str(tmp_path / "scores-01"), "/m")
    monkeypatch.setattr(rewards_card, "reward_models_of_runs", lambda: [mine])
    form.set_value(reward_path(0, "kind"), "model")
    settle()
    combo = card.rows[0].inputs["model"]
    assert isinstance(combo, PathCombo)
    qtbot.waitUntil(lambda: combo.findText("Scores") >= 0, timeout=5000)
    combo.activated.emit(combo.findText("Scores"))
    assert form.value(reward_path(0, "model")) == mine.path
    assert combo.currentText() == "Scores"
    form.set_value(reward_path(0, "model"), "/elsewhere")
    assert combo.path == "/elsewhere"
    mine = StartChoice("Newer", str(tmp_path / "newer-01"), "/m")
    rewarded.on_shown()
    qtbot.waitUntil(lambda: combo.findText("Newer") >= 0, timeout=5000)


def test_a_file_that_cannot_be_a_reward_is_named_before_a_run_begins(
    qtbot: QtBot, rewarded: NewRunPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card, form = rewarded.rewards_card, rewarded.form
    own = tmp_path / "own.py"
    form.set_value(reward_path(0, "kind"), "python")
    form.set_value(reward_path(0, "path"), str(own))
    qtbot.waitUntil(lambda: "Reward 1: own.py: No such file" in card.problems.text(), timeout=5000)
    assert form.missing() is Missing.SETTING
    own.write_text("def score(): pass\n", encoding="utf-8")
    QApplication.sendEvent(card, QEvent(QEvent.Type.ActivationChange))
    qtbot.waitUntil(lambda: "there is no function reward" in card.problems.text(), timeout=5000)
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(tmp_path / "mine"), ""))
    card.rows[0].example.click()
    qtbot.waitUntil(lambda: form.missing() is Missing.NOTHING, timeout=5000)
    assert form.value(reward_path(0, "path")) == str(tmp_path / "mine.py")
    assert clipped(card) == []
    form.add_reward()
    assert card.twice.isHidden()
    form.set_value(reward_path(0, "kind"), "right")
    assert "Reward 2 is the same as reward 1" in card.twice.text()
    assert not form.reward_problems(), "what a kind doesn't use is not asked for"


def test_a_schema_and_a_reward_model_are_chosen(
    qtbot: QtBot, rewarded: NewRunPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card, form = rewarded.rewards_card, rewarded.form
    monkeypatch.setattr(QFileDialog, "getOpenFileName", lambda *_: (str(tmp_path / "a.json"), ""))
    monkeypatch.setattr(QFileDialog, "getExistingDirectory", lambda *_: str(tmp_path))
    for kind, chosen in (("schema", tmp_path / "a.json"), ("model", tmp_path)):
        form.set_value(reward_path(0, "kind"), kind)
        settle()
        assert "Choose one" in card.problems.text()
        (browse,) = card.rows[0].details.findChildren(IconButton)
        browse.click()
        assert form.value(reward_path(0, kind)) == str(chosen)
        assert card.problems.text() == ""
    box = card.rows[0].inputs["squash"]
    assert isinstance(box, QCheckBox)
    qtbot.mouseClick(box, Qt.MouseButton.LeftButton, pos=QPoint(8, box.height() // 2))
    assert form.value(reward_path(0, "squash")) is True
    assert box.isChecked()


def test_the_words_say_what_a_step_does(rewarded: NewRunPage) -> None:
    rewarded.form.set_value("rollouts.group_size", 4)
    words = rewarded.rewards_card.round.text()
    assert "4 answers to each, of at most 256 tokens" in words


def test_plain_text_is_refused_before_start(qtbot: QtBot, page: NewRunPage, model: Path, tmp_path: Path) -> None:
    path = tmp_path / "text.jsonl"
    path.write_text('{"text": "Once upon a time."}\n' * 3)
    choose(qtbot, page, WAY)
    fill_in(qtbot, page, model, path)
    assert page.form.missing() is Missing.PROMPTS
    assert page.start_bar.start.text() == "The data has no prompts"
    assert "No prompts in this data" in shown_words(page)
    choose(qtbot, page, "Teach by example")
    assert page.form.missing() is Missing.NOTHING


def test_the_sample_is_ready_in_three_decisions(qtbot: QtBot, page: NewRunPage, model: Path) -> None:
    page.facts.refresh()
    qtbot.waitUntil(lambda: page.facts.survey is not None and bool(page.facts.survey.models), timeout=5000)
    choose(qtbot, page, WAY)
    qtbot.mouseClick(page.data_picker.sample, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: page.form.missing() is Missing.NOTHING, timeout=5000)
    assert page.form.value("model.path") == str(model)
    assert Path(page.form.value("data.sources[0].path")).name == "sums.jsonl"
    assert page.form.changed_paths() == [], "what the sample sets is no change of the person"
    page.form.set_value("rollouts.group_size", 5)
    assert page.form.changed_paths() == ["rollouts.group_size"]
    assert not page.form.uses("data.train_on")
    assert not page.form.uses("data.overlong")


def test_nothing_is_cut_off_at_double_text_size(qtbot: QtBot, rewarded: NewRunPage) -> None:
    rewarded.form.add_reward()
    rewarded.form.set_value(reward_path(1, "kind"), "length")
    theme().set_appearance(Scheme.LIGHT, 2.0)
    rewarded.resize(900, 600)
    qtbot.waitUntil(lambda: clipped(rewarded) == [], timeout=5000)


def test_stopping_early_is_told_by_the_reward(qtbot: QtBot, rewarded: NewRunPage) -> None:
    assert rewarded.goal_card.early.text() == "Stop when the held-out reward no longer rises"
    rewarded.form.choose_way(BY_EXAMPLE)
    assert rewarded.goal_card.early.text() == "Stop when the evaluation loss no longer falls"
