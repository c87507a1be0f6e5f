"""The numbers of a model's config as llama.cpp calls them."""

from __future__ import annotations

import math
from typing import Any

import torch
from gguf import MODEL_ARCH, GGUFWriter, RopeScalingType

from tunesmith_core.errors import TunesmithError
from tunesmith_engine.export.gguf import latent
from tunesmith_engine.export.gguf.architecture import Architecture, head_dim, num_layers
from tunesmith_engine.export.gguf.config import Config
from tunesmith_engine.export.gguf.gpt import key_heads

ROPE_FREQS, ROPE_LONG, ROPE_SHORT = "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"

PROPORTIONAL = "proportional"
STILL = 1e30
"""By which the frequency of a pair that does not turn is divided."""
_YARN_FACTORS = {"mscale", "mscale_all_dim", "attention_factor"}
_WITH_YARN_FACTORS = (MODEL_ARCH.MISTRAL3, MODEL_ARCH.MISTRAL4, MODEL_ARCH.DEEPSEEK2)

ANY_CONTEXT = 1 << 20
"""Of models that have no longest text."""

Rope = dict[str, Any]  # Any: JSON values


def add_hyperparameters(writer: GGUFWriter, architecture: Architecture, config: Config, num_rows: int) -> None:
    """Write the hyperparameters of a model.

    Args:
        writer: of the file.
        architecture: of the model.
        config: of the model.
        num_rows: of its embedding.

    Raises:
        UserError: `export-unsupported` for a way to stretch positions that llama.cpp does not have.
    """
    window = getattr(config, "sliding_window", None)
    context = getattr(config, "max_position_embeddings", None) or getattr(config, "max_seq_len", None) or ANY_CONTEXT
    writer.add_context_length(min(context, window) if architecture.within_window and window else context)
    writer.add_block_count(num_layers(config))
    writer.add_vocab_size(num_rows)
    writer.add_embedding_length(config.hidden_size)
    _add_epsilon(writer, architecture, config)
    if hasattr(config, "num_attention_heads"):
        _add_attention(writer, architecture, config)
    else:
        # Asked for where there is none, too.
        writer.add_feed_forward_length(0)
        writer.add_head_count(0)
    if architecture.arch in (MODEL_ARCH.GEMMA2, MODEL_ARCH.GEMMA3, MODEL_ARCH.PHI3) and window:
        writer.add_sliding_window(window)
    if architecture.arch is MODEL_ARCH.GEMMA2:
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    architecture.more(writer, config)
    if getattr(config, "rope_parameters", None):
        _add_rope(writer, architecture, config)


def _add_epsilon(writer: GGUFWriter, architecture: Architecture, config: Config) -> None:
    """Write what norms add to a variance, by which kind they are."""
    names = ("layer_norm_eps", "rms_norm_eps", "norm_eps", "layer_norm_epsilon", "norm_epsilon")
    values = [getattr(config, name) for name in names if getattr(config, name, None)]
    if architecture.centers or hasattr(config, "layer_norm_eps"):
        writer.add_layer_norm_eps(values[0] if values else 1e-5)
    else:
        writer.add_layer_norm_rms_eps(values[0])


def _add_attention(writer: GGUFWriter, architecture: Architecture, config: Config) -> None:
    if width := _mlp_width(config):
        writer.add_feed_forward_length(width)
    writer.add_head_count(config.num_attention_heads)
    if hasattr(config, "kv_lora_rank"):
        latent.add_heads(writer, config)
        return
    writer.add_head_count_kv(_key_heads(architecture, config))
    writer.add_key_length(head_dim(config))
    writer.add_value_length(head_dim(config))


def _mlp_width(config: Config) -> int | list[int]:
    """Return the width inside MLPs; some configs say two thirds of another number, filled up (LFM2)."""
    if getattr(config, "use_double_wide_mlp", False):
        # Layers that read the keys and values of others are twice as wide (Gemma 4).
        own = num_layers(config) - config.num_kv_shared_layers
        return [config.intermediate_size * (1 + (layer >= own)) for layer in range(num_layers(config))]
    if hasattr(config, "shared_intermediate_size") and not config.num_local_experts:
        return int(config.shared_intermediate_size)
    if not getattr(config, "block_auto_adjust_ff_dim", False):
        names = ("intermediate_size_mlp", "intermediate_size", "ffn_hidden_size", "n_inner")
        width = next((getattr(config, name) for name in names if getattr(config, name, None)), None)
        return int(width or config.hidden_size * 4)
    width = int(2 * config.intermediate_size / 3)
    if config.block_ffn_dim_multiplier is not None:
        width = int(config.block_ffn_dim_multiplier * width)
    return -(-width // config.block_multiple_of) * config.block_multiple_of


def _key_heads(architecture: Architecture, config: Config) -> int | list[int]:
    """Return how many heads keys have, of each layer where they differ or some have no attention."""
    kinds = getattr(config, "layer_types", None) or []
    numbers = [key_heads(layer) for layer in config.per_layer_config]
    without = architecture.without_keys
    if without in kinds:
        return [0 if kind == without else number for kind, number in zip(kinds, numbers, strict=True)]
    return numbers if len(set(numbers)) > 1 else numbers[0]


def rope_of(config: Config) -> Rope:
    """Return the settings of positions, of the layers that see everything."""
    rope = dict(getattr(config, "rope_parameters", None) or {})
    return dict(rope.get("full_attention") or rope)


def _rope_dim(config: Config) -> int:
    if rope_of(config).get("rope_type") == PROPORTIONAL:
        # Pairs that don't turn have a factor, see `rope_factors`.
        return head_dim(config)
    if hasattr(config, "qk_rope_head_dim"):
        return int(config.qk_rope_head_dim)
    return int(head_dim(config) * (rope_of(config).get("partial_rotary_factor") or 1.0))


def _add_rope(writer: GGUFWriter, architecture: Architecture, config: Config) -> None:
    rope = rope_of(config)
    writer.add_rope_dimension_count(_rope_dim(config))
    writer.add_rope_freq_base(rope["rope_theta"])
    if architecture.arch in (MODEL_ARCH.GEMMA3, MODEL_ARCH.GEMMA4):
        writer.add_rope_freq_base_swa(config.rope_parameters["sliding_attention"]["rope_theta"])
    match rope.get("rope_type", "default"):
        case "default" | "llama3" | "proportional":
            pass
        case "linear":
            writer.add_rope_scaling_type(RopeScalingType.LINEAR)
            writer.add_rope_scaling_factor(rope["factor"])
        case "yarn" if architecture.arch in _WITH_YARN_FACTORS or not rope.keys() & _YARN_FACTORS:
            writer.add_rope_scaling_type(RopeScalingType.YARN)
            writer.add_rope_scaling_factor(rope["factor"])
            writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
            writer.add_rope_scaling_yarn_beta_fast(rope.get("beta_fast") or 32.0)
            writer.add_rope_scaling_yarn_beta_slow(rope.get("beta_slow") or 1.0)
        case "longrope" if architecture.arch is MODEL_ARCH.PHI3:
            original = _original_context(config)
            scale = config.max_position_embeddings / original
            writer.add_rope_scaling_orig_ctx_len(original)
            writer.add_rope_scaling_attn_factors(
                rope.get("attention_factor")
                or (math.sqrt(1 + math.log(scale) / math.log(original)) if scale > 1 else 1.0)
            )
        case other:
            raise TunesmithError(
                "export-unsupported",
                "Positions that are stretched by the method {method} can't be exported as GGUF.",
                hint="Export the merged model instead.",
                method=other,
            )


def _original_context(config: Config) -> int:
    rope = rope_of(config)
    return int(rope.get("original_max_position_embeddings") or config.original_max_position_embeddings)


def rope_factors(config: Config) -> dict[str, torch.Tensor]:
    """Return by what llama.cpp divides the frequencies of positions: tensors by name, each [rope dimension / 2]."""
    rope = rope_of(config)
    match rope.get("rope_type", "default"):
        case "llama3":
            return {ROPE_FREQS: _llama3_factors(rope, _rope_dim(config))}
        case "proportional":
            half = head_dim(config) // 2
            turning = int(half * rope["partial_rotary_factor"])
            return {ROPE_FREQS: torch.where(torch.arange(half) < turning, 1.0, STILL)}
        case "longrope":
            return {
                ROPE_LONG: torch.tensor(rope["long_factor"], dtype=torch.float32),
                ROPE_SHORT: torch.tensor(rope["short_factor"], dtype=torch.float32),
            }
    return {}


def _llama3_factors(rope: Rope, dim: int) -> torch.Tensor:
    """Return the factors of Llama 3.1: long waves are stretched, short ones are not, those between smoothly."""
    frequencies = 1.0 / rope["rope_theta"] ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    factor, low, high = rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"]
    waves = rope["original_max_position_embeddings"] * frequencies / (2 * math.pi)
    smooth = (waves - low) / (high - low)
    between = 1 / ((1 - smooth) / factor + smooth)
    return torch.where(waves < low, factor, torch.where(waves > high, 1.0, between)).float()
