"""Practice tasks on the Train page: problems are made, become the data, and the task scores the answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tests.gui.layout_checks import clipped, unnamed
from tests.gui.new_run.driving import fill_in
from tests.gui.new_run.test_ways import choose
from tunesmith_core import environments
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.kind import Kind
from tunesmith_gui.new_run import tasks_card
from tunesmith_gui.new_run.form import Missing
from tunesmith_gui.new_run.page import NewRunPage
from tunesmith_gui.new_run.setting_paths import reward_path
from tunesmith_gui.widgets.confirm import ConfirmDialog


class Task(QObject):
    """Stands for an operation; it ends when the test says so."""

    succeeded, failed = Signal(object), Signal(object)
    begun: list[Task] = []  # noqa: RUF012 - emptied by the fixture

    def __init__(self, kind: Kind, spec: Any, parent: QObject) -> None:
        super().__init__(parent)
        self.kind, self.spec = kind, spec

    def start(self) -> None:
        self.begun.append(self)


@pytest.fixture
def rewarded(
    qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, monkeypatch: pytest.MonkeyPatch
) -> NewRunPage:
    """A Train page that learns from rewards, whose operations are stood for and whose questions are agreed to."""
    monkeypatch.setattr(ConfirmDialog, "exec", lambda _self: ConfirmDialog.DialogCode.Accepted)
    monkeypatch.setattr(tasks_card, "OperationTask", Task)
    monkeypatch.setattr(environments, "check_rewards", lambda: None)
    Task.begun.clear()
    assert not page.tasks_card.isVisible()
    choose(qtbot, page, "Reward what is right")
    fill_in(qtbot, page, model, data_file)
    return page


def test_problems_become_the_data_and_the_task_scores(
    qtbot: QtBot, rewarded: NewRunPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card, form = rewarded.tasks_card, rewarded.form
    assert card.isVisible()
    assert (clipped(card), unnamed(card)) == ([], [])
    form.add_reward()
    card.task.setCurrentIndex(card.task.findData("gcd"))
    card.level.setCurrentIndex(1)
    card.number.setValue(50)
    qtbot.mouseClick(card.make, Qt.MouseButton.LeftButton)
    (task,) = Task.begun
    assert (task.spec.task, task.spec.level, task.spec.number, task.spec.held_out) == ("gcd", 2, 50, 10)
    assert not card.make.isEnabled()
    home = tmp_path / "here"
    monkeypatch.setattr(tasks_card.paths, "data_root", lambda: home)
    paths = [home / "problems" / name for name in ("gcd-2-50-0.jsonl", "gcd-2-50-0-held-out.jsonl")]
    paths[0].parent.mkdir(parents=True)
    for path in paths:
        path.write_text('{"prompt": "1 + 1", "completion": "2", "task": "gcd", "entry": "{}"}\n' * 3)
    note = "This task has only 6 different problems of this level."
    task.succeeded.emit(
        {"train": str(paths[0]), "held_out": str(paths[1]), "num_train": 3, "num_held_out": 3, "notes": [note]}
    )
    settle()
    assert card.state.text() == note
    assert not paths[0].exists()
    paths = [home / "problems" / name for name in ("gcd-2-3-0.jsonl", "gcd-2-3-0-held-out.jsonl")]
    assert form.value("data.sources[0].path") == str(paths[0])
    assert form.value("evaluation.path") == str(paths[1])
    assert [each.kind for each in form.spec.rollouts.rewards] == ["task"]
    assert form.value(reward_path(0, "weight")) == 1.0
    qtbot.waitUntil(lambda: form.missing() is Missing.NOTHING, timeout=5000)
    assert card.make.isEnabled()


def test_missing_packages_are_installed_and_the_problems_made(
    qtbot: QtBot, rewarded: NewRunPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = rewarded.tasks_card
    qtbot.mouseClick(card.make, Qt.MouseButton.LeftButton)
    Task.begun[0].failed.emit(TunesmithError("environment-missing", "The packages are not installed."))
    assert card.install.isVisible()
    assert "not installed" in card.state.text()
    asked: list[str] = []

    def refuse(dialog: ConfirmDialog) -> int:
        asked.extend(label.text() for label in dialog.findChildren(QLabel))
        return ConfirmDialog.DialogCode.Rejected

    with monkeypatch.context() as patched:
        patched.setattr(ConfirmDialog, "exec", refuse)
        qtbot.mouseClick(card.install, Qt.MouseButton.LeftButton)
    assert len(Task.begun) == 1
    assert any("reasoning-gym" in words and "jsonschema" in words for words in asked)
    qtbot.mouseClick(card.install, Qt.MouseButton.LeftButton)
    assert Task.begun[1].spec.arguments == ("rewards", "--yes")
    Task.begun[1].succeeded.emit(None)
    assert len(Task.begun) == 3
    assert not card.install.isVisible()
    Task.begun[2].failed.emit(TunesmithError("dataset-empty", "The task has only 5 different problems."))
    assert not card.install.isVisible()
    assert "only 5" in card.state.text()


def test_packages_that_a_schema_needs_are_installed_beside_it(
    qtbot: QtBot, rewarded: NewRunPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card, form = rewarded.tasks_card, rewarded.form
    checked = environments.check_rewards

    def missing() -> None:
        raise TunesmithError("environment-missing", "The packages for tasks and JSON schemas are not installed.")

    monkeypatch.setattr(environments, "check_rewards", missing)
    schema = tmp_path / "schema.json"
    schema.write_text("{}", encoding="utf-8")
    form.set_value(reward_path(0, "kind"), "schema")
    form.set_value(reward_path(0, "schema"), str(schema))
    qtbot.waitUntil(card.install.isVisible, timeout=5000)
    assert "are not installed. Install them under Practice tasks." in rewarded.rewards_card.problems.text()
    assert form.missing() is Missing.SETTING
    qtbot.mouseClick(card.install, Qt.MouseButton.LeftButton)
    (task,) = Task.begun
    assert task.spec.arguments == ("rewards", "--yes")
    monkeypatch.setattr(environments, "check_rewards", checked)
    task.succeeded.emit(None)
    qtbot.waitUntil(lambda: form.missing() is Missing.NOTHING, timeout=5000)
    assert not card.install.isVisible()
    assert len(Task.begun) == 1, "nobody asked for problems"
