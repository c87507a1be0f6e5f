"""Which models llama.cpp computes as transformers does, and how their weights are laid out there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gguf import MODEL_ARCH

from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message

Config = Any  # Any: transformers' config of a model


@dataclass(frozen=True, slots=True)
class Architecture:
    """How llama.cpp holds a type of model.

    Attributes:
        arch: its name there.
        rotates_pairs: whether positions turn neighboring numbers of a head, so that rows of queries and keys change
            places; else the two halves of a head.
        adds_one: whether norms are stored with the one that transformers adds when it computes them.
        problem: returns what llama.cpp would compute otherwise with a config, "" for nothing.
    """

    arch: MODEL_ARCH
    rotates_pairs: bool = False
    adds_one: bool = False
    problem: Callable[[Config], str] = lambda _: ""


def _pattern_problem(config: Config, every: int) -> str:
    """Say whether layers see everything that llama.cpp takes for windowed; there each n-th sees everything."""
    kinds = ("sliding_attention", "full_attention")
    expected = [kinds[(layer + 1) % every == 0] for layer in range(num_layers(config))]
    return "" if list(config.layer_types) == expected else Message("its sliding windows are in other layers")


def _gemma_problem(config: Config, every: int) -> str:
    scale = config.hidden_size // config.num_attention_heads if num_layers(config) in (46, 62) else config.head_dim
    if config.query_pre_attn_scalar != scale:
        return Message("its attention is scaled in another way")
    return _pattern_problem(config, every)


def _gemma3_problem(config: Config) -> str:
    if config.final_logit_softcapping or config.attn_logit_softcapping:
        return Message("its logits are capped")
    return _gemma_problem(config, 6)


def _qwen_problem(config: Config) -> str:
    return Message("its attention has a sliding window") if getattr(config, "use_sliding_window", False) else ""


def _smollm3_problem(config: Config) -> str:
    expected = [int((layer + 1) % 4 != 0) for layer in range(num_layers(config))]
    return "" if list(config.no_rope_layers) == expected else Message("other layers than usual know no positions")


ARCHITECTURES = {
    "llama": Architecture(MODEL_ARCH.LLAMA, rotates_pairs=True),
    "mistral": Architecture(MODEL_ARCH.LLAMA, rotates_pairs=True),
    "granite": Architecture(MODEL_ARCH.GRANITE, rotates_pairs=True),
    "smollm3": Architecture(MODEL_ARCH.SMOLLM3, rotates_pairs=True, problem=_smollm3_problem),
    "qwen2": Architecture(MODEL_ARCH.QWEN2, problem=_qwen_problem),
    "qwen3": Architecture(MODEL_ARCH.QWEN3, problem=_qwen_problem),
    "olmo2": Architecture(MODEL_ARCH.OLMO2),
    "phi3": Architecture(MODEL_ARCH.PHI3),
    "gemma2": Architecture(MODEL_ARCH.GEMMA2, adds_one=True, problem=lambda config: _gemma_problem(config, 2)),
    "gemma3_text": Architecture(MODEL_ARCH.GEMMA3, adds_one=True, problem=_gemma3_problem),
}
"""By the model_type of config.json."""


def num_layers(config: Config) -> int:
    """Return the number of layers of a model."""
    return int(config.num_hidden_layers)


def architecture_of(config: Config) -> Architecture:
    """Return how llama.cpp holds a model.

    Raises:
        UserError: `export-unsupported`.
    """
    kind = str(config.model_type)
    if kind not in ARCHITECTURES:
        raise TunesmithError(
            "export-unsupported",
            "Models of type {kind} can't be exported as GGUF. These can: {known}.",
            hint="Export the merged model instead.",
            kind=kind,
            known=", ".join(sorted(ARCHITECTURES)),
        )
    if problem := ARCHITECTURES[kind].problem(config):
        raise TunesmithError(
            "export-unsupported",
            "This model of type {kind} can't be exported as GGUF: {problem}.",
            hint="Export the merged model instead.",
            kind=kind,
            problem=problem,
        )
    return ARCHITECTURES[kind]
