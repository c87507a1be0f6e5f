"""Commands of the command line that talk to the trained model of a run: one question, or a conversation."""

from __future__ import annotations

import dataclasses
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from tunesmith_core import conversations, terminal
from tunesmith_core.chat_process import ChatProcess, read_line, tell_end
from tunesmith_core.conversations import Answer, Conversation, Turn
from tunesmith_core.errors import EXIT_DONE, TunesmithError
from tunesmith_core.messages import Message
from tunesmith_core.operations.kinds.chat import ASK, BASE, TUNED, AskSpec
from tunesmith_core.operations.runner import Outcome, conduct
from tunesmith_core.protocol import Event
from tunesmith_core.runs import Run

_NAMES = {TUNED: Message("Trained model:"), BASE: Message("Before this run:")}


def ask(arguments: Namespace) -> int:
    """Answer one question; the text streams to standard output, everything else goes to standard error."""
    spec = _spec(arguments)
    if not spec.question.strip():
        raise TunesmithError("usage", "The question is empty.")
    spec.sampling()
    show = terminal.say_event if arguments.json else _Shown(spec.sides()).show
    conduct(ASK, spec, on_event=show).get()
    return EXIT_DONE


def chat(arguments: Namespace) -> int:
    """Answer every line of standard input until it ends; Ctrl-C stops an answer, or the chat."""
    spec = _spec(arguments)
    spec.sampling()
    talk = _Talk(spec, terminal.say_event if arguments.json else _Shown(spec.sides()).show)
    try:
        talk.converse()
    finally:
        outcome = talk.close()
    tell_end(outcome)
    return EXIT_DONE


def _spec(arguments: Namespace) -> AskSpec:
    given = vars(arguments)
    return AskSpec(**{"question": "", **{name: given[name] for name in _FIELDS if name in given}})


_FIELDS = tuple(field.name for field in dataclasses.fields(AskSpec))


class _Shown:
    """Tells a person what comes, as it comes."""

    def __init__(self, sides: tuple[str, ...]) -> None:
        self._names_sides = len(sides) > 1
        self._side = ""
        self._thinking = False

    def show(self, event: Event) -> None:
        data = event.data
        if event.type == "phase" and data.get("name") == "model":
            terminal.note("Loading the model…")
        elif event.type == "warning":
            terminal.note(str(data.get("message")))
        elif event.type == "piece":
            self._begin(data["side"], data["thinking"])
            terminal.stream(data["text"], to_error=data["thinking"])
        elif event.type == "done":
            self._end(event)

    def _begin(self, side: str, thinking: bool) -> None:
        if side != self._side and self._names_sides:
            terminal.say(_NAMES[side])
        if self._thinking and not thinking:
            terminal.note()
        self._side, self._thinking = side, thinking

    def _end(self, event: Event) -> None:
        data = event.data
        self._side, self._thinking = "", False
        if data["status"] == "failed":
            terminal.show_error(TunesmithError.from_dict(data["error"]))
            return
        terminal.say()
        parts = {"tokens": data.get("tokens") or 0, "first": f"{data.get('first_s') or 0:.1f}"}
        if data.get("tokens_per_s"):
            speed = f"{data['tokens_per_s']:.1f}"
            terminal.note(
                Message("{tokens} tokens, the first after {first} s, {speed} tokens/s", **parts, speed=speed)
            )
        else:
            terminal.note(Message("{tokens} tokens, the first after {first} s", **parts))


class _Talk:
    """A conversation on a terminal, kept like those of the window."""

    def __init__(self, spec: AskSpec, show: Callable[[Event], None]) -> None:
        self._spec, self._show = spec, show
        self._run = Run(Path(spec.run))
        system = spec.system or conversations.system_prompt_of(self._run)
        self._kept = Conversation(system=system, compares=spec.both, sampling=spec.sampling())
        self._process = ChatProcess(spec.chat())

    def close(self) -> Outcome:
        """End the model's process and return how it ended."""
        return self._process.close()

    def converse(self) -> None:
        """Ask every line of standard input."""
        try:
            if not self._process.follow("ready", 1, self._take):
                return
            while line := read_line("> "):
                if line.strip() and not self._ask(line.rstrip("\n")):
                    return
        except KeyboardInterrupt:
            terminal.note()

    def _ask(self, question: str) -> bool:
        """Ask a question and follow the answers; return False when the process has ended."""
        kept, sides = self._kept, self._spec.sides()
        kept.turns.append(Turn(question, {side: Answer(status="canceled") for side in sides}))
        self._process.ask(sides, {side: kept.messages(side) for side in sides}, kept.sampling)
        goes_on = self._process.follow("done", len(sides), self._take)
        conversations.save(self._run, kept)
        return goes_on

    def _take(self, event: Event) -> None:
        self._keep(event)
        self._show(event)

    def _keep(self, event: Event) -> None:
        if event.type not in ("piece", "done"):
            return
        answer = self._kept.turns[-1].answers[event.data["side"]]
        if event.type == "piece" and event.data["thinking"]:
            answer.thinking += event.data["text"]
        elif event.type == "piece":
            answer.text += event.data["text"]
        else:
            answer.fold(event.data)
