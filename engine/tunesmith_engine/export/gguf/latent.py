"""Attention with latent keys and values (DeepSeek's) as llama.cpp has it: all queries share one wide head of keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gguf import MODEL_ARCH, ExpertGatingFuncType, GGUFWriter

from tunesmith_core.messages import Message
from tunesmith_engine.export.gguf.architecture import Architecture, Part, num_layers
from tunesmith_engine.export.gguf.config import Config
from tunesmith_engine.export.gguf.dense import stretches_as_ministral
from tunesmith_engine.export.gguf.mixtures import (
    CHOSEN_OTHERWISE,
    NONE_SHARED,
    PLACED_OTHERWISE,
    add_rated_experts,
    num_dense,
)


def add_heads(writer: GGUFWriter, config: Config) -> None:
    """Write the sizes of heads, as they are computed and as they would be without latent keys and values."""
    if config.q_lora_rank:
        writer.add_q_lora_rank(config.q_lora_rank)
    writer.add_kv_lora_rank(config.kv_lora_rank)
    writer.add_head_count_kv(1)
    writer.add_key_length(config.kv_lora_rank + config.qk_rope_head_dim)
    writer.add_value_length(config.kv_lora_rank)
    writer.add_key_length_mla(config.qk_nope_head_dim + config.qk_rope_head_dim)
    writer.add_value_length_mla(config.v_head_dim)


def split(config: Config, name: str, shape: tuple[int, ...]) -> Mapping[str, Part]:
    """Return what makes keys and what makes values of the latent ones, each by heads."""
    if not name.endswith(".kv_b_proj.weight"):
        return {}
    heads, key, value = config.num_attention_heads, config.qk_nope_head_dim, config.v_head_dim
    by_head = (heads, key + value, shape[1])
    return {
        name.replace(".kv_b_proj.", ".k_b_proj."): Part(
            (heads, shape[1], key), lambda weight: weight.view(by_head)[:, :key].transpose(1, 2)
        ),
        name.replace(".kv_b_proj.", ".v_b_proj."): Part(
            (heads, value, shape[1]), lambda weight: weight.view(by_head)[:, key:]
        ),
    }


def _more(writer: GGUFWriter, config: Config, rating: ExpertGatingFuncType = ExpertGatingFuncType.SIGMOID) -> None:
    add_rated_experts(writer, config, rating)
    rope = config.rope_parameters
    if "mscale_all_dim" in rope:
        writer.add_rope_scaling_yarn_log_mul(0.1 * rope["mscale_all_dim"])


def _by_softmax(writer: GGUFWriter, config: Config) -> None:
    _more(writer, config, ExpertGatingFuncType.SOFTMAX)


def _is_stretched_alike(rope: Mapping[str, Any]) -> bool:  # Any: JSON values
    """Return whether stretched positions change how attention is scaled, not how far queries and keys are turned."""
    if rope.get("rope_type", "default") != "yarn":
        return rope.get("rope_type", "default") == "default"
    scale = rope.get("mscale")
    return bool(scale) and scale == rope.get("mscale_all_dim") and rope.get("attention_factor") is None


def _problem(config: Config) -> str:
    if not getattr(config, "rope_interleave", True) or not _is_stretched_alike(config.rope_parameters):
        return Message("its positions turn in another way")
    kinds = list(getattr(config, "mlp_layer_types", None) or [])
    if "dense" in kinds[num_dense(config) :]:
        return PLACED_OTHERWISE
    if not config.n_shared_experts:
        return NONE_SHARED
    # llama.cpp knows by the number of layers whether queries are latent, too.
    if (config.q_lora_rank is None) != (num_layers(config) in (26, 27)):
        return Message("its queries are made in another way")
    return ""


def _mistral4(writer: GGUFWriter, config: Config) -> None:
    _by_softmax(writer, config)
    writer.add_attn_temperature_scale(config.rope_parameters["llama_4_scaling_beta"])
    writer.add_attn_temperature_length(config.rope_parameters["original_max_position_embeddings"])


def _mistral4_problem(config: Config) -> str:
    stretched = stretches_as_ministral(config.rope_parameters)
    return _problem(config) if stretched else Message("its positions turn in another way")


def _deepseek_v2_problem(config: Config) -> str:
    return CHOSEN_OTHERWISE if config.topk_method != "greedy" else _problem(config)


_LATENT = Architecture(
    MODEL_ARCH.DEEPSEEK2,
    turns_part=True,
    problem=_problem,
    more=_more,
    split=split,
    never_adapted=tuple(
        f".self_attn.{name}.weight" for name in ("q_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj")
    ),
)

LATENT = {
    "deepseek_v2": replace(_LATENT, problem=_deepseek_v2_problem, more=_by_softmax),
    "deepseek_v3": _LATENT,
    "mistral4": replace(_LATENT, arch=MODEL_ARCH.MISTRAL4, problem=_mistral4_problem, more=_mistral4),
    "glm4_moe_lite": _LATENT,
}
"""By the model_type of config.json."""
