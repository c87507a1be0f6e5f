"""Answers of a trained model; `tunesmith_engine.operations` holds what these do."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tunesmith_core.devices import answering_on
from tunesmith_core.messages import Message
from tunesmith_core.operations.kind import AbsolutePath, Kind, RunFolder
from tunesmith_core.operations.limits import Limits
from tunesmith_core.runs import Run
from tunesmith_core.sampling import Sampling
from tunesmith_core.spec import RunSpec

AnsweringDevice = Literal["auto", "cuda", "cpu"]

TUNED, BASE = "tuned", "base"
SIDES = (TUNED, BASE)
"""Who answers: the trained model, or the base model without the adapter."""

_DEFAULT = Sampling()


@dataclass(frozen=True, slots=True)
class ChatSpec:
    """Whose model answers, and where.

    Attributes:
        run: its folder.
        checkpoint: step of a checkpoint; 0 for the finished adapter, or the newest checkpoint where there is none.
        device: "auto" takes a GPU where there is one.
    """

    run: RunFolder
    checkpoint: int = 0
    device: AnsweringDevice = "auto"

    def answering(self) -> RunSpec:
        """Return the settings of the run, on the device that answers. Raises UserError as `Run.load_spec`."""
        return answering_on(Run(Path(self.run)).load_spec(), self.device)


@dataclass(frozen=True, slots=True)
class AskSpec:
    """One question; what the fields are is said in `ChatSpec` and `Sampling`.

    Attributes:
        base, both: whether the base model answers, or the trained model and then the base model.
        system: the system prompt, "" for that of the run.
    """

    run: RunFolder
    question: str
    checkpoint: int = 0
    base: bool = False
    both: bool = False
    system: str = ""
    max_tokens: int = 512
    temperature: float = _DEFAULT.temperature
    top_k: int = _DEFAULT.top_k
    top_p: float = _DEFAULT.top_p
    min_p: float = _DEFAULT.min_p
    repetition_penalty: float = _DEFAULT.repetition_penalty
    seed: int = _DEFAULT.seed
    device: AnsweringDevice = "auto"

    def chat(self) -> ChatSpec:
        """Return whose model answers."""
        return ChatSpec(self.run, self.checkpoint, self.device)

    def answering(self) -> RunSpec:
        """Return the settings of the run, on the device that answers. Raises UserError as `Run.load_spec`."""
        return self.chat().answering()

    def sampling(self) -> Sampling:
        """Return how tokens are chosen. Raises UserError `usage`."""
        return Sampling.from_dict({field.name: getattr(self, field.name) for field in dataclasses.fields(Sampling)})

    def sides(self) -> tuple[str, ...]:
        """Return who answers, in turn."""
        return SIDES if self.both else (BASE,) if self.base else (TUNED,)


@dataclass(frozen=True, slots=True)
class RenderSpec:
    """The folder of the model whose tokenizer makes prompts, the chat template by which, and its new words."""

    folder: AbsolutePath
    template: str
    words: list[str]


def ask(
    sides: tuple[str, ...], messages: dict[str, list[dict[str, str]]], sampling: Sampling
) -> dict[str, Any]:  # Any: JSON values
    """Return the fields of the command "ask".

    Args:
        sides: who answers, in turn.
        messages: the conversation of each side, for their answers differ.
        sampling: how tokens are chosen.
    """
    return {
        "sides": list(sides),
        "messages": {side: messages[side] for side in sides},
        "sampling": sampling.to_dict(),
    }


CHECKPOINT_HELP = Message("step of a checkpoint; 0 for the finished model, or else the newest checkpoint")

CHAT = Kind(
    name="chat",
    title="Answering",
    spec=ChatSpec,
    function="tunesmith_engine.operations:chat",
    # A product of large matrices is not interrupted.
    grace_s=10.0,
)
ASK = Kind(
    name="ask",
    title="Answering",
    spec=AskSpec,
    function="tunesmith_engine.operations:ask",
    options={
        "question": Message("what to ask"),
        "checkpoint": CHECKPOINT_HELP,
        "base": Message("let the model as it was before the run answer instead"),
        "both": Message("let the trained model answer, and then the model before the run"),
        "system": Message("system prompt; without it, that of the run"),
        "max_tokens": Message("most tokens of an answer"),
        "temperature": Message("0 always takes the most likely token, 0.7 varies, above 1 answers get wild"),
        "top_k": Message("only so many of the most likely tokens; 0 for all"),
        "top_p": Message("only the most likely tokens that together have this probability; 1 for all"),
        "min_p": Message("only tokens with at least this share of the most likely one's probability; 0 for all"),
        "repetition_penalty": Message("above 1, tokens that occurred before become less likely"),
        "seed": Message("the same seed gives the same answer"),
        "device": Message("where the model runs; auto takes a GPU if there is one"),
    },
    grace_s=10.0,
)
RENDER = Kind(
    name="render-prompts",
    title="Preparing a prompt",
    spec=RenderSpec,
    function="tunesmith_engine.operations:render",
    grace_s=1.0,
    limits=Limits(),
)
