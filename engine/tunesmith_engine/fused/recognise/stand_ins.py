"""Runs the code of a part of a model on small random numbers, with small stand-ins for the parts inside it.

So what was read from a part's attributes is held against what its own code computes: on the CPU, in float32, whatever
device, number format, quantisation or adapter the model has.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.parametrize import type_before_parametrizations

from tunesmith_engine.mixer_shapes import Piece
from tunesmith_engine.shapes import NotFusableError

NUM_TOKENS = 5
WIDTH = 8

TOLERANCE = 1e-4
"""Share of the largest number; float32 differs by about 1e-6, a step left out by far more."""


class NotTriedError(NotFusableError):
    """A part whose code can't run on stand-ins."""


class StandIns:
    """Makes stand-ins from one row of random numbers."""

    def __init__(self) -> None:
        self._generator = torch.Generator().manual_seed(0)

    def numbers(self, *sizes: int) -> torch.Tensor:
        """Return normal random numbers."""
        return torch.randn(*sizes, generator=self._generator)

    def matrix(self, num_inputs: int, num_outputs: int) -> Matrix:
        """Return a linear layer that keeps the size of its input's numbers."""
        return Matrix(self.numbers(num_outputs, num_inputs) * num_inputs**-0.5)

    def norm(self, module: nn.Module, width: int) -> nn.Module:
        """Return a norm that computes as a module does, with random weights where that has some."""
        parameters = {role: nn.Parameter(self.numbers(width)) for role, _ in module.named_parameters()}
        twin = replaced(module, {}, parameters)
        if hasattr(module, "normalized_shape"):
            twin.normalized_shape = (width,)
        return twin


class Matrix(nn.Module):
    """A linear layer."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Multiply."""
        return functional.linear(hidden_states, self.weight)


class Mixer(Matrix):
    """Stands for attention in a decoder layer, or for what is in its place.

    Args:
        weight: of a linear layer.
        num_results: as of a tuple; 0 for one alone, less for as many as of a list (GPT).
        other: all but the first; a layer that does anything with them shows by one that is not None.
        adds: it adds what its layer hands it (BLOOM, MPT).
    """

    def __init__(
        self, weight: torch.Tensor, num_results: int, other: torch.Tensor | None = None, adds: bool = False
    ) -> None:
        super().__init__(weight)
        self._num_results, self._other, self._adds = num_results, other, adds

    def forward(self, hidden_states: torch.Tensor, *args: Any, **named: Any) -> Any:
        """Multiply."""
        result = super().forward(hidden_states)
        if self._adds:
            result = result + (named["residual"] if "residual" in named else args[0])
        others = [self._other] * (abs(self._num_results) - 1)
        if self._num_results < 0:
            return [result, *others]
        return (result, *others) if self._num_results else result


class Never(nn.Module):
    """Stands for a part that is not called."""

    def forward(self, *_: Any, **__: Any) -> Any:
        """Refuse."""
        raise RuntimeError("a part that should be idle was called")


class Constant(nn.Module):
    """Returns the same whatever it is given."""

    def __init__(self, value: Any) -> None:  # Any: what the replaced module returns
        super().__init__()
        self.value = value

    def forward(self, *_: Any, **__: Any) -> Any:
        """Return the value."""
        return self.value


def adds_residual(module: nn.Module) -> bool:
    """Whether a part is handed what its layer would add behind it."""
    return "residual" in inspect.signature(inspect.unwrap(module.forward)).parameters


def accepted(module: nn.Module, usual: dict[str, Any], named: dict[str, Any]) -> dict[str, Any]:
    """Return the keywords that a module's forward pass takes: `named` only where it names them itself."""
    parameters = inspect.signature(inspect.unwrap(module.forward)).parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    found = {name: value for name, value in usual.items() if takes_all or name in parameters}
    return found | {name: value for name, value in named.items() if name in parameters}


def copied(module: nn.Module, kind: type[nn.Module]) -> Any:  # Any: a module whose attributes are its own
    """Return a module with the same attributes, and the code of its class."""
    twin: Any = object.__new__(kind)
    twin.__dict__.update(module.__dict__)
    # Hooks of other libraries put a forward of their own in front of the class's.
    twin.__dict__.pop("forward", None)
    return twin


def replaced(module: nn.Module, parts: dict[str, nn.Module], parameters: dict[str, nn.Parameter]) -> nn.Module:
    """Return a module with the same code and attributes in evaluation mode, but other parts and parameters.

    A part of a part is named with a dot.
    """
    # Without what unpacks weights in 4 bits.
    twin = copied(module, type_before_parametrizations(module))
    twin._modules = {**module._modules, **in_holders(module, parts, lambda part, inside: replaced(part, inside, {}))}
    twin._modules.pop("parametrizations", None)
    twin._parameters = {**module._parameters, **parameters}
    twin._buffers = {name: value if value is None else _for_trial(value) for name, value in module._buffers.items()}
    twin.training = False
    return twin


def in_holders(
    module: nn.Module,
    parts: Mapping[str, nn.Module],
    twin_of: Callable[[nn.Module, dict[str, nn.Module]], nn.Module],
) -> dict[str, nn.Module]:
    """Return a module's other parts by their names in it; a part of a part, named with a dot, is in a twin of that."""
    found = {role: part for role, part in parts.items() if "." not in role}
    for holder in {role.partition(".")[0] for role in parts if "." in role}:
        inside = {role.partition(".")[2]: part for role, part in parts.items() if role.startswith(f"{holder}.")}
        found[holder] = twin_of(getattr(module, holder), inside)
    return found


def _for_trial(buffer: torch.Tensor) -> torch.Tensor:
    """Return a buffer on the CPU; beside the stand-ins, numbers of 64 bits would fit nothing."""
    return buffer.cpu().float() if buffer.dtype == torch.float64 else buffer.cpu()


def result_of(name: str, run: Callable[[], Any]) -> torch.Tensor:
    """Return what a part's code gives on stand-ins.

    Raises:
        NotTriedError: it can't run on them.
    """
    try:
        with torch.no_grad():
            result = run()
    # Whatever goes wrong in code that we have never seen means the same: it isn't understood.
    except Exception as error:
        raise NotTriedError(
            "The code of {name} doesn't run on a small example, so it can't be checked.", name=name
        ) from error
    return result[0] if isinstance(result, tuple | list) else result


def in_order(product: torch.Tensor, pieces: Sequence[Piece] | None) -> torch.Tensor:
    """Return the columns of a product, [T, N], with its pieces behind each other; None leaves them as they are."""
    if pieces is None:
        return product
    columns = torch.arange(product.shape[1])
    order = [columns.as_strided((p.count, p.width), (p.stride, 1), p.start).flatten() for p in pieces]
    return product[:, torch.cat(order)]


def agrees(result: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether a result is the expected one to float32 rounding."""
    if result.shape != expected.shape:
        return False
    return bool((result - expected).abs().max() <= TOLERANCE * expected.abs().max())
