"""Types of models with queries, keys and values in one weight, as GPT-2 has them, as llama.cpp has them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from gguf import MODEL_ARCH, GGUFWriter

from tunesmith_core.messages import Message
from tunesmith_engine.export.gguf.architecture import NEAR_GELU, Architecture, Part
from tunesmith_engine.export.gguf.config import Config

_OF_CONV1D = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")


def _by_kind(config: Config, name: str, weight: torch.Tensor) -> torch.Tensor:
    """Return queries, keys and values one after the other, where a model has them by heads of keys."""
    if ".query_key_value." not in name:
        return weight
    groups = key_heads(config)
    parts = weight.view(groups, config.num_attention_heads // groups + 2, -1, *weight.shape[1:])
    kinds = (parts[:, :-2], parts[:, -2], parts[:, -1])
    return torch.cat([kind.reshape(-1, *weight.shape[1:]) for kind in kinds])


def key_heads(config: Config) -> int:
    """Return how many heads keys have."""
    if hasattr(config, "num_kv_heads"):
        # Falcon's first models have one, whatever the number says.
        return int(1 if config.multi_query and not config.new_decoder_architecture else config.num_kv_heads)
    return int(getattr(config, "num_key_value_heads", None) or config.num_attention_heads)


def _gpt2_split(_config: Config, name: str, shape: tuple[int, ...]) -> Mapping[str, Part]:
    """Return a weight with outputs before inputs."""
    return {name: Part(shape[::-1], lambda weight: weight.T, turned=True)} if name.endswith(_OF_CONV1D) else {}


def _gpt2_problem(config: Config) -> str:
    otherwise = not config.scale_attn_weights or config.scale_attn_by_inverse_layer_idx
    return Message("its attention is scaled in another way") if otherwise else ""


def _gpt_neox(writer: GGUFWriter, config: Config) -> None:
    writer.add_parallel_residual(config.use_parallel_residual)


def _gpt_neox_problem(config: Config) -> str:
    return "" if config.attention_bias else Message("its layers have no biases")


def _bloom_problem(config: Config) -> str:
    behind = config.apply_residual_connection_post_layernorm
    return Message("its residuals begin behind a norm") if behind else ""


def _falcon_problem(config: Config) -> str:
    if config.alibi:
        return Message("its positions turn in another way")
    if not config.parallel_attn and not config.new_decoder_architecture:
        return Message("its MLPs come behind attention")
    return ""


def _mpt(writer: GGUFWriter, config: Config) -> None:
    attention = config.attn_config
    writer.add_max_alibi_bias(float(attention.alibi_bias_max))
    if attention.clip_qkv is not None:
        writer.add_clamp_kqv(attention.clip_qkv)


def _mpt_problem(config: Config) -> str:
    attention = config.attn_config
    if attention.softmax_scale is not None:
        return Message("its attention is scaled in another way")
    return "" if config.no_bias else Message("its layers have biases")


GPT = {
    "gpt2": Architecture(
        MODEL_ARCH.GPT2, centers=True, activations=NEAR_GELU, problem=_gpt2_problem, split=_gpt2_split
    ),
    "gpt_neox": Architecture(
        MODEL_ARCH.GPTNEOX,
        centers=True,
        activations=NEAR_GELU,
        biases=("attention_bias",),
        own_head=True,
        turns_part=True,
        problem=_gpt_neox_problem,
        more=_gpt_neox,
        laid_out=_by_kind,
    ),
    "bloom": Architecture(
        MODEL_ARCH.BLOOM,
        centers=True,
        problem=_bloom_problem,
        renamed=lambda name: name.removeprefix("transformer."),
        laid_out=_by_kind,
    ),
    "falcon": Architecture(
        MODEL_ARCH.FALCON, centers=True, activations=NEAR_GELU, problem=_falcon_problem, laid_out=_by_kind
    ),
    "mpt": Architecture(MODEL_ARCH.MPT, centers=True, problem=_mpt_problem, more=_mpt),
}
"""By the model_type of config.json."""
