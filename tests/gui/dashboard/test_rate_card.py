"""A text of one's own on the page of a run that scores, sorts or checks steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from pytestqt.qtbot import QtBot

from tests.gui.conftest import IdleTask
from tests.gui.layout_checks import clipped, unnamed
from tests.gui.run_folders import make_run
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.kind import RunFolder
from tunesmith_core.operations.kinds.rate import RATE, RateSpec
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_gui.dashboard import rate_card
from tunesmith_gui.dashboard.rate_card import RateCard


class Task(IdleTask):
    """An operation that a test tells what happens."""

    made: ClassVar[list[Task]] = []

    def __init__(self, kind: object, spec: object, parent: Any) -> None:
        super().__init__(kind, spec, parent)
        Task.made.append(self)


@pytest.fixture
def card(qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RateCard:
    Task.made = []
    monkeypatch.setattr(rate_card, "OperationTask", Task)
    result = RateCard()
    qtbot.addWidget(result)
    result.resize(500, 400)
    result.show()
    show(result, tmp_path / "scores-01", "reward")
    return result


def show(card: RateCard, folder: Path, kind: str, **objective: Any) -> None:
    spec = RunSpec()
    spec.objective.kind = kind
    for name, value in objective.items():
        setattr(spec.objective, name, value)
    card.show_run(Run(folder), spec)


def test_an_answer_is_scored_once_it_has_a_question(card: RateCard, tmp_path: Path) -> None:
    card.text.setPlainText("Me.")
    assert not card.go.isEnabled()
    card.question.setPlainText("Who?")
    assert (card.go.text(), card.go.isEnabled()) == ("Score the answer", True)
    card.go.click()
    (task,) = Task.made
    assert task.kind is RATE
    assert task.spec == RateSpec(RunFolder(str(tmp_path / "scores-01")), "Me.", "Who?")
    assert card.cancel.isVisible()
    assert "Loading the model" in card.result.text()
    task.succeeded.emit({"score": 1.25, "num_cut": 0})
    assert card.result.text().startswith("Score: 1.250\n")
    assert (card.go.isVisible(), card.cancel.isVisible()) == (True, False)
    assert (clipped(card), unnamed(card)) == ([], [])


def test_a_text_is_sorted_without_a_question(card: RateCard, tmp_path: Path) -> None:
    show(card, tmp_path / "sorts-01", "classify")
    card.text.setPlainText("Fine.")
    assert (card.go.text(), card.go.isEnabled()) == ("Sort the text", True)
    card.go.click()
    Task.made[0].succeeded.emit({"classes": [["good", 0.75], ["bad", 0.25]], "num_cut": 0})
    assert card.result.text() == "good: 75.0%\nbad: 25.0%"
    show(card, tmp_path / "numbers-01", "classify", regression=True)
    assert (card.go.text(), card.text.toPlainText(), card.result.text()) == ("Predict the number", "", "")
    show(card, tmp_path / "steps-01", "prm")
    assert (card.go.text(), card.text.accessibleName()) == ("Check the steps", "Solution, a step on each line")
    show(card, tmp_path / "writes-01", "sft")
    assert not card.rates


def test_a_busy_gpu_leaves_it_to_the_processor_and_other_faults_are_told(card: RateCard, tmp_path: Path) -> None:
    card.text.setPlainText("Me.")
    card.question.setPlainText("Who?")
    card.go.click()
    Task.made[0].failed.emit(TunesmithError("gpu-busy", "No room."))
    assert Task.made[1].spec.device == "cpu"
    Task.made[1].failed.emit(TunesmithError("nothing-to-export", "There is no adapter."))
    assert "There is no adapter." in card.result.text()
    card.go.click()
    card.cancel.click()
    assert Task.made[2].cancelled
    assert (card.result.text(), card.go.isVisible()) == ("", True)
    card.go.click()
    show(card, tmp_path / "another-01", "reward")
    assert Task.made[3].cancelled


def test_it_stands_where_a_run_rates_texts(open_dashboard: Any, qtbot: QtBot) -> None:
    page = open_dashboard(make_run("done", "happy"))
    page.panes.show_pane("evaluation")
    page._repaint()
    assert page.evaluation.rate.isHidden()
    spec = page.spec
    spec.objective.kind = "reward"
    page.evaluation.rate.show_run(page.run, spec)
    page._repaint()
    page.evaluation.show_model(page.model)
    assert page.evaluation.rate.isVisible()
