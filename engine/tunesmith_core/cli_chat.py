"""Commands of the command line that talk to the trained model of a run: one question, or a conversation."""

from __future__ import annotations

import dataclasses
import queue
import sys
import threading
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from tunesmith_core import conversations, terminal
from tunesmith_core.conversations import Answer, Conversation, Turn
from tunesmith_core.errors import EXIT_DONE, TunesmithError, wrap
from tunesmith_core.messages import Message
from tunesmith_core.operations.folder import Operation, OperationState
from tunesmith_core.operations.kinds.chat import ASK, BASE, CHAT, TUNED, AskSpec
from tunesmith_core.operations.kinds.chat import ask as ask_fields
from tunesmith_core.operations.runner import Outcome, conduct
from tunesmith_core.protocol import Event, post_command
from tunesmith_core.runs import Run

_NAMES = {TUNED: Message("Trained model:"), BASE: Message("Base model:")}
_ENDINGS = {
    "idle": Message("Nothing was asked for a while, so the model was unloaded."),
    "gpu-needed": Message("A run needs the GPU, so the model was unloaded."),
}


def ask(arguments: Namespace) -> int:
    """Answer one question; the text streams to standard output, everything else goes to standard error."""
    spec = _spec(arguments)
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
    if outcome.error:
        raise outcome.error
    if outcome.state is OperationState.FINISHED:
        terminal.note(_ENDINGS[outcome.answer["reason"]])
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
        self._news: queue.Queue[Event | Outcome | TunesmithError] = queue.Queue()
        self._operation: Operation | None = None
        self._outcome: Outcome | None = None
        self._error: TunesmithError | None = None
        self._cancel = threading.Event()
        system = spec.system or self._run.load_spec().data.system_prompt
        self._kept = Conversation(system=system, compares=spec.both, sampling=spec.sampling())
        # The child dies with the thread that conducts it.
        self._thread = threading.Thread(target=self._conduct, name="chat", daemon=True)
        self._thread.start()

    def close(self) -> Outcome:
        """End the model's process and return how it ended."""
        self._cancel.set()
        self._thread.join()
        if self._error:
            raise self._error
        assert self._outcome is not None
        return self._outcome

    def converse(self) -> None:
        """Ask every line of standard input."""
        try:
            if not self._follow({"ready"}, 1):
                return
            while line := self._read():
                if line.strip() and not self._ask(line.rstrip("\n")):
                    return
        except KeyboardInterrupt:
            terminal.note()

    def _read(self) -> str:
        if sys.stdin.isatty():
            terminal.stream("> ", to_error=True)
        return sys.stdin.readline()

    def _ask(self, question: str) -> bool:
        """Ask a question and follow the answers; return False when the process has ended."""
        kept, sides = self._kept, self._spec.sides()
        kept.turns.append(Turn(question))
        messages = {side: kept.messages(side) for side in sides}
        self._post("ask", **ask_fields(sides, messages, kept.sampling))
        goes_on = self._follow({"done"}, len(sides))
        conversations.save(self._run, kept)
        return goes_on

    def _follow(self, types: set[str], count: int) -> bool:
        """Show what comes until so many events of some types came; return False when the process has ended first."""
        while count:
            try:
                news = self._news.get()
            except KeyboardInterrupt:
                if "done" not in types:
                    raise
                self._post("cancel")
                continue
            if not isinstance(news, Event):
                return False
            self._keep(news)
            self._show(news)
            count -= news.type in types
        return True

    def _keep(self, event: Event) -> None:
        if event.type not in ("piece", "done"):
            return
        answer = self._kept.turns[-1].answers.setdefault(event.data["side"], Answer())
        if event.type == "piece" and event.data["thinking"]:
            answer.thinking += event.data["text"]
        elif event.type == "piece":
            answer.text += event.data["text"]
        else:
            answer.fold(event.data)

    def _post(self, command: str, **data: object) -> None:
        assert self._operation is not None
        post_command(self._operation.control_path, command, **data)

    def _conduct(self) -> None:
        try:
            self._outcome = conduct(
                CHAT,
                self._spec.chat(),
                on_event=self._news.put,
                on_created=self._begin,
                cancel=self._cancel,
            )
            self._news.put(self._outcome)
        except Exception as error:
            self._error = wrap(error)
            self._news.put(self._error)

    def _begin(self, operation: Operation) -> None:
        self._operation = operation
