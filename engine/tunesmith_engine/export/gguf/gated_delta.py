"""Layers with the gated delta rule (Qwen3.5) as llama.cpp has them: value heads in another order, decays computed.

Value heads that share a key head follow each other in transformers. In llama.cpp the first of each key head come first,
then the second of each: it repeats all key heads side by side.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from gguf import GGUFWriter

from tunesmith_core.messages import Message
from tunesmith_engine.export.gguf.architecture import Part, Take, too_many_pairs
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
    writer.add_rope_dimension_sections([*_sections(config), 0])


def problem(config: Config) -> str:
    """Say whether other layers than each n-th have attention, or states are not square."""
    kinds = enumerate(config.layer_types, start=1)
    is_regular = all((kind == "full_attention") == (place % _interval(config) == 0) for place, kind in kinds)
    is_square = config.linear_key_head_dim == config.linear_value_head_dim
    return "" if is_regular and is_square else Message("its attention is in other layers")


def sections_problem(config: Config) -> str:
    """Say whether more pairs of a head turn by time, height and width than llama.cpp takes."""
    return too_many_pairs(config, _sections(config))


def _sections(config: Config) -> list[int]:
    return list(config.rope_parameters.get("mrope_section", SECTIONS))


def _interval(config: Config) -> int:
    """Return which layer is the first with attention, counted from 1, or one behind the last."""
    kinds = list(config.layer_types)
    return (kinds.index("full_attention") if "full_attention" in kinds else len(kinds)) + 1


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


def laid_out_next(_config: Config, name: str, weight: torch.Tensor) -> torch.Tensor:
    """Return the same for Qwen3-Next, whose value heads stay where they are."""
    role = name.rpartition(".linear_attn.")[2]
    match role:
        case "conv1d.weight":
            return weight.squeeze(1)
        case "A_log":
            return -weight.float().exp()
    return weight.float() + 1 if role == name and name.endswith("norm.weight") else weight


def split_next(config: Config, name: str, shape: tuple[int, ...]) -> Mapping[str, Part]:
    """Return queries, keys and values apart from gates, which are in one weight of Qwen3-Next by key heads."""
    if not name.endswith(".linear_attn.in_proj_qkvz.weight"):
        return {}
    groups, key = config.linear_num_key_heads, config.linear_key_head_dim
    value = config.linear_num_value_heads // groups * config.linear_value_head_dim
    starts = {"q": (0, key), "k": (key, 2 * key), "v": (2 * key, 2 * key + value), "z": (2 * key + value, None)}
    num_rows = {"qkv": groups * (2 * key + value), "z": groups * value}
    return {
        name.replace("qkvz", roles): Part((number, *shape[1:]), _rows(groups, [starts[role] for role in roles]))
        for roles, number in num_rows.items()
    }


def _rows(groups: int, ranges: list[tuple[int, int | None]]) -> Take:
    """Return what takes some rows of each group, those of one range before those of the next."""
    return lambda weight: torch.cat(
        [
            weight.view(groups, -1, *weight.shape[1:])[:, start:end].reshape(-1, *weight.shape[1:])
            for start, end in ranges
        ]
    )
