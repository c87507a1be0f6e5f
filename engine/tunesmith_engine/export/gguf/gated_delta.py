"""Layers with the gated delta rule (Qwen3.5) as llama.cpp has them: value heads in another order, decays computed.

Value heads that share a key head follow each other in transformers. In llama.cpp the first of each key head come first,
then the second of each: it repeats all key heads side by side.
"""

from __future__ import annotations

import torch
from gguf import GGUFWriter

from tunesmith_engine.export.gguf.config import Config

CONVOLUTION, OUTPUT = ".linear_attn.conv1d.weight", ".linear_attn.out_proj.weight"

SECTIONS = [11, 11, 10]
"""Pairs of a head that turn by time, height and width where a config doesn't say how many."""


def add_hyperparameters(writer: GGUFWriter, config: Config) -> None:
    """Write the sizes of states and which layers have attention."""
    writer.add_ssm_conv_kernel(config.linear_conv_kernel_dim)
    writer.add_ssm_state_size(config.linear_key_head_dim)
    writer.add_ssm_group_count(config.linear_num_key_heads)
    writer.add_ssm_time_step_rank(config.linear_num_value_heads)
    writer.add_ssm_inner_size(config.linear_value_head_dim * config.linear_num_value_heads)
    writer.add_full_attention_interval(_interval(config))
    writer.add_rope_dimension_sections([*config.rope_parameters.get("mrope_section", SECTIONS), 0])


def is_regular(config: Config) -> bool:
    """Return whether every n-th layer has attention, and no other."""
    kinds = enumerate(config.layer_types, start=1)
    return all((kind == "full_attention") == (place % _interval(config) == 0) for place, kind in kinds)


def _interval(config: Config) -> int:
    """Return which layer is the first with attention, counted from 1, or one behind the last."""
    kinds = list(config.layer_types)
    return (kinds.index("full_attention") if "full_attention" in kinds else len(kinds)) + 1


def renamed(name: str) -> str:
    """Return what llama.cpp's tables of names call a weight."""
    return name.replace(".linear_attn.dt_bias", ".linear_attn.dt_proj.bias")


def laid_out(config: Config, name: str, weight: torch.Tensor) -> torch.Tensor:
    """Return a weight of a layer with the rule, or a norm, as llama.cpp has it."""
    role = name.rpartition(".linear_attn.")[2]
    if role == name:
        return weight.float() + 1 if name.endswith("norm.weight") else weight
    width, keys = config.linear_value_head_dim, config.linear_key_head_dim * config.linear_num_key_heads
    match role:
        case "in_proj_qkv.weight" | "conv1d.weight":
            weight = weight.squeeze(1) if weight.dim() == 3 else weight
            return torch.cat([weight[: 2 * keys], _in_turns(config, weight[2 * keys :], width)])
        case "in_proj_z.weight":
            return _in_turns(config, weight, width)
        case "out_proj.weight":
            return _in_turns(config, weight.T, width).T
        case "in_proj_a.weight" | "in_proj_b.weight" | "dt_bias":
            return _in_turns(config, weight, 1)
        case "A_log":
            return -_in_turns(config, weight, 1).float().exp()
    return weight


def _in_turns(config: Config, rows: torch.Tensor, width: int) -> torch.Tensor:
    """Return rows of value heads, so many of each, in the order of llama.cpp."""
    groups = config.linear_num_key_heads
    each = config.linear_num_value_heads // groups
    return rows.view(groups, each, width, *rows.shape[1:]).transpose(0, 1).reshape(rows.shape)
