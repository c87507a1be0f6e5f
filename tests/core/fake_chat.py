"""A chat process that a test speaks for, and a person who types."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.folder import Operation, OperationState
from tunesmith_core.operations.kinds.chat import ASK, CHAT
from tunesmith_core.operations.runner import Outcome
from tunesmith_core.protocol import Event, pending_commands, read_command

Tell = Callable[..., None]


class Engine:
    """Stands for the child: tells what a script says when a command comes."""

    def __init__(self, folder: Path) -> None:
        self.operation = Operation(folder / "operation")
        self.operation.control_path.mkdir(parents=True)
        self.asked: list[dict[str, Any]] = []
        self.specs: list[Any] = []
        self.answer: Callable[[dict[str, Any], Tell], None] = lambda _data, _tell: None
        self.ends: Outcome | None = None
        self.fails: TunesmithError | None = None

    def conduct(
        self,
        kind: Any,
        spec: Any,
        *,
        on_event: Callable[[Event], object],
        on_created: Callable[[Operation], object] = lambda _operation: None,
        cancel: threading.Event | None = None,
    ) -> Outcome:
        def tell(type_name: str, **data: Any) -> None:
            on_event(Event(1, 0.0, type_name, data))

        self.specs.append(spec)
        if self.fails:
            raise self.fails
        on_created(self.operation)
        tell("phase", name="model")
        tell("warning", message="slow")
        tell("log", text="nothing")
        if kind is ASK:
            self.answer({"sides": spec.sides()}, tell)
            return Outcome(OperationState.FINISHED, 0, {"answers": {}})
        assert kind is CHAT
        assert cancel is not None
        if self.ends:
            return self.ends
        tell("ready", step=3)
        while not cancel.wait(0.005):
            for path in pending_commands(self.operation.control_path):
                command = read_command(path)
                path.unlink()
                assert command is not None
                self.asked.append({"command": command.name, **command.data})
                self.answer({"command": command.name, **command.data}, tell)
        return Outcome(OperationState.STOPPED, 5)


def say_yes(data: dict[str, Any], tell: Tell) -> None:
    for side in data["sides"]:
        tell("piece", side=side, text="Hm", thinking=True)
        tell("piece", side=side, text="Ye", thinking=False)
        tell("piece", side=side, text=f"s, {side}.", thinking=False)
        tell("done", side=side, status="end", tokens=4, first_s=0.25, tokens_per_s=12.5)


def type_in(monkeypatch: pytest.MonkeyPatch, text: str, *, tty: bool = False) -> None:
    stream = io.StringIO(text)
    monkeypatch.setattr(stream, "isatty", lambda: tty)
    monkeypatch.setattr("sys.stdin", stream)
