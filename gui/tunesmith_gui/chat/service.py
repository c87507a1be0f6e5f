"""The loaded model behind the chat page: one operation that stays, for one run at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Signal

from tunesmith_core.answering import needed_bytes
from tunesmith_core.devices import answering_on, device_of
from tunesmith_core.errors import TunesmithError
from tunesmith_core.hardware import detect_hardware
from tunesmith_core.model_cards import read_model_card
from tunesmith_core.model_folder import local_folder
from tunesmith_core.operations.kind import RunFolder
from tunesmith_core.operations.kinds.chat import CHAT, TUNED, AnsweringDevice, ChatSpec, ask
from tunesmith_core.operations.runner import Outcome
from tunesmith_core.protocol import Event
from tunesmith_core.runs import Run
from tunesmith_core.sampling import Sampling
from tunesmith_core.votes import Contest
from tunesmith_gui.background import Job
from tunesmith_gui.services.operation import OperationTask
from tunesmith_gui.tr import translate

WARM_SHARE = 0.25
"""Of free memory that a model may take before anybody has asked it anything."""


class ModelState(Enum):
    """How far the model is."""

    OFF = auto()
    LOADING = auto()
    READY = auto()


@dataclass(slots=True)
class _Asked:
    """A question on its way: who asked it, and how many answers are still to come."""

    asker: object
    num_open: int


class ChatService(QObject):
    """Loads what a run has trained, asks it, and ends it.

    Signals:
        changed: the state, or what `ready` says.
        happened: (asker, event) an Event "piece" or "done" of the answers to what a page has asked.
        failed: a TunesmithError; the model is not loaded any more.
    """

    changed = Signal()
    happened = Signal(object, object)
    failed = Signal(object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.run: Run | None = None
        self.checkpoint = 0
        self.state = ModelState.OFF
        self.ready: dict[str, Any] = {}  # Any: fields of the event
        self.device: AnsweringDevice = "auto"
        self._task: OperationTask | None = None
        self._warming = False
        self._was_asked = False
        self._asked: deque[_Asked] = deque()
        self._outbox: deque[Callable[[], None]] = deque()
        self._sending = False

    def open(self, run: Run, checkpoint: int = 0, device: AnsweringDevice = "auto") -> None:
        """Loads what a run has trained, unless it is; another model goes."""
        if self._task is not None and (self.run, self.device) == (run, device):
            if checkpoint != self.checkpoint:
                self._switch(checkpoint)
            return
        self.close()
        self.run, self.checkpoint, self.device, self.ready = run, checkpoint, device, {}
        self._was_asked = False
        self._asked.clear()
        task = self._task = OperationTask(CHAT, ChatSpec(RunFolder(str(run.path)), checkpoint, device), self)
        task.happened.connect(lambda event: self._take(task, event))
        task.ended.connect(lambda outcome: self._end(task, outcome))
        task.start()
        self._become(ModelState.LOADING)

    def warm(self, run: Run) -> None:
        """Loads what a run has trained where there is plenty of memory, so that the first question finds it ready.

        Of a run that ends just now it is loaded while the last files are written, and takes the newest then. The model
        of another run goes unless somebody has asked it.
        """
        if self._task is not None and self.run == run:
            if self.checkpoint == 0:
                self._switch(0)
            return
        if self._warming or self._is_in_use():
            return
        self._warming = True

        def load(fits: bool) -> None:
            self._warming = False
            if fits and not self._is_in_use():
                self.open(run)

        Job.start(self, lambda: _fits_easily(run), load, lambda _error: load(False))

    def is_loaded(self, run: Run) -> bool:
        """Whether the model of a run is there, or on its way."""
        return self.run == run and self.state is not ModelState.OFF

    def _is_in_use(self) -> bool:
        return self._task is not None and self._was_asked

    def ask(
        self,
        sides: tuple[str, ...],
        messages: dict[str, list[dict[str, str]]],
        sampling: Sampling,
        asker: object,
    ) -> None:
        """Asks; a model that is still loading answers once it is ready, and `happened` tells it with who asked."""
        self._was_asked = True
        self._asked.append(_Asked(asker, len(sides)))
        self._describe()
        self._post("ask", **ask(sides, messages, sampling))

    def ask_contest(self, contest: Contest, sampling: Sampling) -> None:
        """Asks both contenders of a vote, one after the other; the contest is who asks."""
        for contender in contest.order:
            if contender.side == TUNED and contender.checkpoint != self.checkpoint:
                self._switch(contender.checkpoint)
            self.ask((contender.side,), {contender.side: contest.prompt}, sampling, contest)

    def is_asked(self, asker: object) -> bool:
        """Whether an answer to who asked is still to come."""
        return any(each.asker is asker for each in self._asked)

    def stop_answer(self) -> None:
        """Ends the answer where it is."""
        self._post("cancel")

    def close(self) -> None:
        """Unloads the model."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
            self._become(ModelState.OFF)

    def shutdown(self) -> None:
        """Ends the process: the program is closing."""
        if self._task is not None:
            self._task.abandon()
            self._task = None

    def _switch(self, checkpoint: int) -> None:
        self.checkpoint = checkpoint
        self._post("switch", checkpoint=checkpoint)
        self._become(ModelState.LOADING)

    def _post(self, command: str, **data: object) -> None:
        task = self._task
        if task is not None:
            self._outbox.append(lambda: task.post(command, **data))
            self._send()

    def _send(self) -> None:
        """Sends one command after another: each waits for those before it."""
        if self._sending or not self._outbox:
            return
        self._sending = True

        def over() -> None:
            self._sending = False
            self._send()

        def lost(error: TunesmithError) -> None:
            self._asked.clear()
            self._describe()
            self.failed.emit(error)
            over()

        Job.start(self, self._outbox.popleft(), lambda _nothing: over(), lost)

    def _become(self, state: ModelState) -> None:
        self.state = state
        if state is ModelState.OFF:
            self._asked.clear()
        self._describe()
        self.changed.emit()

    def _describe(self) -> None:
        """Say for the activity what the model does."""
        if self._task is None:
            return
        if self._asked and isinstance(self._asked[0].asker, Contest):
            self._task.describe(lambda: translate("Chat", "Blind vote on %1"))
        elif self._asked:
            self._task.describe(lambda: translate("Chat", "Chat with %1, answering"))
        elif self.state is ModelState.READY:
            self._task.describe(self._resting, rests=True)
        else:
            self._task.describe(lambda: translate("Chat", "Chat with %1, loading"))

    def _resting(self) -> str:
        # Nobody has opened a chat with a model that is loaded because its run has ended.
        return translate("Chat", "Chat with %1, ready") if self._was_asked else translate("Chat", "Model of %1, ready")

    def _take(self, task: OperationTask, event: Event) -> None:
        if task is not self._task:
            return
        if event.type == "ready":
            self.ready = event.data
            self._become(ModelState.READY)
        elif event.type in ("piece", "done"):
            self._hand_on(event)
        elif event.type == "ack" and event.data.get("command") == "switch" and not event.data.get("ok"):
            self._become(ModelState.READY)
            self.failed.emit(TunesmithError("checkpoint-damaged", event.data.get("message") or ""))

    def _hand_on(self, event: Event) -> None:
        """Tell whoever asked first: questions are answered in turn."""
        if not self._asked:
            return
        asked = self._asked[0]
        asked.num_open -= event.type == "done"
        if not asked.num_open:
            self._asked.popleft()
            self._describe()
        if isinstance(asked.asker, Contest):
            # Also while nobody looks: the answers are there when its page is shown again.
            asked.asker.take(event)
        self.happened.emit(asked.asker, event)

    def _end(self, task: OperationTask, outcome: Outcome) -> None:
        if task is not self._task:
            return
        self._task = None
        self._become(ModelState.OFF)
        if outcome.error is not None:
            self.failed.emit(outcome.error)


def _fits_easily(run: Run) -> bool:
    spec = answering_on(run.load_spec(), "auto")
    folder = local_folder(spec.model.path, spec.model.revision)
    if folder is None:
        return False
    index = device_of(spec).gpu_index
    hardware = next(each for each in detect_hardware() if each.gpu_index == index)
    return needed_bytes(spec, read_model_card(Path(folder)), hardware) < WARM_SHARE * hardware.free_bytes
