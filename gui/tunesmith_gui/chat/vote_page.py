"""Blind votes: two answers to a question without names, which one is better, and how the votes stand."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from tunesmith_core import votes
from tunesmith_core.conversations import system_prompt_of
from tunesmith_core.errors import TunesmithError
from tunesmith_core.plain_text import one_line, shortened
from tunesmith_core.protocol import Event
from tunesmith_core.runs import Run, display_name
from tunesmith_core.votes import BASE_MODEL, CHOICES, Contender, Contest, Kept
from tunesmith_gui import tr
from tunesmith_gui.chat.answer_pair import AnswerPair
from tunesmith_gui.chat.composer import QuestionBox
from tunesmith_gui.chat.model_page import ModelPage
from tunesmith_gui.chat.weights import Weights, WeightsBox, find_weights
from tunesmith_gui.context import Context
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text
from tunesmith_gui.widgets.buttons import IconButton, button
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.error_banner import error_words
from tunesmith_gui.widgets.few_votes import may_train
from tunesmith_gui.widgets.flow_row import FlowRow
from tunesmith_gui.widgets.safe_label import ElidedLabel, SafeLabel
from tunesmith_gui.widgets.save_file import ask_where_to_save

QUESTION_COLUMNS = 200
"""Of a question above its answers; the box below has all of it."""


@dataclass(frozen=True, slots=True)
class _Found:
    """What is in the folder of a run."""

    run: Run
    name: str
    system: str
    weights: Weights = field(default_factory=Weights)
    questions: tuple[str, ...] = ()
    kept: Kept = field(default_factory=Kept)


class VotePage(ModelPage):
    """Until a vote is saved, no widget says or shows anything that depends on who answered."""

    def __init__(self, context: Context, parent: QWidget | None = None) -> None:
        super().__init__(context, parent)
        self._system = ""
        self._questions: tuple[str, ...] = ()
        self._num_asked = 0
        self._kept = Kept()
        self._contest: Contest | None = None
        self._left: dict[str, Contest] = {}
        """Questions of other runs, by run, that were answered or on their way when another run was opened."""
        self._saving = False
        self._build()
        self._listen()

    # Building

    def _build(self) -> None:
        whole = self._whole()
        whole.addLayout(self._build_header())
        whole.addWidget(
            SafeLabel(
                self.tr(
                    "Both models answer each question. You see the answers in random order and learn whose they are "
                    "after your vote."
                ),
                tone="muted",
                wrap=True,
                parent=self,
            )
        )
        self._area, holder, column = self._scrolling()
        self._area.setAccessibleName(self.tr("Answers and result"))
        self.state = SafeLabel(wrap=True, parent=holder)
        column.addWidget(self.state)
        self.answers = AnswerPair(holder)
        column.addWidget(self.answers)
        column.addWidget(self._build_choices(holder))
        column.addWidget(self._build_result(holder))
        column.addStretch(1)
        whole.addWidget(self._area, 1)
        whole.addLayout(self._build_question())

    def _build_header(self) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        row.addWidget(IconButton("chevron-left", self.tr("Back to the chat"), self._back, parent=self))
        self.name = ElidedLabel("", role="title", parent=self)
        row.addWidget(self.name, 1)
        self.weights = WeightsBox(self.tr("Weights that are judged"), self)
        self.against = WeightsBox(self.tr("Compared with"), self)
        row.addWidget(self.weights)
        row.addWidget(SafeLabel(self.tr("against"), tone="muted", parent=self))
        row.addWidget(self.against)
        for box in (self.weights, self.against):
            box.activated.connect(lambda _row: self._show_state())
        return row

    def _build_choices(self, parent: QWidget) -> QWidget:
        words = (self.tr("A is better"), self.tr("B is better"), self.tr("Both the same"), self.tr("Both bad"))
        self.choices = []
        for number, (text, choice) in enumerate(zip(words, CHOICES, strict=True), 1):
            each = button(f"{number}  {text}", partial(self._vote, choice), parent=parent)
            each.setAccessibleName(text)
            self.choices.append(each)
        self._choice_row = FlowRow(self.choices, parent)
        return self._choice_row

    def _build_result(self, parent: QWidget) -> Card:
        card = Card(self.tr("Your votes"), parent=parent)
        self.result = SafeLabel(wrap=True, selectable=True, parent=card)
        card.body.addWidget(self.result)
        self.warning = SafeLabel(tone="warn", wrap=True, parent=card)
        self.warning.hide()
        card.body.addWidget(self.warning)
        self.pairs = button(
            self.tr("Save votes as preference pairs…"), self._save_pairs, icon_name="save", parent=card
        )
        self.train = button(self.tr("Train on these votes"), self._train, icon_name="train", parent=card)
        card.body.addWidget(FlowRow((self.train, self.pairs), card))
        return card

    def _build_question(self) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        self.box = QuestionBox(self)
        self.box.setAccessibleName(self.tr("Question"))
        self.box.setPlaceholderText(self.tr("Ask both models a question."))
        self.box.sent.connect(self._ask)
        self.box.textChanged.connect(self._show_state)
        row.addWidget(self.box, 1)
        buttons = QVBoxLayout()
        buttons.setSpacing(SPACE // 2)
        buttons.addStretch(1)
        self.held_out = button(self.tr("Next held-out question"), self._propose, kind="link", parent=self)
        self.ask = button(self.tr("Ask both"), self._ask, kind="primary", parent=self)
        self.stop = button(self.tr("Stop"), self._stop, icon_name="stop", parent=self)
        for each in (self.held_out, self.ask, self.stop):
            buttons.addWidget(each)
        row.addLayout(buttons)
        return row

    # The contract with the window

    @property
    def title(self) -> str:
        """The run's name."""
        return tr.fill(self.tr("Blind vote: %1"), self._name) if self._name else ""

    def on_shown(self, argument: object = None) -> None:
        """Open the votes of a run, or go on with those shown before."""
        if self._is_another(argument):
            self._open(self.context.runs.run(str(argument)))
        elif self.run is not None:
            self._take_up()
            self._be_loaded()
        self._show_state()
        self._focus()

    def _focus(self) -> None:
        """Put the keyboard where the next thing is done; Qt would pass it on to the rail."""
        place = self._area if self._is_voting else self.stop if self._is_answering else self.box
        place.setFocus(Qt.FocusReason.OtherFocusReason)

    def memory(self) -> object:
        """The run that is shown, and questions that wait for answers or a vote."""
        return (self.run.id, self._waiting()) if self.run is not None else None

    def remember(self, memory: object) -> None:
        """Show the run that was shown, and its question."""
        assert isinstance(memory, tuple)
        run_id, self._left = memory
        self._open(self.context.runs.run(run_id))

    def _waiting(self) -> dict[str, Contest]:
        shown = {self.run.id: self._contest} if self.run is not None and self._contest is not None else {}
        return self._left | shown

    def perform(self, action: str) -> bool:
        """Stop the answers by keyboard."""
        if action == "stop_run" and self._is_answering:
            self._stop()
            return True
        return False

    # The run

    def _open(self, run: Run) -> None:
        self._left = self._waiting()
        self._contest = None
        self.run, self._name, self._questions, self._num_asked = run, run.id, (), 0
        self._kept = Kept()
        self.answers.hide()
        self._say("")
        self.weights.show_weights(Weights())
        self._be_loaded()
        self.run_in_background(lambda: _look(run), self._take_found)

    def _take_found(self, found: _Found) -> None:
        if found.run is not self.run:
            return
        self._name, self._system, self._questions = found.name, found.system, found.questions
        self.weights.show_weights(found.weights, self.context.chat.checkpoint)
        self.against.show_weights(found.weights, first=self.tr("Before this run"))
        self._show_votes(found.kept)
        self._contest = self._left.pop(found.run.id, None)
        self._propose()
        self._take_up()
        self.title_changed.emit()
        self._show_state()

    def _take_up(self) -> None:
        """Go on with the question that was left: its answers are shown, awaited, or it is to be asked again."""
        contest = self._contest
        if contest is None:
            return
        self.box.setPlainText(contest.prompt[-1]["content"])
        if contest.is_over:
            self._show_end(contest)
        elif self.context.chat.is_asked(contest):
            self._say_answering()
        else:
            self._contest = None
            self._say(self.tr("The model was unloaded before it had answered. Ask again."))

    def _be_loaded(self) -> None:
        service = self.context.chat
        if self.run is not None and not service.is_loaded(self.run):
            self._load(self.weights.step)

    def _back(self) -> None:
        self._go("chat")

    # Asking

    @property
    def _is_answering(self) -> bool:
        return self._contest is not None and not self._contest.is_over

    @property
    def _is_voting(self) -> bool:
        return self._contest is not None and self._contest.is_answered

    def _propose(self) -> None:
        """Write the next held-out question into the box: one without a vote, else the first again after the last."""
        if self._questions:
            num, voted = len(self._questions), {vote.prompt[-1]["content"] for vote in self._kept.votes}
            places = [(self._num_asked + ahead) % num for ahead in range(num)]
            place = next((each for each in places if self._questions[each] not in voted), places[0])
            self.box.setPlainText(self._questions[place])
            self._num_asked = place + 1
        else:
            self.box.clear()
        self.box.setFocus(Qt.FocusReason.OtherFocusReason)

    def _ask(self) -> None:
        if not self.ask.isEnabled():
            return
        against = Contender(checkpoint=self.against.step) if self.against.step else BASE_MODEL
        prompt = votes.prompt(self.box.toPlainText().strip(), self._system)
        self._contest = Contest(prompt, (Contender(checkpoint=self.weights.step), against))
        self._be_loaded()
        self.answers.hide()
        self._say_answering()
        self.context.chat.ask_contest(self._contest, votes.SAMPLING)
        self._show_state()
        self._focus()

    def _say_answering(self) -> None:
        self._say(self.tr("Both models are answering. Their answers appear together."))

    def _stop(self) -> None:
        self.context.chat.stop_answer()

    def _take(self, asker: object, _event: Event) -> None:
        contest = self._contest
        if contest is not None and asker is contest and contest.is_over:
            self._show_end(contest)
            if self.isVisible():
                self._focus()

    def _show_end(self, contest: Contest) -> None:
        """Show both answers, or why there are none."""
        if contest.is_answered:
            question = shortened(one_line(contest.prompt[-1]["content"]), QUESTION_COLUMNS)
            self._say(tr.fill(self.tr("Which answer to “%1” is better?"), question))
            self.answers.show_answers(contest.shown())
            self._announcer.say(self.tr("Both answers are there."))
            self._show_state()
            self._area.verticalScrollBar().setValue(0)
        else:
            self._contest = None
            if contest.error:
                self._say(error_words(contest.error), "error")
            else:
                self._say(self.tr("Stopped. There is nothing to vote on."))
            self._show_state()

    def _fail(self, error: TunesmithError) -> None:
        if self.context.chat.run == self.run and not self._is_voting:
            self._contest = None
            self._say(error_words(error), "error")
            self._show_state()

    # Voting

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Take the keys 1 to 4 as votes; the box for questions is closed while there is something to vote on."""
        keys = [str(number) for number in range(1, len(CHOICES) + 1)]
        if self._is_voting and event.text() in keys:
            self._vote(CHOICES[keys.index(event.text())])
        else:
            super().keyPressEvent(event)

    def _vote(self, choice: str) -> None:
        """Keep a vote; only then it is told whose answers they were."""
        run, contest = self.run, self._contest
        if run is None or contest is None or not contest.is_answered or self._saving:
            return
        self._saving = True
        vote = contest.vote(choice)

        def save() -> Kept:
            votes.save(run, vote)
            return votes.load(run)

        def over(kept: Kept) -> None:
            self._saving = False
            if self._contest is contest:
                self._reveal(contest, kept, vote.note)

        def failed(error: TunesmithError) -> None:
            self._saving = False
            self._show_error(error)

        self.run_in_background(save, over, failed)

    def _reveal(self, contest: Contest, kept: Kept, note: str | None) -> None:
        self._contest = None
        shown = contest.shown()
        self.answers.reveal(shown)
        names = [core_text(given.name) for given in shown]
        words = tr.fill(self.tr("Saved. A was %1, B was %2."), *names)
        if note:
            words += f"\n{core_text(note)}"
        self._say(words)
        self._announcer.say(words)
        self._show_votes(kept)
        self._show_state()
        self._propose()

    def _show_votes(self, kept: Kept) -> None:
        self._kept = kept
        paragraphs = ["\n".join(map(core_text, (count.title, *count.words))) for count in kept.counts()]
        self.result.setText("\n\n".join(paragraphs) or self.tr("No votes yet."))
        self.warning.setText(core_text(kept.warning or ""))
        self.warning.setVisible(kept.warning is not None)
        for each in (self.pairs, self.train):
            each.setEnabled(bool(votes.pairs(kept.counted())))

    def _save_pairs(self) -> None:
        path = ask_where_to_save(
            self.window(), self.tr("Save votes as preference pairs"), "preferences.jsonl", "JSONL (*.jsonl)"
        )
        if path is not None:
            kept = self._kept
            self.run_in_background(lambda: votes.save_pairs(path, kept), self._tell_pairs)

    def _train(self) -> None:
        """Fill the Train page with a run that learns to prefer what was voted for."""
        run, kept = self.run, self._kept
        if run is not None and may_train(kept, self.window()):
            self.run_in_background(
                lambda: votes.spec_to_train(run, kept), lambda spec: self.navigate.emit("train", spec), self._show_error
            )

    def _tell_pairs(self, num: int) -> None:
        self.notify.emit("ok", self.tr("%n preference pair(s) saved", "", num))

    # Showing

    def _say(self, text: str, tone: str = "text") -> None:
        self.state.setText(text)
        self.state.set_tone(tone)
        self.state.setVisible(bool(text))

    def _show_state(self) -> None:
        if self.name.text() != self.title:
            self.name.setText(self.title)
        is_free = not self._is_answering and not self._is_voting
        self.weights.setEnabled(is_free)
        self.against.setEnabled(is_free)
        self.box.setEnabled(is_free)
        self.held_out.setVisible(is_free and bool(self._questions))
        differ = not self.against.step or self.weights.step != self.against.step
        self.ask.setEnabled(is_free and differ and bool(self.box.toPlainText().strip()))
        self.ask.setVisible(not self._is_answering)
        self.stop.setVisible(self._is_answering)
        self._choice_row.setVisible(self._is_voting)


def _look(run: Run) -> _Found:
    system = system_prompt_of(run)
    questions = tuple(votes.held_out_questions(run))
    return _Found(run, display_name(run), system, find_weights(run), questions, votes.load(run))
