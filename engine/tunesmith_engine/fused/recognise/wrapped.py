"""Modules that only hand on to the one inside them: attention in attention (GPT-Neo), a linear layer in a module."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from tunesmith_engine.fused.recognise.stand_ins import NUM_TOKENS, WIDTH, StandIns, accepted, replaced, result_of

INNER = "attention"
"""What transformers calls attention inside attention."""


class _Inner(nn.Module):
    """Stands for what is inside: keeps what it is given."""

    def __init__(self, answer: torch.Tensor) -> None:
        super().__init__()
        self._answer = answer
        self.given: list[Any] = []

    def forward(self, *given: Any, **named: Any) -> tuple[torch.Tensor, None]:
        """Return what it is told to."""
        self.given = [each for each in (*given, *named.values()) if each is not None and each is not False]
        return self._answer, None


def attention_inside(name: str, module: nn.Module) -> nn.Module:
    """Return the attention in a module that hands it hidden states and mask, and hands on its result; else itself."""
    inside = dict(module.named_children())
    if list(inside) != [INNER]:
        return module
    make = StandIns()
    x, answer, mask = make.numbers(1, NUM_TOKENS, WIDTH), make.numbers(1, NUM_TOKENS, WIDTH), make.numbers(1)
    inner = _Inner(answer)
    twin = replaced(module, {INNER: inner}, {})
    given = accepted(module, {"hidden_states": x, "attention_mask": mask}, {})
    result = result_of(name, lambda: twin(**given))
    handed = len(inner.given) == len(given) and {id(each) for each in inner.given} == {id(x), id(mask)}
    return inside[INNER] if result is answer and handed else module


def linear_inside(module: nn.Module) -> tuple[str, nn.Module]:
    """Return the name and the module of the linear layer that is all that a module has; "" and itself for others."""
    is_linear = isinstance(getattr(module, "base_layer", module), nn.Linear | Conv1D)
    inside = list(module.named_children())
    if is_linear or len(inside) != 1:
        return "", module
    return inside[0]


def with_inside(module: nn.Module, stand_in: nn.Module) -> nn.Module:
    """Return a stand-in for a linear layer in the module around it, if there is one: its code then shows as well."""
    role, _ = linear_inside(module)
    return replaced(module, {role: stand_in}, {}) if role else stand_in
