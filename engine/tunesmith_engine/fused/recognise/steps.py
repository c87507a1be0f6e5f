"""Steps of attention that few models take: read from the module's attributes, and made to show in a trial.

With the numbers that models have, most of them show only in long texts or for large numbers. So the trial has others.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from tunesmith_engine.fused.recognise import words
from tunesmith_engine.fused.recognise.parts import read_norm
from tunesmith_engine.fused.recognise.stand_ins import StandIns
from tunesmith_engine.mixer_shapes import AttentionShape, Temperature
from tunesmith_engine.shapes import NotFusableError

OUTPUT_NORM = "attn_sub_norm"

CLIP = 1.0
TEMPERATURE = Temperature(0.7, 2.0, 0.0)
"""In a trial."""


@dataclass(slots=True)
class Steps:
    """What a trial puts into a module for its steps to show.

    Attributes:
        parts, parameters: stand-ins.
        attributes, of_config: other values of the module's attributes and of its config's.
    """

    parts: dict[str, nn.Module] = field(default_factory=dict)
    parameters: dict[str, nn.Parameter] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    of_config: dict[str, Any] = field(default_factory=dict)

    def put_into(self, twin: nn.Module) -> None:
        """Give a module the other values, and a config of its own that asks for plain PyTorch."""
        for name, value in self.attributes.items():
            setattr(twin, name, value)
        if hasattr(twin, "config"):
            twin.config = copy.copy(twin.config)
            twin.config._attn_implementation = "eager"
            for name, value in self.of_config.items():
                setattr(twin.config, name, value)


def with_steps(name: str, module: nn.Module, shape: AttentionShape) -> AttentionShape:
    """Return a shape with the steps that a module's attributes name."""
    used = words.words(module)
    sinks = getattr(module, "sinks", None) if "sinks" in used else None
    norm = None
    if OUTPUT_NORM in used:
        norm = read_norm(f"{name}.{OUTPUT_NORM}", getattr(module, OUTPUT_NORM))
        if shape.num_gates or norm.weight is None or norm.weight.shape != (shape.output_width,):
            raise NotFusableError("{name} fits neither one head nor all heads together.", name=f"{name}.{OUTPUT_NORM}")
    return replace(
        shape,
        value_scale=float(getattr(module, "v_scale", 1.0)) if "v_scale" in used else 1.0,
        clip=_clip(module),
        temperature=temperature(module),
        sinks=None if sinks is None else sinks.detach(),
        trained_sinks=sinks if sinks is not None and sinks.requires_grad else None,
        output_norm=norm,
    )


def shown(module: nn.Module, shape: AttentionShape, make: StandIns) -> tuple[Steps, AttentionShape]:
    """Return what makes the steps of a shape show in a trial, and the shape with it."""
    steps = Steps()
    if shape.sinks is not None:
        steps.parameters["sinks"] = nn.Parameter(make.numbers(shape.num_heads))
        shape = replace(shape, sinks=steps.parameters["sinks"].detach())
    if shape.output_norm is not None:
        norm = steps.parts[OUTPUT_NORM] = make.norm(getattr(module, OUTPUT_NORM), shape.output_width)
        shape = replace(shape, output_norm=replace(shape.output_norm, weight=norm.weight))
    if shape.clip is not None:
        (steps.attributes if hasattr(module, "clip_qkv") else steps.of_config)["clip_qkv"] = CLIP
        shape = replace(shape, clip=CLIP)
    if shape.temperature is not None:
        now = TEMPERATURE
        if _by_positions(module):
            steps.of_config |= positions_in_trial(module)
        else:
            steps.attributes |= {"attn_scale": now.factor, "floor_scale": now.period}
        shape = replace(shape, temperature=replace(now, offset=shape.temperature.offset))
    return steps, shape


def _clip(module: nn.Module) -> float | None:
    if "clip_qkv" not in words.words(module):
        return None
    clip = module.clip_qkv if hasattr(module, "clip_qkv") else module.config.clip_qkv
    return float(clip) if clip else None


def positions_in_trial(module: nn.Module) -> dict[str, Any]:  # Any: values of a config
    """Return what a config says in a trial so that a temperature by positions shows."""
    now = {"llama_4_scaling_beta": TEMPERATURE.factor, "original_max_position_embeddings": TEMPERATURE.period}
    return {"rope_parameters": {**module.config.rope_parameters, **now}}


def temperature(module: nn.Module) -> Temperature | None:
    """Return by what a module's code multiplies its queries for their positions, if it does."""
    if _by_positions(module):
        table = module.config.rope_parameters
        factor, period = table.get("llama_4_scaling_beta"), table.get("original_max_position_embeddings")
        return Temperature(float(factor), float(period), 0.0)
    if "attn_temperature_tuning" in words.words(module) and module.attn_temperature_tuning and not module.use_rope:
        return Temperature(float(module.attn_scale), float(module.floor_scale), 1.0)
    return None


def _by_positions(module: nn.Module) -> bool:
    return "llama_4_scaling_beta" in words.words(module)
