"""Which attributes, functions and keywords a forward pass mentions: an unknown word is an unknown step."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import CodeType

from torch import nn

from tunesmith_engine.shapes import NotFusableError

ATTENTION = frozenset(
    "ALL_ATTENTION_FUNCTIONS EncoderDecoderCache F ValueError _attn _attn_implementation _get_embed_positions "
    "_merge_heads _split_heads _upcast_and_reordered_attn apply_rotary_pos_emb attention_dropout attn_dropout "
    "attn_logit_softcapping attn_mask bfloat16 c_attn c_proj cat chunk config contiguous cross_attention_cache dense "
    "device dim dropout dropout_p dtype eager eager_attention_forward embed_dim embed_positions flatten float16 "
    "float32 functional gather get get_interface getattr hasattr head_dim head_size inv_norm_factor is_causal "
    "is_cross_attention is_sliding is_updated isinstance k_layernorm k_norm k_proj keys kv_dim layer_idx layers math "
    "mp_num multi_query new_decoder_architecture nn num_attention_heads num_heads num_key_value_heads num_kv_heads "
    "o_proj out_proj p permute position_ids q_attn q_layernorm q_norm q_proj qk_layernorm qkv_proj query_key_value "
    "reorder_and_upcast_attn repeat reshape resid_dropout residual_dropout rotary_dim rotary_ndims "
    "scaled_dot_product_attention scaling sdpa self_attention_cache shape sigmoid size sliding_window softcap softmax "
    "split split_size sqrt to torch training transpose unsqueeze update use_qk_norm use_rope v_proj values view".split()
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
    "act act_fn activation_dropout activation_fn c_fc c_proj chunk dense_4h_to_h dense_h_to_4h dim down_proj "
    "dropout fc1 fc2 fc_in fc_out functional gate_proj gate_up_proj nn p residual_dropout training up_proj".split()
)

SPARSE = frozenset(
    "F dtype e_score_correction_bias empty_like enable_moe_fp32_combine expert_bias experts float gate hidden_dim "
    "input_jitter_noise input_size jitter_noise moe reshape routed_scaling_factor router shape shared_expert "
    "shared_expert_gate shared_experts shared_mlp sigmoid size to torch training uniform_ view".split()
)
"""Of a mixture of experts; its router runs as written."""

EXPERTS = frozenset(
    "_apply_gate act_fn chunk device down_proj down_proj_bias dtype functional gate_up_proj gate_up_proj_bias greater "
    "index_add_ linear nn no_grad nonzero num_experts one_hot permute sum to torch where zeros_like num_classes dim "
    "size shape".split()
)

SPARSE_LAYER = frozenset({"block_sparse_moe", "feed_forward"})
"""Other names of what is in an MLP's place."""

LAYER = frozenset(
    "ValueError alibi attention attention_dropout attention_layernorm attention_mask attn block_type cache_params "
    "config crossattention do_layer_norm_before dropout dropout_add encoder_attention_mask encoder_hidden_states "
    "feedforward_layernorm final_layer_norm full_attention functional hasattr hidden_dropout hidden_states "
    "input_layernorm isinstance layer_past linear_attention linear_attn ln_1 ln_2 ln_attn ln_cross_attn ln_mlp mlp "
    "new_decoder_architecture nn num_ln_in_parallel_attn output_attentions p parallel_attn past_key_values "
    "position_embeddings position_ids post_attention_dropout post_attention_layernorm post_feedforward_layernorm "
    "post_mlp_dropout post_mlp_layernorm post_self_attn_layernorm pre_feedforward_layernorm reshape "
    "resid_attn_dropout resid_dropout resid_mlp_dropout residual_multiplier self_attention self_attn "
    "self_attn_layer_norm shape size training tuple use_cache use_parallel_residual view".split()
)

MODEL = frozenset(
    "BaseModelOutputWithPastAndCrossAttentions DynamicCache EncoderDecoderCache ValueError "
    "_bidirectional_window_overlay add_cross_attention alibi allow_is_causal_skip arange attention_mask attentions "
    "bool build_alibi_tensor config copy create_bidirectional_mask create_causal_mask create_recurrent_attention_mask "
    "create_sliding_window_causal_mask cumsum device dict dim drop dropout dtype emb_dropout embed_dropout embed_in "
    "embed_positions embed_tokens embedding_dropout embedding_multiplier encoder_attention_mask encoder_hidden_states "
    "enumerate expand final_layer_norm final_layernorm finfo full full_attention functional get_seq_length "
    "gradient_checkpointing h has_sliding_layers hidden_size hidden_states inputs_embeds is_flash_attention_requested "
    "isinstance last_hidden_state layer_norm layer_past layer_types layerdrop layers linear_attention ln_f logger "
    "long masked_fill math min multi_query ndim nn norm num_heads num_hidden_layers ones or_mask_function "
    "output_attentions output_hidden_states p past_key_values pop position_embeddings position_ids project_in "
    "project_out rand reshape return_dict rotary_emb set shape size sliding_attention sliding_window sqrt tensor to "
    "torch training tuple unsqueeze use_alibi use_bidirectional_attention use_cache view "
    "warn_if_padding_and_no_attention_mask warning_once where word_embeddings wpe wte".split()
)

WRAPPER = MODEL | frozenset(
    "attentions block_sequence_ids clone create_masks_for_generate create_masks_for_vision_model get "
    "get_block_sequence_ids_for_mask get_image_features get_input_embeddings get_placeholder_mask get_text_config "
    "hidden_states image image_features image_hidden_states image_token_id language_model masked_scatter "
    "pixel_values pooler_output return_dict to vocab_size".split()
)
"""Of a model that puts images among the texts of its decoder."""

CAUSAL_MODEL = frozenset(
    "CausalLMOutputWithCrossAttentions attention_mask attentions aux_loss config contiguous cross_attentions "
    "decoder device embed_out encoder_attention_mask encoder_hidden_states final_logit_softcapping hidden_states "
    "image_hidden_states input_ids inputs_embeds int isinstance labels last_hidden_state lm_head "
    "load_balancing_loss_func logit_scale logits logits_scaling loss loss_function mm_encoder_outputs model "
    "num_experts num_experts_per_tok output_attentions output_hidden_states output_projection output_router_logits "
    "past_key_values pixel_values position_ids return_dict router_aux_loss_coef router_logits slice "
    "slice_logits_to_keep tanh text_config to token_type_ids torch use_cache vocab_size".split()
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
