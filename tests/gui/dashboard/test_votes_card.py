"""How blind votes stand, on the tab Evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton

from tests.gui.run_folders import make_run, texts
from tunesmith_core import votes
from tunesmith_core.votes import Given, Vote
from tunesmith_gui.widgets.confirm import ConfirmDialog


def vote(choice: str, step: int = 30, against: int = 0, question: str = "Who?") -> Vote:
    return Vote(votes.prompt(question, ""), Given(step, "Me."), Given(against, "You."), choice)


def test_votes_are_shown_and_more_are_one_click_away(
    open_dashboard: Any, qtbot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    run = make_run("done", "happy")
    page = open_dashboard(run)
    page.panes.show_pane("evaluation")
    page._repaint()
    card = page.evaluation.votes
    assert card.isVisible()
    assert card.words.text().startswith("Read two answers")
    (more,) = (each for each in card.findChildren(QPushButton) if each.text() == "Vote")
    assert not card.train.isVisible()
    with qtbot.waitSignal(page.navigate, timeout=5000) as went:
        qtbot.mouseClick(more, Qt.MouseButton.LeftButton)
    assert went.args == ["vote", run.id]
    # Votes are taken on another page; coming back shows them.
    votes.save(run, vote("a"))
    page.on_hidden()
    page.on_shown()
    qtbot.waitUntil(lambda: "better in 1 of 1 votes" in card.words.text(), timeout=5000)
    assert "Too few votes to tell" in card.words.text()
    monkeypatch.setattr(ConfirmDialog, "exec", lambda dialog: asked.append(texts(dialog)) or 1)
    with qtbot.waitSignal(page.navigate, timeout=5000) as went:
        qtbot.mouseClick(card.train, Qt.MouseButton.LeftButton)
    assert "One vote teaches the model next to nothing." in asked[0]
    place, spec = went.args
    assert (place, spec.objective.kind, spec.model.path) == ("train", "dpo", run.load_spec().model.path)
    assert Path(spec.data.sources[0].path).read_text().count("\n") == 1
    votes.save(run, vote("b", 30, 20))
    (run.path / votes.FILE).open("a").write("damaged\n")
    page.on_shown()
    words = "Votes on step 30 and step 20: Step 30 was better in 0 of 1"
    qtbot.waitUntil(lambda: words in card.words.text(), timeout=5000)
    assert "1 lines of votes.jsonl can't be read" in card.words.text()


def test_another_run_shows_its_own_votes(open_dashboard: Any, qtbot: Any) -> None:
    voted, other = make_run("voted", "happy"), make_run("other", "happy")
    votes.save(voted, vote("a"))
    page = open_dashboard(voted)
    card = page.evaluation.votes
    qtbot.waitUntil(lambda: "1 of 1 votes" in card.words.text(), timeout=5000)
    page.on_shown(other.id)
    qtbot.waitUntil(lambda: card.words.text().startswith("Read two answers"), timeout=5000)
