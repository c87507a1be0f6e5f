"""Types of models with attention and one MLP a layer, as llama.cpp has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gguf import MODEL_ARCH, GGUFWriter

from tunesmith_core.messages import Message
from tunesmith_engine.export.gguf.architecture import (
    NEAR_GELU,
    Architecture,
    add_sections,
    add_windows,
    num_layers,
    pattern_problem,
    sections_problem,
)
from tunesmith_engine.export.gguf.config import Config


def qwen_problem(config: Config) -> str:
    """Say whether a model of Qwen's has a window."""
    return Message("its attention has a sliding window") if getattr(config, "use_sliding_window", False) else ""


def _smollm3_problem(config: Config) -> str:
    expected = [int((layer + 1) % 4 != 0) for layer in range(num_layers(config))]
    return "" if list(config.no_rope_layers) == expected else Message("other layers than usual know no positions")


def _norms_problem(config: Config) -> str:
    return Message("its queries and keys have norms") if config.qk_layernorm else ""


def _starcoder2_problem(config: Config) -> str:
    return "" if config.use_bias else Message("its layers have no biases")


def _olmo(writer: GGUFWriter, config: Config) -> None:
    if config.clip_qkv is not None:
        writer.add_clamp_kqv(config.clip_qkv)


def add_granite(writer: GGUFWriter, config: Config) -> None:
    """Write by what Granite multiplies attention, embedding, residuals and logits."""
    writer.add_attention_scale(config.attention_multiplier)
    writer.add_embedding_scale(config.embedding_multiplier)
    writer.add_residual_scale(config.residual_multiplier)
    writer.add_logit_scale(config.logits_scaling)


def _exaone4(writer: GGUFWriter, config: Config) -> None:
    if config.sliding_window:
        add_windows(writer, config)


def _exaone4_problem(config: Config) -> str:
    return pattern_problem(config, 4) if config.sliding_window else ""


def _cohere(writer: GGUFWriter, config: Config) -> None:
    writer.add_logit_scale(config.logit_scale)


def _cohere_problem(config: Config) -> str:
    # llama.cpp looks for these norms by the number of layers.
    if config.use_qk_norm and num_layers(config) < 64:
        return Message("its queries and keys have norms")
    if not config.use_qk_norm and num_layers(config) >= 64:
        return Message("its queries and keys have no norms")
    return ""


def _cohere2(writer: GGUFWriter, config: Config) -> None:
    add_windows(writer, config)
    writer.add_logit_scale(config.logit_scale)


def stretches_as_ministral(rope: Mapping[str, Any]) -> bool:  # Any: JSON values
    """Return whether positions are stretched, and attention scaled, in the one way that llama.cpp has for Mistral's."""
    scales = (rope.get("mscale"), rope.get("mscale_all_dim"), rope.get("attention_factor"))
    return rope.get("rope_type") == "yarn" and scales == (1, 1, None) and "llama_4_scaling_beta" in rope


def _ministral3(writer: GGUFWriter, config: Config) -> None:
    writer.add_rope_scaling_yarn_log_mul(config.rope_parameters["mscale_all_dim"])
    writer.add_attn_temperature_scale(config.rope_parameters["llama_4_scaling_beta"])


def _ministral3_problem(config: Config) -> str:
    return "" if stretches_as_ministral(config.rope_parameters) else Message("its positions turn in another way")


def _deepstack(writer: GGUFWriter, config: Config) -> None:
    """Write into how many layers a model for images adds what it sees."""
    writer.add_num_deepstack_layers(len(config.vision_config.deepstack_visual_indexes))


_OF_LLAMA = ("attention_bias", "mlp_bias")

QWEN3_VL = Architecture(MODEL_ARCH.QWEN3VL, more=add_sections, around=_deepstack, problem=sections_problem)

DENSE = {
    "llama": Architecture(MODEL_ARCH.LLAMA, rotates_pairs=True, has_factors=True, biases=_OF_LLAMA),
    "mistral": Architecture(MODEL_ARCH.LLAMA, rotates_pairs=True, has_factors=True, within_window=True),
    "granite": Architecture(
        MODEL_ARCH.GRANITE, rotates_pairs=True, has_factors=True, biases=_OF_LLAMA, more=add_granite
    ),
    "ministral3": Architecture(MODEL_ARCH.MISTRAL3, rotates_pairs=True, more=_ministral3, problem=_ministral3_problem),
    "qwen2_vl_text": Architecture(MODEL_ARCH.QWEN2VL, more=add_sections, problem=sections_problem),
    "qwen2_5_vl_text": Architecture(MODEL_ARCH.QWEN2VL, more=add_sections, problem=sections_problem),
    "qwen3_vl_text": QWEN3_VL,
    "olmo3": Architecture(MODEL_ARCH.OLMO2, own_head=True, more=add_windows),
    "seed_oss": Architecture(MODEL_ARCH.SEED_OSS, biases=("attention_bias",)),
    "glm4": Architecture(MODEL_ARCH.GLM4, turns_part=True, biases=("attention_bias",)),
    "ernie4_5": Architecture(MODEL_ARCH.ERNIE4_5),
    "exaone4": Architecture(MODEL_ARCH.EXAONE4, has_factors=True, more=_exaone4, problem=_exaone4_problem),
    "starcoder2": Architecture(
        MODEL_ARCH.STARCODER2,
        centers=True,
        activations=NEAR_GELU,
        biases=("use_bias",),
        within_window=True,
        problem=_starcoder2_problem,
    ),
    "stablelm": Architecture(
        MODEL_ARCH.STABLELM, centers=True, own_head=True, turns_part=True, problem=_norms_problem
    ),
    "phi": Architecture(
        MODEL_ARCH.PHI2,
        centers=True,
        activations=NEAR_GELU,
        own_head=True,
        turns_part=True,
        problem=_norms_problem,
    ),
    "olmo": Architecture(MODEL_ARCH.OLMO, centers=True, rotates_pairs=True, more=_olmo),
    "cohere": Architecture(MODEL_ARCH.COMMAND_R, centers=True, more=_cohere, problem=_cohere_problem),
    "nemotron": Architecture(
        MODEL_ARCH.NEMOTRON,
        centers=True,
        adds_one=True,
        activations=("relu2",),
        biases=_OF_LLAMA,
        own_head=True,
        turns_part=True,
    ),
    "arcee": Architecture(MODEL_ARCH.ARCEE, rotates_pairs=True, has_factors=True, activations=("relu2",)),
    "hunyuan_v1_dense": Architecture(MODEL_ARCH.HUNYUAN_DENSE),
    "cohere2": Architecture(MODEL_ARCH.COHERE2, more=_cohere2),
    "smollm3": Architecture(MODEL_ARCH.SMOLLM3, rotates_pairs=True, problem=_smollm3_problem),
    "qwen2": Architecture(MODEL_ARCH.QWEN2, problem=qwen_problem),
    "qwen3": Architecture(MODEL_ARCH.QWEN3, problem=qwen_problem),
    "olmo2": Architecture(MODEL_ARCH.OLMO2, own_head=True),
    "phi3": Architecture(MODEL_ARCH.PHI3, turns_part=True),
}
"""By the model_type of config.json."""
