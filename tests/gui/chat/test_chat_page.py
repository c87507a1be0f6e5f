"""The chat page on real run folders, with a model that a test speaks for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QPushButton, QWidget

from tests.gui.chat.spoken_for import SpokenFor
from tests.gui.conftest import settle
from tests.gui.layout_checks import clipped, unnamed
from tests.gui.run_folders import make_run, texts
from tunesmith_core import conversations
from tunesmith_core.conversations import Answer, Conversation, Turn
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.kinds.chat import BASE, SIDES, TUNED
from tunesmith_core.runs import Run
from tunesmith_gui.chat import page as page_module
from tunesmith_gui.chat.example_dialog import ExampleDialog
from tunesmith_gui.chat.page import ChatPage
from tunesmith_gui.chat.spoken_label import BESIDE_LETTERS
from tunesmith_gui.chat.turn_view import TurnView
from tunesmith_gui.theme import Scheme, theme
from tunesmith_gui.widgets.buttons import IconButton


@pytest.fixture
def run(finished: Run) -> Run:
    return finished


@pytest.fixture
def page(context: Any, service: SpokenFor, run: Run, qtbot: Any) -> ChatPage:
    result = ChatPage(context)
    qtbot.addWidget(result)
    result.resize(1000, 700)
    result.show()
    result.on_shown(run.id)
    qtbot.waitUntil(lambda: result.weights.count() > 0, timeout=5000)
    service.is_ready()
    return result


@pytest.mark.parametrize(("has_template", "words"), [(True, "through its chat template"), (False, "as it stands")])
def test_the_drawer_says_whether_a_chat_template_is_used(page: ChatPage, has_template: bool, words: str) -> None:
    page.more.click()
    page.context.chat.is_ready(has_template=has_template)
    assert page.drawer.template.isVisible()
    assert words in page.drawer.template.text()


def test_the_sides_follow_the_size_of_text(page: ChatPage) -> None:
    page.more.click()
    assert page.list.isVisible()
    widths = page.drawer.width(), page.list.width()
    theme().set_appearance(Scheme.LIGHT, 2.0)
    try:
        settle()
        assert page.drawer.width() > 1.5 * widths[0]
        assert page.list.width() > 1.5 * widths[1]
        assert not page.list.isVisible(), "the answers need the room"
        page.more.click()
        assert page.list.isVisible()
    finally:
        theme().set_appearance(Scheme.LIGHT, 1.0)
        settle()


def write(page: ChatPage, qtbot: Any, text: str) -> None:
    page.composer.box.setPlainText("")
    qtbot.keyClicks(page.composer.box, text)


def say(page: ChatPage, qtbot: Any, text: str, answer: str) -> None:
    write(page, qtbot, text)
    qtbot.keyClick(page.composer.box, Qt.Key.Key_Return)
    for side in list(page.model.waiting):
        page.context.chat.piece(answer, side)
        page.context.chat.done(side)


def click(page: QWidget, qtbot: Any, name: str) -> None:
    def found() -> list[QPushButton]:
        return [each for each in page.findChildren(QPushButton) if each.accessibleName() == name and each.isVisible()]

    qtbot.waitUntil(lambda: len(found()) == 1, timeout=5000)
    qtbot.mouseClick(found()[0], Qt.MouseButton.LeftButton)


def kept(run: Run, page: ChatPage, qtbot: Any) -> list[Conversation]:
    qtbot.waitUntil(lambda: not page._saving, timeout=60_000)
    return conversations.load(run)


def test_enter_sends_and_the_answer_streams_as_plain_text(
    page: ChatPage, service: SpokenFor, run: Run, qtbot: Any
) -> None:
    assert "Ready on the CPU, step 30" in page.chip.text
    assert service.opened == [(0, "auto")]
    write(page, qtbot, "Who")
    qtbot.keyClick(page.composer.box, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    qtbot.keyClicks(page.composer.box, "are you?")
    qtbot.keyClick(page.composer.box, Qt.Key.Key_Return)
    (asked,) = service.asked
    assert asked["sides"] == [TUNED]
    assert asked["messages"][TUNED][-1] == {"role": "user", "content": "Who\nare you?"}
    assert page.composer.stop.isVisible()
    assert not page.composer.send.isVisible()
    assert "Reading the question…" in texts(page)
    service.piece("Hm.", thinking=True)
    service.piece("I am <b>bold</b> [x](http://example.org)")
    qtbot.waitUntil(lambda: "I am <b>bold</b> [x](http://example.org)" in texts(page), timeout=5000)
    service.done()
    assert "12 tokens · first after 0.3 s · 40.0 tokens/s" in texts(page) or "0.2 s" in texts(page)
    (view,) = page._views
    answer = view.answers[TUNED]
    assert answer.thinking.isHidden()
    qtbot.mouseClick(answer.fold, Qt.MouseButton.LeftButton)
    assert answer.thinking.isVisible()
    assert answer.thinking.text() == "Hm."
    assert page.composer.send.isVisible()
    (talk,) = kept(run, page, qtbot)
    assert talk.turns[0].answers[TUNED].text == "I am <b>bold</b> [x](http://example.org)"


def test_another_run_is_tried_after_a_conversation(page: ChatPage, service: SpokenFor, qtbot: Any) -> None:
    say(page, qtbot, "Who?", "Me.")
    other = make_run("other", "happy")
    page.on_shown(other.id)
    assert page._views == [], "the turns of the run before are gone at once"
    assert service.run == other
    qtbot.waitUntil(lambda: page.title == "Try other", timeout=5000)
    say(page, qtbot, "And you?", "Another.")
    assert "Another." in texts(page)
    assert "Me." not in texts(page)


LETTERS = "W" * 400


def test_an_answer_without_spaces_leaves_the_other_one_its_half(
    page: ChatPage, service: SpokenFor, qtbot: Any
) -> None:
    page.compare.click()
    say(page, qtbot, "Who are you? " + LETTERS, LETTERS)
    settle()
    left, right = (page._views[0].answers[side] for side in SIDES)
    assert left.geometry().right() < right.geometry().left(), "side by side"
    assert abs(left.width() - right.width()) <= 1
    assert right.mapTo(page._area, right.rect().topRight()).x() < page._area.viewport().width()
    assert left.text.minimumSizeHint().width() <= left.text.width(), "its letters are broken into lines"
    page._views[0].answers[TUNED]._copy.click()
    assert QGuiApplication.clipboard().text() == LETTERS
    # A window of its own would be as wide as its words.
    narrow = TurnView(0, Turn("Who?", {TUNED: Answer(text=LETTERS), BASE: Answer(text="You.")}), page)
    narrow.show_turn(narrow.turn, [], {}, loading=False, busy=False)
    narrow.resize((BESIDE_LETTERS + 1) * narrow.fontMetrics().averageCharWidth(), 400)
    narrow.show()
    settle()
    left, right = (narrow.answers[side] for side in SIDES)
    assert right.geometry().right() < narrow.width()
    assert left.geometry().right() < right.geometry().left(), "side by side"
    assert abs(left.width() - right.width()) <= 1


def test_the_base_model_answers_beside_it(page: ChatPage, service: SpokenFor, qtbot: Any) -> None:
    page.compare.click()
    write(page, qtbot, "Who?")
    qtbot.mouseClick(page.composer.send, Qt.MouseButton.LeftButton)
    assert service.asked[0]["sides"] == list(SIDES)
    assert "Answers after the trained model…" in texts(page)
    service.piece("Me.")
    service.done()
    assert page.model.answering
    service.piece("You.", BASE)
    service.done(BASE, status="length")
    assert not page.model.answering
    shown = texts(page)
    assert "Trained model" in shown
    assert "Before this run" in shown
    assert "stopped at the longest answer" in shown
    left, right = (page._views[0].answers[side] for side in SIDES)
    assert left.geometry().right() < right.geometry().left(), "side by side"
    say(page, qtbot, "Sure?", "Yes.")
    messages = service.asked[1]["messages"]
    assert [messages[side][1]["content"] for side in SIDES] == ["Me.", "You."]
    narrow = TurnView(0, page.model.current.turns[0])
    qtbot.addWidget(narrow)
    narrow.resize(300, 400)
    narrow.show()
    left, right = (narrow.answers[side] for side in SIDES)
    qtbot.waitUntil(lambda: left.geometry().bottom() < right.geometry().top(), timeout=5000)


def test_an_answer_without_a_word_says_so(page: ChatPage, service: SpokenFor, qtbot: Any) -> None:
    write(page, qtbot, "Hi")
    qtbot.keyClick(page.composer.box, Qt.Key.Key_Return)
    (view,) = page._views
    answer = view.answers[TUNED]
    assert not answer.text.isVisible(), "it has not begun"
    service.done()
    qtbot.waitUntil(lambda: answer.text.isVisible(), timeout=5000)
    assert (answer.text.text(), answer.text.property("tone")) == ("(empty)", "muted")


def test_an_answer_can_be_stopped(page: ChatPage, service: SpokenFor, qtbot: Any) -> None:
    write(page, qtbot, "Who?")
    qtbot.keyClick(page.composer.box, Qt.Key.Key_Return)
    service.piece("I a")
    assert page.perform("stop_run")
    assert service.posted[-1][0] == "cancel"
    service.done(status="canceled")
    assert "stopped" in texts(page)
    assert not page.perform("stop_run")


def test_a_question_is_edited_and_asked_again(page: ChatPage, service: SpokenFor, run: Run, qtbot: Any) -> None:
    say(page, qtbot, "Who?", "Me.")
    say(page, qtbot, "Sure?", "Yes.")
    click(page, qtbot, "Edit question 1")
    assert page.composer.box.toPlainText() == "Who?"
    assert "Sending replaces this question and what follows it." in texts(page)
    click(page, qtbot, "Keep it")
    assert len(page.model.current.turns) == 2
    click(page, qtbot, "Edit question 1")
    say(page, qtbot, "What?", "That.")
    assert [turn.question for turn in page.model.current.turns] == ["What?"]
    click(page, qtbot, "Regenerate question 1")
    assert service.asked[-1]["messages"][TUNED][-1]["content"] == "What?"
    service.piece("This.")
    service.done()
    (talk,) = kept(run, page, qtbot)
    assert [turn.answers[TUNED].text for turn in talk.turns] == ["This."]


def test_the_end_of_an_answer_stays_in_sight_unless_one_reads_further_up(
    page: ChatPage, service: SpokenFor, qtbot: Any
) -> None:
    page.window().resize(900, 500)
    bar = page._area.verticalScrollBar()
    say(page, qtbot, "Who?", "Me.\n" * 40)
    settle()
    assert bar.value() == bar.maximum() > 0, "what stands below the answer is seen too"
    write(page, qtbot, "Sure?")
    qtbot.keyClick(page.composer.box, Qt.Key.Key_Return)
    service.piece("Yes.\n" * 20)
    settle()
    assert bar.value() == bar.maximum()
    bar.setValue(10)
    service.piece("No.\n" * 20)
    service.done()
    settle()
    assert bar.value() == 10


def test_a_question_that_is_asked_again_keeps_its_earlier_answers(
    page: ChatPage, run: Run, service: SpokenFor, qtbot: Any
) -> None:
    def turn_over(name: str) -> None:
        (found,) = [each for each in page._views[-1].findChildren(IconButton) if each.accessibleName() == name]
        assert found.isEnabled()
        qtbot.mouseClick(found, Qt.MouseButton.LeftButton)
        settle()

    say(page, qtbot, "Who?", "Me.")
    assert not page._views[0].earlier.isVisible()
    for text in ("You.", "They."):
        click(page, qtbot, "Regenerate question 1")
        service.piece(text)
        service.done()
    assert "3 of 3" in texts(page)
    turn_over("Earlier answer")
    turn_over("Earlier answer")
    assert "1 of 3" in texts(page)
    assert "Me." in texts(page)
    assert page.window().focusWidget() is page._views[-1].later
    turn_over("Later answer")
    (talk,) = kept(run, page, qtbot)
    (turn,) = talk.turns
    assert (turn.answers[TUNED].text, turn.place) == ("You.", 1)
    assert [each[TUNED].text for each in turn.all_answers()] == ["Me.", "You.", "They."]
    say(page, qtbot, "Sure?", "Yes.")
    said = [message["content"] for message in service.asked[-1]["messages"][TUNED]]
    assert said[-3:] == ["Who?", "You.", "Sure?"]
    assert not page._views[0].earlier.isVisible(), "the second question was asked after this answer"


def test_asking_an_earlier_question_again_asks_first_and_keeps_the_keyboard_in_the_page(
    page: ChatPage, service: SpokenFor, qtbot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(page, qtbot, "Who?", "Me.")
    say(page, qtbot, "Sure?", "Yes.")
    told: list[str] = []

    def answer(may: bool) -> None:
        def exec_(dialog: Any) -> bool:
            told.append(texts(dialog))
            return may

        monkeypatch.setattr("tunesmith_gui.widgets.confirm.ConfirmDialog.exec", exec_)

    answer(False)
    click(page, qtbot, "Regenerate question 1")
    assert "Questions after it that will be removed, with their answers: 1." in told[0]
    assert [turn.question for turn in page.model.current.turns] == ["Who?", "Sure?"]
    answer(True)
    click(page, qtbot, "Regenerate question 1")
    assert [turn.question for turn in page.model.current.turns] == ["Who?"]
    assert page.window().focusWidget() is page.composer.box
    service.piece("I.")
    service.done()


def test_an_answer_is_copied_and_becomes_a_row_of_data(
    page: ChatPage, tmp_path: Path, qtbot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.jsonl"
    monkeypatch.setattr(page_module, "ask_where_to_save", lambda *_args, **_named: path)
    corrections = [None, "You.", " "]

    def correct(dialog: ExampleDialog) -> bool:
        assert dialog.answer == "Me."
        if (text := corrections.pop(0)) is not None:
            dialog.box.setPlainText(text)
        return dialog.go.isEnabled()

    monkeypatch.setattr(ExampleDialog, "exec", correct)
    say(page, qtbot, "Who?", "Me.")
    click(page, qtbot, "Copy: Trained model, 1")
    assert QGuiApplication.clipboard().text() == "Me."
    for row in (1, 2):
        with qtbot.waitSignal(page.notify, timeout=5000) as told:
            click(page, qtbot, "Save as example…: Trained model, 1")
        assert told.args == ["ok", f"Saved as row {row} of rows.jsonl"]
    click(page, qtbot, "Save as example…: Trained model, 1")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    answers = [{"role": "assistant", "content": text} for text in ("Me.", "You.")]
    assert [row["messages"][-1] for row in rows] == answers, "an empty answer is no example"


def test_conversations_are_chosen_named_and_deleted(
    page: ChatPage, run: Run, qtbot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(page, qtbot, "First?", "1")
    qtbot.mouseClick(page.list.new, Qt.MouseButton.LeftButton)
    assert not page._views
    say(page, qtbot, "Second?", "2")
    assert [page.list.list.item(row).text() for row in range(2)] == ["Second?", "First?"]
    page.list.list.setCurrentRow(1)
    assert page.model.current.turns[0].question == "First?"
    page.list.name.setText("Old one")
    qtbot.keyClick(page.list.name, Qt.Key.Key_Return)
    assert page.list.list.item(1).text() == "Old one"
    assert {talk.title for talk in kept(run, page, qtbot)} == {"", "Old one"}
    monkeypatch.setattr("tunesmith_gui.widgets.confirm.ConfirmDialog.exec", lambda _dialog: True)
    qtbot.mouseClick(page.list.delete, Qt.MouseButton.LeftButton)
    assert page.model.current.turns[0].question == "Second?"
    qtbot.waitUntil(lambda: len(conversations.load(run)) == 1, timeout=60_000)
    # A conversation in which nothing was asked is none: the first one is chosen below it.
    qtbot.mouseClick(page.list.new, Qt.MouseButton.LeftButton)
    assert page.list.list.count() == 2
    page.list.list.setCurrentRow(1)
    assert page.model.current.turns[0].question == "Second?"


def test_settings_of_the_answers_are_sent_and_kept(page: ChatPage, service: SpokenFor, run: Run, qtbot: Any) -> None:
    qtbot.mouseClick(page.more, Qt.MouseButton.LeftButton)
    assert page.drawer.isVisible()
    page.drawer.system.setPlainText("Be brief.")
    page.drawer._boxes["temperature"].setValue(0.7)
    say(page, qtbot, "Who?", "Me.")
    (asked,) = service.asked
    assert asked["messages"][TUNED][0] == {"role": "system", "content": "Be brief."}
    assert asked["sampling"]["temperature"] == 0.7
    assert kept(run, page, qtbot)[0].system == "Be brief."
    qtbot.mouseClick(page.drawer.reset, Qt.MouseButton.LeftButton)
    assert page.model.current.sampling.temperature == 0.0


def test_a_busy_gpu_is_a_choice(page: ChatPage, service: SpokenFor, qtbot: Any) -> None:
    write(page, qtbot, "Who?")
    qtbot.keyClick(page.composer.box, Qt.Key.Key_Return)
    service.breaks(TunesmithError("gpu-busy", "No room."))
    assert not page.model.answering
    shown = texts(page)
    assert "The GPU has no room for this model now" in shown
    assert "The model gave no answer." in shown
    click(page, qtbot, "Answer on the CPU")
    assert service.opened[-1] == (0, "cpu")
    service.breaks(TunesmithError("environment-missing", "None."))
    with qtbot.waitSignal(page.navigate, timeout=5000) as went:
        click(page, qtbot, "Open Environment")
    assert went.args == ["environment", None]


def test_a_base_model_in_the_trash_is_restored_and_loaded(
    page: ChatPage, service: SpokenFor, run: Run, qtbot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    restored: list[Run] = []
    monkeypatch.setattr(page_module, "restore_base", restored.append)
    page._fail(TunesmithError("model-deleted", "The model is in the trash."))
    assert "The model is in the trash." in texts(page)
    click(page, qtbot, "Restore it")
    qtbot.waitUntil(lambda: page._banner is None, timeout=5000)
    assert restored == [run]


def test_an_answer_that_fails_says_why(page: ChatPage, service: SpokenFor, qtbot: Any) -> None:
    write(page, qtbot, "Who?")
    qtbot.keyClick(page.composer.box, Qt.Key.Key_Return)
    service.done(status="failed", error=TunesmithError("sample-failed", "The template refuses it.").to_dict())
    assert "The template refuses it." in texts(page)
    assert page.composer.send.isVisible()


TOO_LONG = TunesmithError("chat-too-long", "It has 9,050 tokens, and this model reads at most 8,192.").to_dict()


def test_a_question_that_is_too_long_stays_in_the_box(
    page: ChatPage, service: SpokenFor, run: Run, qtbot: Any
) -> None:
    page.compare.click()
    write(page, qtbot, "Long?")
    qtbot.keyClick(page.composer.box, Qt.Key.Key_Return)
    for side in SIDES:
        service.done(side, status="failed", error=TOO_LONG)
    assert "It has 9,050 tokens, and this model reads at most 8,192." in texts(page)
    assert page.composer.box.toPlainText() == "Long?"
    assert kept(run, page, qtbot) == []
    assert page.model.current.turns == []
    page.compare.click()
    say(page, qtbot, "Who?", "Me.")
    qtbot.waitUntil(lambda: "9,050" not in texts(page), timeout=5000)
    assert page._banner is None, "the next question takes the error away"
    click(page, qtbot, "Edit question 1")
    write(page, qtbot, "Longer?")
    qtbot.keyClick(page.composer.box, Qt.Key.Key_Return)
    service.done(status="failed", error=TOO_LONG)
    assert page.composer.box.toPlainText() == "Longer?"
    (talk,) = kept(run, page, qtbot)
    assert [turn.question for turn in talk.turns] == ["Who?"], "what it would have replaced is there again"
    assert page.model.edited == 0


def test_what_a_closed_window_cut_off_counts_as_stopped_and_can_be_asked_again(
    page: ChatPage, context: Any, service: SpokenFor, run: Run, qtbot: Any
) -> None:
    write(page, qtbot, "Who?")
    qtbot.keyClick(page.composer.box, Qt.Key.Key_Return)
    (talk,) = kept(run, page, qtbot)
    assert talk.turns[0].answers[TUNED].status == "canceled"
    again = ChatPage(context)
    qtbot.addWidget(again)
    again.show()
    again.remember(page.memory())
    words = "Stopped before the answer was complete. Regenerate asks again."
    qtbot.waitUntil(lambda: words in texts(again), timeout=20_000)
    click(again, qtbot, "Regenerate question 1")
    assert service.asked[-1]["messages"][TUNED][-1]["content"] == "Who?"


def test_what_has_come_of_an_answer_is_kept_on_the_way(
    page: ChatPage, service: SpokenFor, run: Run, qtbot: Any
) -> None:
    page._keep.setInterval(20)
    write(page, qtbot, "Who?")
    qtbot.keyClick(page.composer.box, Qt.Key.Key_Return)
    assert len(kept(run, page, qtbot)) == 1
    service.piece("I a")
    qtbot.waitUntil(lambda: conversations.load(run)[0].turns[0].answers[TUNED].text == "I a", timeout=20_000)
    service.done()
    qtbot.waitUntil(lambda: not page._keep.isActive(), timeout=20_000)
    assert kept(run, page, qtbot)[0].turns[0].answers[TUNED].status == "end"


def test_weights_that_a_vote_has_left_are_switched_back(page: ChatPage, service: SpokenFor, qtbot: Any) -> None:
    service.checkpoint = 20
    write(page, qtbot, "Who?")
    qtbot.keyClick(page.composer.box, Qt.Key.Key_Return)
    assert service.opened[-1] == (0, "auto")


def test_another_checkpoint_answers(page: ChatPage, service: SpokenFor) -> None:
    assert [page.weights.itemText(place) for place in range(2)] == ["Finished adapter, step 30", "Step 20"]
    page.weights.setCurrentIndex(1)
    page.weights.activated.emit(1)
    assert service.opened[-1] == (20, "auto")
    assert "Loading the model…" in page.chip.text


def test_a_model_that_was_unloaded_is_loaded_by_the_next_question(
    page: ChatPage, service: SpokenFor, qtbot: Any
) -> None:
    service.close()
    assert page.chip.text == "Not loaded"
    write(page, qtbot, "Who?")
    qtbot.keyClick(page.composer.box, Qt.Key.Key_Return)
    assert len(service.opened) == 2
    assert "Loading the model…" in texts(page)


def test_an_unloaded_model_leaves_no_answer_open(page: ChatPage, service: SpokenFor, qtbot: Any) -> None:
    write(page, qtbot, "Who?")
    qtbot.keyClick(page.composer.box, Qt.Key.Key_Return)
    service.close()
    assert not page.model.answering
    assert "The model gave no answer." in texts(page)


def test_everything_has_a_name_and_room(page: ChatPage, qtbot: Any) -> None:
    talk = Conversation(turns=[Turn("Who? " * 40, {side: Answer("Me. " * 90, tokens=3) for side in SIDES})])
    page.model.select(talk)
    page._rebuild()
    qtbot.mouseClick(page.more, Qt.MouseButton.LeftButton)
    settle()
    assert unnamed(page) == []
    names = [each.accessibleName() for each in page.findChildren(QPushButton) if each.isVisible()]
    assert len(names) == len(set(names))
    assert clipped(page) == []


def test_the_page_comes_back_in_another_language(page: ChatPage, context: Any, qtbot: Any) -> None:
    again = ChatPage(context)
    qtbot.addWidget(again)
    again.remember(page.memory())
    qtbot.waitUntil(lambda: again.weights.count() > 0, timeout=5000)
    assert again.run == page.run
    assert again.title == "Try done"
    with qtbot.waitSignal(again.navigate, timeout=5000) as went:
        again._go("vote")
    assert went.args == ["vote", page.run.id]
    with qtbot.waitSignal(again.navigate, timeout=5000) as went:
        again._go("dashboard")
    assert went.args == ["dashboard", page.run.id]
