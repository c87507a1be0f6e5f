"""Mixtures of experts as llama.cpp has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from gguf import MODEL_ARCH, ExpertGatingFuncType, GGUFWriter

from tunesmith_core.messages import Message
from tunesmith_engine.export.gguf.architecture import (
    Architecture,
    Part,
    add_sections,
    add_windows,
    heads_problem,
    num_layers,
    pattern_problem,
    window_problem,
)
from tunesmith_engine.export.gguf.config import Config
from tunesmith_engine.export.gguf.dense import QWEN3_VL, add_granite, qwen_problem

CHOSEN_OTHERWISE = Message("llama.cpp chooses its experts, or weighs what they answer, by another rule")
PLACED_OTHERWISE = Message("llama.cpp expects experts in other layers than this model has them in")
NONE_SHARED = Message("llama.cpp expects an expert that every token goes through, which this model doesn't have")


def add_experts(writer: GGUFWriter, config: Config) -> None:
    """Write how many experts there are, how many a token goes through, and how wide they are."""
    number = getattr(config, "num_local_experts", None) or config.num_experts
    writer.add_expert_count(number)
    writer.add_expert_used_count(config.num_experts_per_tok)
    writer.add_expert_feed_forward_length(getattr(config, "moe_intermediate_size", None) or config.intermediate_size)
    if shared := getattr(config, "shared_expert_intermediate_size", None):
        writer.add_expert_shared_feed_forward_length(shared)


def add_rated_experts(
    writer: GGUFWriter, config: Config, rating: ExpertGatingFuncType = ExpertGatingFuncType.SIGMOID
) -> None:
    """Write the same, how experts are rated, and the layers before those that have them."""
    add_experts(writer, config)
    writer.add_expert_gating_func(rating)
    # DeepSeek V2 takes ratings as they are, whatever its config says.
    writer.add_expert_weights_norm(config.model_type != "deepseek_v2" and getattr(config, "norm_topk_prob", True))
    writer.add_expert_weights_scale(_first(config, "routed_scaling_factor", "route_scale") or 1.0)
    if shared := _first(config, "n_shared_experts", "num_shared_experts"):
        writer.add_expert_shared_count(shared)
    if dense := num_dense(config):
        writer.add_leading_dense_block_count(dense)
    if (groups := _first(config, "n_group") or 1) > 1:
        writer.add_expert_group_count(groups)
        writer.add_expert_group_used_count(config.topk_group)


def _first(config: Config, *names: str) -> Any:  # Any: as the config has it
    """Return what a config says by the first of some names that it has."""
    return next((getattr(config, name) for name in names if hasattr(config, name)), None)


def num_dense(config: Config) -> int:
    """Return how many layers come before those with experts."""
    kinds = list(getattr(config, "mlp_layer_types", None) or [])
    if "sparse" in kinds:
        return kinds.index("sparse")
    return int(_first(config, "first_k_dense_replace", "num_dense_layers") or 0)


def _gpt_oss(writer: GGUFWriter, config: Config) -> None:
    add_experts(writer, config)
    writer.add_sliding_window(config.sliding_window)


def _gpt_oss_problem(config: Config) -> str:
    if not config.attention_bias:
        return Message("its layers have no biases")
    usual = (config.swiglu_alpha, config.swiglu_limit) == (1.702, 7.0)
    return "" if usual else Message("its MLPs cap or scale their gates in another way")


def granite_name(name: str) -> str:
    """Return the name that a weight had in the files before transformers named experts alike."""
    name = name.replace(".block_sparse_moe.router.weight", ".block_sparse_moe.router.layer.weight")
    return name.replace(".block_sparse_moe.experts.", ".mlp.experts.")


def add_granite_moe(writer: GGUFWriter, config: Config) -> None:
    """Write what Granite multiplies by, and its experts."""
    add_granite(writer, config)
    add_experts(writer, config)


def _afmoe(writer: GGUFWriter, config: Config) -> None:
    add_windows(writer, config)
    add_rated_experts(writer, config)


def _afmoe_problem(config: Config) -> str:
    if not config.mup_enabled:
        return Message("its embedding has another scale")
    if not config.num_shared_experts:
        return NONE_SHARED
    return pattern_problem(config, 4)


_CHUNK = 8192
"""How many tokens layers of Llama 4 with positions see in llama.cpp, whatever a config says."""


def _llama4(writer: GGUFWriter, config: Config) -> None:
    add_experts(writer, config)
    writer.add_interleave_moe_layer_step(config.interleave_moe_layer_step)


def _llama4_problem(config: Config) -> str:
    layers, step = num_layers(config), config.interleave_moe_layer_step
    if list(config.moe_layers) != list(range(step - 1, layers, step)):
        return PLACED_OTHERWISE
    if list(config.no_rope_layers) != [int((layer + 1) % 4 != 0) for layer in range(layers)]:
        return Message("other layers than usual know no positions")
    chunks = config.attention_chunk_size or config.max_position_embeddings
    is_long = config.max_position_embeddings > _CHUNK
    tuned = config.attn_temperature_tuning and (config.floor_scale, config.attn_scale) == (_CHUNK, 0.1)
    if (is_long and chunks != _CHUNK) or chunks < min(_CHUNK, config.max_position_embeddings):
        return Message("its layers see other chunks of a text")
    if (is_long and not tuned) or config.use_qk_norm == (config.num_local_experts == 128):
        return Message("its attention is scaled in another way")
    return ""


def _granite_shared(writer: GGUFWriter, config: Config) -> None:
    add_granite_moe(writer, config)
    writer.add_expert_shared_feed_forward_length(config.shared_intermediate_size)


def granite_split(config: Config, name: str, shape: tuple[int, ...]) -> Mapping[str, Part]:
    """Return gate and up of the MLP that every token goes through, which are one weight in the model."""
    start, mark, role = name.partition(".shared_mlp.")
    if not mark:
        return {}
    mlp, half = f"{start}.mlp.shared_mlp" if config.num_local_experts else f"{start}.mlp", shape[0] // 2
    if role == "output_linear.weight":
        return {f"{mlp}.down_proj.weight": Part(shape)}
    return {
        f"{mlp}.gate_proj.weight": Part((half, shape[1]), lambda weight: weight[:half]),
        f"{mlp}.up_proj.weight": Part((half, shape[1]), lambda weight: weight[half:]),
    }


_BY_NUMBER = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}


def _lfm2_name(name: str) -> str:
    """Return the name of a weight whose role the files tell by a number."""
    start, mark, end = name.partition(".feed_forward.experts.")
    role, dot, ending = end.partition(".")
    return start + mark + _BY_NUMBER.get(role, role) + dot + ending


def _olmoe_problem(config: Config) -> str:
    return CHOSEN_OTHERWISE if config.norm_topk_prob else heads_problem(config)


def _qwen2_problem(config: Config) -> str:
    return CHOSEN_OTHERWISE if config.norm_topk_prob else qwen_problem(config)


def all_sparse_problem(config: Config) -> str:
    """Say whether some layers have no experts, or experts are chosen in another way than Qwen's are."""
    if getattr(config, "mlp_only_layers", None) or getattr(config, "decoder_sparse_step", 1) != 1:
        return PLACED_OTHERWISE
    if not getattr(config, "norm_topk_prob", True):
        return CHOSEN_OTHERWISE
    return qwen_problem(config)


def _qwen3_vl_moe(writer: GGUFWriter, config: Config) -> None:
    add_sections(writer, config)
    add_experts(writer, config)


def _qwen3_vl_moe_problem(config: Config) -> str:
    return all_sparse_problem(config) or QWEN3_VL.problem(config)


def _ernie(writer: GGUFWriter, config: Config) -> None:
    add_experts(writer, config)
    writer.add_leading_dense_block_count(config.moe_layer_start_index)
    writer.add_interleave_moe_layer_step(1)
    if config.moe_num_shared_experts:
        writer.add_expert_shared_count(config.moe_num_shared_experts)
        writer.add_expert_shared_feed_forward_length(config.moe_num_shared_experts * config.moe_intermediate_size)


def _ernie_problem(config: Config) -> str:
    to_the_last = config.moe_layer_end_index in (-1, num_layers(config) - 1)
    return "" if to_the_last and config.moe_layer_interval == 1 else PLACED_OTHERWISE


def _ernie_laid_out(_config: Config, name: str, weight: torch.Tensor) -> torch.Tensor:
    return weight.flatten() if "moe_statics" in name else weight


def _hunyuan(writer: GGUFWriter, config: Config) -> None:
    add_experts(writer, config)
    writer.add_expert_shared_feed_forward_length(config.intermediate_size)
    writer.add_expert_shared_count(1)


def _hunyuan_problem(config: Config) -> str:
    # A list says how many are chosen in each layer.
    return CHOSEN_OTHERWISE if isinstance(config.moe_topk, list) else ""


def _lfm2_problem(config: Config) -> str:
    usual = config.use_expert_bias and config.norm_topk_prob and config.routed_scaling_factor == 1
    return "" if usual else CHOSEN_OTHERWISE


def _lfm2_moe(writer: GGUFWriter, config: Config) -> None:
    add_rated_experts(writer, config)
    writer.add_shortconv_l_cache(config.conv_L_cache)


_GRANITE_MOE = Architecture(
    MODEL_ARCH.GRANITE_MOE,
    rotates_pairs=True,
    has_factors=True,
    biases=("attention_bias",),
    more=add_granite_moe,
    renamed=granite_name,
)

MIXTURES = {
    "granitemoe": _GRANITE_MOE,
    "granitemoeshared": replace(_GRANITE_MOE, more=_granite_shared, split=granite_split),
    "mixtral": Architecture(MODEL_ARCH.LLAMA, rotates_pairs=True, has_factors=True, more=add_experts),
    "qwen2_moe": Architecture(MODEL_ARCH.QWEN2MOE, own_head=True, more=add_experts, problem=_qwen2_problem),
    "qwen3_moe": Architecture(MODEL_ARCH.QWEN3MOE, more=add_experts, problem=all_sparse_problem),
    "qwen3_vl_moe_text": replace(
        QWEN3_VL, arch=MODEL_ARCH.QWEN3VLMOE, more=_qwen3_vl_moe, problem=_qwen3_vl_moe_problem
    ),
    "olmoe": Architecture(MODEL_ARCH.OLMOE, own_head=True, more=add_experts, problem=_olmoe_problem),
    "gpt_oss": Architecture(
        MODEL_ARCH.GPT_OSS,
        biases=("attention_bias",),
        own_head=True,
        problem=_gpt_oss_problem,
        more=_gpt_oss,
        experts_transposed=True,
        experts_alternate=True,
    ),
    "glm4_moe": Architecture(MODEL_ARCH.GLM4_MOE, turns_part=True, biases=("attention_bias",), more=add_rated_experts),
    "dots1": Architecture(
        MODEL_ARCH.DOTS1,
        own_head=True,
        problem=lambda config: heads_problem(config) or window_problem(config),
        more=add_rated_experts,
    ),
    "minimax_m2": Architecture(MODEL_ARCH.MINIMAXM2, own_head=True, turns_part=True, more=add_rated_experts),
    "llama4_text": Architecture(
        MODEL_ARCH.LLAMA4, has_factors=True, problem=_llama4_problem, more=_llama4, experts_transposed=True
    ),
    "afmoe": Architecture(MODEL_ARCH.AFMOE, problem=_afmoe_problem, more=_afmoe),
    "ernie4_5_moe": Architecture(
        MODEL_ARCH.ERNIE4_5_MOE,
        more=_ernie,
        problem=_ernie_problem,
        renamed=lambda name: name.replace(".gate.moe_statics.", ".moe_statics."),
        laid_out=_ernie_laid_out,
    ),
    "hunyuan_v1_moe": Architecture(MODEL_ARCH.HUNYUAN_MOE, more=_hunyuan, problem=_hunyuan_problem),
    "lfm2_moe": Architecture(
        MODEL_ARCH.LFM2MOE, problem=_lfm2_problem, more=_lfm2_moe, renamed=_lfm2_name, without_keys="conv"
    ),
}
"""By the model_type of config.json."""
