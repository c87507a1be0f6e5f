"""Conversations as tokens: the chat template of a model runs in a limited process that stays for the whole chat."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunesmith_core import environments
from tunesmith_core.errors import RunFailure, TunesmithError, wrap
from tunesmith_core.operations.folder import Operation
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kind import AbsolutePath
from tunesmith_core.operations.kinds.chat import RENDER, RenderSpec
from tunesmith_core.operations.limits import Portions
from tunesmith_core.operations.runner import conduct
from tunesmith_core.protocol import Event, post_command

WAIT_S = 0.02


@dataclass(frozen=True, slots=True)
class Prompt:
    """A conversation as tokens; `thinks` says whether the template has opened the model's thinking."""

    tokens: list[int]
    thinks: bool


class Prompts:
    """Makes prompts in a limited process; `close` ends it.

    A template that breaks a limit costs the process, and the next prompt gets a new one.
    """

    def __init__(self, folder: Path, template: str, words: Sequence[str] = ()) -> None:
        self._spec = RenderSpec(AbsolutePath(str(folder)), template, list(words))
        self._child: _Renderer | None = _Renderer(self._spec)

    def close(self) -> None:
        """End the process."""
        if self._child:
            self._child.close()

    def make(self, messages: list[dict[str, str]], should_stop: Callable[[], bool]) -> Prompt | None:
        """Return a conversation as tokens, None after a stop.

        Raises:
            TunesmithError: `sample-failed` when the template refuses it, or `foreign-limit`.
        """
        self._child = self._child or _Renderer(self._spec)
        try:
            return self._child.render(messages, should_stop)
        except TunesmithError:
            if self._child.is_over():
                self._child = None
            raise


class _Renderer:
    """One limited process."""

    def __init__(self, spec: RenderSpec) -> None:
        self._spec = spec
        self._operation: Operation | None = None
        self._answers: dict[str, dict[str, Any]] = {}  # Any: fields of an event
        self._error: TunesmithError | None = None
        self._cancel, self._created = threading.Event(), threading.Event()
        # The child dies with the thread that conducts it.
        self._thread = threading.Thread(target=self._conduct, name="render-prompts", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._cancel.set()
        self._thread.join()

    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def render(self, messages: list[dict[str, str]], should_stop: Callable[[], bool]) -> Prompt | None:
        self._created.wait()
        identifier = ""
        if self._operation and not self.is_over():
            identifier = post_command(self._operation.control_path, "render", messages=messages)
        while identifier not in self._answers:
            if self.is_over():
                raise self._error or RunFailure("engine-crashed", "The process that makes prompts has ended.")
            if should_stop():
                return None
            time.sleep(WAIT_S)
        answer = self._answers.pop(identifier)
        if answer.get("error"):
            raise TunesmithError.from_dict(answer["error"])
        return Prompt(answer["ids"], answer["thinking"])

    def _conduct(self) -> None:
        try:
            outcome = conduct(
                RENDER,
                self._spec,
                on_event=self._listen,
                on_created=self._begin,
                cancel=self._cancel,
                command=lambda operation: environments.own_command(
                    "tunesmith_engine", "operation", str(operation.path)
                ),
            )
            self._error = outcome.error
        except Exception as error:
            self._error = wrap(error)
        finally:
            self._created.set()

    def _begin(self, operation: Operation) -> None:
        self._operation = operation
        self._created.set()

    def _listen(self, event: Event) -> None:
        if event.type == "prompt":
            self._answers[event.data["ask"]] = event.data


def serve_prompts(host: Host, tokenizer: Any, portions: Portions) -> None:  # Any: a transformers tokenizer
    """Render conversations until a stop interrupts."""
    from tunesmith_engine.data.prompts import conversation_ids

    while True:
        for command in host.take_commands():
            if command.name != "render":
                host.ack(command, ok=False)
                continue
            portions.begin("prompt")
            try:
                ids, thinks = conversation_ids(tokenizer, command.data["messages"], portions)
                host.event("prompt", ask=command.id, ids=ids, thinking=thinks)
            except TunesmithError as error:
                host.event("prompt", ask=command.id, error=error.to_dict())
            portions.end()
        time.sleep(WAIT_S)
