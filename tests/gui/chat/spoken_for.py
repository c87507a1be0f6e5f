"""A model that a test speaks for."""

from __future__ import annotations

from typing import Any

from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.kinds.chat import TUNED
from tunesmith_core.protocol import Event
from tunesmith_core.runs import Run
from tunesmith_gui.chat.service import ChatService, ModelState


class SpokenFor(ChatService):
    """A service without a process: what it is asked is noted, what the model says a test tells."""

    def __init__(self) -> None:
        super().__init__()
        self.posted: list[tuple[str, dict[str, Any]]] = []
        self.opened: list[tuple[int, str]] = []

    def open(self, run: Run, checkpoint: int = 0, device: Any = "auto") -> None:
        self.run, self.checkpoint, self.device = run, checkpoint, device
        self.opened.append((checkpoint, device))
        self._become(ModelState.LOADING)

    def close(self) -> None:
        self._become(ModelState.OFF)

    def _post(self, command: str, **data: object) -> None:
        self.posted.append((command, data))

    def is_ready(self, **data: Any) -> None:
        self.ready = {"step": 30, "device": "cpu", "has_template": True} | data
        self._become(ModelState.READY)

    def piece(self, text: str, side: str = TUNED, *, thinking: bool = False) -> None:
        self._hand_on(Event(1, 0.0, "piece", {"side": side, "text": text, "thinking": thinking}))

    def done(self, side: str = TUNED, **data: Any) -> None:
        values = {"status": "end", "tokens": 12, "first_s": 0.25, "tokens_per_s": 40.0} | data
        self._hand_on(Event(1, 0.0, "done", {"side": side, **values}))

    def breaks(self, error: TunesmithError) -> None:
        self._become(ModelState.OFF)
        self.failed.emit(error)

    @property
    def asked(self) -> list[dict[str, Any]]:
        return [data for command, data in self.posted if command == "ask"]
