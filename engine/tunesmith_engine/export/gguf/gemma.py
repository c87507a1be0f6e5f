"""Gemma's types of models as llama.cpp has them."""

from __future__ import annotations

from gguf import MODEL_ARCH, GGUFWriter

from tunesmith_core.messages import Message
from tunesmith_engine.export.gguf.architecture import (
    NEAR_GELU,
    Architecture,
    add_windows,
    num_layers,
    pattern_problem,
)
from tunesmith_engine.export.gguf.config import Config


def _problem(config: Config, every: int) -> str:
    scale = config.hidden_size // config.num_attention_heads if num_layers(config) in (46, 62) else config.head_dim
    if config.query_pre_attn_scalar != scale:
        return Message("its attention is scaled in another way")
    return pattern_problem(config, every)


def _gemma3_problem(config: Config) -> str:
    if config.final_logit_softcapping or config.attn_logit_softcapping:
        return Message("its logits are capped")
    return _problem(config, 6)


def _gemma4(writer: GGUFWriter, config: Config) -> None:
    add_windows(writer, config)
    writer.add_shared_kv_layers(config.num_kv_shared_layers)
    writer.add_embedding_length_per_layer_input(config.hidden_size_per_layer_input or 0)
    # Layers with a window have narrower heads.
    width = min(_head_dims(config, "sliding_attention") or _head_dims(config, "full_attention"))
    writer.add_key_length_swa(width)
    writer.add_value_length_swa(width)
    writer.add_rope_dimension_count_swa(width)
    if config.final_logit_softcapping:
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if config.enable_moe_block:
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.top_k_experts)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)


def _head_dims(config: Config, kind: str) -> set[int]:
    """Return the numbers that one attention head has in layers of a kind."""
    layers = zip(config.layer_types, config.per_layer_config, strict=True)
    return {int(layer.head_dim) for each, layer in layers if each == kind}


def _gemma4_name(name: str) -> str:
    """Return the name of a weight with what it scales."""
    name = name.replace(".layer_scalar", ".layer_scalar.weight").replace(".router.scale", ".router.proj.scale")
    return name.replace(".router.per_expert_scale", ".experts.down_proj.scale")


def _gemma4_problem(config: Config) -> str:
    rotary = config.rope_parameters
    partial = rotary["sliding_attention"].get("partial_rotary_factor", 1.0) != 1.0
    if partial or rotary["full_attention"]["rope_type"] != "proportional":
        return Message("its positions turn in another way")
    windowed, whole = (_head_dims(config, kind) for kind in ("sliding_attention", "full_attention"))
    if len(windowed) > 1 or len(whole) > 1 or max(windowed, default=0) > max(whole):
        return Message("its layers differ in {settings}", settings="head_dim")
    own = list(config.layer_types)[: num_layers(config) - config.num_kv_shared_layers]
    if config.num_kv_shared_layers and own[-2:] != ["sliding_attention", "full_attention"]:
        # llama.cpp takes the last of each kind by its place, and ends the process where it isn't there.
        return Message("other layers than usual share keys and values")
    return Message("it sees images as a whole") if config.use_bidirectional_attention == "all" else ""


GEMMA = {
    "gemma": Architecture(MODEL_ARCH.GEMMA, adds_one=True, activations=NEAR_GELU),
    "gemma2": Architecture(
        MODEL_ARCH.GEMMA2, adds_one=True, activations=NEAR_GELU, problem=lambda config: _problem(config, 2)
    ),
    "gemma3_text": Architecture(MODEL_ARCH.GEMMA3, adds_one=True, activations=NEAR_GELU, problem=_gemma3_problem),
    "gemma4_text": Architecture(
        MODEL_ARCH.GEMMA4,
        activations=NEAR_GELU,
        by_layer=("head_dim", "num_key_value_heads"),
        problem=_gemma4_problem,
        more=_gemma4,
        renamed=_gemma4_name,
        experts_fused=True,
        never_adapted=(".per_layer_model_projection.weight",),
    ),
}
"""By the model_type of config.json."""
