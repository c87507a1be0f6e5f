"""Weights of three dimensions: the experts of a layer behind each other, in 16 bits or packed in 4."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.utils.parametrize import is_parametrized


def packed_stack(module: Any, role: str) -> Any:  # Any: a module with attributes of its own, bitsandbytes' Params4bit
    """Return the packed numbers of a module's stacked weights; None where these are not packed."""
    if not is_parametrized(module, role):
        return None
    original = module.parametrizations[role].original
    return original if hasattr(original, "quant_state") else None


def is_stack(module: nn.Module, role: str) -> bool:
    """Return whether a module's attribute is weights of three dimensions, packed or not."""
    if isinstance(module, nn.Conv1d):
        return False
    if (packed := packed_stack(module, role)) is not None:
        return len(packed.quant_state.shape) == 3
    weight = module._parameters.get(role)
    return weight is not None and weight.dim() == 3


def stacks(module: nn.Module) -> list[str]:
    """Return which attributes of a module are weights of three dimensions."""
    packed = module.parametrizations if is_parametrized(module) else ()
    return [role for role in (*module._parameters, *packed) if is_stack(module, role)]


def stacked_names(model: nn.Module) -> list[str]:
    """Return the names of a model's weights in which the experts of a layer lie behind each other."""
    return [f"{name}.{role}" for name, module in model.named_modules() for role in stacks(module)]
