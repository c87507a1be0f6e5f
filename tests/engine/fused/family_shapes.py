"""What configs of families say whose layers have other parts, or put them together otherwise, than Llama's."""

from __future__ import annotations

from typing import Any

PLAIN_ROPE = {"rope_type": "default", "rope_theta": 100.0}
EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
NO_DROPOUT = dict.fromkeys(
    "attn_pdrop embd_pdrop resid_pdrop dropout attention_dropout hidden_dropout layerdrop residual_dropout "
    "embedding_dropout".split(),
    0.0,
)
PARTIAL_ROPE = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
OPT = {"ffn_dim": 96, "word_embed_proj_dim": 64, **NO_DROPOUT}

# LayerNorm with bias, MLPs without gate, learned positions, both blocks side by side, merged projections.
BY_SHAPE: dict[str, dict[str, Any]] = {
    "gpt2": {"model_type": "gpt2", "n_inner": 96, **NO_DROPOUT},
    "gpt2-scaled": {"model_type": "gpt2", "scale_attn_by_inverse_layer_idx": True, **NO_DROPOUT},
    "gpt-bigcode": {"model_type": "gpt_bigcode", **NO_DROPOUT},
    "gpt-bigcode-heads": {"model_type": "gpt_bigcode", "multi_query": False, **NO_DROPOUT},
    "gptj": {"model_type": "gptj", "rotary_dim": 8, **NO_DROPOUT},
    "codegen": {"model_type": "codegen", "rotary_dim": 8, **NO_DROPOUT},
    "gpt-neox": {"model_type": "gpt_neox", "rope_parameters": PARTIAL_ROPE},
    "gpt-neox-in-turn": {"model_type": "gpt_neox", "use_parallel_residual": False, "hidden_act": "gelu_fast"},
    "stablelm": {"model_type": "stablelm", "use_qkv_bias": True},
    "stablelm-parallel": {"model_type": "stablelm", "use_parallel_residual": True, "rope_parameters": PARTIAL_ROPE},
    "starcoder2": {"model_type": "starcoder2", "sliding_window": 5, **NO_DROPOUT},
    "phi": {"model_type": "phi", "rope_parameters": PARTIAL_ROPE, **NO_DROPOUT},
    "phi-head-norms": {"model_type": "phi", "rope_parameters": PARTIAL_ROPE, "qk_layernorm": True, **NO_DROPOUT},
    "opt": {"model_type": "opt", **OPT},
    "biogpt": {"model_type": "biogpt", "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, **NO_DROPOUT},
    "falcon": {"model_type": "falcon", "bias": True},
    "falcon-new": {"model_type": "falcon", "new_decoder_architecture": True, "num_kv_heads": 2},
    "falcon-heads": {"model_type": "falcon", "multi_query": False, "parallel_attn": False},
    "nemotron": {"model_type": "nemotron", "head_dim": 16, "rope_parameters": PARTIAL_ROPE},
    "apertus": {"model_type": "apertus", "head_dim": 16, "rope_parameters": PLAIN_ROPE},
    "persimmon": {"model_type": "persimmon", "rope_parameters": PARTIAL_ROPE},
    "persimmon-no-norms": {"model_type": "persimmon", "qk_layernorm": False},
}

WARM_ROPE = {**PLAIN_ROPE, "llama_4_scaling_beta": 0.5, "original_max_position_embeddings": 4}

# Sinks, ALiBi, values of another size, clips, a temperature, norms behind the rotation and before outputs.
BY_ATTENTION: dict[str, dict[str, Any]] = {
    "flint": {
        "model_type": "flint",
        "head_dim": 16,
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 5,
        "mlp_only_layers": [0, 1],
    },
    "mimo": {
        "model_type": "mimo_v2_flash",
        "head_dim": 24,
        "v_head_dim": 16,
        "layer_types": ["sliding_attention", "full_attention"],
        "mlp_layer_types": ["dense", "dense"],
        "sliding_window": 5,
        "attention_bias": True,
    },
    "bloom": {"model_type": "bloom"},
    "mpt": {"model_type": "mpt", "max_seq_len": 64, "attn_config": {"clip_qkv": 0.7}},
    "hunyuan": {"model_type": "hunyuan_v1_dense", "head_dim": 16},
    "nanochat": {"model_type": "nanochat", "final_logit_softcapping": 2.0},
    "olmo": {"model_type": "olmo"},
    "olmo-clipped": {"model_type": "olmo", "clip_qkv": 0.5},
    "bitnet": {"model_type": "bitnet"},
    "moshi": {"model_type": "moshi", "head_dim": 16, "ffn_dim": 96, "audio_encoder_config": {"model_type": "mimi"}},
    "ministral3": {"model_type": "ministral3", "head_dim": 16, "rope_parameters": WARM_ROPE},
}

BART = {
    "d_model": 64,
    # The config counts the layers of an encoder that isn't there.
    "encoder_layers": 1,
    "decoder_layers": 2,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 96,
    "activation_dropout": 0.0,
    # What transformers would end every answer with.
    "forced_eos_token_id": None,
    **NO_DROPOUT,
}
LOCAL = {"num_layers": 2, "attention_types": [[["global", "local"], 1]], "window_size": 5, "num_heads": 4}

# Norms behind the sums, attention to an encoder that nobody calls, attention inside attention.
OF_TWO_STACKS: dict[str, dict[str, Any]] = {
    "bart": {"model_type": "bart", "scale_embedding": True, **BART},
    "marian": {"model_type": "marian", "scale_embedding": True, **BART},
    "mvp": {"model_type": "mvp", **BART},
    "trocr": {"model_type": "trocr", **BART},
    "openai-gpt": {"model_type": "openai-gpt", "n_positions": 64, **NO_DROPOUT},
    "opt-350m": {"model_type": "opt", **OPT, "do_layer_norm_before": False},
    "mbart": {"model_type": "mbart", **BART},
    "pegasus": {"model_type": "pegasus", "scale_embedding": True, **BART},
    "bigbird-pegasus": {"model_type": "bigbird_pegasus", **BART},
    "whisper": {"model_type": "whisper", "suppress_tokens": None, "begin_suppress_tokens": None, **BART},
    "gpt-neo": {"model_type": "gpt_neo", **LOCAL, **NO_DROPOUT},
}

STATES = {
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 24,
}

# Delta rules other than Qwen's: strengths up to 2; a decay for each channel, through latents or with a floor.
BY_RULE: dict[str, dict[str, Any]] = {
    "kimi-linear": {
        "model_type": "kimi_linear",
        "num_hidden_layers": 3,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "mlp_layer_types": ["dense", "sparse", "dense"],
        "linear_head_dim": 24,
        "linear_num_heads": 4,
        "q_lora_rank": None,
        "kv_lora_rank": 40,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 12,
        "v_head_dim": 16,
        "num_key_value_heads": 4,
        **EXPERTS,
    },
    "bailing-hybrid": {
        "model_type": "bailing_hybrid",
        "layer_types": ["linear_attention", "full_attention"],
        "mlp_layer_types": ["dense", "dense"],
        "q_lora_rank": None,
        "kv_lora_rank": 40,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 12,
        "v_head_dim": 16,
        "head_dim": 24,
        "num_key_value_heads": 4,
        **EXPERTS,
    },
    "olmo-hybrid": {"model_type": "olmo_hybrid", "layer_types": ["linear_attention", "full_attention"], **STATES},
}

GATED_CONVOLUTION = {"num_hidden_layers": 3, "block_multiple_of": 32, "conv_L_cache": 3}

SCAN = {
    "num_hidden_layers": 3,
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_d_state": 24,
    "mamba_n_groups": 2,
    "mamba_expand": 2,
    "time_step_limit": (0.4, 1.5),
}

OF_BLOCKS: dict[str, dict[str, Any]] = {
    "mamba2": {
        "model_type": "mamba2",
        "num_heads": 8,
        "head_dim": 16,
        "state_size": 24,
        "n_groups": 2,
        "time_step_limit": (0.4, 1.5),
    },
    "nemotron-h": {
        "model_type": "nemotron_h",
        "layers_block_type": ["mlp", "linear_attention", "full_attention", "mlp"],
        "head_dim": 16,
        "mamba_num_heads": 8,
        "mamba_head_dim": 16,
        "ssm_state_size": 24,
        "n_groups": 2,
        "time_step_limit": (0.4, 1.5),
    },
    "falcon-h1": {
        "model_type": "falcon_h1",
        **SCAN,
        "num_hidden_layers": 2,
        "head_dim": 16,
        "mamba_d_ssm": 128,
        "attention_in_multiplier": 0.8,
        "attention_out_multiplier": 0.9,
        "key_multiplier": 0.4,
        "ssm_in_multiplier": 1.25,
        "ssm_out_multiplier": 0.7,
        "ssm_multipliers": [0.35, 0.25, 0.9, 0.5, 0.8],
        "mlp_multipliers": [0.9, 0.6],
        "embedding_multiplier": 5.6,
        "lm_head_multiplier": 0.3,
    },
}
"""Layers of one block, and layers with attention and a scan beside each other."""
