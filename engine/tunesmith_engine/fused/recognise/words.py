"""Which attributes, functions and keywords a forward pass mentions: an unknown word is an unknown step."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import CodeType

from torch import nn

from tunesmith_engine.shapes import NotFusableError

ATTENTION = frozenset(
    "ALL_ATTENTION_FUNCTIONS EncoderDecoderCache F ValueError Wqkv _attn _attn_implementation _get_embed_positions "
    "_merge_heads _reshape _split_heads _upcast_and_reordered_attn alibi alpha apply_rotary_emb apply_rotary_pos_emb "
    "arange attention_dropout attention_mask attn_dropout attn_dropout_p attn_logit_softcapping attn_mask attn_prompt "
    "attn_scale attn_sub_norm attn_temperature_tuning baddbmm batch1 batch2 beta bfloat16 bmm c_attn c_proj cat chunk "
    "clamp clamp_ clip_qkv codebook_idx config contiguous cross_attention_cache dense device dim dropout dropout_add "
    "dropout_p dtype eager eager_attention_forward embed_dim embed_positions expand finfo flatten float float16 "
    "float32 floor floor_scale force_rope full functional g_proj gate_per_head gate_proj gather get get_interface "
    "get_llama_4_attn_scale get_seq_length getattr hasattr head_dim head_size hidden_dropout hidden_size input_dtype "
    "int inv_norm_factor is_causal is_cross_attention is_local_attention is_sliding is_updated isinstance k "
    "k_layernorm k_norm k_proj key_layernorm keys kv_dim layer_id layer_idx layer_past layers len linear "
    "llama_4_scaling_beta log1p masked_fill math matmul max merge_heads min mp_num multi_query n_heads "
    "new_decoder_architecture nn num_attention_heads num_heads num_key_value_heads num_kv_heads o_proj "
    "original_max_position_embeddings out_proj output_attentions p permute position_ids pretraining_tp q_attn "
    "q_layernorm q_norm q_proj qk_layernorm qk_norm qkv_proj query_key_value query_layer query_layernorm range "
    "reorder_and_upcast_attn repeat reshape resid_dropout residual_dropout rope_parameters rotary_dim rotary_emb "
    "rotary_ndims s_aux scaled_dot_product_attention scaling sdpa self_attention_cache shape sigmoid sinks size "
    "sliding_window slow_but_exact softcap softmax softmax_scale softplus split split_heads split_size sqrt to torch "
    "training transpose type_as unsqueeze update use_cache use_qk_norm use_rope v_head_dim v_proj v_scale values view "
    "weight zeros zeros_like".split()
)

DELTA = frozenset(
    "A_log F a_proj activation allow_neg_eigval apply_mask_to_padding_states b_proj beta bias cat causal_conv1d_fn "
    "causal_conv1d_update conv1d conv_kernel_size cu_seq_lens_q cu_seqlens dim dt_bias exp "
    "fix_query_key_value_ordering float g g_proj get_conv_state get_recurrent_state head_k_dim head_v_dim in_proj_a "
    "in_proj_b in_proj_ba in_proj_qkv in_proj_qkvz in_proj_z initial_state is_recording_past k_proj key_dim layer_idx "
    "norm o_norm o_proj out_proj output_final_state pop q_proj reshape shape sigmoid softplus split squeeze state_idx "
    "torch torch_chunk_gated_delta_rule torch_recurrent_gated_delta_rule transpose update_conv_state "
    "update_recurrent_state use_qk_l2norm_in_kernel v_proj value_dim view weight".split()
)
"""Of what has the gated delta rule in attention's place."""

CHANNEL_DELTA = frozenset(
    "activation apply_mask_to_padding_states b_proj beta bias cat causal_conv1d_fn causal_conv1d_update "
    "chunk_kimi_delta_attention conv1d conv_kernel_size dim float32 forget_gate g g_a_proj g_b_proj g_proj "
    "get_conv_state get_recurrent_state head_dim initial_state k_proj layer_idx o_norm o_proj output_final_state "
    "q_proj qkv_dim recurrent_kimi_delta_attention reshape shape sigmoid split squeeze state_idx to torch transpose "
    "update_conv_state update_recurrent_state use_qk_l2norm_in_kernel v_proj view weight".split()
)
"""Of what has the delta rule with a decay for each channel in attention's place."""

FORGET_GATE = frozenset(
    "A_log F dt_bias dtype exp f_a_proj f_b_proj f_proj float head_dim log lower_bound num_heads safe_gate "
    "safe_gate_lower_bound shape sigmoid softplus to torch view where".split()
)
"""Of the part that computes its decays."""

SCAN = DELTA | frozenset(
    "D chunk_size conv_dim dt_limit dt_softplus dtype expand float32 functional head_dim headdim in_proj "
    "initial_states intermediate_size mamba2_chunk_scan mamba2_selective_state_update "
    "mamba2_split_conv1d_scan_combined mamba_rms_norm mup_vector n_groups ngroups nn norm_before_gate num_heads "
    "outproj_bias outproj_weight return_final_states rmsnorm_eps rmsnorm_weight silu ssm_in_multiplier ssm_state_size "
    "time_step_limit to training variance_epsilon view z".split()
)
"""Of what has a state-space scan in attention's place."""

CONVOLUTION = frozenset(
    "apply_mask_to_padding_states bias causal_conv1d_fn causal_conv1d_update chunk contiguous conv conv_kernel_size "
    "dim get_conv_state in_proj is_recording_past layer_idx out_proj shape squeeze state_idx transpose "
    "update_conv_state weight".split()
)
"""Of what has a gated convolution in attention's place."""

MLP = frozenset(
    "F act act_fn activation activation_dropout activation_fn c_fc c_proj chunk dense_4h_to_h dense_h_to_4h dim "
    "down_proj dropout dropout_add fc1 fc2 fc_in fc_out ffn_sub_norm functional gate_proj gate_up_proj gelu_impl "
    "hidden_dropout hidden_size input_linear int linear nn output_linear p pretraining_tp range residual_dropout "
    "shape silu slow_but_exact torch training up_proj view w1 w2 w3 weight zeros_like".split()
)

SPARSE = frozenset(
    "F ValueError add_ average dim dtype e_score_correction_bias empty_like enable_moe_fp32_combine expert_bias "
    "experts float gate hidden_dim input_jitter_noise input_size jitter_noise moe num_shared_experts "
    "post_mlp_layernorm repeat reshape routed_scaling_factor router shape shared_expert "
    "shared_expert_combination_strategy shared_expert_gate shared_experts shared_mlp sigmoid size sum to torch "
    "training transpose uniform_ use_expert_bias view".split()
)
"""Of a mixture of experts; its router runs as written."""

EXPERTS = frozenset(
    "_apply_gate act_fn bmm chunk device dim down_proj down_proj_bias dtype functional gate_up_proj gate_up_proj_bias "
    "greater hidden_size index_add_ linear nn no_grad nonzero num_classes num_experts one_hot permute shape size sum "
    "to torch view where zeros_like".split()
)

SPARSE_LAYER = frozenset({"block_sparse_moe", "feed_forward"})
"""Other names of what is in an MLP's place."""

LAYER = frozenset(
    "ValueError alibi apply_residual_connection_post_layernorm attention attention_dropout attention_layernorm "
    "attention_mask attn attn_prompt block_sparse_moe block_type cache_params codebook_idx config conv crossattention "
    "do_layer_norm_before dropout dropout_add dtype encoder_attention_mask encoder_attn encoder_attn_layer_norm "
    "encoder_hidden_states feed_forward feedforward_layernorm ffn ffn_norm final_layer_norm full_attention functional "
    "has_experts hasattr hidden_dropout hidden_states input_layernorm is_attention_layer is_moe_layer isinstance "
    "key_value_states layer_past linear_attention linear_attn ln_1 ln_2 ln_attn ln_cross_attn ln_mlp mamba mlp "
    "new_decoder_architecture nn norm_1 norm_2 norm_attn_norm num_ln_in_parallel_attn operator_norm output_attentions "
    "p parallel_attn past_key_values position_bias position_embeddings position_ids post_attention_dropout "
    "post_attention_layernorm post_feedforward_layernorm post_ffn_norm post_mlp_dropout post_mlp_layernorm post_norm1 "
    "post_norm2 post_operator_norm post_self_attn_layernorm pre_feedforward_layernorm pre_ff_layernorm "
    "pre_mlp_layernorm reshape resid_attn_dropout resid_dropout resid_mlp_dropout resid_pdrop residual "
    "residual_multiplier residual_scale self_attention self_attn self_attn_layer_norm shape shared_mlp size to "
    "training tuple use_cache use_flexible_linear use_parallel_residual view".split()
)

MODEL = frozenset(
    "BaseModelOutput BaseModelOutputWithPastAndCrossAttentions DynamicCache EncoderDecoderCache ValueError "
    "_bidirectional_window_overlay _deepstack_process _get_alibi_slopes add_cross_attention alibi "
    "allow_is_causal_skip arange attention_mask attentions blocks bool build_alibi_tensor build_mpt_alibi_tensor "
    "chunked_attention config conv copy create_bidirectional_mask create_causal_mask create_chunked_causal_mask "
    "create_recurrent_attention_mask create_sliding_window_causal_mask cross_attentions cross_attn_prompt cumsum "
    "decoder_layers deepcopy deepstack_visual_embeds device dict dim drop dropout dtype emb_dropout embed_dropout "
    "embed_in embed_positions embed_scale embed_tokens embedding_dropout embedding_multiplier embedding_norm "
    "encoder_attention_mask encoder_hidden_states enumerate expand final_layer_norm final_layernorm finfo float full "
    "full_attention functional get_mask_sizes get_seq_length gradient_checkpointing h has_sliding_layers hidden_size "
    "hidden_states inputs_embeds is_encoder_decoder is_flash_attention_requested is_torchdynamo_compiling is_tracing "
    "isinstance jit last_hidden_state layer_norm layer_past layer_rope_theta layer_type layer_types layerdrop "
    "layernorm_embedding layers layers_block_type len linear_attention ln_f logger long masked_fill math max_seq_len "
    "min multi_query mup_enabled ndim next nn norm norm_f num_heads num_hidden_layers ones or_mask_function "
    "output_attentions output_hidden_states p parameters past_key_values past_key_values_length pop pos_emb "
    "position_bias position_embeddings position_ids positions_embed project_in project_out prompt_length rand range "
    "repeat reshape return_dict rope_parameters rope_theta rotary_emb rotary_embs self_attention_cache "
    "self_attn_prompt set shape size sliding_attention sliding_window sqrt tensor to tokens_embed torch training "
    "tuple unsqueeze use_alibi use_bidirectional_attention use_cache use_learned_position_embeddings use_prompt view "
    "visual_pos_masks warn_if_padding_and_no_attention_mask warning_once weight where word_embeddings "
    "word_embeddings_layernorm wpe wte".split()
)

WRAPPER = MODEL | frozenset(
    "attentions block_sequence_ids clone create_masks_for_generate create_masks_for_vision_model get "
    "get_block_sequence_ids_for_mask get_image_features get_input_embeddings get_placeholder_mask get_text_config "
    "hidden_states image image_features image_hidden_states image_token_id language_model masked_scatter pixel_values "
    "pooler_output return_dict to vocab_size".split()
)
"""Of a model that puts images among the texts of its decoder."""

SHARING_ATTENTION = frozenset(
    "is_kv_shared_layer layer_type shared_kv_states store_full_length_kv unsqueeze_dim v_norm".split()
)
"""Of attention with norms of values and keys and values that layers share, beside the others."""

LATENT_ATTENTION = frozenset(
    "apply_rotary_emb apply_rotary_pos_emb_interleave expand_kv g_proj kv_a_layernorm kv_a_proj_with_mqa kv_lora_rank "
    "q_a_layernorm q_a_proj q_b_proj q_lora_rank qk_head_dim qk_nope_head_dim qk_rope_head_dim rope_interleave".split()
)
"""Of attention that compresses keys and values, beside the others."""

OWN_INPUTS_LAYER = frozenset(
    "act_fn enable_moe_block experts hidden_size_per_layer_input layer_scalar per_layer_input_gate "
    "per_layer_projection post_feedforward_layernorm_1 post_feedforward_layernorm_2 post_per_layer_input_norm "
    "pre_feedforward_layernorm_2 residual_scale router shared_kv_states".split()
)
"""Of a layer with numbers of its own, beside the others."""

OWN_INPUTS_MODEL = frozenset(
    "KVSharingDict _maybe_slice_kv_shared_inputs first_kv_shared_layer_idx get get_per_layer_inputs "
    "hidden_size_per_layer_input project_per_layer_inputs return_shared_kv_states shared_kv_states "
    "unique_layer_types".split()
)
"""Of its decoder."""

ALTUP_LAYER = frozenset(
    "altup altup_active_idx altup_correct_scale clone correct laurel math multiply predict scale_corrected_output sqrt "
    "torch".split()
)
"""Of a layer with several streams, beside the others."""

ALTUP_MODEL = frozenset(
    "altup_num_inputs altup_projections altup_unembed_projections append clamp keepdim mean stack".split()
)
"""Of its decoder."""

CUT_MLP = frozenset({"_gaussian_topk", "activation_sparsity"})
"""Of an MLP whose activation reads the largest gates alone, beside the others."""

BLOCKS_LAYER = frozenset(
    "attention_in_multiplier attn_out_multiplier dtype float32 mixer norm residual_in_fp32 ssm_out_multiplier to "
    "weight".split()
)
"""Of a layer of one block, and of one with attention and a scan beside each other, beside the others."""

BLOCKS_MODEL = frozenset("block_type cache_params embeddings get mamba_attention_mask".split())
"""Of their decoders."""

KEY_FACTOR = frozenset({"key_multiplier"})
MLP_FACTORS = frozenset({"gate_multiplier", "down_multiplier"})
"""Of attention and of an MLP with factors, beside the others."""

OF_IMAGES = frozenset(
    "Tensor append audio_features audio_hidden_states audio_mel_mask audio_soft_tokens_per_image batch_num_images cat "
    "compute_3d_position_ids deepstack_features deepstack_visual_embeds embed_audio embed_vision expand_as flatten "
    "get_audio_features get_per_layer_inputs get_text_config get_video_features hidden_size_per_layer_input "
    "image_grid_thw image_position_ids image_sizes input_features input_features_mask input_ids inputs_merger list "
    "logical_and mm_token_type_ids new_zeros num_frames_per_video numel pad_token_id per_layer_inputs "
    "pixel_attention_mask pixel_values_videos router_logits second_per_grid_ts shared_kv_states spatial_shapes sum "
    "text_config text_model torch_compilable_check video video_features video_grid_thw video_hidden_states "
    "video_position_ids vision vision_feature_layer vision_feature_select_strategy visual_pos_masks vocab_offset "
    "warning weight zip".split()
)
"""Of a model that puts images, videos and sounds among the texts of its decoder, and of what is around it."""

RESULTS = ("Output", "OutputWithPast")
"""How the names of what holds results end."""

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
    unknown = sorted(word for word in words(module) - known if not word.endswith(RESULTS))
    if unknown:
        named = ", ".join([*unknown[:MOST_NAMED], *(["..."] if len(unknown) > MOST_NAMED else [])])
        raise NotFusableError(
            "{name} ({kind}) is not supported: its code uses {names}.",
            name=name,
            kind=type(module).__name__,
            names=named,
        )
