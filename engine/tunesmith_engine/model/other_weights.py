"""Weights that an adapter had before a run, or that another adapter has, asked in place of the trained ones.

A run that continues an adapter compares itself with what it began as, and another adapter may be the reference of its
objective. Both are further weights of the same adapter, so there is one model: for a while, its parameters point to
them. The trained weights themselves are never touched, and an end of the run beside a step finds them by `settled`.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from peft import PeftConfig, PeftModel, load_peft_weights

from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message

Weights = Mapping[str, torch.Tensor]
"""Of each trained parameter, by its name in the model."""

_NAME = "other_weights"
WAIT_S = 20.0
"""How long an end of the run waits for parameters that are about to be pointed elsewhere."""


class OtherWeights:
    """What a model with an adapter can be asked with, beside its trained weights.

    Attributes:
        start: what the adapter had when the run began; None for a new one, beside which the base model is asked.
        reference: those of another adapter, with which an objective compares; None for the start.
    """

    def __init__(self, parameters: dict[str, torch.nn.Parameter], start: Weights | None = None) -> None:
        self.start = start
        self.reference: Weights | None = None
        self._parameters = parameters
        self._trained: dict[str, torch.Tensor] = {}
        self._turn = threading.RLock()

    @contextlib.contextmanager
    def in_place(self, weights: Weights) -> Iterator[None]:
        """Make the context in which the model has other weights. What was copied from them has to be copied again."""
        before = {name: parameter.data for name, parameter in self._parameters.items()}
        with self._turn:
            self._trained = self._trained or before
            self._point({name: weights[name].to(value.device) for name, value in before.items()})
        try:
            yield
        finally:
            with self._turn:
                self._point(before)
                if self._trained is before:
                    self._trained = {}

    def _point(self, weights: Weights) -> None:
        for name, parameter in self._parameters.items():
            parameter.data = weights[name]

    @contextlib.contextmanager
    def settled(self) -> Iterator[None]:
        """Make the context in which the model has its trained weights whatever another thread is asking it.

        Raises:
            TimeoutError: that thread does not let go.
        """
        if not self._turn.acquire(timeout=WAIT_S):
            raise TimeoutError("The weights are being exchanged.")
        asked = {name: parameter.data for name, parameter in self._parameters.items()}
        try:
            self._point(self._trained or asked)
            yield
        finally:
            self._point(asked)
            self._turn.release()


def other_weights(model: Any) -> OtherWeights | None:  # Any: PEFT's model or FullModel
    """Return what a model can be asked with, None where the adapter can only be switched off."""
    found: OtherWeights | None = vars(model).get(_NAME)
    return found


def before_run(model: Any) -> AbstractContextManager[None]:  # Any: PEFT's model or FullModel
    """Return the context in which a model is as it was before the run: its adapter is off, or has its first weights."""
    start = start_of(model)
    if start is not None:
        return asked_with(model, start)
    context: AbstractContextManager[None] = model.disable_adapter()
    return context


def start_of(model: Any) -> Weights | None:  # Any: PEFT's model or FullModel
    """Return the weights with which a model was before the run, None where that is the base model."""
    others = other_weights(model)
    return others.start if others else None


def reference_of(model: Any) -> Weights | None:  # Any: PEFT's model or FullModel
    """Return the weights of the adapter with which an objective compares, None where that is the base model."""
    others = other_weights(model)
    return (others.reference or others.start) if others else None


@contextlib.contextmanager
def asked_with(model: Any, weights: Weights) -> Iterator[None]:  # Any: PEFT's model
    """Make the context in which a model has weights from `start_of` or `reference_of`, and drops nothing."""
    others, was_training = other_weights(model), model.training
    assert others is not None, "they are its own"
    model.eval()
    try:
        with others.in_place(weights):
            yield
    finally:
        model.train(was_training)


def settled(model: Any) -> AbstractContextManager[None]:  # Any: PEFT's model or FullModel
    """Return the context in which a model has its trained weights, see `OtherWeights.settled`."""
    others = other_weights(model)
    return others.settled() if others else contextlib.nullcontext()


def remember(model: PeftModel, parameters: dict[str, torch.nn.Parameter], *, on_device: bool) -> None:
    """Note the present weights as those with which a run began.

    Args:
        model: with the adapter that it continues.
        parameters: the trained ones.
        on_device: whether steps ask for them; else the CPU has the memory.
    """
    start = {name: _kept(parameter.detach(), on_device) for name, parameter in parameters.items()}
    vars(model)[_NAME] = OtherWeights(parameters, start)


def refer_to(
    model: PeftModel, parameters: dict[str, torch.nn.Parameter], folder: Path, *, on_device: bool
) -> None:
    """Let an objective compare with another adapter, as weights of the trained one.

    A lower rank is filled up with zeros, another scale becomes part of B: the product is the same.

    Raises:
        UserError: `adapter-unfit` when the trained adapter has no place for one of its weights.
    """
    others = other_weights(model) or OtherWeights(parameters)
    vars(model)[_NAME] = others
    theirs, weights = PeftConfig.from_pretrained(str(folder)), load_peft_weights(str(folder), device="cpu")
    ours: Any = model.peft_config["default"]  # Any: PEFT's types
    placed = {_inserted(name): value for name, value in weights.items()}
    found: dict[str, torch.Tensor] = {}
    for name, parameter in parameters.items():
        value = placed.pop(name, None)
        if value is None:
            # Nothing is added there, so B is zero; what has no B is as in the base model.
            value = torch.zeros(parameter.shape) if ".lora_" in name else parameter.detach()
        elif ".lora_B." in name:
            module = name.partition(".lora_B.")[0].removeprefix("base_model.model.")
            value = value.float() * (_scale(theirs, module) / _scale(ours, module))
        found[name] = _kept(_padded(value, parameter, name, folder).to(parameter), on_device)
    if placed:
        words = Message("the trained adapter has no place for {name}", name=next(iter(placed)))
        raise TunesmithError("adapter-unfit", "{path}: {problem}.", path=folder, problem=words)
    others.reference = found


def _inserted(name: str) -> str:
    """Return the name that a weight of an adapter's file has in the model."""
    for kind in ("lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B", "lora_magnitude_vector"):
        if name.endswith(f".{kind}") or f".{kind}.weight" in name:
            end = ".default" if name.endswith(f".{kind}") and "embedding" in kind else ".default.weight"
            return name.partition(f".{kind}")[0] + f".{kind}{end}"
    return name


def _scale(config: Any, module: str) -> float:  # Any: PEFT's LoraConfig
    from peft.utils.other import get_pattern_key

    rank = config.rank_pattern.get(get_pattern_key(config.rank_pattern, module), config.r)
    alpha = config.alpha_pattern.get(get_pattern_key(config.alpha_pattern, module), config.lora_alpha)
    return float(alpha / (math.sqrt(rank) if config.use_rslora else rank))


def _padded(value: torch.Tensor, parameter: torch.Tensor, name: str, folder: Path) -> torch.Tensor:
    """Return a factor of a lower rank with zeros for the ranks that it lacks."""
    axis = 0 if ".lora_A." in name else 1
    if value.shape == parameter.shape:
        return value
    more = parameter.shape[axis] - value.shape[axis] if value.dim() == parameter.dim() == 2 else -1
    fits = more > 0 and ".lora_" in name and value.shape[1 - axis] == parameter.shape[1 - axis]
    if not fits:
        words = Message(
            "{name} has the shape {shape}, the trained adapter's {own}",
            name=name,
            shape=str(tuple(value.shape)),
            own=str(tuple(parameter.shape)),
        )
        raise TunesmithError("adapter-unfit", "{path}: {problem}.", path=folder, problem=words)
    zeros = torch.zeros((more, value.shape[1]) if axis == 0 else (value.shape[0], more), dtype=value.dtype)
    return torch.cat([value, zeros], dim=axis)


def _kept(weight: torch.Tensor, on_device: bool) -> torch.Tensor:
    return weight.clone() if on_device else weight.to("cpu", copy=True)
