"""Chat as an operation: it loads a model, answers what command files ask, and ends with whoever started it."""

from __future__ import annotations

import contextlib
import gc
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunesmith_core.answering import check_room, check_writes
from tunesmith_core.conversations import system_prompt_of
from tunesmith_core.devices import Device, device_of
from tunesmith_core.errors import TunesmithError
from tunesmith_core.exports import chosen_weights
from tunesmith_core.model_cards import read_model_card
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kinds.chat import AskSpec, ChatSpec
from tunesmith_core.protocol import Command
from tunesmith_core.run_queue import holder_of
from tunesmith_core.runs import Run
from tunesmith_core.sampling import Sampling
from tunesmith_core.spec import RunSpec
from tunesmith_engine.chat.prompting import Prompt, Prompts

if TYPE_CHECKING:
    from tunesmith_engine.chat.session import Session

Answer = dict[str, Any]  # Any: JSON values

IDLE_S = 900.0
"""A model that nobody asks anything for so long is unloaded."""

QUIET_S = 5.0
"""After an answer; then nobody is likely to ask while a faster way to answer is compared with transformers."""

LOOK_S = 2.0
"""Seconds between two looks whether a run needs the GPU."""

WAIT_S = 0.02


def ask(host: Host, spec: AskSpec) -> Answer:
    """Answer one question; return the answer of each side."""
    sampling = spec.sampling()
    run_spec = spec.answering()
    system = spec.system or system_prompt_of(Run(Path(spec.run)))
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": spec.question})
    with _Chat(host, spec.chat(), run_spec) as chat:
        return {"answers": chat.answer("", dict.fromkeys(spec.sides(), messages), sampling)}


def chat(host: Host, spec: ChatSpec) -> Answer:
    """Answer until nobody asks for long, or a run needs the GPU; a stop interrupts."""
    with _Chat(host, spec, spec.answering()) as chat:
        return {"reason": chat.serve()}


class _Chat:
    """A loaded model and the helper that makes its prompts; a context manager."""

    def __init__(self, host: Host, spec: ChatSpec, run_spec: RunSpec) -> None:
        from tunesmith_engine.model.folder import model_folder

        began = time.perf_counter()
        check_writes(run_spec)
        self._host = host
        self._device = device_of(run_spec)
        self._waiting: deque[Command] = deque()
        self._canceled = False
        self._given_up: set[str] = set()
        host.phase("model")
        # Told before PyTorch is loaded, which takes seconds.
        chosen_weights(Run(Path(spec.run)), spec.checkpoint)
        folder = model_folder(run_spec.model)
        check_room(run_spec, read_model_card(folder))
        self._beside = holder_of(self._device)
        self._prompts = Prompts(folder, run_spec.model.chat_template, run_spec.model.new_tokens)
        try:
            with _collecting_nothing():
                self._session = _open(Run(Path(spec.run)), run_spec, folder, spec.checkpoint)
        except BaseException:
            self._prompts.close()
            raise
        self._tell_ready(time.perf_counter() - began)

    def __enter__(self) -> _Chat:
        return self

    def __exit__(self, *_: object) -> None:
        self._prompts.close()

    def _tell_ready(self, seconds: float) -> None:
        session = self._session
        self._host.event(
            "ready",
            step=session.step,
            device=session.compute.device.type,
            device_name=session.compute.name,
            most_tokens=session.most_tokens,
            has_template=session.has_template,
            seconds=round(seconds, 3),
        )

    def serve(self) -> str:
        """Do what commands say; return why it ended: "idle" or "gpu-needed"."""
        heard = looked = time.monotonic()
        while True:
            self._listen()
            if self._waiting:
                self._do(self._waiting.popleft())
                heard = time.monotonic()
                continue
            now = time.monotonic()
            if now - heard > QUIET_S and self._session.may_hurry:
                self._session.hurry()
            if now - heard > IDLE_S:
                return "idle"
            if now - looked > LOOK_S:
                looked = now
                if self._is_needed(self._device):
                    return "gpu-needed"
            time.sleep(WAIT_S)

    def _is_needed(self, device: Device) -> bool:
        """Return whether a run took the GPU that was not there when the model was loaded beside it."""
        return device.gpu_index is not None and holder_of(device) not in ("", self._beside)

    def _listen(self) -> None:
        for command in self._host.take_commands():
            if command.name == "cancel":
                # What waits was asked before.
                self._canceled = True
                self._given_up.update(waiting.id for waiting in self._waiting if waiting.name == "ask")
                self._host.ack(command)
            elif command.name in ("ask", "switch"):
                self._waiting.append(command)
            else:
                self._host.ack(command, ok=False)

    def _should_stop(self) -> bool:
        self._listen()
        return self._canceled

    def _do(self, command: Command) -> None:
        self._canceled = command.id in self._given_up
        if command.name == "ask":
            data = command.data
            self.answer(command.id, {side: data["messages"][side] for side in data["sides"]}, data["sampling"])
            return
        began = time.perf_counter()
        try:
            self._session.switch(int(command.data["checkpoint"]))
        except TunesmithError as error:
            self._host.ack(command, ok=False, message=error.message)
            return
        self._host.ack(command)
        self._tell_ready(time.perf_counter() - began)

    def answer(self, ask_id: str, messages: dict[str, list[dict[str, str]]], sampling: Any) -> Answer:
        """Answer a conversation by each side in turn and tell it; return the answers.

        Args:
            ask_id: of the command that asked; "" raises what fails instead of telling it.
            messages: of each side.
            sampling: settings, or their JSON values.
        """
        answers: Answer = {}
        for side, conversation in messages.items():
            try:
                chosen = sampling if isinstance(sampling, Sampling) else Sampling.from_dict(sampling)
                told = self._answer_one(ask_id, side, conversation, chosen)
            except Exception as error:
                if not ask_id:
                    raise
                told = {"status": "failed", "error": _told(error)}
                self._session.tidy()
            answers[side] = told
            self._host.event("done", ask=ask_id, side=side, **{key: told[key] for key in told if key not in _TEXTS})
        return answers

    def _answer_one(
        self, ask_id: str, side: str, conversation: list[dict[str, str]], sampling: Sampling
    ) -> Answer:
        prompt = None if self._canceled else self._prompts.make(conversation, self._should_stop)
        if prompt is None:
            return {"status": "canceled", "text": "", "thinking": "", "tokens": 0}
        return self._generate(ask_id, side, prompt, sampling)

    def _generate(self, ask_id: str, side: str, prompt: Prompt, sampling: Sampling) -> Answer:
        def tell(text: str, thinking: bool) -> None:
            self._host.event("piece", ask=ask_id, side=side, text=text, thinking=thinking)

        return self._session.answer(prompt, side, sampling, tell, self._should_stop).to_dict()


_TEXTS = ("text", "thinking")


@contextlib.contextmanager
def _collecting_nothing() -> Iterator[None]:
    """Make what stays without looking for garbage in it again and again, then or later.

    Of the seconds until a small model answers on a CPU that is a sixth.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _open(run: Run, spec: RunSpec, folder: Path, checkpoint: int) -> Session:
    if spec.quantization.kind == "none":
        _leave_out_bitsandbytes()
    # Imported here: PyTorch takes seconds, in which the process that makes prompts starts.
    from tunesmith_engine.chat.session import Session

    return Session(run, spec, folder, checkpoint)


def _leave_out_bitsandbytes() -> None:
    """Let PEFT find no bitsandbytes in this process.

    PEFT imports it wherever it is installed, and that imports PyTorch's compiler: of the seconds until a chat is ready
    one, which only 4-bit models need.
    """
    if "peft" not in sys.modules:
        sys.modules["bitsandbytes"] = None  # type: ignore[assignment]


def _told(error: Exception) -> Answer:
    from tunesmith_engine.failures import translate

    return translate(error).to_dict()
