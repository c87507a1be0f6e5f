"""Tiny random models of every family, and what the fused path is expected to say about each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tests.engine.causal_types import BESIDE_MLP
from tests.engine.fused.family_shapes import (
    BY_ATTENTION,
    BY_RULE,
    BY_SHAPE,
    EXPERTS,
    GATED_CONVOLUTION,
    NO_DROPOUT,
    OF_BLOCKS,
    OF_TWO_STACKS,
    PLAIN_ROPE,
    SCAN,
    STATES,
)
from tunesmith_engine.model.patches import know_language_model

SIZES: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN_ROPE = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
LONG_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "partial_rotary_factor": 0.75,
    "short_factor": [1.0, 1.1, 1.3, 1.5, 1.7, 2.0],
    "long_factor": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    "original_max_position_embeddings": 128,
}
TWO_KINDS = ["sliding_attention", "full_attention", "sliding_attention"]

GEMMA3 = {
    "hidden_size": 48,
    "head_dim": 16,
    "num_hidden_layers": 3,
    "layer_types": TWO_KINDS,
    "sliding_window": 5,
    "query_pre_attn_scalar": 24,
    # The attention of this family has the number and doesn't use it.
    "attn_logit_softcapping": 1.5,
    "rope_parameters": {
        "sliding_attention": PLAIN_ROPE,
        "full_attention": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 8.0},
    },
}
VISION = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 7,
}

QUICK = (
    *("gpt2", "falcon-new", "phi-head-norms", "opt", "apertus", "mimo", "bloom", "bitnet"),
    *("mixtral", "qwen2-moe", "glm4-moe", "gpt-oss", "gemma4-experts", "bart", "gpt-neo", "kimi-linear"),
)
"""Of these, of the next and of the mixtures, what between them has every shape; the others are for the long run."""

LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 24,
    "kv_lora_rank": 40,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 12,
    "v_head_dim": 16,
    # Of the rotary table.
    "head_dim": 12,
}
DENSE = {"first_k_dense_replace": 2, "n_routed_experts": 4, "n_group": 1, "topk_group": 1}

GEMMA4 = {
    "hidden_size": 48,
    "head_dim": 16,
    "global_head_dim": 32,
    "num_hidden_layers": 6,
    "layer_types": ["sliding_attention", "full_attention"] * 3,
    "sliding_window": 5,
    "num_kv_shared_layers": 3,
    "use_double_wide_mlp": True,
    "vocab_size_per_layer_input": 160,
    "hidden_size_per_layer_input": 24,
    "final_logit_softcapping": 2.0,
    "rope_parameters": {
        "sliding_attention": PLAIN_ROPE,
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 10000.0},
    },
}

NO_OWN_INPUTS = {
    "num_hidden_layers": 2,
    "layer_types": ["sliding_attention", "full_attention"],
    "num_kv_shared_layers": 0,
    "hidden_size_per_layer_input": 0,
    "attention_k_eq_v": True,
    "num_global_key_value_heads": 1,
}

GEMMA3N = {
    "hidden_size": 48,
    "head_dim": 16,
    "num_hidden_layers": 6,
    "layer_types": ["sliding_attention", "full_attention"] * 3,
    "sliding_window": 5,
    "num_kv_shared_layers": 3,
    "activation_sparsity_pattern": [0.8, 0.8, 0.6, 0.0, 0.0, 0.0],
    "laurel_rank": 12,
    "altup_num_inputs": 3,
    # So low that in training it binds.
    "altup_coef_clip": 0.06,
    # Tokens behind the table read its first row.
    "vocab_size_per_layer_input": 120,
    "hidden_size_per_layer_input": 24,
    "final_logit_softcapping": 2.0,
    "rope_parameters": {"sliding_attention": PLAIN_ROPE, "full_attention": {**PLAIN_ROPE, "rope_theta": 100.0}},
}

SHARED = {**EXPERTS, "shared_expert_intermediate_size": 48}
# The first layer is dense.
GROUPS = {
    **EXPERTS,
    "head_dim": 16,
    "n_routed_experts": 4,
    "n_group": 2,
    "topk_group": 1,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.7,
}

GRANITE = {
    "embedding_multiplier": 12.0,
    "attention_multiplier": 0.11,
    "residual_multiplier": 0.22,
    "logits_scaling": 3.0,
}

# Mixtures of experts.
SPARSE: dict[str, dict[str, Any]] = {
    "qwen3-moe": {"model_type": "qwen3_moe", "head_dim": 16, "norm_topk_prob": True, **EXPERTS},
    "mixtral": {"model_type": "mixtral", "sliding_window": 5, **EXPERTS},
    "qwen2-moe": {"model_type": "qwen2_moe", **SHARED},
    "flex-olmo": {"model_type": "flex_olmo", **EXPERTS},
    "glm4-moe": {"model_type": "glm4_moe", **GROUPS},
    "dots1": {"model_type": "dots1", **GROUPS},
    "minimax-m2": {"model_type": "minimax_m2", "head_dim": 16, **EXPERTS},
    "granite-moe": {
        "model_type": "granitemoe",
        "embedding_multiplier": 12.0,
        "attention_multiplier": 0.11,
        "residual_multiplier": 0.22,
        "logits_scaling": 3.0,
        **EXPERTS,
    },
    "ernie-moe": {
        "model_type": "ernie4_5_moe",
        "moe_num_experts": 4,
        "moe_k": 2,
        "moe_layer_start_index": 1,
        **EXPERTS,
    },
    "qwen3.5-moe": {
        "model_type": "qwen3_5_moe_text",
        "layer_types": ["linear_attention", "full_attention"],
        **STATES,
        **SHARED,
    },
    "qwen3-next": {
        "model_type": "qwen3_next",
        "layer_types": ["linear_attention", "full_attention"],
        **STATES,
        **EXPERTS,
    },
    "glm4-moe-lite": {
        "model_type": "glm4_moe_lite",
        **LATENT,
        **EXPERTS,
        "mlp_layer_types": ["sparse", "sparse"],
        "n_group": 1,
    },
    "olmoe": {"model_type": "olmoe", "clip_qkv": 0.5, **EXPERTS},
    "gpt-oss": {"model_type": "gpt_oss", "head_dim": 16, "sliding_window": 5, **EXPERTS},
    "solar-open": {"model_type": "solar_open", **GROUPS},
    "exaone-moe": {"model_type": "exaone_moe", **GROUPS},
    "granite-hybrid-moe": {
        "model_type": "granitemoehybrid",
        "shared_intermediate_size": 48,
        **GRANITE,
        **SCAN,
        **EXPERTS,
        "num_hidden_layers": 2,
        "layer_types": ["full_attention", "linear_attention"],
    },
    "granite-windows": {
        "model_type": "granitemoe_swa",
        "shared_intermediate_size": 48,
        "num_hidden_layers": 3,
        "layer_types": TWO_KINDS,
        "sliding_window": 5,
        "layer_rope_theta": [1e4, 0.0, 50.0],
        **GRANITE,
        **EXPERTS,
    },
    "lfm2-moe": {
        "model_type": "lfm2_moe",
        "layer_types": ["conv", "full_attention"],
        "num_dense_layers": 1,
        **EXPERTS,
        **GATED_CONVOLUTION,
        "num_hidden_layers": 2,
    },
    "laguna": {
        "model_type": "laguna",
        "head_dim": 16,
        "layer_types": ["sliding_attention", "full_attention"],
        "num_attention_heads_per_layer": [4, 6],
        "sliding_window": 5,
        "moe_routed_scaling_factor": 1.7,
        **SHARED,
    },
    "cohere2-moe": {
        "model_type": "cohere2_moe",
        "head_dim": 16,
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 5,
        "num_shared_experts": 2,
        "logit_scale": 0.25,
        **EXPERTS,
    },
    "llama4": {
        "model_type": "llama4_text",
        "head_dim": 16,
        "intermediate_size_mlp": 96,
        "attention_chunk_size": 4,
        "no_rope_layers": [1, 0],
        "floor_scale": 3,
        "attn_scale": 0.5,
        **EXPERTS,
    },
    "axk1": {"model_type": "axk1", **LATENT, **GROUPS, "head_dim": 12, "mlp_layer_types": ["dense", "sparse"]},
    "mistral4": {
        "model_type": "mistral4",
        **LATENT,
        **GROUPS,
        "head_dim": 20,
        "rope_parameters": {
            **YARN_ROPE,
            "partial_rotary_factor": 0.6,
            "llama_4_scaling_beta": 0.3,
            "original_max_position_embeddings": 4,
        },
    },
    "hy3": {"model_type": "hy_v3", "head_dim": 16, **EXPERTS},
    "gemma4-experts": {"model_type": "gemma4_text", **GEMMA4, **BESIDE_MLP},
    "gemma4-a4b": {"model_type": "gemma4_text", **GEMMA4, **NO_OWN_INPUTS, **BESIDE_MLP},
}

DRAWING: dict[str, dict[str, Any]] = {"phimoe": {"model_type": "phimoe", **EXPERTS}}
"""Models with a router that draws in training, and that only looks like a linear layer."""

# Numbers are far from their usual values where the usual ones would not show: caps are low, scales are odd, and the
# square root of Gemma's width is not a whole number.
FUSED: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama"},
    "llama-biases": {"model_type": "llama", "attention_bias": True, "mlp_bias": True},
    "llama3": {"model_type": "llama", "rope_parameters": LLAMA3_ROPE, "tie_word_embeddings": True},
    "llama-yarn": {"model_type": "llama", "rope_parameters": YARN_ROPE},
    "mistral": {"model_type": "mistral", "sliding_window": 5, "head_dim": 24},
    "qwen2": {"model_type": "qwen2"},
    "qwen2-window": {
        "model_type": "qwen2",
        "use_sliding_window": True,
        "sliding_window": 5,
        "layer_types": ["full_attention", "sliding_attention"],
    },
    "qwen3": {"model_type": "qwen3", "head_dim": 32},
    "gemma": {"model_type": "gemma", "hidden_size": 48, "head_dim": 16, "num_key_value_heads": 1},
    "gemma2": {
        "model_type": "gemma2",
        "hidden_size": 48,
        "head_dim": 16,
        "num_hidden_layers": 3,
        "layer_types": TWO_KINDS,
        "sliding_window": 5,
        "query_pre_attn_scalar": 24,
        "attn_logit_softcapping": 1.5,
        "final_logit_softcapping": 2.0,
    },
    "gemma3": {"model_type": "gemma3_text", **GEMMA3},
    "gemma3-images": {
        "model_type": "gemma3",
        "text_config": {**SIZES, **GEMMA3},
        "vision_config": VISION,
        "mm_tokens_per_image": 4,
    },
    "phi3": {"model_type": "phi3", "sliding_window": 5},
    "phi4-mini": {"model_type": "phi3", "rope_parameters": LONG_ROPE, "tie_word_embeddings": True},
    "granite": {
        "model_type": "granite",
        "embedding_multiplier": 12.0,
        "attention_multiplier": 0.11,
        "residual_multiplier": 0.22,
        "logits_scaling": 3.0,
    },
    "cohere": {"model_type": "cohere", "logit_scale": 0.25},
    "cohere2": {
        "model_type": "cohere2",
        "num_hidden_layers": 3,
        "layer_types": TWO_KINDS,
        "sliding_window": 5,
        "logit_scale": 0.25,
    },
    "smollm3": {"model_type": "smollm3", "no_rope_layers": [1, 0]},
    "olmo2": {"model_type": "olmo2"},
    "olmo3": {
        "model_type": "olmo3",
        "num_hidden_layers": 3,
        "layer_types": TWO_KINDS,
        "sliding_window": 5,
        "rope_parameters": {"sliding_attention": PLAIN_ROPE, "full_attention": YARN_ROPE},
    },
    "exaone4": {"model_type": "exaone4", "num_hidden_layers": 3, "layer_types": TWO_KINDS, "sliding_window": 5},
    "glm": {"model_type": "glm", "head_dim": 16},
    "glm4": {"model_type": "glm4", "head_dim": 16},
    "helium": {"model_type": "helium", "head_dim": 16},
    "ministral": {
        "model_type": "ministral",
        "head_dim": 16,
        "num_hidden_layers": 3,
        "layer_types": TWO_KINDS,
        "sliding_window": 5,
    },
    "ernie": {"model_type": "ernie4_5", "head_dim": 16, "use_bias": True},
    "seed": {"model_type": "seed_oss", "head_dim": 16, "attention_dropout": 0.0, "residual_dropout": 0.0},
    "qwen3.5": {
        "model_type": "qwen3_5_text",
        "num_hidden_layers": 3,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        **STATES,
    },
    "lfm2": {"model_type": "lfm2", "layer_types": ["conv", "full_attention", "conv"], **GATED_CONVOLUTION},
    "lfm2-biases": {
        "model_type": "lfm2",
        "layer_types": ["full_attention", "conv", "conv"],
        "conv_bias": True,
        **GATED_CONVOLUTION,
    },
    "bamba": {"model_type": "bamba", "attn_layer_indices": [1], **SCAN},
    "granite-hybrid": {
        "model_type": "granitemoehybrid",
        "layer_types": ["full_attention", "linear_attention", "linear_attention"],
        "num_local_experts": 0,
        "shared_intermediate_size": 96,
        **GRANITE,
        **SCAN,
    },
    "lfm3": {
        "model_type": "lfm3",
        "conv_L_cache": 5,
        "head_dim": 16,
        "num_hidden_layers": 3,
        "layer_types": ["conv", "sliding_attention", "full_attention"],
        "sliding_window": 5,
    },
    "minicpm3": {"model_type": "minicpm3", **LATENT, "v_head_dim": 20},
    "deepseek-v2": {"model_type": "deepseek_v2", **LATENT, **DENSE, "q_lora_rank": None},
    "deepseek-v3": {"model_type": "deepseek_v3", **LATENT, **DENSE, "rope_parameters": YARN_ROPE},
    "youtu": {"model_type": "youtu", **LATENT, "rope_interleave": False, "q_lora_rank": None},
    "gemma4": {"model_type": "gemma4_text", **GEMMA4},
    "gemma4-keys-are-values": {"model_type": "gemma4_text", **GEMMA4, **NO_OWN_INPUTS},
    "gemma3n": {"model_type": "gemma3n_text", **GEMMA3N},
    "vaultgemma": {"model_type": "vaultgemma", "head_dim": 16, "layer_types": TWO_KINDS[:2], "sliding_window": 5},
    "arcee": {"model_type": "arcee"},
    "qwen3-next": {
        "model_type": "qwen3_next",
        "layer_types": ["linear_attention", "full_attention"],
        **STATES,
        **SHARED,
    },
    **SPARSE,
    **BY_RULE,
    **BY_SHAPE,
    **BY_ATTENTION,
    **OF_TWO_STACKS,
    **OF_BLOCKS,
}
"""Models that run fused in every layer: what a config says beside `SIZES`."""

MLP_UNFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "dbrx": (
        {
            "model_type": "dbrx",
            "d_model": 64,
            "n_layers": 2,
            "n_heads": 4,
            "max_seq_len": 64,
            "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 0.7},
            "ffn_config": {"moe_num_experts": 4, "moe_top_k": 2, "ffn_hidden_size": 32, "hidden_size": 64},
        },
        "DbrxFFN",
    ),
    # Too little to change a number, so that results can be compared.
    "mixtral-noise": ({"model_type": "mixtral", "router_jitter_noise": 1e-30, **EXPERTS}, "jitter_noise"),
}
"""Models whose attention runs fused and whose MLPs don't, and a word of the reason."""

MIXERS_AS_WRITTEN: dict[str, tuple[dict[str, Any], str]] = {
    "diffllama": ({"model_type": "diffllama", "attention_dropout": 0.0}, r"self_attn .*lambda_init"),
    "llama-dynamic": (
        {"model_type": "llama", "rope_parameters": {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 4.0}},
        "dynamic",
    ),
    # Its layer writes to what its parts give.
    "falcon-alibi": ({"model_type": "falcon", "alibi": True, "multi_query": False}, "alibi"),
    "stablelm-head-norms": ({"model_type": "stablelm", "qk_layernorm": True}, "self_attn"),
}
"""Models whose norms and MLPs run fused and whose attention doesn't, and what the reason matches."""

LAYERS_AS_WRITTEN: dict[str, tuple[dict[str, Any], str]] = {
    "gpt-neox-japanese": (
        {"model_type": "gpt_neox_japanese", "intermediate_multiple_size": 2, "hidden_dropout": 0.0, **NO_DROPOUT},
        "bias_dropout_add",
    ),
    "minimax": ({"model_type": "minimax", "head_dim": 16, "block_size": 8, **EXPERTS}, "alpha_factor"),
}
"""Models of which embedding, norm and head run fused, and what the reason matches."""

NORMS_ALONE: dict[str, tuple[dict[str, Any], str]] = {
    "mamba": ({"model_type": "mamba", "state_size": 8, "time_step_rank": 4}, "mamba_selective_scan")
}
"""Models whose layers are a norm, which runs fused, and a mixer, which doesn't."""

NOT_FUSABLE: dict[str, tuple[dict[str, Any], str]] = {
    "gpt2-dropout": ({"model_type": "gpt2"}, r"dropout"),
    "deepseek-sparse": (
        {"model_type": "glm_moe_dsa", "n_routed_experts": 4, "n_group": 1, "topk_group": 1},
        "prev_topk_indices",
    ),
    "zaya": ({"model_type": "zaya", "head_dim": 16, **EXPERTS, "num_experts_per_tok": 1}, "other layers: "),
}
"""Models that the fused path refuses, and what the sentence matches."""


_ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
_OTHERS = ["in_proj", "gate_proj", "up_proj", "down_proj"]
_BLOCKS = (*OF_BLOCKS, *NORMS_ALONE)
TARGETS = {"llama4": _ATTENTION} | {name: [*_ATTENTION, *_OTHERS] for name in _BLOCKS}
"""What an adapter is put on where PEFT's "all-linear" takes a router for a linear layer, or PEFT refuses `out_proj`."""

WITH_STATES = OF_BLOCKS.keys() | {
    *("qwen3.5", "qwen3-next", "lfm2", "lfm2-biases", "bamba", "granite-hybrid", "qwen3.5-moe"),
    *("granite-hybrid-moe", "lfm2-moe", "lfm3"),
}
"""Models in some of whose layers a state stands in attention's place: none of them trains whole."""

VARIANTS = frozenset({"lfm2-biases", "dbrx"})
"""Models that repeat shapes of others, or whose shapes few models have."""

SAME_LABELS = frozenset({"bart", "marian", "mvp", "trocr", "mbart", "pegasus", "bigbird-pegasus", "whisper"})
"""Models whose own loss wants labels that are already moved to the token before."""

NOT_WHOLE = WITH_STATES | {"gemma3n", "gemma4", "gemma4-experts"}
"""Models whose own weights train as plain PyTorch."""


def marked(names: Iterable[str]) -> list[Any]:
    """Return names for `parametrize`, those that repeat shapes of others for the long run only."""
    return [
        pytest.param(name, marks=pytest.mark.long)
        if name in {*VARIANTS, *BY_SHAPE, *BY_ATTENTION, *BY_RULE, *OF_TWO_STACKS, *OF_BLOCKS, *SPARSE} - {*QUICK}
        else name
        for name in names
    ]


def make(name: str, seed: int = 0, **overrides: Any) -> Any:  # Any: a transformers model
    """Return a model of a family with random weights, norms and biases included, in float32 on the CPU.

    Args:
        name: a key of one of the tables above.
        seed: the same seed gives the same weights.
        overrides: values of the config.
    """
    with_reasons = {**MLP_UNFUSED, **MIXERS_AS_WRITTEN, **NORMS_ALONE, **LAYERS_AS_WRITTEN, **NOT_FUSABLE}
    whole = {**FUSED, **DRAWING}
    family = whole[name] if name in whole else with_reasons[name][0]
    config = AutoConfig.for_model(**{**SIZES, **family, **overrides})
    know_language_model(config.model_type)
    state = torch.get_rng_state()
    torch.manual_seed(seed)
    # "sdpa" leaves Gemma 2's soft cap out in some versions of transformers.
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        for parameter in model.parameters():
            # Ones and zeros, which norms and biases start with, would hide what is left out.
            parameter.add_(torch.randn_like(parameter) * (0.3 if parameter.dim() == 1 else 0.05))
        for buffer_name, buffer in model.named_buffers():
            if buffer_name.endswith("layer_scalar"):
                buffer.uniform_(0.6, 0.9)
        for parameter_name, parameter in model.named_parameters():
            if name.startswith("gemma4") and parameter_name.endswith("q_norm.weight"):
                # These models' norms hold the scale of the scores.
                parameter.mul_(len(parameter) ** -0.5)
    torch.set_rng_state(state)
    if "num_experts" in family:
        # The grouped products that newer versions choose have no float64.
        model.set_experts_implementation("eager")
    return model.requires_grad_(False)
