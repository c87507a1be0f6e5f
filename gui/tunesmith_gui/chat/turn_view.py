"""A question and its answers, side by side where the base model answers too."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from tunesmith_core.conversations import Answer, Turn
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.kinds.chat import BASE, TUNED
from tunesmith_gui import tr
from tunesmith_gui.chat.spoken_label import BESIDE_LETTERS, SpokenLabel
from tunesmith_gui.models.answer_words import answer_words
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.buttons import IconButton, button
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.error_banner import error_words
from tunesmith_gui.widgets.flow_row import FlowRow
from tunesmith_gui.widgets.safe_label import SafeLabel


class AnswerView(QWidget):
    """What one side answered.

    Signals:
        asked: the id of an action: copy, example.
    """

    asked = Signal(str)

    def __init__(self, side: str, number: int, named: bool, parent: QWidget) -> None:
        super().__init__(parent)
        name = self.tr("Trained model") if side == TUNED else self.tr("Before this run")
        # No word of one answer takes room from the other.
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE // 2)
        heading = SafeLabel(name, role="strong", tone="accent" if side == TUNED else "muted", parent=self)
        heading.setVisible(named)
        column.addWidget(heading)
        self.fold = button(self.tr("Show the thinking"), self._fold, kind="link", parent=self)
        column.addWidget(self.fold, 0, Qt.AlignmentFlag.AlignLeft)
        self.thinking = SpokenLabel(role="note", parent=self)
        self.thinking.hide()
        column.addWidget(self.thinking)
        self.text = SpokenLabel(parent=self)
        column.addWidget(self.text)
        self.state = SafeLabel(role="caption", tone="muted", wrap=True, parent=self)
        column.addWidget(self.state)
        self._copy = button(self.tr("Copy"), lambda: self.asked.emit("copy"), kind="link", parent=self)
        self._example = button(
            self.tr("Save as example…"), lambda: self.asked.emit("example"), kind="link", parent=self
        )
        for each in (self._copy, self._example):
            each.setAccessibleName(tr.fill("%1: %2, %3", each.text(), name, number + 1))
        self._actions = FlowRow((self._copy, self._example), self)
        column.addWidget(self._actions)
        column.addStretch(1)

    def show_answer(self, answer: Answer, *, waiting: bool, turn: str, error: TunesmithError | None) -> None:
        """Brings text and numbers up to date.

        Args:
            answer: what there is of it.
            waiting: whether more will come.
            turn: what it waits for before its first text: "loading", "other" or "".
            error: why it failed.
        """
        text, thinking = answer.text.strip(), answer.thinking.strip()
        is_whole = not waiting and error is None and answer.status in ("end", "length")
        shown, tone = answer_words(text) if is_whole else (text, "text")
        if self.text.text() != shown:
            self.text.setText(shown)
            self.text.set_tone(tone)
        self.text.setVisible(bool(shown))
        self.fold.setVisible(bool(thinking))
        if self.thinking.text() != thinking:
            self.thinking.setText(thinking)
        self._actions.setVisible(not waiting and bool(text))
        words, tone = self._words(answer, waiting, turn, error)
        self.state.setText(words)
        self.state.set_tone(tone)
        self.state.setVisible(bool(words))

    def _words(self, answer: Answer, waiting: bool, turn: str, error: TunesmithError | None) -> tuple[str, str]:
        if waiting and not answer.text:
            if answer.thinking:
                return self.tr("Thinking…"), "muted"
            words = {"loading": self.tr("Loading the model…"), "other": self.tr("Answers after the trained model…")}
            return words.get(turn, self.tr("Reading the question…")), "muted"
        if waiting:
            return "", "muted"
        if error is not None:
            return error_words(error), "error"
        if answer.status == "failed":
            return self.tr("The model gave no answer."), "error"
        if answer.status == "canceled" and not answer.tokens:
            return self.tr("Stopped before the answer was complete. Regenerate asks again."), "muted"
        parts = [self.tr("%n token(s)", "", answer.tokens)]
        if answer.first_s:
            parts.append(tr.fill(self.tr("first after %1 s"), tr.number(answer.first_s, 1)))
        if answer.tokens_per_s:
            parts.append(tr.fill(self.tr("%1 tokens/s"), tr.number(answer.tokens_per_s, 1)))
        if answer.status == "length":
            parts.append(self.tr("stopped at the longest answer"))
        if answer.status == "canceled":
            parts.append(self.tr("stopped"))
        return " · ".join(parts), "muted"

    def _fold(self) -> None:
        shown = self.thinking.isHidden()
        self.thinking.setVisible(shown)
        self.fold.setText(self.tr("Hide the thinking") if shown else self.tr("Show the thinking"))


class TurnView(Card):
    """A question and the answers to it.

    Attributes:
        number: of the turn, from 0.
        turn: what is shown.

    Signals:
        asked: (action, side) edit, again, earlier, later (side ""), copy, example.
    """

    asked = Signal(str, str)

    def __init__(self, number: int, turn: Turn, parent: QWidget | None = None) -> None:
        super().__init__(parent=parent)
        self.number, self.turn = number, turn
        head = QHBoxLayout()
        head.setSpacing(SPACE)
        head.addWidget(SpokenLabel(turn.question, role="strong", parent=self), 1)
        self.edit = button(self.tr("Edit"), lambda: self.asked.emit("edit", ""), kind="link", parent=self)
        self.again = button(self.tr("Regenerate"), lambda: self.asked.emit("again", ""), kind="link", parent=self)
        self._rounds = self._make_rounds(turn)
        for each in (self.edit, self.again):
            each.setAccessibleName(tr.fill(self.tr("%1 question %2"), each.text(), number + 1))
        controls = QHBoxLayout()
        for control in (self._rounds, self.edit, self.again):
            controls.addWidget(control)
        head.addLayout(controls)
        head.setAlignment(controls, Qt.AlignmentFlag.AlignTop)
        self.body.addLayout(head)
        self._sides = QBoxLayout(QBoxLayout.Direction.TopToBottom)
        self._sides.setSpacing(SPACE * 2)
        self.body.addLayout(self._sides)
        self.answers: dict[str, AnswerView] = {}
        for side in turn.answers:
            view = AnswerView(side, number, named=len(turn.answers) > 1, parent=self)
            view.asked.connect(lambda action, side=side: self.asked.emit(action, side))
            self.answers[side] = view
            self._sides.addWidget(view, 1)
        self._arrange()

    def _make_rounds(self, turn: Turn) -> QWidget:
        """Make what tells which of several rounds of answers is shown, and shows the others."""
        holder = QWidget(self)
        row = QHBoxLayout(holder)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        self.earlier = IconButton(
            "chevron-left", self.tr("Earlier answer"), lambda: self.asked.emit("earlier", ""), parent=holder
        )
        self.later = IconButton(
            "chevron-right", self.tr("Later answer"), lambda: self.asked.emit("later", ""), parent=holder
        )
        words = tr.fill(self.tr("%1 of %2"), tr.number(turn.place + 1), tr.number(len(turn.others) + 1))
        for each in (self.earlier, SafeLabel(words, tone="muted", parent=holder), self.later):
            row.addWidget(each)
        holder.setVisible(bool(turn.others))
        return holder

    def show_turn(
        self,
        turn: Turn,
        waiting: list[str],
        errors: dict[str, TunesmithError],
        *,
        loading: bool,
        busy: bool,
        newest: bool = True,
    ) -> None:
        """Brings the answers up to date.

        Args:
            turn: what was asked and answered.
            waiting: sides of it that have not finished.
            errors: why a side failed.
            loading: whether the model is not there yet.
            busy: whether any answer is under way.
            newest: whether no other question follows, which was asked after the answers that are shown.
        """
        for side, view in self.answers.items():
            before = "other" if side == BASE and TUNED in waiting else "loading" if loading else ""
            view.show_answer(turn.answers[side], waiting=side in waiting, turn=before, error=errors.get(side))
        for each in (self.edit, self.again):
            each.setEnabled(not busy)
        self._rounds.setVisible(bool(turn.others) and newest)
        self.earlier.setEnabled(not busy and turn.place > 0)
        self.later.setEnabled(not busy and turn.place < len(turn.others))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Puts two answers beside each other where they have room."""
        super().resizeEvent(event)
        self._arrange()

    def _arrange(self) -> None:
        beside = self.width() >= BESIDE_LETTERS * self.fontMetrics().averageCharWidth()
        direction = QBoxLayout.Direction.LeftToRight if beside else QBoxLayout.Direction.TopToBottom
        if direction is not self._sides.direction():
            self._sides.setDirection(direction)
