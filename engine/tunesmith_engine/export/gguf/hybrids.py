"""Types of models whose layers are not all attention, as llama.cpp has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from gguf import MODEL_ARCH, GGUFWriter

from tunesmith_core.messages import Message
from tunesmith_engine.export.gguf import gated_delta, mamba
from tunesmith_engine.export.gguf.architecture import Architecture, Part
from tunesmith_engine.export.gguf.config import Config
from tunesmith_engine.export.gguf.dense import add_granite
from tunesmith_engine.export.gguf.mixtures import (
    add_experts,
    add_granite_moe,
    all_sparse_problem,
    granite_name,
    granite_split,
)


def _gated_delta_moe(writer: GGUFWriter, config: Config) -> None:
    gated_delta.add_hyperparameters(writer, config)
    add_experts(writer, config)


def _lfm2(writer: GGUFWriter, config: Config) -> None:
    writer.add_shortconv_l_cache(config.conv_L_cache)


def _granite_layers(writer: GGUFWriter, config: Config) -> None:
    if config.num_local_experts:
        add_granite_moe(writer, config)
        writer.add_expert_shared_feed_forward_length(config.shared_intermediate_size)
    else:
        add_granite(writer, config)
    writer.add_rope_scaling_finetuned(config.position_embedding_type == "rope")


def _granite(writer: GGUFWriter, config: Config) -> None:
    mamba.add_hyperparameters(writer, config)
    _granite_layers(writer, config)


def _granite_split(config: Config, name: str, shape: tuple[int, ...]) -> Mapping[str, Part]:
    return mamba.split(config, name, shape) or granite_split(config, name, shape)


def _granite_variant(config: Config) -> Architecture | None:
    """Return what llama.cpp takes a model for whose layers all have attention."""
    if "linear_attention" in config.layer_types:
        return None
    arch = MODEL_ARCH.GRANITE_MOE if config.num_local_experts else MODEL_ARCH.GRANITE
    return Architecture(
        arch,
        rotates_pairs=True,
        has_factors=True,
        biases=("attention_bias",),
        more=_granite_layers,
        renamed=granite_name,
        split=granite_split,
    )


def _falcon_problem(config: Config) -> str:
    if config.mamba_rms_norm and config.mamba_norm_before_gate:
        return Message("the gate of its scans comes behind a norm")
    if config.tie_word_embeddings and config.embedding_multiplier != config.lm_head_multiplier:
        return Message("its embedding and its head are one weight with two scales")
    return mamba.problem(config)


def _falcon_laid_out(config: Config, name: str, weight: torch.Tensor) -> torch.Tensor:
    """Return a weight multiplied by what the model multiplies its inputs or outputs with."""
    gate, down = config.mlp_multipliers
    scan = mamba.scan_of(config)
    match name.removesuffix(".bias").removesuffix(".weight").rpartition(".")[2]:
        case "embed_tokens":
            return weight * config.embedding_multiplier
        case "lm_head":
            return weight * config.lm_head_multiplier
        case "gate_proj":
            return weight * gate
        case "down_proj":
            return weight * down
        case "q_proj" | "v_proj":
            return weight * config.attention_in_multiplier
        case "k_proj":
            return weight * (config.attention_in_multiplier * config.key_multiplier)
        case "o_proj":
            return weight * config.attention_out_multiplier
        case "out_proj":
            return weight * config.ssm_out_multiplier
        case "in_proj":
            sizes = [scan.width, scan.width, scan.groups * scan.state, scan.groups * scan.state, scan.heads]
            by_row = torch.tensor(config.ssm_multipliers).repeat_interleave(torch.tensor(sizes))
            return weight * by_row[:, None] * config.ssm_in_multiplier
    return mamba.laid_out(config, name, weight)


_QWEN35 = Architecture(
    MODEL_ARCH.QWEN35,
    turns_part=True,
    problem=lambda config: gated_delta.problem(config) or gated_delta.sections_problem(config),
    more=gated_delta.add_hyperparameters,
    laid_out=gated_delta.laid_out,
)

HYBRIDS = {
    "qwen3_5_text": _QWEN35,
    "qwen3_5_moe_text": replace(_QWEN35, arch=MODEL_ARCH.QWEN35MOE, more=_gated_delta_moe),
    "qwen3_next": Architecture(
        MODEL_ARCH.QWEN3NEXT,
        turns_part=True,
        problem=lambda config: gated_delta.problem(config) or all_sparse_problem(config),
        more=_gated_delta_moe,
        laid_out=gated_delta.laid_out_next,
        split=gated_delta.split_next,
    ),
    "mamba2": Architecture(
        MODEL_ARCH.MAMBA2,
        problem=mamba.problem,
        more=mamba.add_hyperparameters,
        split=mamba.split,
        laid_out=mamba.laid_out,
    ),
    "granitemoehybrid": Architecture(
        MODEL_ARCH.GRANITE_HYBRID,
        rotates_pairs=True,
        has_factors=True,
        biases=("attention_bias",),
        problem=mamba.problem,
        more=_granite,
        renamed=granite_name,
        split=_granite_split,
        laid_out=mamba.laid_out,
        without_keys="linear_attention",
        variant=_granite_variant,
    ),
    "falcon_h1": Architecture(
        MODEL_ARCH.FALCON_H1,
        turns_part=True,
        has_factors=True,
        biases=("mlp_bias",),
        problem=_falcon_problem,
        more=mamba.add_hyperparameters,
        split=mamba.split,
        laid_out=_falcon_laid_out,
    ),
    "lfm2": Architecture(MODEL_ARCH.LFM2, more=_lfm2, without_keys="conv"),
}
"""By the model_type of config.json."""
