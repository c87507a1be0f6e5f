"""Weights of three dimensions: the experts of a layer behind each other, in 16 bits or packed in 4."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized


def packed_stack(module: Any, role: str) -> Any:  # Any: a module with attributes of its own, bitsandbytes' Params4bit
    """Return the packed numbers of a module's stacked weights; None where these are not packed."""
    if not is_parametrized(module, role):
        return None
    original = module.parametrizations[role].original
    return original if hasattr(original, "quant_state") else None


@dataclass(frozen=True, slots=True)
class Stack:
    """What stacked weights are, which reading the attribute would unpack first.

    Attributes:
        shape: of the numbers, [experts, ...].
        dtype: of the numbers where they are not packed, else the format that they are unpacked to.
        device: where they lie.
    """

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device


def stack_of(module: nn.Module, role: str) -> Stack | None:
    """Return what a module's attribute is if it is weights of three dimensions, packed or not; else None."""
    if isinstance(module, nn.Conv1d):
        return None
    if (packed := packed_stack(module, role)) is not None:
        found = Stack(torch.Size(packed.quant_state.shape), packed.quant_state.dtype, packed.device)
    elif (weight := module._parameters.get(role)) is not None:
        found = Stack(weight.shape, weight.dtype, weight.device)
    else:
        return None
    return found if len(found.shape) == 3 else None


def stacks(module: nn.Module) -> list[str]:
    """Return which attributes of a module are weights of three dimensions."""
    packed = module.parametrizations if is_parametrized(module) else ()
    return [role for role in (*module._parameters, *packed) if stack_of(module, role) is not None]


def stacked_names(model: nn.Module) -> list[str]:
    """Return the names of a model's weights in which the experts of a layer lie behind each other."""
    return [f"{name}.{role}" for name, module in model.named_modules() for role in stacks(module)]
