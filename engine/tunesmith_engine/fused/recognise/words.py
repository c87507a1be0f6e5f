"""Which attributes, functions and keywords a forward pass mentions: an unknown word is an unknown step."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import CodeType

from torch import nn

from tunesmith_engine.shapes import NotFusableError

ATTENTION = frozenset(
    "ALL_ATTENTION_FUNCTIONS _attn_implementation apply_rotary_pos_emb attention_dropout attn_logit_softcapping "
    "chunk config contiguous dim dropout eager_attention_forward functional get_interface getattr head_dim "
    "is_sliding k_norm k_proj layer_idx nn num_attention_heads num_key_value_heads o_proj p q_norm q_proj qkv_proj "
    "reshape residual_dropout scaling shape sigmoid sliding_window softcap torch training transpose update "
    "use_qk_norm use_rope v_proj view".split()
)

DELTA = frozenset(
    "A_log F activation apply_mask_to_padding_states beta bias cat causal_conv1d_fn causal_conv1d_update conv1d "
    "conv_kernel_size cu_seq_lens_q cu_seqlens dim dt_bias exp fix_query_key_value_ordering float g get_conv_state "
    "get_recurrent_state head_k_dim head_v_dim in_proj_a in_proj_b in_proj_ba in_proj_qkv in_proj_qkvz in_proj_z "
    "initial_state is_recording_past key_dim layer_idx norm out_proj output_final_state pop reshape shape sigmoid "
    "softplus split squeeze state_idx torch torch_chunk_gated_delta_rule torch_recurrent_gated_delta_rule transpose "
    "update_conv_state update_recurrent_state use_qk_l2norm_in_kernel value_dim weight".split()
)
"""Of what has the gated delta rule in attention's place."""

MLP = frozenset(
    "act_fn activation_fn chunk dim down_proj dropout functional gate_proj gate_up_proj nn p residual_dropout training "
    "up_proj".split()
)

LAYER = frozenset(
    "attention_mask block_type cache_params full_attention hidden_states input_layernorm isinstance linear_attention "
    "linear_attn mlp past_key_values position_embeddings position_ids post_attention_layernorm "
    "post_feedforward_layernorm post_mlp_layernorm post_self_attn_layernorm pre_feedforward_layernorm "
    "resid_attn_dropout resid_mlp_dropout residual_multiplier self_attn tuple use_cache".split()
)

MODEL = frozenset(
    "DynamicCache ValueError _bidirectional_window_overlay arange "
    "attention_mask bool config copy create_causal_mask create_recurrent_attention_mask "
    "create_sliding_window_causal_mask device dict dtype embed_tokens embedding_multiplier enumerate expand "
    "full_attention get_seq_length has_sliding_layers inputs_embeds isinstance last_hidden_state layer_types layers "
    "linear_attention ndim norm num_hidden_layers or_mask_function past_key_values position_embeddings position_ids "
    "rotary_emb set shape sliding_attention sliding_window tensor torch unsqueeze use_bidirectional_attention "
    "use_cache view".split()
)

WRAPPER = MODEL | frozenset(
    "attentions block_sequence_ids clone create_masks_for_generate create_masks_for_vision_model get "
    "get_block_sequence_ids_for_mask get_image_features get_input_embeddings get_placeholder_mask get_text_config "
    "hidden_states image image_features image_hidden_states image_token_id language_model masked_scatter "
    "pixel_values pooler_output return_dict to vocab_size".split()
)
"""Of a model that puts images among the texts of its decoder."""

CAUSAL_MODEL = frozenset(
    "attention_mask attentions aux_loss config device final_logit_softcapping hidden_states image_hidden_states "
    "input_ids inputs_embeds int isinstance labels last_hidden_state lm_head load_balancing_loss_func logit_scale "
    "logits logits_scaling loss loss_function mm_encoder_outputs model num_experts num_experts_per_tok "
    "output_router_logits past_key_values pixel_values position_ids return_dict router_aux_loss_coef router_logits "
    "slice slice_logits_to_keep tanh text_config to token_type_ids torch use_cache vocab_size".split()
)

MOST_NAMED = 6
"""Unknown words that a sentence lists."""


def words(module: nn.Module) -> frozenset[str]:
    """Return every name, attribute, keyword and word-like text in the code of a module's forward pass."""
    return frozenset(_words(inspect.unwrap(module.forward).__code__))


def _words(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _words(constant)
        for text in constant if isinstance(constant, tuple) else (constant,):
            if isinstance(text, str) and text.isidentifier():
                yield text


def check_words(name: str, module: nn.Module, known: frozenset[str]) -> None:
    """Refuse a module whose forward pass mentions what we don't know.

    Raises:
        NotFusableError: it names the module and the words.
    """
    # What holds the results is called after the family.
    unknown = sorted(word for word in words(module) - known if not word.endswith("OutputWithPast"))
    if unknown:
        named = ", ".join([*unknown[:MOST_NAMED], *(["..."] if len(unknown) > MOST_NAMED else [])])
        raise NotFusableError(
            "{name} ({kind}) is not supported: its code uses {names}.",
            name=name,
            kind=type(module).__name__,
            names=named,
        )
