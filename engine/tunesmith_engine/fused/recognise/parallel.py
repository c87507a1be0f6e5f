"""Attention and a state-space scan that a layer runs beside each other on the same norm (Falcon H1)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from tunesmith_engine.fused.recognise import words
from tunesmith_engine.fused.recognise.stand_ins import Mixer, StandIns
from tunesmith_engine.mixer_shapes import AttentionShape, ParallelShape, StateSpaceShape
from tunesmith_engine.shapes import NotFusableError

SCAN = "mamba"
"""What transformers calls the scan."""

FACTORS = ("attn_out_multiplier", "ssm_out_multiplier")
"""Of the outputs of attention and of the scan."""

INPUT_FACTOR = "attention_in_multiplier"


def runs_beside(layer: nn.Module) -> bool:
    """Whether a layer has attention and a scan, and its code multiplies both."""
    return isinstance(getattr(layer, SCAN, None), nn.Module) and set(FACTORS) <= words.words(layer)


def together(name: str, layer: nn.Module, attention: AttentionShape, scan: StateSpaceShape) -> ParallelShape:
    """Return the shape of both: what attention's input is multiplied by comes to queries, keys and values alike.

    Raises:
        NotFusableError: its projections have biases, which the factor leaves alone, or steps that no factor passes.
    """
    factor = float(getattr(layer, INPUT_FACTOR))
    bases = [getattr(module, "base_layer", module) for module in attention.inputs]
    has_steps = attention.query_norm is not None or attention.key_norm is not None or attention.steps_apart
    if factor != 1.0 and (has_steps or any(getattr(base, "bias", None) is not None for base in bases)):
        raise NotFusableError("{name} multiplies the input of a projection with a bias.", name=name)
    of_attention, of_scan = (float(getattr(layer, role)) for role in FACTORS)
    attention = replace(attention, scale=attention.scale * factor**2)
    return ParallelShape(attention, scan, (of_attention * factor, of_scan), factor)


class Branches:
    """Stand-ins for both in a trial of their layer."""

    def __init__(self, shape: ParallelShape, make: StandIns, width: int) -> None:
        self._shape = shape
        self.attention = _Bent(make.matrix(width, width).weight, 2)
        self.scan = Mixer(make.matrix(width, width).weight, 0)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return what both add to the stream."""
        shape = self._shape
        of_attention = shape.factors[0] / shape.input_factor * self.attention(shape.input_factor * x)[0]
        result: torch.Tensor = of_attention + shape.factors[1] * self.scan(x)
        return result


class _Bent(Mixer):
    """Shows whether a factor stands before or behind it."""

    def forward(self, hidden_states: torch.Tensor, *args: object, **named: object) -> tuple[torch.Tensor, None]:
        """Multiply and bend."""
        result, other = super().forward(hidden_states, *args, **named)
        return torch.tanh(result), other
