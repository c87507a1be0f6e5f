"""What the config of any type may say that llama.cpp doesn't compute, or not for this type."""

from __future__ import annotations

from typing import Any

from tunesmith_core.messages import Message
from tunesmith_engine.export.gguf.architecture import Architecture
from tunesmith_engine.export.gguf.config import Config

_ACTIVATIONS = ("hidden_act", "hidden_activation", "activation_function", "activation")
_BIASES = (
    "attention_bias",
    "attention_out_bias",
    "mlp_bias",
    "use_bias",
    "conv_bias",
    "projectors_bias",
    "mamba_proj_bias",
    "bias",
)


def problem_of(architecture: Architecture, config: Config) -> str:
    """Return what llama.cpp would compute otherwise with a config, "" for nothing."""
    # What differs between layers comes first: no other check may ask for one value of it.
    if problem := _layers_problem(architecture, config) or architecture.problem(config):
        return problem
    checks = (_activation_problem, _positions_problem, _weights_problem)
    return next(filter(None, (check(architecture, config) for check in checks)), "")


def _layers_problem(architecture: Architecture, config: Config) -> str:
    differing = sorted((config.per_layer_attributes or set()) - set(architecture.by_layer))
    return Message("its layers differ in {settings}", settings=", ".join(differing)) if differing else ""


def _setting(config: Config, name: str) -> Any:  # Any: as the config has it
    """Return a setting that a type has, None for one that only stands in a file and that nothing looks at."""
    return getattr(config, name, None) if hasattr(type(config), name) else None


def _activation_problem(architecture: Architecture, config: Config) -> str:
    known = architecture.activations
    name = next(filter(None, (_setting(config, each) for each in _ACTIVATIONS)), known[0])
    return "" if name in known else Message("its MLPs have the activation {name}", name=name)


def _positions_problem(architecture: Architecture, config: Config) -> str:
    rope = getattr(config, "rope_parameters", None) or {}
    is_partial = (rope.get("partial_rotary_factor") or 1.0) != 1.0 and not architecture.turns_part
    has_factors = rope.get("rope_type") == "llama3" and not architecture.has_factors
    return Message("its positions turn in another way") if is_partial or has_factors else ""


def _weights_problem(architecture: Architecture, config: Config) -> str:
    if any(_setting(config, name) is True for name in _BIASES if name not in architecture.biases):
        return Message("its layers have biases")
    return Message("its embedding is its head") if architecture.own_head and config.tie_word_embeddings else ""
