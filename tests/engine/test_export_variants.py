"""What differs inside a type of models: llama.cpp computes it as transformers does, or it is refused by name."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.engine import causal_types
from tests.engine.exports import export, run_for_llama_cpp, trained_run
from tunesmith_core.errors import TunesmithError
from tunesmith_core.exports import base_layout, whole_sizes
from tunesmith_engine.export.gguf import architectures, writing

pytestmark = pytest.mark.usefixtures("home", "few_prompts")

Changes = dict[str, Any]

EXPERTS_OF_GEMMA_4 = {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32}
ALL_ATTENTION = {"layer_types": ["full_attention", "full_attention"]}
LAYERS_BEFORE = {"num_hidden_layers": 4, "moe_layer_start_index": 2}
GROUPS = {"n_group": 2, "topk_group": 1, "num_experts_per_tok": 1}

YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 128}
MINISTRAL = {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}
SCALED = {"mscale": 0.707, "mscale_all_dim": 0.707}

QUICK: list[tuple[str, Changes]] = [
    ("gemma4_text", EXPERTS_OF_GEMMA_4),
    ("granitemoehybrid", {"num_local_experts": 0}),
    ("gpt2", {"n_inner": 96}),
    ("glm4_moe", {**GROUPS, "norm_topk_prob": False, "first_k_dense_replace": 0, "n_shared_experts": 2}),
]
SLOW: list[tuple[str, Changes]] = [
    ("deepseek_v3", {**GROUPS, "rope_parameters": YARN | SCALED, "n_shared_experts": 2}),
    ("deepseek_v2", {"rope_parameters": YARN | SCALED, "norm_topk_prob": True, "tie_word_embeddings": True}),
    ("deepseek_v2", {"q_lora_rank": None, "num_hidden_layers": 27}),
    ("glm4_moe_lite", {"mlp_layer_types": ["sparse", "sparse"], "tie_word_embeddings": True}),
    ("mistral4", {"first_k_dense_replace": 1, "norm_topk_prob": False, "routed_scaling_factor": 2.0}),
    ("llama4_text", {"interleave_moe_layer_step": 1, "tie_word_embeddings": True}),
    ("afmoe", {"num_dense_layers": 0}),
    ("granitemoehybrid", {"position_embedding_type": "rope"}),
    ("granitemoehybrid", {**ALL_ATTENTION, "position_embedding_type": "rope"}),
    ("granitemoehybrid", {**ALL_ATTENTION, "num_local_experts": 0}),
    ("glm4_moe", {"use_qk_norm": True, "attention_bias": True, "tie_word_embeddings": True}),
    ("dots1", {**GROUPS, "norm_topk_prob": True, "routed_scaling_factor": 2.5}),
    ("ernie4_5_moe", {**LAYERS_BEFORE, "moe_num_shared_experts": 0}),
    ("minimax_m2", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}),
    ("falcon_h1", {"mamba_rms_norm": True, "mamba_norm_before_gate": False}),
    ("stablelm", {"use_parallel_residual": True, "use_qkv_bias": True}),
    ("starcoder2", {"tie_word_embeddings": False}),
    ("olmo", {"clip_qkv": 0.1}),
    ("nemotron", {"attention_bias": True, "mlp_bias": True}),
    ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}),
    ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1}),
    ("falcon", {"multi_query": False}),
    ("gpt_neox", {"use_parallel_residual": False}),
    ("gpt2", {"tie_word_embeddings": False}),
]


@pytest.mark.usefixtures("all_prompts")
@pytest.mark.parametrize(("kind", "changes"), [*QUICK, *(pytest.param(*each, marks=pytest.mark.long) for each in SLOW)])
def test_every_variant_of_a_type_is_the_same(kind: str, changes: Changes, tmp_path: Path) -> None:
    figures = export(run_for_llama_cpp(tmp_path, kind, **changes), tmp_path / "out", "gguf", type_name="f32")["proof"]
    assert (figures["passed"], figures["agreement"]) == (True, 1)
    assert figures["max_kl"] < 1e-5


CHOSEN, PLACED, NONE_SHARED = "chooses its experts", "experts in other layers", "every token goes through"


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        ("dots1", {"num_key_value_heads": 2}, "fewer heads for keys"),
        ("dots1", {"num_key_value_heads": 4, "layer_types": ["sliding_attention"] * 2}, "sliding window"),
        ("ernie4_5_moe", {"moe_layer_interval": 2}, PLACED),
        ("ernie4_5_moe", {"moe_layer_end_index": 0}, PLACED),
        ("ernie4_5_moe", {"use_bias": True}, "biases"),
        ("hunyuan_v1_moe", {"moe_topk": [1, 2]}, CHOSEN),
        ("hunyuan_v1_moe", {"attention_bias": True}, "biases"),
        ("lfm2_moe", {"routed_scaling_factor": 2.0}, CHOSEN),
        ("lfm2_moe", {"norm_topk_prob": False}, CHOSEN),
        ("lfm2_moe", {"use_expert_bias": False}, CHOSEN),
        ("qwen3_next", {"mlp_only_layers": [0]}, PLACED),
        ("qwen3_next", {"linear_value_head_dim": 16}, "attention is in other layers"),
        ("mamba2", {"time_step_limit": (0.01, 1.0)}, "time steps"),
        ("granitemoehybrid", {"time_step_limit": (0.0, 1.0)}, "time steps"),
        ("falcon_h1", {"time_step_limit": (0.01, float("inf"))}, "time steps"),
        ("falcon_h1", {"mamba_rms_norm": True, "mamba_norm_before_gate": True}, "behind a norm"),
        ("falcon_h1", {"tie_word_embeddings": True}, "two scales"),
        ("stablelm", {"qk_layernorm": True}, "have norms"),
        ("stablelm", {"tie_word_embeddings": True}, "embedding is its head"),
        ("phi", {"qk_layernorm": True}, "have norms"),
        ("phi", {"hidden_act": "relu"}, "activation relu"),
        ("starcoder2", {"use_bias": False}, "no biases"),
        ("nemotron", {"hidden_act": "silu"}, "activation silu"),
        ("cohere", {"use_qk_norm": True}, "queries and keys have norms"),
        ("cohere", {"attention_bias": True}, "biases"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scaled in another way"),
        ("gpt2", {"activation_function": "relu"}, "activation relu"),
        ("gpt_neox", {"attention_bias": False}, "no biases"),
        ("gpt_neox", {"tie_word_embeddings": True}, "embedding is its head"),
        ("bloom", {"apply_residual_connection_post_layernorm": True}, "begin behind a norm"),
        ("falcon", {"alibi": True}, "turn in another way"),
        ("falcon", {"parallel_attn": False}, "behind attention"),
        ("falcon", {"bias": True}, "biases"),
        ("mpt", {"no_bias": False}, "biases"),
        ("deepseek_v3", {"rope_interleave": False}, "turn in another way"),
        ("deepseek_v3", {"rope_parameters": YARN}, "turn in another way"),
        ("deepseek_v3", {"rope_parameters": {**YARN, **SCALED, "mscale": 1.0}}, "turn in another way"),
        ("deepseek_v3", {"rope_parameters": {**YARN, **SCALED, "attention_factor": 1.3}}, "turn in another way"),
        ("deepseek_v3", {"q_lora_rank": None}, "queries are made"),
        ("deepseek_v3", {"attention_bias": True}, "biases"),
        ("deepseek_v2", {"num_hidden_layers": 27}, "queries are made"),
        ("deepseek_v2", {"topk_method": "group_limited_greedy"}, CHOSEN),
        ("glm4_moe_lite", {"mlp_layer_types": ["sparse", "dense"]}, PLACED),
        ("mistral4", {"rope_parameters": YARN | SCALED}, "turn in another way"),
        ("afmoe", {"mup_enabled": False}, "another scale"),
        ("afmoe", {"mup_enabled": True, "num_shared_experts": 0}, NONE_SHARED),
        ("afmoe", {"mup_enabled": True, "layer_types": ["full_attention"] * 2}, "windows are in other layers"),
        ("llama4_text", {"moe_layers": [0]}, PLACED),
        ("llama4_text", {"no_rope_layers": [0, 1]}, "know no positions"),
        ("llama4_text", {"attention_chunk_size": 128}, "see other chunks"),
        ("llama4_text", {"max_position_embeddings": 1 << 20, "attn_scale": 0.2}, "scaled in another way"),
        ("llama4_text", {"use_qk_norm": False}, "scaled in another way"),
        ("llama4_text", {"attention_bias": True}, "biases"),
        ("qwen3", {"attention_bias": True}, "biases"),
        ("olmo2", {"tie_word_embeddings": True}, "embedding is its head"),
        ("gemma", {"hidden_act": "relu"}, "activation relu"),
        ("llama", {"hidden_act": "gelu"}, "activation gelu"),
        ("llama", {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "turn in another way"),
        ("qwen3", {"rope_parameters": {"rope_type": "llama3", "factor": 4.0}}, "turn in another way"),
        ("deepseek_v3", {"rope_parameters": {"rope_type": "linear", "factor": 4.0}}, "turn in another way"),
        ("ministral3", {"rope_parameters": {**MINISTRAL, "mscale": 0.7, "mscale_all_dim": 0.7}}, "turn in another way"),
        ("ministral3", {"rope_parameters": {**MINISTRAL, "attention_factor": 1.3}}, "turn in another way"),
        ("ministral3", {"rope_parameters": {**MINISTRAL, "rope_type": "default"}}, "turn in another way"),
        ("gpt_oss", {"swiglu_limit": 9.0}, "cap or scale their gates"),
        ("gpt_oss", {"attention_bias": False}, "no biases"),
        ("qwen2_moe", {"norm_topk_prob": True}, CHOSEN),
        ("qwen2_moe", {"use_sliding_window": True}, "sliding window"),
        ("falcon_h1", {"attention_bias": True}, "biases"),
        ("falcon_h1", {"mamba_conv_bias": False}, "no biases"),
        ("mamba2", {"use_conv_bias": False}, "no biases"),
    ],
)
def test_a_variant_that_llama_cpp_computes_otherwise_is_refused(kind: str, changes: Changes, words: str) -> None:
    config = causal_types.make_config(kind)
    for name, value in changes.items():
        setattr(config, name, value)
    with pytest.raises(TunesmithError, match=words) as refusal:
        architectures.architecture_of(config)
    assert refusal.value.code == "export-unsupported"


def test_settings_that_a_type_does_not_look_at_refuse_nothing() -> None:
    config = causal_types.make_config("qwen2")
    config.attention_bias, config.activation_function = True, "relu"
    assert architectures.architecture_of(config) is architectures.ARCHITECTURES["qwen2"]


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("qwen3_next", {"laid_out": architectures.ARCHITECTURES["qwen3_5_text"].laid_out}),
        ("bloom", {"laid_out": lambda _config, _name, weight: weight}),
        ("falcon_h1", {"laid_out": architectures.ARCHITECTURES["mamba2"].laid_out}),
        ("llama4_text", {"rotates_pairs": True}),
        ("deepseek_v3", {"more": architectures.ARCHITECTURES["deepseek_v2"].more}),
    ],
)
def test_a_layout_that_is_not_llama_cpps_is_not_kept(
    kind: str, wrong: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_for_llama_cpp(tmp_path, kind)
    changed = dataclasses.replace(architectures.ARCHITECTURES[kind], **wrong)
    monkeypatch.setattr(writing, "architecture_of", lambda _: changed)
    with pytest.raises(TunesmithError) as refusal:
        export(run, tmp_path / "out", "gguf", type_name="f32")
    assert refusal.value.code == "export-differs"
    assert not (tmp_path / "out").exists()


def test_layers_that_only_predict_further_tokens_are_left_out(tmp_path: Path) -> None:
    run = run_for_llama_cpp(tmp_path, "glm4_moe")
    folder = Path(run.load_spec().model.path)
    path = folder / "model.safetensors"
    weights = load_file(path)
    last = {name.replace(".layers.1.", ".layers.2."): each for name, each in weights.items() if ".layers.1." in name}
    last |= {"model.layers.2.eh_proj.weight": torch.ones(64, 128)}
    save_file(weights | {name: each.clone() for name, each in last.items()}, path, metadata={"format": "pt"})
    run, _ = trained_run(folder)
    assert export(run, tmp_path / "out", "gguf", type_name="f32")["proof"]["passed"] is True
    names = [each.name for each in gguf.GGUFReader(next((tmp_path / "out").glob("*.gguf"))).tensors]
    assert [name for name in names if name.startswith("blk.2.")] == []


def test_the_layers_that_images_are_added_to_are_counted(tmp_path: Path) -> None:
    export(run_for_llama_cpp(tmp_path, "qwen3_vl"), tmp_path / "out", "gguf", type_name="f32")
    fields = gguf.GGUFReader(next((tmp_path / "out").glob("*.gguf"))).fields
    assert fields["qwen3vl.n_deepstack_layers"].contents() == 3


SIZED = ["gpt2", "gpt_neox", "falcon_h1", "granitemoehybrid", "qwen3_next", "glm4_moe", "deepseek_v3", "llama4_text"]
WIDE = {"hidden_size": 256, "intermediate_size": 512, "moe_intermediate_size": 256}
OWN_WIDE = {
    "gpt2": {"n_embd": 256},
    "llama4_text": {"hidden_size": 256, "intermediate_size": 256, "intermediate_size_mlp": 512},
}


@pytest.mark.parametrize("kind", [SIZED[0], *(pytest.param(kind, marks=pytest.mark.long) for kind in SIZED[1:])])
@pytest.mark.parametrize("type_name", ["q8_0", "q4_k_m"])
def test_a_file_of_fewer_bits_passes_and_is_as_large_as_announced(kind: str, type_name: Any, tmp_path: Path) -> None:
    run = run_for_llama_cpp(tmp_path, kind, **OWN_WIDE.get(kind, WIDE))
    assert export(run, tmp_path / "out", "gguf", type_name=type_name)["proof"]["passed"] is True
    size = next((tmp_path / "out").glob("*.gguf")).stat().st_size
    announced = whole_sizes(base_layout(run))[f"gguf-{type_name}"]
    assert abs(size - announced) < (1 << 16) + announced * 0.05
