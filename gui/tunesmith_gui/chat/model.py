"""What the chat page shows, without widgets: conversations, the answers under way, and what may be done now."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from tunesmith_core.conversations import Answer, Conversation, Turn
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.kinds.chat import SIDES, TUNED
from tunesmith_core.protocol import Event


@dataclass
class ChatModel:
    """State of the page.

    Attributes:
        conversations: of the run, newest first.
        current: the one that is shown.
        waiting: sides that have not finished their answer yet, in turn.
        errors: why a side's newest answer failed.
        edited: number of the turn that the next question replaces, with what follows; None for a new one.
    """

    conversations: list[Conversation] = field(default_factory=list)
    current: Conversation = field(default_factory=Conversation)
    waiting: list[str] = field(default_factory=list)
    errors: dict[str, TunesmithError] = field(default_factory=dict)
    edited: int | None = None
    _replaced: list[Turn] = field(default_factory=list)

    @property
    def answering(self) -> bool:
        """Whether an answer is under way."""
        return bool(self.waiting)

    def show(self, conversations: list[Conversation], system: str) -> None:
        """Take the conversations of a run and show the newest, or a new one."""
        self.conversations = conversations
        self.select(conversations[0] if conversations else Conversation(system=system))

    def select(self, conversation: Conversation) -> None:
        """Show a conversation; not while an answer is under way."""
        self.current, self.edited = conversation, None
        self.errors.clear()

    def begin(self, question: str, step: int) -> tuple[str, ...]:
        """Ask a question: after what was said, or in place of the turn that is edited. Return who answers, in turn.

        Args:
            question: what is asked.
            step: of the run whose weights answer.
        """
        talk = self.current
        number = len(talk.turns) if self.edited is None else self.edited
        self._replaced = talk.turns[number:]
        del talk.turns[number:]
        self.edited = None
        sides = SIDES if talk.compares else (TUNED,)
        # What is kept now and never ends, because the program was closed, counts as stopped.
        talk.turns.append(Turn(question, {side: Answer(step=step, status="canceled") for side in sides}))
        talk.changed_at = time.time()
        self.errors.clear()
        self.waiting = list(sides)
        if talk in self.conversations:
            self.conversations.remove(talk)
        self.conversations.insert(0, talk)
        return sides

    def again(self, number: int, step: int) -> tuple[str, ...]:
        """Ask the question of a turn again; its answers stay beside, what followed goes. Return who answers."""
        self.edited, rounds = number, self.current.turns[number].all_answers()
        sides = self.begin(self.current.turns[number].question, step)
        self.current.turns[number].others, self.current.turns[number].place = rounds, len(rounds)
        return sides

    def show_answers(self, distance: int) -> None:
        """Make an earlier or later round of answers to the newest question those that count."""
        turns = self.current.turns
        turns[-1] = turns[-1].showing(turns[-1].place + distance)

    def take_back(self) -> str:
        """Undo the newest question and return it; what it replaced is there again, to be edited."""
        turns = self.current.turns
        question = turns.pop().question
        if self._replaced:
            self.edited = len(turns)
            turns += self._replaced
        self._replaced = []
        self.errors.clear()
        if not turns:
            self.conversations.remove(self.current)
        return question

    def take(self, event: Event) -> None:
        """Take a piece or the end of an answer into account."""
        side = event.data.get("side")
        if side not in self.waiting or not self.current.turns:
            return
        answer = self.current.turns[-1].answers[side]
        if event.type == "piece" and event.data.get("thinking"):
            answer.thinking += event.data.get("text") or ""
        elif event.type == "piece":
            answer.text += event.data.get("text") or ""
        else:
            answer.fold(event.data)
            self.waiting.remove(side)
            if event.data.get("error"):
                self.errors[side] = TunesmithError.from_dict(event.data["error"])

    def fail(self) -> None:
        """The model is gone: what was under way has failed."""
        for side in self.waiting:
            self.current.turns[-1].answers[side].status = "failed"
        self.waiting.clear()

    def forget(self, conversation: Conversation, system: str) -> None:
        """Take a conversation out of the list; the next one is shown."""
        self.conversations.remove(conversation)
        if conversation is self.current:
            self.show(self.conversations, system)
