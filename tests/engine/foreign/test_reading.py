"""Models that only the libraries can judge: what they say is told of the file, and nothing is changed in silence."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.engine.causal_types import write_model
from tests.tiny_model import write_chats
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data.preview import preview
from tunesmith_engine.failures import translate
from tunesmith_engine.model import load
from tunesmith_engine.model.folder import load_tokenizer
from tunesmith_engine.model.foreign import reading
from tunesmith_engine.operations import check, check_model

MakeSpec = Callable[..., RunSpec]
CORRUPT = "model-files-missing-or-corrupt"


@pytest.fixture
def own_model(tiny_model: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny_model, tmp_path / "own")


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def refusal(spec: RunSpec) -> TunesmithError:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever a run would meet
        check(None, spec)
    failure = translate(caught.value)
    assert failure.hint
    return failure


# The border


def test_what_a_library_raises_is_said_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with pytest.raises(TunesmithError) as caught, reading(path, "it can't be used"):
        raise ZeroDivisionError("odd thing\nand more of it")
    assert caught.value.message == f"{path}: it can't be used: odd thing."
    assert (caught.value.code, caught.value.exit_code) == (CORRUPT, 2)
    assert "ZeroDivisionError" in (caught.value.context or "")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_act": "nonexist"}, 'hidden_act is "nonexist", which this model does not support.'),
        ({"rope_parameters": {"rope_type": "foo"}}, 'rope_type is "foo", which this model does not support.'),
        ({"num_attention_heads": 3, "num_key_value_heads": 3}, "3 attention heads can't share the 64 rows of"),
    ],
)
def test_what_no_library_has_is_told_by_setting_and_value(
    tiny_spec: MakeSpec, own_model: Path, changes: dict[str, Any], words: str
) -> None:
    edit(own_model / "config.json", **changes)
    message = refusal(tiny_spec(model={"path": str(own_model)})).message
    assert words in message
    assert "Error" not in message


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (KeyError("factor"), "the setting factor is missing"),
        (KeyError(), "the reason is not known"),
        (TypeError("'<' not supported"), "a setting is missing or has a value that this model can't have"),
        (
            ValueError("Class validation error for validator 'x':\n    ValueError: The size (64) is odd."),
            "The size (64) is odd",
        ),
    ],
)
def test_words_about_code_become_words_about_the_file(error: Exception, words: str, tmp_path: Path) -> None:
    with pytest.raises(TunesmithError) as caught, reading(tmp_path, "it can't be used"):
        raise error
    assert caught.value.message == f"{tmp_path}: it can't be used: {words}."


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TunesmithError("disk-full", "full"), "disk-full"),
        (OSError(28, "No space left on device"), "disk-full"),
        (PermissionError(13, "Permission denied"), "permission-or-antivirus"),
    ],
)
def test_what_is_no_fault_of_the_file_keeps_its_code(error: Exception, code: str, tmp_path: Path) -> None:
    with pytest.raises(TunesmithError) as caught, reading(tmp_path, "it can't be used"):
        raise error
    assert caught.value.code == code


def test_a_lack_of_memory_is_told_by_who_limits_it(tmp_path: Path) -> None:
    with pytest.raises(MemoryError), reading(tmp_path, "it can't be used"):
        raise MemoryError


def test_the_same_error_outside_is_our_mistake() -> None:
    assert translate(ZeroDivisionError("odd thing")).code == "bug"


# Models


def drop(*names: str) -> Callable[[dict[str, torch.Tensor]], object]:
    return lambda weights: [weights.pop(name) for name in names]


def poison(name: str) -> Callable[[dict[str, torch.Tensor]], object]:
    def change(weights: dict[str, torch.Tensor]) -> None:
        weights[name].view(-1)[3] = float("nan")

    return change


def empty(*names: str) -> Callable[[dict[str, torch.Tensor]], object]:
    return lambda weights: [weights[name].zero_() for name in names]


def add(name: str, *shape: int) -> Callable[[dict[str, torch.Tensor]], object]:
    return lambda weights: weights.update({name: torch.ones(shape)})


def test_a_special_token_of_no_letters_is_found_nowhere(tiny_spec: MakeSpec, own_model: Path) -> None:
    edit(own_model / "tokenizer_config.json", pad_token="")
    assert check(None, tiny_spec(model={"path": str(own_model)}))["step_s"]


NORM = "model.layers.1.input_layernorm.weight"
PRODUCT = "model.layers.1.mlp.up_proj.weight"
QUERY = "model.layers.0.self_attn.q_proj"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (drop(PRODUCT), f"the weight {PRODUCT} is missing"),
        (drop("lm_head.weight"), "the weight lm_head.weight is missing"),
        (drop(PRODUCT, NORM), f"2 weights are missing, such as {NORM}"),
        (poison(NORM), f"the weight {NORM} holds NaN"),
        (poison("model.embed_tokens.weight"), "the weight model.embed_tokens.weight holds NaN"),
        (poison(PRODUCT), f"the weight {PRODUCT} holds NaN"),
        (empty("lm_head.weight"), "the weight lm_head.weight holds zeros only"),
        (empty("model.embed_tokens.weight"), "the weight model.embed_tokens.weight holds zeros only"),
        (add(f"{QUERY}.bias", 64), f"the weight {QUERY}.bias has no place in a model of these settings"),
        (add("model.layers.0.self_attn.q_norm.weight", 16), "model.layers.0.self_attn.q_norm.weight has no place"),
        (add(f"{QUERY}.lora_A.weight", 4, 64), f"{QUERY}.lora_A.weight has no place"),
        (add(PRODUCT, 64, 128), f"the weight {PRODUCT} has the shape [64, 128]. By config.json it would be [128, 64]"),
    ],
)
def test_weights_that_do_not_fit_are_named(
    tiny_spec: MakeSpec, own_model: Path, change: Callable[[dict[str, torch.Tensor]], object], words: str
) -> None:
    change_weights(own_model, change)
    spec = tiny_spec(model={"path": str(own_model)})
    error = refusal(spec)
    assert error.code == CORRUPT
    assert str(own_model / "model.safetensors") in error.message
    assert words in error.message
    if "NaN" in words or "zeros" in words:
        check_model(None, spec)
        return
    with pytest.raises(UserError) as before:
        check_model(None, spec)
    assert (before.value.code, before.value.message) == (error.code, error.message), "headers tell as much"


def test_zeros_that_say_nothing_of_the_whole_are_no_fault(tiny_spec: MakeSpec, own_model: Path) -> None:
    # Layers that were put in to be trained begin this way.
    change_weights(own_model, empty("model.layers.1.self_attn.o_proj.weight", "model.layers.1.mlp.down_proj.weight"))
    assert check(None, tiny_spec(model={"path": str(own_model)}))["step_s"]


def test_a_model_that_finds_every_token_equally_likely_is_refused(tiny_spec: MakeSpec, own_model: Path) -> None:
    change_weights(own_model, empty("model.norm.weight"))
    error = refusal(tiny_spec(model={"path": str(own_model)}))
    assert (error.code, str(own_model) in error.message) == (CORRUPT, True)
    assert "every token equally likely" in error.message


@pytest.mark.parametrize("kind", ["classify", "prm", "reward"])
def test_a_model_that_gets_a_head_needs_no_output_layer_and_all_else(
    tiny_spec: MakeSpec, own_model: Path, kind: str
) -> None:
    spec = tiny_spec(model={"path": str(own_model)})
    spec.objective.kind = kind
    change_weights(own_model, drop("lm_head.weight"))
    check_model(None, spec)
    change_weights(own_model, drop(PRODUCT))
    with pytest.raises(UserError, match=f"the weight {PRODUCT} is missing"):
        check_model(None, spec)
    # A kind of model that gets no such head is refused by the run, which knows the labels.
    edit(own_model / "config.json", model_type="mamba")
    check_model(None, spec)


def test_what_headers_do_not_tell_is_left_to_the_run(
    tiny_spec: MakeSpec, own_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no number on the meta device")

    change_weights(own_model, drop(PRODUCT))
    monkeypatch.setattr(load, "_model_of", fail)
    check_model(None, tiny_spec(model={"path": str(own_model)}))


@pytest.mark.parametrize(
    ("change", "file"),
    [
        (drop(PRODUCT), "model.safetensors.index.json"),
        (poison(NORM), "b.safetensors"),
        (poison(PRODUCT), "b.safetensors"),
        (poison("model.embed_tokens.weight"), "a.safetensors"),
    ],
)
def test_the_file_of_several_that_holds_a_weight_is_named(
    tiny_spec: MakeSpec, own_model: Path, change: Callable[[dict[str, torch.Tensor]], object], file: str
) -> None:
    change_weights(own_model, change)
    weights = load_file(own_model / "model.safetensors")
    (own_model / "model.safetensors").unlink()
    places = {name: "b.safetensors" if ".layers.1." in name else "a.safetensors" for name in weights}
    for shard in ("a.safetensors", "b.safetensors"):
        held = {name: weights[name] for name in places if places[name] == shard}
        save_file(held, own_model / shard, {"format": "pt"})
    index = {"metadata": {}, "weight_map": places}
    (own_model / "model.safetensors.index.json").write_text(json.dumps(index))
    error = refusal(tiny_spec(model={"path": str(own_model)}))
    assert error.code == CORRUPT
    assert f"{own_model / file}: " in error.message


def test_weights_of_other_parts_are_left_out(tiny_spec: MakeSpec, own_model: Path) -> None:
    change_weights(own_model, add("model.rotary_emb.inv_freq", 8))
    change_weights(own_model, add("vision_tower.proj.weight", 8, 8))
    assert check(None, tiny_spec(model={"path": str(own_model)}))["step_s"]


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("config.json", {"num_attention_heads": None}, "the value of num_attention_heads is not one"),
        ("config.json", {"hidden_act": "of-tomorrow"}, "of-tomorrow"),
        ("config.json", {"rope_parameters": {"rope_type": "of-tomorrow"}}, "config.json"),
        ("generation_config.json", {"cache_implementation": []}, "generation_config.json"),
        ("tokenizer_config.json", {"tokenizer_class": "BertTokenizer"}, "tokenizer"),
        ("tokenizer_config.json", {"unk_token": "", "pad_token": ""}, "tokenizer_config.json"),
        ("tokenizer.json", {"decoder": {"type": "of-tomorrow"}}, "tokenizer.json: the tokenizer can't be read"),
        ("tokenizer.json", {"model": {"type": "BPE", "vocab": 7, "merges": []}}, "tokenizer.json"),
    ],
)
def test_what_only_a_library_knows_to_be_wrong(
    tiny_spec: MakeSpec, own_model: Path, name: str, changes: dict[str, Any], words: str
) -> None:
    edit(own_model / name, **changes)
    error = refusal(tiny_spec(model={"path": str(own_model)}))
    assert error.code == CORRUPT, error.context
    assert words in error.message


def test_a_tokenizer_is_not_blamed_for_the_config_that_it_is_opened_with(own_model: Path) -> None:
    edit(own_model / "config.json", num_hidden_layers="two")
    with pytest.raises(UserError, match=r"config\.json: .*num_hidden_layers") as caught:
        load_tokenizer(own_model)
    assert caught.value.code == CORRUPT
    assert "tokenizer_config" not in caught.value.message


def test_a_token_that_the_model_does_not_know_is_named(tiny_spec: MakeSpec, own_model: Path) -> None:
    values = json.loads((own_model / "tokenizer.json").read_text())
    values["model"]["vocab"]["e"] = 5000
    (own_model / "tokenizer.json").write_text(json.dumps(values))
    spec = tiny_spec(model={"path": str(own_model)})
    error = refusal(spec)
    assert error.code == CORRUPT
    assert "the tokenizer gives 'e' the number 5000" in error.message
    tokenizer = load_tokenizer(own_model)
    answer = preview(spec, tokenizer, 1)
    before = answer["unknown_token"]
    assert (before["code"], TunesmithError.from_dict(before).message) == (error.code, error.message)
    assert error.message in answer["notes"]
    # Where config.json leaves the number to the class, the run tells.
    edit(own_model / "config.json", vocab_size=None)
    assert preview(spec, tokenizer, 1)["unknown_token"] is None
    spec.model.path = str(own_model / "none")
    assert preview(spec, tokenizer, 1)["unknown_token"] is None


def test_a_token_of_a_row_that_is_left_out_is_no_fault(tiny_spec: MakeSpec, own_model: Path, tmp_path: Path) -> None:
    values = json.loads((own_model / "tokenizer.json").read_text())
    values["model"]["vocab"]["Z"] = 5000
    (own_model / "tokenizer.json").write_text(json.dumps(values))
    rows = tmp_path / "pairs.jsonl"
    good = {"prompt": "Q", "chosen": "ab", "rejected": "cd"}
    bad = {"prompt": "Q", "chosen": "Z" * 100, "rejected": "cd"}
    rows.write_text("".join(json.dumps(row) + "\n" for row in (good, bad)))
    spec = tiny_spec(model={"path": str(own_model)}, data={"path": str(rows), "overlong": "skip", "context_length": 64})
    spec.objective.kind = "dpo"
    tokenizer = load_tokenizer(own_model)
    assert preview(spec, tokenizer, 1)["unknown_token"] is None
    spec.data.context_length = 256
    assert preview(spec, tokenizer, 1)["unknown_token"]


def test_new_words_are_known_to_the_model(tiny_spec: MakeSpec, own_model: Path) -> None:
    spec = tiny_spec(model={"path": str(own_model), "new_tokens": ["answer"]}, method={"embeddings": "new"})
    spec.data.system_prompt = "answer"
    tokenizer = load_tokenizer(own_model, words=spec.model.new_tokens)
    edit(own_model / "config.json", vocab_size=len(tokenizer) - 1)
    assert preview(spec, tokenizer, 1)["unknown_token"] is None


def test_a_token_with_a_number_of_ten_digits_is_not_given_to_the_library(tiny_spec: MakeSpec, own_model: Path) -> None:
    text = (own_model / "tokenizer.json").read_text()
    (own_model / "tokenizer.json").write_text(re.sub(r'"e":\s*\d+', '"e": 2147483648', text))
    error = refusal(tiny_spec(model={"path": str(own_model)}))
    assert error.code == CORRUPT
    assert "tokenizer.json: a token has the number 2147483648" in error.message


def test_a_type_whose_defaults_are_far_larger_is_not_made(tiny_spec: MakeSpec, own_model: Path) -> None:
    (own_model / "config.json").write_text('{"model_type": "gemma3"}')
    error = refusal(tiny_spec(model={"path": str(own_model)}))
    assert error.code == CORRUPT
    assert "config.json: by vocab_size, the model would be larger than its weights" in error.message


def test_a_padding_token_that_the_model_does_not_know_is_not_used(tiny_spec: MakeSpec, own_model: Path) -> None:
    edit(own_model / "tokenizer_config.json", pad_token="<|pad|>")
    assert check(None, tiny_spec(model={"path": str(own_model)}, hardware={"kernels": False}))["step_s"]


def test_rows_longer_than_a_learned_table_of_positions(tiny_spec: MakeSpec, tiny_model: Path, tmp_path: Path) -> None:
    rows = json.loads((tiny_model / "config.json").read_text())["vocab_size"]
    folder = write_model("gpt2", tmp_path / "gpt2", tiny_model, vocab_size=rows, n_positions=32)
    data = write_chats(tmp_path / "long.jsonl", 4)
    error = refusal(tiny_spec(model={"path": str(folder)}, data={"path": str(data)}))
    assert (error.code, error.exit_code) == ("spec-invalid", 2)
    assert "data.context_length: the longest row has" in error.message
    assert error.hint == "Set the context length to 32 tokens or less."
    spec = tiny_spec(model={"path": str(folder)}, data={"path": str(data), "context_length": 32, "train_on": "all"})
    assert check(None, spec)["longest_tokens"] == 32


@pytest.mark.parametrize(
    ("kind", "settings", "reason"),
    [
        (
            "zamba2",
            {"num_key_value_heads": 2, "use_shared_attention_adapter": True},
            "two of its parts expect tensors of different sizes",
        ),
        (
            "trocr",
            {"use_learned_position_embeddings": False},
            "a table that it computes itself is empty after a model is loaded",
        ),
    ],
)
def test_settings_that_transformers_own_code_fails_over_are_no_fault_of_the_files(
    tiny_spec: MakeSpec, tiny_model: Path, tmp_path: Path, kind: str, settings: dict[str, Any], reason: str
) -> None:
    rows = json.loads((tiny_model / "config.json").read_text())["vocab_size"]
    folder = write_model(kind, tmp_path / kind, tiny_model, vocab_size=rows, **settings)
    error = refusal(tiny_spec(model={"path": str(folder)}))
    assert (error.code, error.exit_code) == ("model-settings-unsupported", 2)
    assert error.message == (
        f"{folder}: transformers' own code for this type of model can't run with the settings in config.json: {reason}."
    )
    assert "Error: " in (error.context or ""), "who reports it to transformers needs its own words"
