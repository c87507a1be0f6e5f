"""A tiny random model of every type that transformers calls a causal language model, written as a model folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from tunesmith_engine.model.patches import NOT_LISTED, know_language_model

TYPES = [*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *NOT_LISTED]

_BY_VALUE = {
    64: "hidden_size n_embd d_model dim embedding_size emb_dim attention_hidden_size",
    96: "intermediate_size n_inner ffn_dim ffn_hidden_size decoder_ffn_dim encoder_ffn_dim d_ff "
    "d_inner feedforward_size",
    32: "moe_intermediate_size shared_expert_intermediate_size",
    2: "num_hidden_layers n_layer n_layers num_layers decoder_layers encoder_layers num_decoder_layers eos_token_id "
    "num_key_value_heads num_experts_per_tok linear_num_key_heads",
    4: "num_attention_heads n_head n_heads num_heads decoder_attention_heads encoder_attention_heads num_experts "
    "num_local_experts n_routed_experts moe_num_experts mamba_n_heads linear_num_value_heads time_step_rank",
    256: "max_position_embeddings n_positions max_seq_len context_length",
    16: "head_dim d_kv d_head q_lora_rank kv_lora_rank v_head_dim",
    8: "mamba_d_state state_size qk_rope_head_dim qk_nope_head_dim linear_key_head_dim linear_value_head_dim "
    "sliding_window",
    160: "vocab_size vocab_size_per_layer_input",
    0: "pad_token_id",
    1: "bos_token_id n_group topk_group",
    5: "image_token_id",
    6: "video_token_id",
    7: "audio_token_id",
    9: "boi_token_id eoi_token_id eoi_token_index boa_token_id eoa_token_id eoa_token_index",
}
SMALL = {name: value for value, names in _BY_VALUE.items() for name in names.split()}
"""What a value that a config has by default becomes."""

_MLA = {"head_dim": 8}
_SPARSE_MLA = {"head_dim": 8, "num_key_value_heads": 4}
_MIXED = {
    "num_hidden_layers": 4,
    "layers_block_type": ["linear_attention", "hybrid", "linear_attention", "hybrid"],
    "num_key_value_heads": 4,
    "attention_hidden_size": 128,
    "attention_head_dim": 32,
}
_GEMMA3N = {
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_kv_shared_layers": 2,
    "hidden_size_per_layer_input": 8,
    "laurel_rank": 4,
    "activation_sparsity_pattern": [0.95, 0.8, 0.0, 0.0],
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "vocab_size_per_layer_input": 120,
}
OWN: dict[str, dict[str, Any]] = {
    "axk1": {**_MLA, "num_experts_per_tok": 2},
    "axk2": _SPARSE_MLA,
    "codegen": {"rotary_dim": 8},
    "dbrx": {
        "ffn_config": {"moe_num_experts": 4, "moe_top_k": 2, "ffn_hidden_size": 32, "hidden_size": 64},
        "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8.0},
    },
    "deepseek_v2": {"num_experts_per_tok": 2, "n_shared_experts": 1, "first_k_dense_replace": 1},
    "deepseek_v3": {**_MLA, "first_k_dense_replace": 1},
    "deepseek_v32": _SPARSE_MLA,
    "dots1": {"num_experts_per_tok": 2, "n_routed_experts": 4, "n_shared_experts": 1, "first_k_dense_replace": 1},
    "dots3_note_text": {"num_key_value_heads": 4},
    "ernie4_5_moe": {"moe_k": 2, "moe_num_shared_experts": 1},
    "falcon_h1": {
        "mamba_d_ssm": 64,
        "mamba_d_head": 16,
        "attention_in_multiplier": 0.8,
        "attention_out_multiplier": 0.9,
        "key_multiplier": 0.4,
        "ssm_in_multiplier": 1.25,
        "ssm_out_multiplier": 0.7,
        "ssm_multipliers": [0.35, 0.25, 0.9, 0.5, 0.8],
        "mlp_multipliers": [0.9, 0.6],
        "embedding_multiplier": 5.6,
        "lm_head_multiplier": 0.04,
    },
    "gemma3n": {
        "text_config": _GEMMA3N,
        # Behind the tokens of all texts.
        "vision_config": {"hidden_size": 32, "vocab_size": 4, "vocab_offset": 1000},
        "audio_config": {
            "hidden_size": 32,
            "vocab_size": 4,
            "vocab_offset": 1004,
            "conf_num_attention_heads": 2,
            "conf_num_hidden_layers": 1,
            "input_feat_size": 16,
            "sscp_conv_channel_size": [8, 4],
        },
    },
    "gemma3n_text": _GEMMA3N,
    "gemma4_text": {
        "hidden_size_per_layer_input": 8,
        "num_kv_shared_layers": 0,
        "global_head_dim": 16,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "glm_moe_dsa": _SPARSE_MLA,
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 8},
    "gptj": {"rotary_dim": 8},
    "hunyuan_v1_dense": {"head_dim": 16},
    "hunyuan_v1_moe": {"head_dim": 16, "moe_topk": 2},
    "kimi_linear": {"num_experts_per_token": 2},
    "lfm2": {"layer_types": ["conv", "full_attention"], "block_multiple_of": 32},
    "lfm3": {"layer_types": ["conv", "full_attention"]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "longcat_flash": {
        **_MLA,
        "zero_expert_num": 2,
        "moe_topk": 2,
        "ffn_hidden_size": 96,
        "expert_ffn_hidden_size": 32,
    },
    "mamba2": {"num_heads": 8, "head_dim": 16, "n_groups": 2},
    "ministral": {"head_dim": 16},
    "nemotron": {"num_key_value_heads": 2, "head_dim": 16},
    "phimoe": {"router_jitter_noise": 0.0, "input_jitter_noise": 0.0},
    "reformer": {
        "is_decoder": True,
        "attn_layers": ["local", "local"],
        "local_attn_chunk_length": 4,
        "axial_pos_embds": False,
        "attention_head_size": 16,
        "feed_forward_size": 96,
    },
    "roc_bert": {
        "pronunciation_vocab_size": 50,
        "shape_vocab_size": 50,
        "pronunciation_embed_dim": 16,
        "shape_embed_dim": 16,
    },
    "youtu": _MLA,
    "zamba": _MIXED,
    "zamba2": {**_MIXED, "n_mamba_heads": 8, "mamba_ngroups": 2},
    "zaya": {"num_experts_per_tok": 1},
}
"""What a type needs beside `SMALL`."""

BESIDE_MLP = {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32}
"""Experts of Gemma 4, whose config has none by default."""

SECTIONS = {"glm4v": [4, 2, 2], "glm4v_moe": [2, 1, 1], "qwen2_vl": [4, 2, 2], "qwen2_5_vl": [4, 2, 2]}
"""Pairs of a head that turn by a token's time, height and width; for texts these are the same."""


def make_config(kind: str, **overrides: Any) -> Any:  # Any: a transformers config
    """Return a small config of a type without dropout.

    Raises:
        Exception: whatever a config says that can't be made small this way.
    """
    values = _small(CONFIG_MAPPING[kind]().to_dict())
    for name, part in OWN.get(kind, {}).items():
        if isinstance(part, dict) and isinstance(values.get(name), dict):
            overrides.setdefault(name, {**values[name], **part})
    config = CONFIG_MAPPING[kind](**{**values, **OWN.get(kind, {}), **overrides})
    for part in [config, *(value for value in vars(config).values() if hasattr(value, "to_dict"))]:
        for name, value in vars(part).items():
            if isinstance(value, float) and ("drop" in name):
                setattr(part, name, 0.0)
    if kind in SECTIONS:
        config.text_config.rope_parameters["mrope_section"] = SECTIONS[kind]
    return config


def _small(values: dict[str, Any]) -> dict[str, Any]:
    small: dict[str, Any] = {}
    for name, value in values.items():
        if name == "per_layer_config":
            # By the numbers of the layers of a large model; without it a config makes that of its own layers.
            continue
        if isinstance(value, dict) and ("model_type" in value or name.endswith("_config")):
            small[name] = _small(value) | {key: value[key] for key in ("model_type",) if key in value}
        elif name in SMALL and value is not None and not isinstance(value, list | dict):
            small[name] = SMALL[name]
    return small


def write_model(kind: str, folder: Path, tokenizer: Path, **overrides: Any) -> Path:
    """Write a model of a type with random weights and the tokenizer of another folder; return its folder."""
    config = make_config(kind, **overrides)
    # Some modules can only be imported outside a device context.
    getattr(transformers, {**MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, **NOT_LISTED}[kind])
    know_language_model(kind)
    state = torch.get_rng_state()
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            # Ones and zeros, which norms and biases start with, would hide what is left out.
            parameter.nan_to_num_(0.0).add_(torch.randn_like(parameter) * (0.1 if parameter.dim() == 1 else 0.05))
    torch.set_rng_state(state)
    model.save_pretrained(folder)
    for path in tokenizer.iterdir():
        if "token" in path.name or path.suffix == ".jinja":
            (folder / path.name).write_bytes(path.read_bytes())
    return folder
