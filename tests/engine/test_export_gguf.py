"""A GGUF file in llama.cpp answers as the trained weights do, and one that does not is not kept."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from peft import LoraConfig, get_peft_model
from tokenizers import AddedToken, Tokenizer, pre_tokenizers
from transformers import AutoTokenizer

from tests.engine import causal_types
from tests.engine.exports import NUM_ROWS, OF_IMAGES, export, run_for_llama_cpp, trained_run
from tests.engine.tokenizers_made import KINDS, write_tokenizer
from tests.packed_models import with_experts_in_mxfp4
from tests.real_runs import example_model
from tunesmith_core import export_proof, gguf_families, paths
from tunesmith_core.errors import TunesmithError
from tunesmith_core.exports import base_layout, whole_sizes
from tunesmith_core.protocol import read_journal
from tunesmith_core.runs import Run
from tunesmith_engine.export import proof
from tunesmith_engine.export.gguf import adapter as gguf_adapter
from tunesmith_engine.export.gguf import architectures, hyperparameters, tokenizer, writing
from tunesmith_engine.export.gguf import export as gguf_export
from tunesmith_engine.export.gguf.adapter import lora_parts
from tunesmith_engine.export.gguf.llama_cpp import LlamaCpp
from tunesmith_engine.export.gguf.tensors import laid_out
from tunesmith_engine.export.gguf.types import FILE_TYPES, encoded
from tunesmith_engine.export.gguf.unigram import add_unigram
from tunesmith_engine.export.gguf.vocabulary import Vocabulary
from tunesmith_engine.export.merging import Merging
from tunesmith_engine.export.trained import load_base
from tunesmith_engine.model.load import load_config
from tunesmith_engine.model.lora import trainable

pytestmark = pytest.mark.usefixtures("home", "few_prompts")

QUICK = ["llama", "qwen3", "gemma3_text", "qwen3_moe", "gpt_oss", "lfm2", "qwen3_5_text"]
INSIDE = {f"{kind}_text": kind for kind in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe")}
"""Decoders of models for images and texts that are no models of their own."""
DISTURBED = ["f32", "f16", "q8_0"]
PAIRS = "mrope_section has 32 pairs, but its heads have 16 numbers"
SLOW = ["f32", "q8_0", "q6_k", "q5_k_m", "q4_k_m"]


def _check_equal(run: Run, target: Path, type_name: Any = "f32") -> dict[str, Any]:
    answer = export(run, target, "gguf", type_name=type_name)["proof"]
    assert answer["passed"] is True
    assert answer["num_positions"] == len(proof.PROMPTS) * proof.NUM_TOKENS
    return answer


@pytest.mark.usefixtures("all_prompts")
@pytest.mark.parametrize("kind", QUICK)
def test_llama_cpp_computes_what_was_trained(kind: str, tmp_path: Path) -> None:
    figures = _check_equal(run_for_llama_cpp(tmp_path, kind), tmp_path / "out")
    assert figures["agreement"] == 1
    assert figures["max_kl"] < 1e-5


@pytest.mark.long
@pytest.mark.parametrize("kind", [INSIDE.get(kind, kind) for kind in architectures.ARCHITECTURES if kind not in QUICK])
def test_llama_cpp_computes_what_was_trained_of_every_other_type(kind: str, tmp_path: Path) -> None:
    figures = _check_equal(run_for_llama_cpp(tmp_path, kind), tmp_path / "out")
    assert figures["agreement"] == 1
    assert figures["max_kl"] < 1e-5


@pytest.mark.long
@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0},
        {"attention_k_eq_v": True, "num_global_key_value_heads": 1, "num_kv_shared_layers": 0},
        {"use_double_wide_mlp": True},
    ],
)
def test_every_variant_of_gemma_4_is_the_same(changes: dict[str, Any], tmp_path: Path) -> None:
    assert _check_equal(run_for_llama_cpp(tmp_path, "gemma4_text", **changes), tmp_path / "out")["max_kl"] < 1e-5


@pytest.mark.parametrize("type_name", ["f32", "q8_0"])
@pytest.mark.parametrize("names_layers", [True, False])
def test_gemma_4_has_wider_heads_where_it_sees_everything(names_layers: bool, type_name: str, tmp_path: Path) -> None:
    run = run_for_llama_cpp(tmp_path, "gemma4_text")
    path = Path(run.load_spec().model.path) / "config.json"
    config = json.loads(path.read_text())
    assert (config["head_dim"], config["per_layer_config"]) == (16, {layer: {"head_dim": 32} for layer in ("2", "5")})
    if not names_layers:
        # As Google's own files say it.
        del config["per_layer_config"]
        path.write_text(json.dumps(config | {"global_head_dim": 32}))
        run, _ = trained_run(path.parent)
    figures = _check_equal(run, tmp_path / "out", type_name)
    assert type_name != "f32" or figures["max_kl"] < 1e-5


@pytest.mark.parametrize(
    "kind", [kind if kind == "mistral3" else pytest.param(kind, marks=pytest.mark.long) for kind in OF_IMAGES]
)
def test_the_decoder_of_a_model_for_images_is_exported(kind: str, tmp_path: Path) -> None:
    figures = _check_equal(run_for_llama_cpp(tmp_path, kind), tmp_path / "out")
    assert figures["agreement"] == 1
    assert figures["max_kl"] < 1e-5


@pytest.mark.parametrize(
    "kind", ["gpt_oss", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("qwen3_moe", "granitemoe", "lfm2"))]
)
@pytest.mark.parametrize("type_name", ["q8_0", pytest.param("q4_k_m", marks=pytest.mark.long)])
def test_experts_and_convolutions_of_fewer_bits_pass(kind: str, type_name: Any, tmp_path: Path) -> None:
    run = run_for_llama_cpp(tmp_path, kind, hidden_size=256, intermediate_size=256)
    _check_equal(run, tmp_path / "out", type_name)


@pytest.mark.parametrize("type_name", ["q4_k_m", "f16"])
def test_published_experts_keep_their_numbers_in_files_of_fewer_bits(type_name: Any, tmp_path: Path) -> None:
    run = run_for_llama_cpp(tmp_path, "gpt_oss", intermediate_size=64)
    meant = with_experts_in_mxfp4(Path(run.load_spec().model.path))
    run, _ = trained_run(Path(run.load_spec().model.path), target_modules=["q_proj", "v_proj"])
    _check_equal(run, tmp_path / "out", type_name)
    tensors = {each.name: each for each in gguf.GGUFReader(next((tmp_path / "out").glob("*.gguf"))).tensors}
    down = tensors["blk.0.ffn_down_exps.weight"]
    assert (down.tensor_type == gguf.GGMLQuantizationType.MXFP4) is (type_name == "q4_k_m")
    found = torch.from_numpy(gguf.quants.dequantize(down.data, down.tensor_type)).transpose(1, 2)
    assert torch.equal(found.float(), meant["model.layers.0.mlp.experts.down_proj"])


def test_published_experts_with_an_adapter_are_numbers_of_their_own(tmp_path: Path) -> None:
    run = run_for_llama_cpp(tmp_path, "gpt_oss", intermediate_size=64)
    with_experts_in_mxfp4(Path(run.load_spec().model.path))
    run, _ = trained_run(Path(run.load_spec().model.path), target_modules=["q_proj", "gate_up_proj"])
    _check_equal(run, tmp_path / "out", "q8_0")
    tensors = {each.name: each.tensor_type for each in gguf.GGUFReader(next((tmp_path / "out").glob("*.gguf"))).tensors}
    assert tensors["blk.0.ffn_gate_exps.weight"] == gguf.GGMLQuantizationType.Q8_0
    assert tensors["blk.0.ffn_down_exps.weight"] == gguf.GGMLQuantizationType.MXFP4


@pytest.mark.parametrize("part", ["alternate", "transposed"])
def test_experts_that_are_laid_out_otherwise_are_not_kept(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_for_llama_cpp(tmp_path, "gpt_oss", intermediate_size=64)
    wrong = dataclasses.replace(architectures.ARCHITECTURES["gpt_oss"], **{f"experts_{part}": False})
    monkeypatch.setattr(writing, "architecture_of", lambda _: wrong)
    with pytest.raises(TunesmithError) as refusal:
        export(run, tmp_path / "out", "gguf", type_name="f32")
    assert refusal.value.code == "export-differs"


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "linear", "factor": 4.0},
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128},
    ],
)
def test_stretched_positions_are_the_same(rope: dict[str, Any], tmp_path: Path) -> None:
    run = run_for_llama_cpp(tmp_path, rope_parameters={"rope_theta": 10000.0, **rope})
    assert _check_equal(run, tmp_path / "out")["max_kl"] < 1e-4


ROUNDED_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 1e4}


@pytest.mark.usefixtures("all_prompts")
@pytest.mark.parametrize("truncate", [False, True])
@pytest.mark.parametrize("form", ["gguf", "gguf-adapter"])
def test_stretching_that_llama_cpp_rounds_is_told_and_allowed_for(form: Any, truncate: bool, tmp_path: Path) -> None:
    rope = {**ROUNDED_YARN, "truncate": truncate}
    run = run_for_llama_cpp(tmp_path, "qwen3", rope_parameters=rope, initializer_range=0.3)
    answer = export(run, tmp_path / "out", form)["proof"]
    told = "rounds where the stretching" in (tmp_path / "out/README.md").read_text(encoding="utf-8")
    assert told is not truncate
    if truncate:
        assert answer["mean_kl"] < proof.EQUAL_NATS / 10
    else:
        # Without the reference, this would be refused.
        assert answer["mean_kl"] > proof.EQUAL_NATS
        assert answer["mean_kl"] == pytest.approx(answer["rounding"]["mean_kl"], rel=0.05)


def test_long_positions_of_phi_are_the_same(tmp_path: Path) -> None:
    config = causal_types.make_config("phi3")
    half = range(config.hidden_size // config.num_attention_heads // 2)
    factors = {"short_factor": [1.0 + 0.1 * n for n in half], "long_factor": [2.0 + 0.3 * n for n in half]}
    run = run_for_llama_cpp(
        tmp_path,
        "phi3",
        "llama-2",
        original_max_position_embeddings=256,
        rope_parameters={"rope_theta": 10000.0, "rope_type": "longrope", **factors},
    )
    # llama.cpp takes the long factors where more tokens fit than at first, transformers where more are there.
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(proof, "CONTEXT", 256)
        assert _check_equal(run, tmp_path / "out")["max_kl"] < 1e-4


@pytest.mark.parametrize("words", list(KINDS))
def test_every_kind_of_tokenizer_is_the_same(words: str, tmp_path: Path) -> None:
    _check_equal(run_for_llama_cpp(tmp_path, words=words, begins=words in ("llama-3", "gemma")), tmp_path / "out")


def test_what_llama_cpp_cuts_elsewhere_is_told(tmp_path: Path) -> None:
    for words, is_told in (("tekken", True), ("qwen-2", False)):
        target = tmp_path / words / "out"
        export(run_for_llama_cpp(tmp_path / words, words=words), target, "gguf", type_name="f16")
        assert ("combining marks" in (target / "README.md").read_text(encoding="utf-8")) is is_told
        events = read_journal(paths.tmp_dir() / "operation-out" / "events.jsonl")
        assert ("export-differs" in [each.data["code"] for each in events if each.type == "warning"]) is is_told
        (paths.tmp_dir() / "operation-out" / "events.jsonl").unlink()


@pytest.mark.parametrize(
    ("type_name", "words"),
    [
        ("f32", "The trained model with positions stretched as in llama.cpp gives"),
        ("q8_0", "Rounding the trained model to q8_0, with positions stretched as in llama.cpp, gives"),
    ],
)
def test_positions_that_llama_cpp_stretches_otherwise_are_named_as_the_cause(
    type_name: str, words: str, tmp_path: Path
) -> None:
    run = run_for_llama_cpp(tmp_path, "gpt_oss")
    figures = _check_equal(run, tmp_path / "out", type_name)
    assert figures["causes"] == (["positions"] if type_name == "f32" else ["rounding", "positions"])
    assert words in export_proof.figures(figures)
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert all(each in card for each in (words, "Answers can differ, the more so the longer a text is."))


@pytest.mark.parametrize("type_name", ["f16", "bf16", "q8_0", "q6_k"])
def test_files_of_fewer_bits_pass(type_name: str, tmp_path: Path) -> None:
    run = run_for_llama_cpp(tmp_path, hidden_size=256, intermediate_size=256)
    figures = _check_equal(run, tmp_path / "out", type_name)
    assert figures["mean_kl"] <= figures["most_mean_kl"] < 0.05
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "Compared with the trained model" in card
    # What the window announces before, without vocabulary and template.
    size = next((tmp_path / "out").glob("*.gguf")).stat().st_size
    assert 0 <= size - whole_sizes(base_layout(run))[f"gguf-{type_name}"] < 1 << 16


@pytest.mark.long
@pytest.mark.parametrize(
    ("type_name", "alpha"), [*((name, 1.0) for name in FILE_TYPES), *((name, 16.0) for name in DISTURBED)]
)
def test_every_type_of_the_example_model_passes(type_name: Any, alpha: float, tmp_path: Path, capsys: Any) -> None:
    """The stronger adapter makes a model that any rounding disturbs: its files may lose as much as it loses itself.

    In the other types that model chooses other tokens at a third of the positions or more, and is refused when chance
    adds to it.
    """
    run, _ = trained_run(example_model(), alpha=alpha)
    figures = _check_equal(run, tmp_path / "out", type_name)
    with capsys.disabled():
        sys.stderr.write(f"{type_name}, alpha {alpha}: {figures}\n")


MUTANTS = {
    "no adapter in the weights": (Merging, "merged_as", lambda _self, _name, weight: weight),
    "queries and keys as transformers has them": (
        writing,
        "architecture_of",
        lambda _: dataclasses.replace(architectures.ARCHITECTURES["llama"], rotates_pairs=False),
    ),
    "other positions": (
        hyperparameters,
        "rope_of",
        lambda config: {**config.rope_parameters, "rope_theta": 500.0},
    ),
    "other words": (tokenizer, "pre_tokenizer", lambda _: "gpt-2"),
    "another template": (
        gguf.GGUFWriter,
        "add_chat_template",
        lambda writer, _: writer.add_string(gguf.Keys.Tokenizer.CHAT_TEMPLATE, "{{ messages[0]['content'] }}"),
    ),
    "no token that ends a chat": (gguf.GGUFWriter, "add_eot_token_id", lambda _writer, _number: None),
    "a token before each text": (gguf.GGUFWriter, "add_add_bos_token", lambda *_: None),
}


@pytest.mark.parametrize("type_name", [*(pytest.param(name, marks=pytest.mark.long) for name in SLOW), "f16"])
@pytest.mark.parametrize("name", list(MUTANTS))
def test_a_file_that_differs_is_not_kept(
    name: str, type_name: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_for_llama_cpp(tmp_path, begins=name.startswith("a token"), hidden_size=256, intermediate_size=256)
    if name.startswith("no token"):
        _name_stop_otherwise(Path(run.load_spec().model.path))
        run = trained_run(Path(run.load_spec().model.path))[0]
        _check_equal(run, tmp_path / "sound")
    monkeypatch.setattr(*MUTANTS[name])
    with pytest.raises(TunesmithError, match="not equal to the trained model") as refusal:
        export(run, tmp_path / "out", "gguf", type_name=type_name)
    assert refusal.value.code == "export-differs"
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("all_prompts")
@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("llama", {}),
        ("phi3", {}),
        ("llama", {"rslora": True, "rank": 3, "alpha": 5.0}),
        ("qwen3_5_text", {}),
        ("mistral3", {}),
        ("gpt_oss", {}),
        ("gpt2", {}),
        ("falcon_h1", {}),
        ("granitemoeshared", {}),
        ("qwen3_next", {"target_modules": ["q_proj", "in_proj_qkvz", "out_proj"]}),
        ("deepseek_v3", {"target_modules": ["o_proj"]}),
        ("gemma4_text", {"target_modules": ["q_proj", "k_proj", "o_proj", "down_proj"]}),
    ],
)
def test_llama_cpp_adds_an_adapter_as_peft_does(kind: str, method: dict[str, Any], tmp_path: Path) -> None:
    run = run_for_llama_cpp(tmp_path, kind)
    run, _ = trained_run(Path(run.load_spec().model.path), **method)
    answer = export(run, tmp_path / "out", "gguf-adapter")["proof"]
    assert (answer["passed"], answer["agreement"], answer["num_prompts"]) == (True, 1, 20)
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".gguf", ".json", ".md"}
    assert "--lora" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


def test_an_adapter_is_kept_where_the_base_in_16_bits_chooses_other_experts(tmp_path: Path) -> None:
    run = run_for_llama_cpp(tmp_path, "qwen3_5_moe_text")
    run, _ = trained_run(Path(run.load_spec().model.path), target_modules=["v_proj"])
    answer = export(run, tmp_path / "out", "gguf-adapter")["proof"]
    assert answer["passed"] is True
    assert answer["least_agreement"] == 0


def test_an_adapter_with_its_own_ranks_is_scaled_right(tmp_path: Path) -> None:
    run = run_for_llama_cpp(tmp_path)
    spec = run.load_spec()
    config, base = load_config(Path(spec.model.path)), load_base(Path(spec.model.path))
    settings = LoraConfig(
        r=8, lora_alpha=4, target_modules=["q_proj", "v_proj"], rank_pattern={"v_proj": 2}, alpha_pattern={"q_proj": 32}
    )
    model = get_peft_model(base, settings)
    for parameter in trainable(model).values():
        parameter.data += torch.randn(parameter.shape)
    parts = lora_parts(model, config, 4.0)
    merged = model.merge_and_unload()
    before = load_base(Path(spec.model.path)).state_dict()
    for name, own in (("v_proj", "attn_v"), ("q_proj", "attn_q")):
        down, up = parts[f"blk.0.{own}.weight.lora_a"], parts[f"blk.0.{own}.weight.lora_b"]
        source = f"model.layers.0.self_attn.{name}.weight"
        delta = merged.state_dict()[source] - before[source]
        delta = laid_out(architectures.ARCHITECTURES["llama"], config, source, delta)
        torch.testing.assert_close(4.0 / len(down) * up @ down, delta, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("qwen2", {"dora": True}),
        ("qwen2", {"target_modules": ["embed_tokens", "q_proj"]}),
        ("qwen2", {"bias": "lora_only"}),
        ("gpt_oss", {"target_modules": ["q_proj", "gate_up_proj"]}),
    ],
)
def test_an_adapter_that_llama_cpp_does_not_have_is_refused(kind: str, method: dict[str, Any], tmp_path: Path) -> None:
    run = run_for_llama_cpp(tmp_path, kind)
    run, _ = trained_run(Path(run.load_spec().model.path), **method)
    with pytest.raises(TunesmithError, match="more than two matrices") as refusal:
        export(run, tmp_path / "out", "gguf-adapter")
    assert refusal.value.code == "export-unsupported"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("deepseek_v3", "q_a_proj"),
        ("deepseek_v3", "kv_b_proj"),
        ("mistral4", "kv_a_proj_with_mqa"),
        ("gemma4_text", "per_layer_model_projection"),
    ],
)
def test_a_weight_that_llama_cpp_adds_no_adapter_to_is_named(kind: str, name: str, tmp_path: Path) -> None:
    run = run_for_llama_cpp(tmp_path, kind)
    run, _ = trained_run(Path(run.load_spec().model.path), target_modules=[name, "o_proj"])
    with pytest.raises(TunesmithError, match=f"no adapter to the weight .*{name}") as refusal:
        export(run, tmp_path / "out", "gguf-adapter")
    assert refusal.value.code == "export-unsupported"
    assert not (tmp_path / "out").exists()


ADAPTER_MUTANTS = {
    "another scale": lambda parts: {name: part * (1.5 if name.endswith("_b") else 1) for name, part in parts.items()},
    "a layer is missing": lambda parts: dict(list(parts.items())[4:]),
    "rows of transformers": lambda parts: {
        name: torch.cat([part[::2], part[1::2]]) if name.endswith("q.weight.lora_b") else part
        for name, part in parts.items()
    },
}


@pytest.mark.parametrize("name", list(ADAPTER_MUTANTS))
def test_an_adapter_that_differs_is_not_kept(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_for_llama_cpp(tmp_path)
    monkeypatch.setattr(gguf_adapter, "lora_parts", lambda *given: ADAPTER_MUTANTS[name](lora_parts(*given)))
    with pytest.raises(TunesmithError, match="not equal to the trained model"):
        export(run, tmp_path / "out", "gguf-adapter")
    assert not (tmp_path / "out").exists()


def _name_stop_otherwise(folder: Path) -> None:
    """Give the token that ends a message a name that llama.cpp does not take for an end by itself."""
    for path in (*folder.glob("*token*.json"), *folder.glob("*.jinja")):
        path.write_text(path.read_text(encoding="utf-8").replace("<|im_end|>", "<|over|>"), encoding="utf-8")


def test_nothing_listens_on_a_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/proc/self/net/tcp").exists():
        pytest.skip("looks where Linux tells of sockets")
    run = run_for_llama_cpp(tmp_path)
    _check_equal(run, tmp_path / "out")
    path = next((tmp_path / "out").glob("*.gguf"))
    made, make = [], tempfile.mkdtemp
    monkeypatch.setattr(tempfile, "mkdtemp", lambda **given: made.append(make(**given)) or made[-1])
    with LlamaCpp(path, 64, 10) as llama:
        llama.next_token([5, 6, 7])
        own = set()
        for descriptor in os.listdir("/proc/self/fd"):
            link = Path(f"/proc/self/fd/{descriptor}")
            own.add(str(link.readlink()) if link.is_symlink() else "")
        for table in ("tcp", "tcp6", "udp", "udp6"):
            rows = Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]
            assert [row for row in rows if f"socket:[{row.split()[9]}]" in own] == []
    assert made
    assert not any(Path(folder).exists() for folder in made)


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        ("opt", {}, "Models of type opt"),
        ("qwen2", {"use_sliding_window": True}, "sliding window"),
        ("gemma2", {"query_pre_attn_scalar": 99}, "scaled in another way"),
        ("smollm3", {"no_rope_layers": [0] * 8}, "know no positions"),
        ("gemma3_text", {"final_logit_softcapping": 30.0}, "capped"),
        ("gemma2", {"layer_types": ["full_attention"] * 8}, "sliding windows are in other layers"),
        ("qwen3_5_text", {"layer_types": ["full_attention", "linear_attention"]}, "attention is in other layers"),
        ("qwen3_5_text", {}, PAIRS),
        ("qwen2_vl_text", {"rope_parameters": {"mrope_section": [16, 8, 8]}}, PAIRS),
        ("qwen3_moe", {"norm_topk_prob": False}, "chooses its experts"),
        ("olmoe", {"num_key_value_heads": 2}, "fewer heads for keys"),
        ("olmoe", {"norm_topk_prob": True}, "chooses its experts"),
        ("ministral3", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}, "turn in another way"),
        ("gemma4_text", {"num_kv_shared_layers": 1}, "share keys and values"),
        ("gemma4_text", {"per_layer_config": {0: {"head_dim": 32}}}, "its layers differ in head_dim"),
        ("llama", {"per_layer_config": {0: {"intermediate_size": 32}}}, "its layers differ in intermediate_size"),
        ("gemma4_text", {"use_bidirectional_attention": "all"}, "sees images"),
        (
            "gemma4_text",
            {
                "rope_parameters": {
                    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
                    "full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
                }
            },
            "turn in another way",
        ),
    ],
)
def test_what_llama_cpp_computes_otherwise_is_refused(kind: str, changes: dict[str, Any], words: str) -> None:
    config = causal_types.make_config(kind)
    if hasattr(config, "head_dim"):
        config.query_pre_attn_scalar = config.head_dim
    for name, value in changes.items():
        setattr(config, name, value[: config.num_hidden_layers] if isinstance(value, list) else value)
    with pytest.raises(TunesmithError, match=words) as refusal:
        architectures.architecture_of(config)
    assert refusal.value.code == "export-unsupported"


def test_the_window_knows_the_types_that_are_written() -> None:
    assert set(architectures.ARCHITECTURES) == gguf_families.FAMILIES


def test_positions_of_another_method_are_refused(tmp_path: Path) -> None:
    run = run_for_llama_cpp(tmp_path, rope_parameters={"rope_theta": 10000.0, "rope_type": "dynamic", "factor": 2.0})
    with pytest.raises(TunesmithError, match="method dynamic"):
        export(run, tmp_path / "out", "gguf")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("problem", ["more tokens", "merges nothing", "way of its own"])
def test_tokenizers_that_llama_cpp_does_not_have_are_refused(problem: str, tiny_model: Path, tmp_path: Path) -> None:
    write_tokenizer("qwen-2", tmp_path)
    words = AutoTokenizer.from_pretrained(tiny_model if problem == "merges nothing" else tmp_path)
    if problem == "way of its own":
        words.backend_tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    writer = gguf.GGUFWriter(None, "llama")
    with pytest.raises(TunesmithError, match=problem) as refusal:
        tokenizer.add_tokenizer(writer, words, 100 if problem == "more tokens" else NUM_ROWS, [])
    assert refusal.value.code == "export-unsupported"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"normalizer": {"type": "Lowercase"}}, "prepares a text by Lowercase"),
        ({"normalizer": {"type": "Strip", "strip_left": False, "strip_right": True}}, "prepares a text by Strip"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "way of its own"),
    ],
)
def test_unigram_tokenizers_that_llama_cpp_does_not_have_are_refused(changes: dict[str, Any], problem: str) -> None:
    values = json.loads(KINDS["unigram"]().to_str()) | changes
    with pytest.raises(TunesmithError, match=problem):
        add_unigram(gguf.GGUFWriter(None, "llama"), values, Vocabulary(["a"] * NUM_ROWS, [1] * NUM_ROWS))


def test_a_table_of_characters_is_written() -> None:
    steps: list[dict[str, Any]] = [
        {"type": "Precompiled", "precompiled_charsmap": "AAEC"},
        {"type": "Strip", "strip_left": False, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "\u2581"},
    ]
    values = json.loads(KINDS["unigram"]().to_str()) | {"normalizer": {"type": "Sequence", "normalizers": steps}}
    writer = gguf.GGUFWriter(None, "llama")
    add_unigram(writer, values, Vocabulary(["a"] * NUM_ROWS, [1] * NUM_ROWS))
    written = {key: each.value for key, each in writer.kv_data[0].items()}
    assert written["tokenizer.ggml.model"] == "t5"
    assert bytes(written["tokenizer.ggml.precompiled_charsmap"]) == b"\0\1\2"
    assert written["tokenizer.ggml.remove_extra_whitespaces"] is True


def test_a_kind_of_tokenizer_that_is_not_there_is_named(tmp_path: Path) -> None:
    words = AutoTokenizer.from_pretrained(_written(tmp_path, "unigram"))
    text = words.backend_tokenizer.to_str().replace('"byte_fallback":false', '"byte_fallback":true')
    words._tokenizer = Tokenizer.from_str(text)
    with pytest.raises(TunesmithError, match="of the kind Unigram"):
        tokenizer.add_tokenizer(gguf.GGUFWriter(None, "llama"), words, NUM_ROWS, [])


def _written(folder: Path, words: str) -> Path:
    write_tokenizer(words, folder)
    return folder


def test_names_that_change_tokens_are_not_written(tmp_path: Path) -> None:
    write_tokenizer("qwen-2", tmp_path / "other")
    write_tokenizer("llama-2", tmp_path / "phi")
    other, phi = (AutoTokenizer.from_pretrained(tmp_path / each) for each in ("other", "phi"))
    assert tokenizer.name_in_file("My run", phi, "phi3") == "My run"
    phi.add_tokens([AddedToken("<|user|>", special=True, rstrip=True)])
    assert tokenizer.name_in_file("My run", other, "llama") == "My run"
    assert "phi" not in tokenizer.name_in_file("like phi-3", other, "llama").lower()
    assert tokenizer.name_in_file("My run", phi, "phi3") == "My run (Phi-3)"


@pytest.mark.parametrize(("type_name", "names"), [("f16", "xllamacpp"), ("q4_k_m", "xllamacpp, libgguf")])
def test_an_environment_without_the_libraries_is_named_at_once(
    type_name: Any, names: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_for_llama_cpp(tmp_path)
    monkeypatch.setattr(gguf_export.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(TunesmithError, match=f"missing {names}, which") as missing:
        export(run, tmp_path / "out", "gguf", type_name=type_name)
    assert missing.value.code == "environment-damaged"
    assert "tunesmith repair" in missing.value.hint


@pytest.mark.long
@pytest.mark.parametrize("type_name", ["bf16", "q8_0", "q6_k", "q5_k_m", "q4_k_m"])
def test_a_file_may_lose_what_the_reference_quantizer_loses_and_no_more(
    type_name: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_for_llama_cpp(tmp_path, hidden_size=256, intermediate_size=256)
    _check_equal(run, tmp_path / "out", type_name)

    def poorer(name: str, weight: torch.Tensor, number_format: Any) -> Any:
        noise = torch.sin(torch.arange(weight.numel())).view(weight.shape) * weight.std() * 0.15
        return encoded(name, weight + noise, number_format)

    monkeypatch.setattr(writing, "encoded", poorer)
    with pytest.raises(TunesmithError, match="not equal to the trained model"):
        export(run, tmp_path / "poorer", "gguf", type_name=type_name)
