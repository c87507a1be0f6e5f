"""A merged model is what PEFT merges by itself, whatever kind of adapter it is and however its files are cut."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from tests.engine import causal_types
from tests.engine.exports import LiveBytes, export, finished_run, trained_run
from tests.engine.test_causal_types import AGREE
from tunesmith_core.errors import TunesmithError
from tunesmith_core.export_proof import figures
from tunesmith_core.exports import facts
from tunesmith_engine.export import export_run, merging, proof
from tunesmith_engine.export.adapter import write_adapter
from tunesmith_engine.export.merging import Merging
from tunesmith_engine.export.trained import find_trained
from tunesmith_engine.model.lora import trainable

pytestmark = pytest.mark.usefixtures("home", "whole_vocabulary", "few_prompts")

QUICK = ["gemma3_text", "gpt2", "llama", "mixtral", "phi3"]
REFUSED = {
    "hrm_text": "hold in another form",
    "zamba": "are one weight",
    "zamba2": "are one weight",
}
"""Types of which the files hold several weights under an adapter as one, or whose layers share weights."""


def by_peft(model: PeftModel) -> dict[str, torch.Tensor]:
    """The weights as PEFT merges them in float32."""
    return dict(copy.deepcopy(model).merge_and_unload().state_dict())


def check_equal(folder: Path, model: PeftModel) -> None:
    """A merged folder holds what PEFT merges, to the bit."""
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    assert loaded.dtype == AutoConfig.from_pretrained(model.config.name_or_path).dtype
    expected = by_peft(model)
    got = loaded.state_dict()
    assert got.keys() == expected.keys()
    different = [name for name, value in got.items() if not torch.equal(value, expected[name].to(value.dtype))]
    assert different == []


@pytest.mark.parametrize("kind", QUICK)
def test_merged_is_what_peft_merges(kind: str, tiny_model: Path, tmp_path: Path) -> None:
    run, model = trained_run(causal_types.write_model(kind, tmp_path / "model", tiny_model))
    answer = export(run, tmp_path / "merged")
    assert answer["step"] == 6
    check_equal(tmp_path / "merged", model)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", [kind for kind in AGREE if kind not in QUICK])
def test_every_other_type_is_merged_or_refused(kind: str, tiny_model: Path, tmp_path: Path) -> None:
    run, model = trained_run(causal_types.write_model(kind, tmp_path / "model", tiny_model))
    if kind in REFUSED:
        with pytest.raises(TunesmithError, match=REFUSED[kind]) as refusal:
            export(run, tmp_path / "merged")
        assert refusal.value.code == "export-unsupported"
        return
    export(run, tmp_path / "merged")
    check_equal(tmp_path / "merged", model)


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("llama", {"dora": True}),
        ("llama", {"rslora": True, "rank": 3}),
        ("gpt2", {"bias": "lora_only"}),
        ("qwen2", {"bias": "all"}),
        ("gpt2", {"dora": True, "rslora": True}),
        ("gpt_oss", {}),
        ("llama", {"target_modules": ["embed_tokens", "q_proj"]}),
        ("llama", {"target_modules": ["lm_head", "v_proj"]}),
    ],
)
def test_every_way_of_adapting_is_merged(kind: str, method: dict[str, Any], tiny_model: Path, tmp_path: Path) -> None:
    run, model = trained_run(causal_types.write_model(kind, tmp_path / "model", tiny_model), **method)
    export(run, tmp_path / "merged")
    check_equal(tmp_path / "merged", model)


@pytest.mark.parametrize(
    "settings",
    [
        {"rank_pattern": {"v_proj": 2}, "alpha_pattern": {"q_proj": 32}},
        {"rank_pattern": {"v_proj": 2}, "use_dora": True, "use_rslora": True},
        {"modules_to_save": ["lm_head", "norm"]},
        {"modules_to_save": ["embed_tokens"]},
    ],
)
def test_what_other_programs_train_is_merged(settings: dict[str, Any], tiny_model: Path, tmp_path: Path) -> None:
    folder = causal_types.write_model("llama", tmp_path / "model", tiny_model)
    run, model = finished_run(folder, LoraConfig(target_modules=["q_proj", "v_proj"], **settings))
    proof = export(run, tmp_path / "merged")["proof"]
    check_equal(tmp_path / "merged", model)
    assert proof["passed"] is True
    assert export(run, tmp_path / "adapter", "adapter")["proof"]["agreement"] == 1


@pytest.mark.parametrize("target", ["lm_head", "embed_tokens"])
def test_a_tied_weight_is_untied_when_one_of_both_was_trained(target: str, tiny_model: Path, tmp_path: Path) -> None:
    folder = causal_types.write_model("llama", tmp_path / "model", tiny_model, tie_word_embeddings=True)
    run, model = trained_run(folder, target_modules=[target])
    export(run, tmp_path / "merged")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype="auto")
    base = load_file(folder / "model.safetensors")["model.embed_tokens.weight"]
    layer = model.get_submodule(f"base_model.model.{'model.' if target == 'embed_tokens' else ''}{target}")
    changed = base + layer.get_delta_weight("default")
    weights = {"lm_head": loaded.lm_head.weight, "embed_tokens": loaded.model.embed_tokens.weight}
    assert torch.equal(weights.pop(target), changed)
    assert torch.equal(weights.popitem()[1], base)
    assert not torch.equal(changed, base)


def test_weights_that_stay_tied_are_written_once(tiny_model: Path, tmp_path: Path) -> None:
    folder = causal_types.write_model("llama", tmp_path / "model", tiny_model, tie_word_embeddings=True)
    run, model = trained_run(folder)
    export(run, tmp_path / "merged")
    assert "lm_head.weight" not in load_file(tmp_path / "merged" / "model.safetensors")
    check_equal(tmp_path / "merged", model)


@pytest.mark.parametrize("target", ["lm_head", "embed_tokens"])
def test_a_tied_weight_that_was_trained_passes_its_proof(target: str, tiny_model: Path, tmp_path: Path) -> None:
    folder = causal_types.write_model("llama", tmp_path / "model", tiny_model, tie_word_embeddings=True)
    AutoModelForCausalLM.from_pretrained(folder).bfloat16().save_pretrained(folder)
    run, _ = trained_run(folder, target_modules=[target, "q_proj"])
    proof = export(run, tmp_path / "merged")["proof"]
    assert proof["mean_kl"] == pytest.approx(proof["rounding"]["mean_kl"], rel=1e-3)
    assert proof["rounding"]["mean_kl"] < 1e-3


@pytest.mark.usefixtures("all_prompts")
@pytest.mark.parametrize("kind", ["merged", "adapter"])
def test_the_proof_is_kept_beside_the_export(kind: Any, tiny_model: Path, tmp_path: Path) -> None:
    run, _ = trained_run(causal_types.write_model("llama", tmp_path / "model", tiny_model))
    proof = export(run, tmp_path / "out", kind)["proof"]
    assert json.loads((tmp_path / "out" / "proof.json").read_text()) == proof
    assert (proof["format"], proof["passed"], proof["num_prompts"], proof["num_positions"]) == (kind, True, 20, 160)
    assert proof["mean_kl"] < 1e-3
    card = (tmp_path / "out" / "README.md").read_text()
    assert "Compared with the trained model" in card
    assert f"{proof['agreement']:.1%} of 160 positions" in card


def test_answers_are_the_same_without_what_was_kept(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = causal_types.write_model("llama", tmp_path / "model", tiny_model)
    _, model = trained_run(folder)
    words = AutoTokenizer.from_pretrained(folder)
    kept = proof.trained_answers(model, words, lambda *_: None)
    monkeypatch.setattr(proof, "_continued_by_cache", lambda *_: [][0])
    anew = proof.trained_answers(model, words, lambda *_: None)
    assert [answer.tokens for answer in kept] == [answer.tokens for answer in anew]
    assert {len(answer.tokens) - answer.num_prompt for answer in kept} == {proof.NUM_TOKENS}


@pytest.mark.parametrize("kind", ["merged", "adapter"])
def test_an_export_that_differs_is_not_kept(
    kind: Any, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = trained_run(causal_types.write_model("llama", tmp_path / "model", tiny_model))
    monkeypatch.setattr(Merging, "merged_as", lambda _self, _name, weight: weight)

    def emptied(model: PeftModel, *given: Any) -> None:
        for name, parameter in trainable(model).items():
            parameter.data *= "layers.0" not in name
        write_adapter(model, *given)

    monkeypatch.setattr(export_run, "write_adapter", emptied)
    with pytest.raises(TunesmithError, match="not equal to the trained model"):
        export(run, tmp_path / "out", kind)
    assert not (tmp_path / "out").exists()


def test_a_part_of_a_weight_in_the_files_is_refused_by_name(tiny_model: Path, tmp_path: Path) -> None:
    run, _ = trained_run(causal_types.write_model("hrm_text", tmp_path / "model", tiny_model))
    with pytest.raises(TunesmithError, match=r"gate_proj.*hold in another form") as refusal:
        export(run, tmp_path / "merged")
    assert refusal.value.code == "export-unsupported"
    assert not (tmp_path / "merged").exists()


def test_experts_in_many_files_are_merged_piece_by_piece(tiny_model: Path, tmp_path: Path) -> None:
    whole = causal_types.write_model("qwen3_moe", tmp_path / "whole", tiny_model)
    folder = tmp_path / "model"
    shutil.copytree(whole, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    AutoModelForCausalLM.from_pretrained(whole).bfloat16().save_pretrained(folder, max_shard_size=30_000)
    assert len(list(folder.glob("*.safetensors"))) > 4
    run, model = trained_run(folder)
    figures = export(run, tmp_path / "merged")["proof"]
    check_equal(tmp_path / "merged", model)
    # What is lost by rounding the experts is known, too, so that the model may lose it.
    assert figures["rounding"]["mean_kl"] == pytest.approx(figures["mean_kl"], rel=0.5)


def test_experts_without_an_adapter_are_copied(tiny_model: Path, tmp_path: Path) -> None:
    folder = causal_types.write_model("mixtral", tmp_path / "model", tiny_model)
    run, model = trained_run(folder, target_modules=["q_proj", "v_proj"])
    export(run, tmp_path / "merged")
    check_equal(tmp_path / "merged", model)


def sharded(tiny_model: Path, folder: Path, num_shards: int, num_layers: int = 4) -> Path:
    """A model in files of about the same size, of so many layers each; its largest weight is small beside one."""
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": num_layers * num_shards}
    whole = causal_types.write_model("llama", folder / "whole", tiny_model, **sizes)
    model = AutoModelForCausalLM.from_pretrained(whole).bfloat16()
    num_bytes = sum(value.numel() * 2 for value in model.state_dict().values())
    model.save_pretrained(folder / "model", max_shard_size=num_bytes // num_shards + 20_000)
    for path in whole.iterdir():
        if "token" in path.name or path.suffix == ".jinja":
            (folder / "model" / path.name).write_bytes(path.read_bytes())
    return folder / "model"


@pytest.mark.usefixtures("unproven")
def test_eight_files_are_merged_in_less_memory_than_two_of_them(tiny_model: Path, tmp_path: Path) -> None:
    folder = sharded(tiny_model, tmp_path, 8)
    shards = sorted(path.stat().st_size for path in folder.glob("*.safetensors"))
    assert len(shards) == 8
    run, model = trained_run(folder)
    expected = by_peft(model)
    del model
    adapter = (run.checkpoints_path / "step-000006" / "adapter.safetensors").stat().st_size
    with LiveBytes() as memory:
        export(run, tmp_path / "merged")
    assert memory.most - adapter < 2 * shards[0]
    assert sorted(path.name for path in (tmp_path / "merged").glob("*.safetensors")) == sorted(
        path.name for path in folder.glob("*.safetensors")
    )
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype="auto").state_dict()
    assert all(torch.equal(value, expected[name].bfloat16()) for name, value in loaded.items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_merged_model_has_the_number_format_of_its_base_model(
    dtype: torch.dtype, tiny_model: Path, tmp_path: Path
) -> None:
    folder = causal_types.write_model("llama", tmp_path / "model", tiny_model)
    AutoModelForCausalLM.from_pretrained(folder).to(dtype).save_pretrained(folder)
    run, _ = trained_run(folder)
    proof = export(run, tmp_path / "merged")["proof"]
    assert {weight.dtype for weight in load_file(tmp_path / "merged" / "model.safetensors").values()} == {dtype}
    name = str(dtype).removeprefix("torch.")
    assert json.loads((tmp_path / "merged" / "config.json").read_text())["dtype"] == name
    card, told = (tmp_path / "merged" / "README.md").read_text(), figures(proof)
    assert f"The weights are {name}." in card
    if dtype == torch.float32:
        assert (proof["rounding"], proof["causes"], "Rounding" in told + card) == (None, [], False)
        assert proof["max_kl"] < 1e-6
        return
    assert "Rounding the trained model to bfloat16, without converting it, gives" in told
    assert "Rounding the trained model to bfloat16, without converting it, gives" in card


def test_a_model_trained_on_4_bit_weights_says_so(tiny_model: Path, tmp_path: Path) -> None:
    words = "The run trained on 4-bit weights. This model has the unquantized ones"
    folder = causal_types.write_model("llama", tmp_path / "model", tiny_model)
    for kind in ("none", "nf4"):
        run, _ = trained_run(folder)
        spec = run.load_spec()
        spec.quantization.kind = kind
        run.spec_path.write_text(json.dumps(spec.to_dict()))
        answer = export(run, tmp_path / kind)
        assert (words in (tmp_path / kind / "README.md").read_text()) is (kind == "nf4")
        assert any(words in each for each in facts(answer)) is (kind == "nf4")


def test_tokenizer_template_and_licence_come_along(tiny_model: Path, tmp_path: Path) -> None:
    folder = causal_types.write_model("llama", tmp_path / "model", tiny_model)
    (folder / "README.md").write_text("---\nlicense: gemma\n---\n")
    (folder / "LICENSE").write_text("The terms.")
    (folder / "modeling_own.py").write_text("print('run')")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"auto_map": {"AutoModel": "modeling_own.Own"}}))
    run, _ = trained_run(folder)
    assert export(run, tmp_path / "merged")["licence"] == "gemma"
    merged = tmp_path / "merged"
    chat = [{"role": "user", "content": "What is 1?"}]
    texts = [AutoTokenizer.from_pretrained(each).apply_chat_template(chat, tokenize=False) for each in (folder, merged)]
    assert texts[0] == texts[1]
    assert (merged / "LICENSE").read_text() == "The terms."
    card = (merged / "README.md").read_text()
    assert "license: gemma\n" in card
    assert f"base_model: {folder.name}\n" in card
    assert str(folder.parent) not in card, "a card goes to others"
    assert not list(merged.glob("*.py"))
    assert "auto_map" not in (merged / "config.json").read_text()


def test_a_weight_beyond_its_format_is_named(tiny_model: Path, tmp_path: Path) -> None:
    folder = causal_types.write_model("llama", tmp_path / "model", tiny_model)
    AutoModelForCausalLM.from_pretrained(folder).half().save_pretrained(folder)
    run, _ = trained_run(folder, alpha=1e9)
    with pytest.raises(TunesmithError, match="F16") as refusal:
        export(run, tmp_path / "merged")
    assert refusal.value.code == "nan-loss"
    assert not (tmp_path / "merged").exists()


def test_trained_weights_that_are_missing_are_named(tiny_model: Path, tmp_path: Path) -> None:
    folder = causal_types.write_model("llama", tmp_path / "model", tiny_model)
    run, _ = trained_run(folder, target_modules=["q_proj"])
    spec = run.load_spec()
    spec.adapter.target_modules = ["q_proj", "v_proj"]
    (run.path / "spec.json").write_text(json.dumps(spec.to_dict()))
    with pytest.raises(TunesmithError, match="v_proj") as refusal:
        find_trained(run, 0).load(folder)
    assert refusal.value.code == "adapter-not-restored"


LARGE_VOCABULARY = 20_000


def with_large_vocabulary(tiny_model: Path, folder: Path, **sizes: Any) -> Path:
    """A model whose embedding and head are a file each, and most of it."""
    whole = causal_types.write_model("llama", folder / "whole", tiny_model, vocab_size=LARGE_VOCABULARY, **sizes)
    model = AutoModelForCausalLM.from_pretrained(whole).bfloat16()
    model.save_pretrained(folder / "model", max_shard_size=model.get_input_embeddings().weight.numel() * 2 + 20_000)
    for path in whole.iterdir():
        if "token" in path.name or path.suffix == ".jinja":
            (folder / "model" / path.name).write_bytes(path.read_bytes())
    return folder / "model"


@pytest.mark.usefixtures("unproven")
@pytest.mark.parametrize("settings", [{}, {"tie_word_embeddings": True}], ids=["apart", "tied"])
@pytest.mark.parametrize("targets", [["embed_tokens", "q_proj"], ["lm_head", "q_proj"]], ids=lambda names: names[0])
def test_an_adapter_of_embedding_or_head_is_merged_in_less_memory_than_two_files(
    targets: list[str], settings: dict[str, Any], tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = with_large_vocabulary(tiny_model, tmp_path, **settings)
    largest = max(path.stat().st_size for path in folder.glob("*.safetensors"))
    monkeypatch.setattr(merging, "PORTION_BYTES", largest // 8)
    run, model = trained_run(folder, target_modules=targets)
    expected = copy.deepcopy(model)
    adapter = (run.checkpoints_path / "step-000006" / "adapter.safetensors").stat().st_size
    del model
    with LiveBytes() as memory:
        export(run, tmp_path / "merged")
    assert memory.most - adapter < 2 * largest
    check_close(tmp_path / "merged", expected)


@pytest.mark.usefixtures("unproven")
def test_an_embedding_that_was_trained_whole_is_merged_in_less_memory_than_two_files(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = with_large_vocabulary(tiny_model, tmp_path)
    largest = max(path.stat().st_size for path in folder.glob("*.safetensors"))
    monkeypatch.setattr(merging, "PORTION_BYTES", largest // 8)
    config = LoraConfig(target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head"])
    run, model = finished_run(folder, config)
    adapter = (run.adapter_path / "adapter_model.safetensors").stat().st_size
    with LiveBytes() as memory:
        export(run, tmp_path / "merged")
    # The trained weights are read into a model that has room for them.
    assert memory.most - 2 * adapter < 2 * largest
    check_close(tmp_path / "merged", model)


def check_close(folder: Path, model: PeftModel) -> None:
    """A merged folder holds what PEFT merges, but for the last bit of what was computed some rows at a time."""
    loaded, expected = AutoModelForCausalLM.from_pretrained(folder, dtype="auto"), copy.deepcopy(model)
    for name in ("get_input_embeddings", "get_output_embeddings"):
        weight = getattr(expected.get_base_model(), name)()
        inner = getattr(weight, "base_layer", None)
        if inner is not None:
            value = inner.weight.detach() + weight.get_delta_weight("default").detach()
        else:
            wrapper = getattr(weight, "modules_to_save", None)
            value = (wrapper["default"] if wrapper else weight).weight.detach()
        torch.testing.assert_close(getattr(loaded, name)().weight.float(), value.float(), rtol=0.01, atol=1e-4)


def test_a_part_for_images_that_was_left_out_stays_in_the_files(tiny_model: Path, tmp_path: Path) -> None:
    """The library that makes it isn't among ours, and texts don't pass through it."""
    folder, name = causal_types.write_model("gemma3n", tmp_path / "model", tiny_model), "model.vision_tower.stem.weight"
    weights = load_file(folder / "model.safetensors")
    assert not any("vision_tower" in each for each in weights)
    tower = torch.randn(8, 3, 4)
    save_file({**weights, name: tower}, folder / "model.safetensors", {"format": "pt"})
    run, _ = trained_run(folder)
    export(run, tmp_path / "merged")
    assert torch.equal(load_file(tmp_path / "merged" / "model.safetensors")[name], tower)
