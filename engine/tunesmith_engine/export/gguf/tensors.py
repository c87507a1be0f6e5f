"""Names and layout of weights in a GGUF file."""

from __future__ import annotations

import re
from collections.abc import Iterable

import torch
from gguf import get_tensor_name_map

from tunesmith_core.errors import TunesmithError
from tunesmith_engine.export.gguf.architectures import Architecture, Config, num_layers

_COMPUTED = re.compile(r"\.(inv_freq|masked_bias|rotary_emb\..*)$")
"""Tables in files of some models that every program computes by itself."""

_ROTATED = re.compile(r"\.self_attn\.(q|k)_proj\.(weight|bias)$")


def names_in_gguf(architecture: Architecture, config: Config, names: Iterable[str]) -> dict[str, str]:
    """Return how weights of the model are called in a GGUF file.

    Raises:
        UserError: `export-unsupported` for one that the architecture does not have there.
    """
    known = get_tensor_name_map(architecture.arch, num_layers(config))
    found = {}
    for name in names:
        if _COMPUTED.search(name):
            continue
        own = known.get_name(name, try_suffixes=(".weight", ".bias"))
        if own is None:
            raise TunesmithError(
                "export-unsupported",
                "The weight {name} has no place in a GGUF file of a model of type {kind}.",
                hint="Export the merged model instead.",
                name=name,
                kind=config.model_type,
            )
        found[name] = own
    return found


def laid_out(architecture: Architecture, config: Config, name: str, weight: torch.Tensor) -> torch.Tensor:
    """Return a weight as llama.cpp has it.

    Args:
        architecture: of the model.
        config: of the model.
        name: of the weight in the model.
        weight: as transformers has it.
    """
    rotated = _ROTATED.search(name) if architecture.rotates_pairs else None
    if rotated:
        heads = config.num_attention_heads if rotated[1] == "q" else config.num_key_value_heads
        # [heads, 2 halves, half a head, ...] -> [heads, half a head, 2 neighbors, ...]
        parts = weight.view(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
        return parts.transpose(1, 2).reshape(weight.shape)
    if architecture.adds_one and name.endswith("norm.weight"):
        return weight.float() + 1
    return weight
