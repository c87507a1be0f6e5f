"""Blind votes in the window: nothing tells whose answer is whose, and no vote is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractButton, QComboBox, QDialog, QLabel, QPlainTextEdit, QPushButton, QWidget

from tests.gui.chat.spoken_for import SpokenFor
from tests.gui.conftest import settle
from tests.gui.layout_checks import clipped, unnamed
from tests.gui.run_folders import make_run, texts
from tunesmith_core import votes
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.kinds.chat import BASE, TUNED
from tunesmith_core.protocol import JournalWriter
from tunesmith_core.runs import Run
from tunesmith_core.votes import Contender
from tunesmith_gui.chat import vote_page as page_module
from tunesmith_gui.chat.spoken_label import BESIDE_LETTERS
from tunesmith_gui.chat.vote_page import VotePage
from tunesmith_gui.widgets.confirm import ConfirmDialog

QUESTIONS = ("What is it called?", "Who made it?")


@pytest.fixture
def run(finished: Run) -> Run:
    journal = JournalWriter(finished.journal_path)
    told = [{"prompt": prompt, "expected": "E", "answer": "A"} for prompt in QUESTIONS]
    journal.write("answers", step=30, answers=told, seconds=1.0)
    journal.close()
    return finished


def opened(context: Any, run: Run, qtbot: Any) -> VotePage:
    page = VotePage(context)
    qtbot.addWidget(page)
    page.resize(1000, 700)
    page.show()
    page.on_shown(run.id)
    qtbot.waitUntil(lambda: page.against.count() > 0, timeout=5000)
    context.chat.is_ready()
    return page


@pytest.fixture
def page(context: Any, service: SpokenFor, run: Run, qtbot: Any) -> VotePage:
    assert service.posted == []
    return opened(context, run, qtbot)


def draw(monkeypatch: pytest.MonkeyPatch, *, base_first: bool) -> None:
    def drawn(contenders: tuple[Contender, Contender]) -> tuple[Contender, Contender]:
        return contenders[::-1] if base_first else contenders

    monkeypatch.setattr(votes, "draw", drawn)


def answer(page: VotePage, first: str, second: str) -> None:
    """Let whoever was asked first and second answer."""
    service: Any = page.context.chat
    for side, words in ((TUNED, first), (BASE, second)):
        service.piece("Hm.", side, thinking=True)
        service.piece(words, side)
        service.done(side, step=30, tokens=len(words), tokens_per_s=7.0 if side == TUNED else 9.0)


def ask(page: VotePage, qtbot: Any, first: str = "Me.", second: str = "You.") -> None:
    qtbot.mouseClick(page.ask, Qt.MouseButton.LeftButton)
    answer(page, first, second)


def test_an_answer_without_spaces_leaves_the_other_one_its_half(
    context: Any, service: SpokenFor, run: Run, qtbot: Any
) -> None:
    assert service is context.chat
    page = opened(context, run, qtbot)
    ask(page, qtbot, "W" * 400)
    settle()
    left, right = page.answers.cards
    assert left.geometry().right() < right.geometry().left(), "side by side"
    assert abs(left.width() - right.width()) <= 1
    assert page.answers.width() <= page._area.viewport().width()
    assert all(text.minimumSizeHint().width() <= text.width() for text in page.answers.texts)
    page.answers.setParent(None)
    page.answers.resize((BESIDE_LETTERS + 1) * page.fontMetrics().averageCharWidth(), 400)
    page.answers.show()
    settle()
    assert left.geometry().right() < right.geometry().left(), "side by side"
    assert abs(left.width() - right.width()) <= 1
    page.answers.setParent(page)


def voted(page: VotePage, qtbot: Any) -> None:
    qtbot.waitUntil(lambda: not page._saving and not page._is_voting, timeout=20_000)


def everything(page: VotePage) -> list[tuple[str, ...]]:
    """Whatever a person, a screen reader or a look at the widgets could find."""
    found = []
    for widget in [page, *page.findChildren(QWidget)]:
        words = ""
        if isinstance(widget, QLabel | QAbstractButton):
            words = widget.text()
        elif isinstance(widget, QPlainTextEdit):
            words = widget.toPlainText()
        elif isinstance(widget, QComboBox):
            words = widget.currentText()
        names = (widget.accessibleName(), widget.accessibleDescription(), widget.toolTip(), widget.objectName())
        shape = (widget.isVisible(), widget.isEnabled(), widget.geometry().getRect(), widget.property("tone"))
        found.append((type(widget).__name__, words, *names, *map(str, shape)))
    return found


def test_nothing_differs_between_the_orders_before_the_vote(
    context: Any, service: SpokenFor, run: Run, qtbot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[bool, list[Any]] = {}
    for base_first in (False, True):
        draw(monkeypatch, base_first=base_first)
        page = opened(context, run, qtbot)
        stages = seen[base_first] = []
        qtbot.mouseClick(page.ask, Qt.MouseButton.LeftButton)
        stages.append(everything(page))
        # The texts of A and B are the same both times: only whose they are differs.
        first, second = ("Second.", "The first answer.") if base_first else ("The first answer.", "Second.")
        service.piece(first)
        stages.append(everything(page))
        service.done(step=30)
        stages.append(everything(page))
        service.piece(second, BASE)
        stages.append(everything(page))
        service.done(BASE, step=30)
        qtbot.waitUntil(lambda page=page: page.choices[0].isVisible(), timeout=5000)
        stages.append(everything(page))
        assert page.answers.cards[0].accessibleName() == "Answer A"
        assert [label.text() for label in page.answers.texts] == ["The first answer.", "Second."]
        assert not any(word in texts(page.answers).lower() for word in ("trained", "base", "step", "token"))
        qtbot.keyClick(page._area, Qt.Key.Key_1)
        voted(page, qtbot)
        stages.append([vote.better.step for vote in votes.load(run).votes if vote.better])
        stages.append(page.state.text())
        (run.path / votes.FILE).unlink()
    assert seen[False][:-2] == seen[True][:-2]
    assert (seen[False][-2], seen[True][-2]) == ([30], [0])
    assert seen[False][-1] == "Saved. A was step 30, B was the model before this run."
    assert seen[True][-1] == "Saved. A was the model before this run, B was step 30."


def test_an_answer_is_not_shown_before_the_other(page: VotePage, service: SpokenFor, qtbot: Any) -> None:
    qtbot.mouseClick(page.ask, Qt.MouseButton.LeftButton)
    assert [data["sides"] for data in service.asked] == [[TUNED], [BASE]]
    assert service.asked[0]["messages"][TUNED][-1]["content"] == QUESTIONS[0]
    service.piece("Me.")
    service.done(step=30)
    assert page.answers.isHidden()
    assert not page.choices[0].isVisible()
    qtbot.keyClick(page, Qt.Key.Key_1)
    assert not page._saving
    service.piece("You.", BASE)
    service.done(BASE, step=30)
    assert page.answers.isVisible()
    assert not page.box.isEnabled()
    assert not page.weights.isEnabled()


@pytest.mark.parametrize("place", range(4))
def test_mouse_and_keys_vote(place: int, page: VotePage, run: Run, qtbot: Any) -> None:
    ask(page, qtbot)
    qtbot.mouseClick(page.choices[place], Qt.MouseButton.LeftButton)
    voted(page, qtbot)
    assert page.box.toPlainText() == QUESTIONS[1], "the next held-out question is proposed"
    qtbot.mouseClick(page.ask, Qt.MouseButton.LeftButton)
    assert page.answers.isHidden(), "those of the question before are gone"
    answer(page, "Mine.", "Yours.")
    qtbot.keyClick(page._area, str(place + 1))
    voted(page, qtbot)
    assert [vote.choice for vote in votes.load(run).votes] == [votes.CHOICES[place]] * 2
    assert "Votes on step 30 and the model before this run" in page.result.text()


def test_of_two_same_answers_the_page_says_that_none_is_better(page: VotePage, qtbot: Any) -> None:
    ask(page, qtbot, "Me.", "Me.")
    qtbot.mouseClick(page.choices[0], Qt.MouseButton.LeftButton)
    voted(page, qtbot)
    assert "so this counts as the same" in page.state.text()
    page._num_asked = 0
    page._propose()
    assert page.box.toPlainText() == QUESTIONS[1], "the first has a vote"


def test_votes_survive_a_restart_and_damaged_lines_are_told(
    page: VotePage, context: Any, run: Run, qtbot: Any
) -> None:
    assert page.result.text() == "No votes yet."
    assert not page.pairs.isEnabled()
    ask(page, qtbot)
    qtbot.keyClick(page._area, "3")
    voted(page, qtbot)
    assert page.warning.isHidden()
    with (run.path / votes.FILE).open("a", encoding="utf-8") as file:
        file.write("damaged\n")
    again = VotePage(context)
    qtbot.addWidget(again)
    again.show()
    again.remember(page.memory())
    page.hide()
    qtbot.waitUntil(lambda: again.warning.isVisible(), timeout=5000)
    assert "1 lines of votes.jsonl can't be read" in again.warning.text()
    assert "1 the same" in again.result.text()
    assert again.title == "Blind vote: done"
    ask(again, qtbot, "Other.")
    qtbot.keyClick(again._area, "1")
    voted(again, qtbot)
    assert "damaged\n" in (run.path / votes.FILE).read_text()
    assert len(votes.load(run).votes) == 2


def test_a_vote_that_cannot_be_saved_is_not_revealed(
    page: VotePage, run: Run, qtbot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(page, qtbot)
    with monkeypatch.context() as broken:

        def fail(*_: object) -> None:
            raise TunesmithError("disk-full", "The disk is full.")

        broken.setattr(votes, "save", fail)
        with qtbot.waitSignal(page.notify, timeout=5000) as told:
            qtbot.keyClick(page._area, "1")
    assert told.args == ["error", "The disk is full."]
    assert page._is_voting
    assert "Saved" not in page.state.text()
    qtbot.keyClick(page._area, "1")
    voted(page, qtbot)
    assert len(votes.load(run).votes) == 1


def test_what_was_stopped_or_failed_is_not_voted_on(page: VotePage, service: SpokenFor, qtbot: Any) -> None:
    qtbot.mouseClick(page.ask, Qt.MouseButton.LeftButton)
    assert page.perform("stop_run")
    assert service.posted[-1][0] == "cancel"
    for side in (TUNED, BASE):
        service.done(side, status="canceled", tokens=0)
    assert page.state.text() == "Stopped. There is nothing to vote on."
    assert not page.perform("stop_run")
    assert page.box.toPlainText() == QUESTIONS[0]
    qtbot.keyClick(page.box, Qt.Key.Key_Return)
    error = TunesmithError("chat-too-long", "It has 9,050 tokens, and this model reads at most 8,192.").to_dict()
    for side in (TUNED, BASE):
        service.done(side, status="failed", error=error)
    assert "9,050 tokens" in page.state.text()
    assert page.box.toPlainText() == QUESTIONS[0]
    qtbot.mouseClick(page.ask, Qt.MouseButton.LeftButton)
    service.breaks(TunesmithError("gpu-busy", "No room."))
    assert "No room." in page.state.text()
    assert page.ask.isEnabled()
    qtbot.mouseClick(page.ask, Qt.MouseButton.LeftButton)
    assert service.opened[-1] == (0, "auto"), "it is loaded again"


def test_two_checkpoints_are_compared_but_no_weights_with_themselves(
    page: VotePage, service: SpokenFor, run: Run, qtbot: Any
) -> None:
    page.weights.setCurrentIndex(1)
    page.against.setCurrentIndex(1)
    page.against.activated.emit(1)
    assert not page.ask.isEnabled()
    page.weights.setCurrentIndex(0)
    page.weights.activated.emit(0)
    qtbot.mouseClick(page.ask, Qt.MouseButton.LeftButton)
    assert [name for name, _data in service.posted] == ["ask", "switch", "ask"]
    for step, words in ((30, "Late."), (20, "Early.")):
        service.piece(words)
        service.done(step=step)
    qtbot.keyClick(page._area, "4")
    voted(page, qtbot)
    assert "Votes on step 30 and step 20" in page.result.text()
    assert votes.load(run).votes[0].choice == "bad"


def test_votes_become_preference_pairs(
    page: VotePage, qtbot: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(page, qtbot)
    qtbot.keyClick(page._area, "1")
    voted(page, qtbot)
    chosen: list[Path | None] = [None, tmp_path / "pairs.jsonl"]
    monkeypatch.setattr(page_module, "ask_where_to_save", lambda *_: chosen.pop(0))
    page.pairs.click()
    with qtbot.waitSignal(page.notify, timeout=5000) as told:
        page.pairs.click()
    assert told.args == ["ok", "1 preference pair saved"]
    assert (tmp_path / "pairs.jsonl").read_text().count("chosen") == 1


def test_few_votes_are_trained_on_where_a_person_wants_it(
    page: VotePage, run: Run, qtbot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not page.train.isEnabled()
    ask(page, qtbot)
    qtbot.keyClick(page._area, "1")
    voted(page, qtbot)
    asked: list[str] = []
    answers = [QDialog.DialogCode.Rejected, QDialog.DialogCode.Accepted]

    def answer_it(dialog: ConfirmDialog) -> QDialog.DialogCode:
        asked.append(texts(dialog))
        return answers[len(asked) - 1]

    monkeypatch.setattr(ConfirmDialog, "exec", answer_it)
    page.train.click()
    assert "One vote teaches the model next to nothing." in asked[0]
    with qtbot.waitSignal(page.navigate, timeout=5000) as went:
        page.train.click()
    target, spec = went.args
    assert (target, spec.objective.kind, spec.model.path) == ("train", "dpo", run.load_spec().model.path)
    assert Path(spec.data.sources[0].path).read_text().count("chosen") == 1


def test_a_question_waits_for_who_leaves(
    page: VotePage, service: SpokenFor, run: Run, qtbot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw(monkeypatch, base_first=False)
    qtbot.mouseClick(page.ask, Qt.MouseButton.LeftButton)
    with qtbot.waitSignal(page.navigate, timeout=5000) as went:
        page._back()
    page.hide()
    assert went.args == ["chat", run.id]
    assert service.posted[-1][0] == "ask", "nothing is stopped"
    answer(page, "Late.", "Later.")
    page.show()
    page.on_shown(run.id)
    assert [label.text() for label in page.answers.texts] == ["Late.", "Later."]
    assert page.choices[0].isVisible()
    page._back()
    page.on_shown(run.id)
    qtbot.keyClick(page._area, "1")
    voted(page, qtbot)
    assert [vote.choice for vote in votes.load(run).votes] == ["a"]


def test_a_question_waits_while_another_run_is_judged_or_the_window_is_built_again(
    page: VotePage, context: Any, service: SpokenFor, run: Run, qtbot: Any
) -> None:
    ask(page, qtbot)
    other = make_run("other", "happy")
    page.on_shown(other.id)
    qtbot.waitUntil(lambda: page._name == "other", timeout=5000)
    assert (page.answers.isVisible(), page.choices[0].isVisible()) == (False, False)
    page.on_shown(run.id)
    qtbot.waitUntil(lambda: page.choices[0].isVisible(), timeout=5000)
    qtbot.keyClick(page._area, "1")
    voted(page, qtbot)
    page.box.setPlainText("Really?")
    qtbot.mouseClick(page.ask, Qt.MouseButton.LeftButton)
    again = VotePage(context)
    qtbot.addWidget(again)
    again.remember(page.memory())
    page.hide()
    answer(again, "Late.", "Later.")
    again.show()
    qtbot.waitUntil(lambda: "Really?" in again.state.text(), timeout=5000)
    assert again.choices[0].isVisible()


def test_a_question_whose_model_was_unloaded_can_be_asked_again(
    page: VotePage, service: SpokenFor, run: Run, qtbot: Any
) -> None:
    page.box.setPlainText("Really?")
    qtbot.mouseClick(page.ask, Qt.MouseButton.LeftButton)
    page.on_hidden()
    service.close()
    page.on_shown()
    assert "Ask again." in page.state.text()
    assert (page.box.toPlainText(), page.ask.isEnabled()) == ("Really?", True)


def test_the_keyboard_stays_where_the_next_thing_is_done(page: VotePage, qtbot: Any) -> None:
    with qtbot.waitActive(page):
        page.activateWindow()
    qtbot.mouseClick(page.ask, Qt.MouseButton.LeftButton)
    assert page.focusWidget() is page.stop
    answer(page, "Me.", "You.")
    assert page.focusWidget() is page._area
    qtbot.keyClick(page._area, "1")
    voted(page, qtbot)
    assert page.focusWidget() is page.box


def test_the_result_calls_both_sides_as_the_lists_do(page: VotePage, qtbot: Any) -> None:
    chosen = [box.itemText(0) for box in (page.weights, page.against)]
    assert chosen == ["Finished adapter, step 30", "Before this run"]
    ask(page, qtbot)
    qtbot.keyClick(page._area, "1")
    voted(page, qtbot)
    assert "step 30" in page.state.text()
    assert "the model before this run" in page.state.text()


@pytest.mark.parametrize("width", [480, 1280])
def test_the_page_fits_and_names_everything(width: int, page: VotePage, qtbot: Any) -> None:
    page.resize(width, 500)
    ask(page, qtbot, "long " * 300, "")
    settle()
    assert clipped(page) == []
    assert unnamed(page) == []
    left, right = page.answers.cards
    assert (left.geometry().right() < right.geometry().left()) == (width > 900)
    assert all(isinstance(each, QPushButton) for each in page.choices)
    assert "(empty)" in texts(page)
