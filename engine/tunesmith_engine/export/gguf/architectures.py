"""Which models llama.cpp computes as transformers does, and how their weights are laid out there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from gguf import MODEL_ARCH, GGUFWriter

from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_engine.export.gguf import gated_delta
from tunesmith_engine.export.gguf.config import Config


@dataclass(frozen=True, slots=True)
class Architecture:
    """How llama.cpp holds a type of model.

    Attributes:
        arch: its name there.
        rotates_pairs: whether positions turn neighboring numbers of a head, so that rows of queries and keys change
            places; else the two halves of a head.
        adds_one: whether norms are stored with the one that transformers adds when it computes them.
        problem: returns what llama.cpp would compute otherwise with a config, "" for nothing.
        more: writes the hyperparameters that other architectures don't have.
        renamed: returns how weights are called where llama.cpp doesn't know their names.
        laid_out: returns a weight, by its name in the model, as llama.cpp has it.
        experts_transposed: whether the weights of experts have inputs before outputs.
        experts_alternate: whether gate and up take turns in them.
    """

    arch: MODEL_ARCH
    rotates_pairs: bool = False
    adds_one: bool = False
    problem: Callable[[Config], str] = lambda _: ""
    more: Callable[[GGUFWriter, Config], None] = lambda *_: None
    renamed: Callable[[str], str] = lambda name: name
    laid_out: Callable[[Config, str, torch.Tensor], torch.Tensor] = lambda _config, _name, weight: weight
    experts_transposed: bool = False
    experts_alternate: bool = False


def _pattern_problem(config: Config, every: int) -> str:
    """Say whether layers see everything that llama.cpp takes for windowed; there each n-th sees everything."""
    kinds = ("sliding_attention", "full_attention")
    expected = [kinds[(layer + 1) % every == 0] for layer in range(num_layers(config))]
    return "" if list(config.layer_types) == expected else Message("its sliding windows are in other layers")


def _gemma_problem(config: Config, every: int) -> str:
    scale = config.hidden_size // config.num_attention_heads if num_layers(config) in (46, 62) else config.head_dim
    if config.query_pre_attn_scalar != scale:
        return Message("its attention is scaled in another way")
    return _pattern_problem(config, every)


def _gemma3_problem(config: Config) -> str:
    if config.final_logit_softcapping or config.attn_logit_softcapping:
        return Message("its logits are capped")
    return _gemma_problem(config, 6)


def _qwen_problem(config: Config) -> str:
    return Message("its attention has a sliding window") if getattr(config, "use_sliding_window", False) else ""


def _smollm3_problem(config: Config) -> str:
    expected = [int((layer + 1) % 4 != 0) for layer in range(num_layers(config))]
    return "" if list(config.no_rope_layers) == expected else Message("other layers than usual know no positions")


def _experts(writer: GGUFWriter, config: Config) -> None:
    """Write how many experts there are, how many a token goes through, and how wide they are."""
    number = getattr(config, "num_local_experts", None) or config.num_experts
    writer.add_expert_count(number)
    writer.add_expert_used_count(config.num_experts_per_tok)
    writer.add_expert_feed_forward_length(getattr(config, "moe_intermediate_size", None) or config.intermediate_size)
    if shared := getattr(config, "shared_expert_intermediate_size", None):
        writer.add_expert_shared_feed_forward_length(shared)


def _gpt_oss(writer: GGUFWriter, config: Config) -> None:
    _experts(writer, config)
    writer.add_sliding_window(config.sliding_window)


def _granite(writer: GGUFWriter, config: Config) -> None:
    writer.add_attention_scale(config.attention_multiplier)
    writer.add_embedding_scale(config.embedding_multiplier)
    writer.add_residual_scale(config.residual_multiplier)
    writer.add_logit_scale(config.logits_scaling)


def _granite_name(name: str) -> str:
    """Return the name that a weight had in the files before transformers named experts alike."""
    name = name.replace(".block_sparse_moe.router.weight", ".block_sparse_moe.router.layer.weight")
    return name.replace(".block_sparse_moe.experts.", ".mlp.experts.")


def _granite_moe(writer: GGUFWriter, config: Config) -> None:
    _granite(writer, config)
    _experts(writer, config)


def _windows(writer: GGUFWriter, config: Config) -> None:
    """Write which layers see a window only."""
    writer.add_sliding_window(config.sliding_window)
    writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config.layer_types])


def _gemma4(writer: GGUFWriter, config: Config) -> None:
    _windows(writer, config)
    writer.add_shared_kv_layers(config.num_kv_shared_layers)
    writer.add_embedding_length_per_layer_input(config.hidden_size_per_layer_input or 0)
    # Layers with a window have narrower heads.
    writer.add_key_length_swa(config.head_dim)
    writer.add_value_length_swa(config.head_dim)
    writer.add_rope_dimension_count_swa(config.head_dim)
    if config.final_logit_softcapping:
        writer.add_final_logit_softcapping(config.final_logit_softcapping)


def _gemma4_problem(config: Config) -> str:
    rotary = config.rope_parameters
    partial = rotary["sliding_attention"].get("partial_rotary_factor", 1.0) != 1.0
    if partial or rotary["full_attention"]["rope_type"] != "proportional":
        return Message("its positions turn in another way")
    own = list(config.layer_types)[: num_layers(config) - config.num_kv_shared_layers]
    if config.num_kv_shared_layers and own[-2:] != ["sliding_attention", "full_attention"]:
        # llama.cpp takes the last of each kind by its place, and ends the process where it isn't there.
        return Message("other layers than usual share keys and values")
    other = config.enable_moe_block or config.use_bidirectional_attention
    return Message("it has experts, or sees images") if other else ""


def _qwen35_problem(config: Config) -> str:
    return "" if gated_delta.is_regular(config) else Message("its attention is in other layers")


def _qwen35_moe(writer: GGUFWriter, config: Config) -> None:
    gated_delta.add_hyperparameters(writer, config)
    _experts(writer, config)


def _exaone4(writer: GGUFWriter, config: Config) -> None:
    if config.sliding_window:
        _windows(writer, config)


def _exaone4_problem(config: Config) -> str:
    return _pattern_problem(config, 4) if config.sliding_window else ""


def _sections(writer: GGUFWriter, config: Config) -> None:
    """Write how many pairs of a head turn by a token's time, height and width."""
    writer.add_rope_dimension_sections([*config.rope_parameters["mrope_section"], 0])


def _lfm2(writer: GGUFWriter, config: Config) -> None:
    writer.add_shortconv_l_cache(config.conv_L_cache)


def _cohere2(writer: GGUFWriter, config: Config) -> None:
    _windows(writer, config)
    writer.add_logit_scale(config.logit_scale)


def _ministral3(writer: GGUFWriter, config: Config) -> None:
    writer.add_rope_scaling_yarn_log_mul(config.rope_parameters["mscale_all_dim"])
    writer.add_attn_temperature_scale(config.rope_parameters["llama_4_scaling_beta"])


def _ministral3_problem(config: Config) -> str:
    missing = {"mscale_all_dim", "llama_4_scaling_beta"} - config.rope_parameters.keys()
    return Message("its positions turn in another way") if missing else ""


def _sections_problem(config: Config) -> str:
    return "" if "mrope_section" in config.rope_parameters else Message("its positions turn in another way")


def _olmoe_problem(config: Config) -> str:
    same = config.num_key_value_heads == config.num_attention_heads
    return "" if same and not config.norm_topk_prob else Message("it has fewer keys than queries, or other experts")


def _all_sparse_problem(config: Config) -> str:
    dense = getattr(config, "mlp_only_layers", None) or getattr(config, "decoder_sparse_step", 1) != 1
    if dense or not getattr(config, "norm_topk_prob", True):
        return Message("its experts are chosen or placed in another way")
    return _qwen_problem(config)


_QWEN35 = Architecture(
    MODEL_ARCH.QWEN35,
    problem=_qwen35_problem,
    more=gated_delta.add_hyperparameters,
    renamed=gated_delta.renamed,
    laid_out=gated_delta.laid_out,
)

ARCHITECTURES = {
    "llama": Architecture(MODEL_ARCH.LLAMA, rotates_pairs=True),
    "mistral": Architecture(MODEL_ARCH.LLAMA, rotates_pairs=True),
    "granite": Architecture(MODEL_ARCH.GRANITE, rotates_pairs=True, more=_granite),
    "granitemoe": Architecture(
        MODEL_ARCH.GRANITE_MOE,
        rotates_pairs=True,
        more=_granite_moe,
        renamed=_granite_name,
    ),
    "mixtral": Architecture(MODEL_ARCH.LLAMA, rotates_pairs=True, more=_experts),
    "ministral3": Architecture(MODEL_ARCH.MISTRAL3, rotates_pairs=True, more=_ministral3, problem=_ministral3_problem),
    "qwen2_vl_text": Architecture(MODEL_ARCH.QWEN2VL, more=_sections, problem=_sections_problem),
    "qwen2_5_vl_text": Architecture(MODEL_ARCH.QWEN2VL, more=_sections, problem=_sections_problem),
    "qwen2_moe": Architecture(MODEL_ARCH.QWEN2MOE, more=_experts),
    "qwen3_moe": Architecture(MODEL_ARCH.QWEN3MOE, more=_experts, problem=_all_sparse_problem),
    "qwen3_5_text": _QWEN35,
    "qwen3_5_moe_text": replace(_QWEN35, arch=MODEL_ARCH.QWEN35MOE, more=_qwen35_moe),
    "olmoe": Architecture(MODEL_ARCH.OLMOE, more=_experts, problem=_olmoe_problem),
    "olmo3": Architecture(MODEL_ARCH.OLMO2, more=_windows),
    "gpt_oss": Architecture(MODEL_ARCH.GPT_OSS, more=_gpt_oss, experts_transposed=True, experts_alternate=True),
    "lfm2": Architecture(MODEL_ARCH.LFM2, more=_lfm2),
    "seed_oss": Architecture(MODEL_ARCH.SEED_OSS),
    "glm4": Architecture(MODEL_ARCH.GLM4, rotates_pairs=False),
    "ernie4_5": Architecture(MODEL_ARCH.ERNIE4_5),
    "exaone4": Architecture(MODEL_ARCH.EXAONE4, more=_exaone4, problem=_exaone4_problem),
    "arcee": Architecture(MODEL_ARCH.ARCEE, rotates_pairs=True),
    "hunyuan_v1_dense": Architecture(MODEL_ARCH.HUNYUAN_DENSE),
    "cohere2": Architecture(MODEL_ARCH.COHERE2, rotates_pairs=False, more=_cohere2),
    "smollm3": Architecture(MODEL_ARCH.SMOLLM3, rotates_pairs=True, problem=_smollm3_problem),
    "qwen2": Architecture(MODEL_ARCH.QWEN2, problem=_qwen_problem),
    "qwen3": Architecture(MODEL_ARCH.QWEN3, problem=_qwen_problem),
    "olmo2": Architecture(MODEL_ARCH.OLMO2),
    "phi3": Architecture(MODEL_ARCH.PHI3),
    "gemma2": Architecture(MODEL_ARCH.GEMMA2, adds_one=True, problem=lambda config: _gemma_problem(config, 2)),
    "gemma4_text": Architecture(
        MODEL_ARCH.GEMMA4,
        problem=_gemma4_problem,
        more=_gemma4,
        renamed=lambda name: name.replace(".layer_scalar", ".layer_scalar.weight"),
    ),
    "gemma3_text": Architecture(MODEL_ARCH.GEMMA3, adds_one=True, problem=_gemma3_problem),
}
"""By the model_type of config.json."""


def num_layers(config: Config) -> int:
    """Return the number of layers of a model."""
    return int(config.num_hidden_layers)


def architecture_of(config: Config) -> Architecture:
    """Return how llama.cpp holds a model.

    Raises:
        UserError: `export-unsupported`.
    """
    kind = str(config.model_type)
    if kind not in ARCHITECTURES:
        raise TunesmithError(
            "export-unsupported",
            "Models of type {kind} can't be exported as GGUF. These can: {known}.",
            hint="Export the merged model instead.",
            kind=kind,
            known=", ".join(sorted(ARCHITECTURES)),
        )
    if problem := ARCHITECTURES[kind].problem(config):
        raise TunesmithError(
            "export-unsupported",
            "This model of type {kind} can't be exported as GGUF: {problem}.",
            hint="Export the merged model instead.",
            kind=kind,
            problem=problem,
        )
    return ARCHITECTURES[kind]
