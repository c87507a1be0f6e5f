"""The process of a chat at the other end of a terminal: it is asked, and what it says is followed."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable

from tunesmith_core import terminal
from tunesmith_core.errors import TunesmithError, wrap
from tunesmith_core.messages import Message
from tunesmith_core.operations.folder import Operation, OperationState
from tunesmith_core.operations.kinds.chat import CHAT, ChatSpec
from tunesmith_core.operations.kinds.chat import ask as ask_fields
from tunesmith_core.operations.runner import Outcome, conduct
from tunesmith_core.protocol import Event, post_command
from tunesmith_core.sampling import Sampling

_ENDINGS = {
    "idle": Message("Nothing was asked for a while, so the model was unloaded."),
    "gpu-needed": Message("A run needs the GPU, so the model was unloaded."),
}


class ChatProcess:
    """A model that answers until `close`."""

    def __init__(self, spec: ChatSpec) -> None:
        self._spec = spec
        self._news: queue.Queue[Event | Outcome | TunesmithError] = queue.Queue()
        self._operation: Operation | None = None
        self._outcome: Outcome | None = None
        self._error: TunesmithError | None = None
        self._cancel = threading.Event()
        # The child dies with the thread that conducts it.
        self._thread = threading.Thread(target=self._conduct, name="chat", daemon=True)
        self._thread.start()

    def close(self) -> Outcome:
        """End the process and return how it ended. Raises TunesmithError when it could not begin."""
        self._cancel.set()
        self._thread.join()
        if self._error:
            raise self._error
        assert self._outcome is not None
        return self._outcome

    def ask(self, sides: tuple[str, ...], messages: dict[str, list[dict[str, str]]], sampling: Sampling) -> None:
        """Ask a conversation; see `operations.kinds.chat.ask`."""
        self._post("ask", **ask_fields(sides, messages, sampling))

    def switch(self, checkpoint: int) -> None:
        """Let other weights answer what is asked from now on."""
        self._post("switch", checkpoint=checkpoint)

    def follow(self, type_name: str, count: int, take: Callable[[Event], None]) -> bool:
        """Hand on what comes until so many events of a type came; return False when the process has ended first.

        Ctrl-C ends the answers that are under way.
        """
        while count:
            try:
                news = self._news.get()
            except KeyboardInterrupt:
                if type_name != "done":
                    raise
                self._post("cancel")
                continue
            if not isinstance(news, Event):
                return False
            take(news)
            count -= news.type == type_name
        return True

    def _post(self, command: str, **data: object) -> None:
        assert self._operation is not None
        post_command(self._operation.control_path, command, **data)

    def _conduct(self) -> None:
        try:
            self._outcome = conduct(
                CHAT,
                self._spec,
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


def read_line(question: str) -> str:
    """Return a line of standard input with its end, "" after the last one; a person is asked for it."""
    if sys.stdin.isatty():
        terminal.stream(question, to_error=True)
    return sys.stdin.readline()


def tell_end(outcome: Outcome) -> None:
    """Say why a chat ended by itself. Raises the error of one that failed."""
    if outcome.error:
        raise outcome.error
    if outcome.state is OperationState.FINISHED:
        terminal.note(_ENDINGS[outcome.answer["reason"]])
