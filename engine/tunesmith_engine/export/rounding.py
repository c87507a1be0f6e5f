"""What the trained model answers once its numbers are rounded as the format of an export rounds them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from tunesmith_core.export_proof import POSITIONS, ROUNDING
from tunesmith_engine.export.proof import Answer, Figures, Model, compare
from tunesmith_engine.model.targets import is_adapted

if TYPE_CHECKING:
    from tunesmith_engine.model.full import TrainedModel

Rounded = Callable[[str, torch.Tensor], torch.Tensor]
"""Returns numbers as a format tells them, by the name that a weight has in the model without an adapter."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """What a format, and the program that reads it, does to the numbers of a model.

    Attributes:
        weight: rounds a weight; None where the format keeps all numbers.
        inputs: rounds what a matrix is multiplied with, by the name of the matrix; None where nothing is rounded.
        positions: turns those of a model as the program does that reads the format; None where it turns them alike.
    """

    weight: Rounded | None = None
    inputs: Rounded | None = None
    positions: Callable[[Model], None] | None = None

    @property
    def causes(self) -> list[str]:
        """Why an export differs from the trained model."""
        return [*([ROUNDING] if self.weight else []), *([POSITIONS] if self.positions else [])]


def rounded_reference(
    answers: Iterable[Answer], model: TrainedModel, rounding: Rounding, *, as_llama_cpp: bool
) -> Figures:
    """Return how far the trained model is from itself once its numbers are rounded.

    Args:
        answers: of the model.
        model: the trained one, which is changed: PEFT merges the adapter, independently of the export.
        rounding: of the format.
        as_llama_cpp: see `compare`.
    """
    _separate_tied(model)
    merged = model.merge_and_unload()
    if rounding.weight:
        for name, weight in merged.named_parameters():
            weight.data = rounding.weight(name, weight.data).to(weight.dtype)
    if rounding.inputs:
        _round_inputs(merged, rounding.inputs)
    if rounding.positions:
        rounding.positions(merged)
    return compare(answers, merged, as_llama_cpp=as_llama_cpp)


def _round_inputs(model: Model, rounded: Rounded) -> None:
    # By the weight: a head may be tied to the embedding, whose name counts.
    names = {id(weight): name for name, weight in model.named_parameters()}

    def before(layer: nn.Linear, given: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return rounded(names[id(layer.weight)], given[0]), *given[1:]

    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            layer.register_forward_pre_hook(before)


def _separate_tied(model: TrainedModel) -> None:
    """Give each layer with an adapter a weight of its own: PEFT would also change the one it is tied to."""
    shared = Counter(id(weight) for _, weight in model.named_parameters(remove_duplicate=False))
    for layer in model.modules():
        if not is_adapted(layer):
            continue
        inner = layer.get_base_layer()
        weight = getattr(inner, "weight", None)
        if isinstance(weight, nn.Parameter) and shared[id(weight)] > 1:
            inner.weight = nn.Parameter(weight.detach().clone(), requires_grad=False)
