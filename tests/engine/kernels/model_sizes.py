"""Widths and variants of models that people train, for tests that compile or run kernels at real sizes."""

from __future__ import annotations

from typing import Any

from tunesmith_engine.proof.inputs import Sizes

MODELS: dict[str, dict[str, Any]] = {
    "llama-3.1-8b": {
        "hidden": 4096, "mlp": 14336, "num_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "rotary": 128,
        "vocabulary": 128256, "four_bit": True, "eight_bit": True, "magnitudes": True,
        "dropout": 0.1, "noise": True, "whole": True,
    },
    "llama-3.2-1b": {
        "hidden": 2048, "mlp": 8192, "num_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "rotary": 64,
        "vocabulary": 128256, "dropout": 0.05, "noise": True,
    },
    "qwen3-0.6b": {
        "hidden": 1024, "mlp": 3072, "num_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "rotary": 128,
        "vocabulary": 151936, "head_norms": True, "whole": True,
    },
    "gemma-2-2b": {
        "hidden": 2304, "mlp": 9216, "num_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "rotary": 256,
        "vocabulary": 256000, "activation": "gelu_tanh", "plus_one": True, "cast_last": True, "softcap": 30.0,
        "attention_softcap": 50.0, "window": 4096, "embedding_scale": 48.0, "four_bit": True,
        "magnitudes": True, "whole": True,
    },
    "cohere-7b": {
        "hidden": 4096, "mlp": 14336, "num_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "rotary": 128,
        "vocabulary": 256000, "centred": True, "cast_last": True, "interleaved": True, "logit_scale": 0.0625,
        "whole": True,
    },
    "phi-3-mini": {
        "hidden": 3072, "mlp": 8192, "num_heads": 32, "num_key_value_heads": 32, "head_dim": 96, "rotary": 96,
        "vocabulary": 32064, "window": 2047,
    },
    "nemotron-4-15b": {
        "hidden": 6144, "mlp": 24576, "num_heads": 48, "num_key_value_heads": 8, "head_dim": 128, "rotary": 64,
        "vocabulary": 256000, "activation": "relu2", "mlp_gated": False, "plus_one": True, "centred": True,
        "cast_last": True, "biased": True, "whole": True,
    },
    "phi-2": {
        "hidden": 2560, "mlp": 10240, "num_heads": 32, "num_key_value_heads": 32, "head_dim": 80, "rotary": 32,
        "vocabulary": 51200, "activation": "gelu_tanh", "mlp_gated": False, "centred": True, "cast_last": True,
        "biased": True,
    },
    "qwen3.5-4b": {
        "hidden": 2560, "mlp": 9216, "num_heads": 16, "num_key_value_heads": 4, "head_dim": 256, "rotary": 64,
        "vocabulary": 248320, "head_norms": True, "plus_one": True, "cast_last": True, "four_bit": True,
        "delta_heads": (16, 32, 128, 128), "convolution": (8192, 4), "output_gate": True,
    },
    "kimi-linear-48b": {
        "hidden": 2304, "mlp": 9216, "num_heads": 32, "num_key_value_heads": 32, "head_dim": 192, "rotary": 0,
        "vocabulary": 163840, "value_size": 128, "channel_delta": (32, 128, 128, 0), "convolution": (12288, 4),
    },
    "gpt-oss-20b": {
        "hidden": 2880, "mlp": 0, "num_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "rotary": 64,
        "vocabulary": 201088, "window": 128, "sinks": True, "whole": True, "expert_width": 2880, "four_bit": True,
        "clamped": True,
    },
    "bloom-7b": {
        "hidden": 4096, "mlp": 16384, "num_heads": 32, "num_key_value_heads": 32, "head_dim": 128, "rotary": 0,
        "vocabulary": 250880, "activation": "gelu_tanh", "mlp_gated": False, "centred": True, "cast_last": True,
        "biased": True, "slopes": True,
    },
    "deepseek-v2-lite": {
        "hidden": 2048, "mlp": 10944, "num_heads": 16, "num_key_value_heads": 16, "head_dim": 192, "rotary": 0,
        "vocabulary": 102400, "value_size": 128, "four_bit": True, "latent": (16, 128, 64, 128, 1),
    },
    "llama-4-scout": {
        "hidden": 5120, "mlp": 16384, "num_heads": 40, "num_key_value_heads": 8, "head_dim": 128, "rotary": 128,
        "vocabulary": 202048, "chunk": 8192, "interleaved": True,
    },
    "bamba-9b": {
        "hidden": 4096, "mlp": 14336, "num_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "rotary": 64,
        "vocabulary": 128256, "scan": (1, 128, 128, 64, 8192, 1), "convolution": (8448, 4),
    },
    "falcon-h1-7b": {
        "hidden": 3072, "mlp": 12288, "num_heads": 12, "num_key_value_heads": 2, "head_dim": 128, "rotary": 128,
        "vocabulary": 130048, "scan": (1, 24, 256, 128, 0, 1), "convolution": (3584, 4),
    },
    "lfm2-1.2b": {
        "hidden": 2048, "mlp": 8192, "num_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "rotary": 64,
        "vocabulary": 65536, "head_norms": True, "gated_convolution": (2048, 3),
    },
    "gemma-4-e4b": {
        "hidden": 2560, "mlp": 10240, "num_heads": 8, "num_key_value_heads": 2, "head_dim": 256, "rotary": 256,
        "vocabulary": 262144, "activation": "gelu_tanh", "cast_last": True, "softcap": 30.0, "window": 512,
        "head_norms": True, "value_norm": True, "four_bit": True, "wide_heads": (8, 2, 512),
    },
    "qwen3-30b-a3b": {
        "hidden": 2048, "mlp": 0, "num_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "rotary": 128,
        "vocabulary": 151936, "head_norms": True, "four_bit": True, "expert_width": 768,
    },
    "smollm2-135m": {
        "hidden": 576, "mlp": 1536, "num_heads": 9, "num_key_value_heads": 3, "head_dim": 64, "rotary": 64,
        "vocabulary": 49152, "activation": "gelu",
    },
}  # fmt: skip
"""From their configurations; the last has the exact GELU instead of its SiLU, which rare models have."""


def sizes_of_model(name: str, dtype: str) -> Sizes:
    """Return the sizes of a model in a number format, such as "bfloat16"."""
    return Sizes(dtype=dtype, **MODELS[name])
