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
    "qwen3-30b-a3b": {
        "hidden": 2048, "mlp": 0, "num_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "rotary": 128,
        "vocabulary": 151936, "head_norms": True, "four_bit": True, "expert_width": 768,
    },
    "gpt-oss-20b": {
        "hidden": 2880, "mlp": 0, "num_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "rotary": 64,
        "vocabulary": 201088, "window": 128, "expert_width": 2880, "clamped": True,
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
