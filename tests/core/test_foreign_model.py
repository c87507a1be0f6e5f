"""Model folders as people bring them: what can be known without a library is found before a run, file by file."""

from __future__ import annotations

import json
import os
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import write_safetensors
from tunesmith_core import files, json_values, planner, tokenizer_files
from tunesmith_core.errors import TunesmithError
from tunesmith_core.hardware import Hardware
from tunesmith_core.messages import said
from tunesmith_core.model_cards import list_models, read_model_card
from tunesmith_core.model_folder import local_folder, open_model_folder, weight_files
from tunesmith_core.packed_weights import QUANTIZED_KEYS
from tunesmith_core.safetensors_header import Tensor, read_header
from tunesmith_core.spec import RunSpec

CORRUPT, UNSUPPORTED = "model-files-missing-or-corrupt", "model-kind-unsupported"
ON_LINUX = pytest.mark.skipif(sys.platform == "win32", reason="makes FIFOs and links")


@pytest.fixture
def folder(model_folder: Path) -> Path:
    """A sound folder with every file that is looked at."""
    (model_folder / "config.json").write_text(
        json.dumps({"model_type": "llama", "vocab_size": 16, "hidden_size": 8, "num_hidden_layers": 1})
    )
    added = [{"id": 3, "content": "<end>", "special": True}, {"id": 99, "content": "<image>"}]
    (model_folder / "tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": added, "model": {}}))
    (model_folder / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}", "eos_token": "<end>"}')
    (model_folder / "generation_config.json").write_text('{"eos_token_id": [2, 3], "pad_token_id": -1}')
    return model_folder


def refusal(folder: Path) -> TunesmithError:
    with pytest.raises(TunesmithError) as caught:
        open_model_folder(folder)
    assert caught.value.exit_code == 2
    assert caught.value.hint
    assert len(caught.value.message) < 600
    return caught.value


def edit(path: Path, **changes: Any) -> None:
    values = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(values | changes))


def test_a_sound_folder_passes(folder: Path) -> None:
    model = open_model_folder(folder)
    assert model.has_chat_template
    assert model.config["vocab_size"] == 16
    assert model.shapes["embed_tokens.weight"] == (16, 8)


# Paths


@pytest.mark.parametrize(
    "text", ["", "/not/there", "~nouser", "~nouser/x", "a\0b", "\ud800", "/dev/null", "./here/x", "a/b/c"]
)
def test_a_path_that_is_no_folder(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if not text:
        assert local_folder(text) == Path()
        return
    with pytest.raises(TunesmithError, match="is not a folder") as caught:
        local_folder(text)
    assert (caught.value.code, caught.value.exit_code) == (CORRUPT, 2)


def test_a_hub_id_is_one_where_no_folder_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert local_folder("org/name") is None
    (tmp_path / "org" / "name").mkdir(parents=True)
    assert local_folder("org/name") == Path("org/name")


@pytest.mark.skipif(sys.platform == "win32", reason="names a path as Linux does")
def test_a_path_of_thousands_of_letters_says_what_to_do() -> None:
    for text in ("x" * 5000, "/" + "x/" * 5000):
        with pytest.raises(TunesmithError, match="the path is too long") as caught:
            local_folder(text)
        assert caught.value.code == "path-too-long"
        assert caught.value.hint
        assert len(caught.value.message) < 200


@ON_LINUX
def test_a_path_that_leads_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(TunesmithError, match="symbolic links") as caught:
        local_folder(str(tmp_path / "loop"))
    assert caught.value.code == CORRUPT


def test_a_plan_names_a_model_that_is_not_here() -> None:
    spec, device = RunSpec(), Hardware("cpu", "CPU", 1 << 30, 1 << 30, 1 << 30, 1 << 30)
    for path, words in (("org/name", "is not a folder"), ("~nouser", "is not a folder")):
        spec.model.path = path
        with pytest.raises(TunesmithError, match=words):
            planner.plan(spec, device)


# Files


@ON_LINUX
@pytest.mark.parametrize("name", ["config.json", "special_tokens_map.json", "spare.safetensors", "vocab.txt"])
def test_what_is_no_ordinary_file_is_named(folder: Path, name: str) -> None:
    place = folder / name
    for make, words in (
        (lambda: os.mkfifo(place), "is not an ordinary file"),
        (lambda: place.symlink_to("/dev/zero"), "is not an ordinary file"),
        (lambda: place.symlink_to("nowhere"), "is a link to a file that is missing"),
        (lambda: place.symlink_to(place), "the file can't be read: Too many levels"),
        (place.mkdir, "is a folder, not a file"),
    ):
        place.unlink(missing_ok=True)
        make()
        error = refusal(folder)
        assert error.code == CORRUPT
        assert f"{place}: {words}" in error.message


def test_other_things_in_the_folder_are_left_alone(folder: Path) -> None:
    (folder / "original").mkdir()
    (folder / "notes").mkdir()
    open_model_folder(folder)


@pytest.mark.parametrize("text", ["{}", "[", ""])
def test_a_stray_adapter_is_never_put_into_the_model(folder: Path, text: str) -> None:
    (folder / "adapter_config.json").write_text(text)
    error = refusal(folder)
    assert "adapter_config.json: an adapter is in the folder" in error.message
    assert "Move adapter_config.json" in error.hint


def test_a_config_of_a_hundred_megabytes_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (folder / "config.json").open("r+b") as file:
        file.truncate(100 << 20)
    assert "config.json: the file is larger than 16 MiB" in refusal(folder).message
    monkeypatch.setattr(tokenizer_files, "MOST_BYTES", 1 << 20)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    with (folder / "tokenizer.json").open("r+b") as file:
        file.truncate(2 << 20)
    assert "tokenizer.json: the file is larger than 1 MiB" in refusal(folder).message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"model_type": "llama", "vocab_size": 16, "vocab_size": 8}', 'config.json: "vocab_size" occurs twice'),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
        ('{"a": ' + "9" * 5000 + "}", "too long"),
        ('{"x": {"' + "y" * 500 + '": 1, "' + "y" * 500 + '": 2}}', "occurs twice"),
    ],
)
def test_json_that_can_mean_two_things_or_nothing(folder: Path, text: str, words: str) -> None:
    (folder / "config.json").write_text(text)
    assert words in refusal(folder).message


def test_a_name_twice_counts_only_where_it_is_asked(tmp_path: Path) -> None:
    assert json_values.parse(b'{"a": 1, "a": 2}') == {"a": 2}
    (tmp_path / "x.json").write_text('{"a": {"b": 1, "b": 2}}')
    with pytest.raises(json_values.NameTwiceError):
        files.read_foreign_json(tmp_path / "x.json", 1 << 20)


# config.json


@pytest.mark.parametrize("key", QUANTIZED_KEYS)
@pytest.mark.parametrize(
    ("value", "method"),
    [
        ({"quant_method": "gptq", "bits": 3}, "gptq, bits: 3"),
        ({"quant_method": "gptq", "bits": 4, "format": "marlin"}, "gptq, format: marlin, bits: 4"),
        ({"quant_method": "gptq", "bits": 4, "dynamic": {"+:x": {"bits": 8}}}, "gptq, bits: 4"),
        ({"quant_method": "awq", "bits": 4, "version": "gemv"}, "awq, bits: 4, version: gemv"),
        ({"quant_method": "compressed-tensors", "format": "x"}, "compressed-tensors, format: x"),
        ({"quant_method": "of-tomorrow"}, "of-tomorrow"),
        ({"quant_algo": "FP8"}, "FP8"),
        ({"load_in_4bit": True, "bnb_4bit_quant_type": "nf5"}, "bitsandbytes"),
        ({"load_in_8bit": False, "load_in_4bit": False}, "unknown method"),
        ({"quant_method": "bitsandbytes"}, "bitsandbytes"),
        ({"quant_method": 7}, "unknown method"),
        ({}, "unknown method"),
        ("awq", "unknown method"),
    ],
)
def test_a_quantized_model_is_refused_by_name(folder: Path, key: str, value: object, method: str) -> None:
    edit(folder / "config.json", **{key: value})
    error = refusal(folder)
    assert error.code == UNSUPPORTED
    assert error.message == f"{folder / 'config.json'}: the weights are quantized ({method})."
    assert "unquantized" in error.hint
    edit(folder / "config.json", **{key: None, "text_config": {key: value}})
    assert refusal(folder).code == UNSUPPORTED


@pytest.mark.parametrize(
    ("name", "card", "base"),
    [
        ("any", "---\nlicense: mit\nbase_model: Qwen/Qwen3-8B\n---\n", "Qwen/Qwen3-8B"),
        ("any-AWQ", '---\r\nbase_model:\r\n  - "org/name-1.5"\r\n---\r\n', "org/name-1.5"),
        ("Qwen3-8B-AWQ", "# No head\nbase_model: Qwen/other", "Qwen3-8B"),
        ("Llama-3.1-8B-Instruct-GPTQ-Int4", "", "Llama-3.1-8B-Instruct"),
        ("Llama-3.2-1B-unsloth-bnb-4bit", "---\nlicense: mit\n---\nbase_model: a/b", "Llama-3.2-1B-unsloth"),
        ("Mistral-7B-quantized.w4a16", None, "Mistral-7B"),
        ("gpt-oss-20b", None, ""),
    ],
)
def test_the_model_to_take_instead_is_named(folder: Path, name: str, card: str | None, base: str) -> None:
    folder = folder.rename(folder.with_name(name))
    if card is not None:
        (folder / "README.md").write_bytes(card.encode())
    edit(folder / "config.json", quantization_config={"quant_method": "hqq"})
    hint = said(refusal(folder).hint)
    which = f"model that it was made from: {base}." if base else "version of the model."
    assert hint.startswith(f"Choose the unquantized {which} To save memory,")


WRONG: list[tuple[str, Any, str]] = [
    *(("hidden_size", value, "hidden_size must be a whole number of at least 1")
      for value in ("8", 0, -8, 8.5, True, {"a": "8"}, 2**31, [8, "8"], [True], 1e308, float("nan"))),
    ("num_key_value_heads", 0, "num_key_value_heads must be a whole number of at least 1, not 0"),
    ("intermediate_size", -1, "intermediate_size must be a whole number of at least 0, not -1"),
    *(("rms_norm_eps", value, "must be a small positive number") for value in ("1e-6", -1e-6, True, [])),
    *(("tie_word_embeddings", value, "must be true or false") for value in (1, "true", [])),
    *(("hidden_act", value, "must be a text") for value in (7, ["silu"], True)),
    *(("dtype", value, "must be a number format") for value in ("float99", 7, ["float32"], True)),
    ("torch_dtype", "int8", 'torch_dtype must be a number format such as bfloat16, not "int8"'),
    *(("eos_token_id", value, "must be the number of a token") for value in ("2", 1.5, -2, True, [2, "x"], {}, 2**40)),
    *(("attention_dropout", value, "must be between 0 and 1") for value in ("0.1", 1.5, -0.1, float("nan"))),
    *(("rope_theta", value, "must be above 0") for value in ("x", 0, -1.0, True, float("inf"))),
    *(("architectures", value, "must be a list of names") for value in (7, "LlamaForCausalLM", [7], {})),
    ("pad_token_id", 16, "pad_token_id is 16, but the embedding in the weights has 16 rows"),
    ("some_number", 2**63, "some_number must be a number of 64 bits"),
    ("text_config", 7, "text_config must be an object, not 7"),
    ("vocab_size", 20, "vocab_size is 20, but the embedding in the weights has 16 rows"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "words"), WRONG)
def test_a_wrong_setting_is_named(folder: Path, name: str, value: object, words: str) -> None:
    edit(folder / "config.json", **{name: value})
    error = refusal(folder)
    assert error.code == CORRUPT
    assert f"{folder / 'config.json'}: " in error.message
    assert words in error.message


RIGHT: dict[str, list[Any]] = {
    "hidden_act": ["silu", None],
    "num_attention_heads": [[4, None, 8], {"text": 4, "vision": 8}, 4, None],
    "max_position_embeddings": [1200.0, 0],
    "intermediate_size": [0, [9, 9]],
    "rms_norm_eps": [1e-6, 0, float("nan")],
    "dtype": ["torch.bfloat16", "auto", {"": "float32"}],
    "eos_token_id": [None, [2, 3], 999],
    "pad_token_id": [-1, 15],
    "attention_dropout": [0, 0.1, True, None],
    "rope_theta": [10_000, 1e6, {"full_attention": 1e4}],
    "time_step_limit": [[0.0, float("inf")]],
    "sliding_window": [-1, "auto"],
    "text_config": [None, {}, {"vocab_size": 16}],
    "quantization_config": [None],
    "architectures": [["LlamaForCausalLM"]],
    "anything": [-5, "x", [None], {"a": {"b": []}}],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in RIGHT.items() for value in values])
def test_what_sound_models_say_passes(folder: Path, name: str, value: object) -> None:
    edit(folder / "config.json", **{name: value})
    open_model_folder(folder)


def test_generation_settings_are_looked_at(folder: Path) -> None:
    edit(folder / "generation_config.json", eos_token_id="x")
    assert 'generation_config.json: eos_token_id must be the number of a token, not "x"' in refusal(folder).message
    (folder / "generation_config.json").write_text("[]")
    assert "generation_config.json: contains no JSON object" in refusal(folder).message
    (folder / "generation_config.json").unlink()
    open_model_folder(folder)


# Weights


@pytest.mark.parametrize("name", ["hidden_size", "intermediate_size", "num_hidden_layers", "num_experts"])
def test_settings_of_a_model_larger_than_its_weights(folder: Path, name: str) -> None:
    edit(folder / "config.json", **{name: 10**9})
    assert f"by {'vocab_size' if name == 'hidden_size' else name}, the model would be larger" in refusal(folder).message


@pytest.mark.parametrize("name", ["a.qweight", "a.weight_packed", "a.weight_scale_inv", "a.weight.absmax"])
def test_names_of_packed_weights_tell(folder: Path, name: str) -> None:
    write_safetensors(folder / "model.safetensors", {"embed_tokens.weight": [16, 8], name: [2, 2]})
    error = refusal(folder)
    assert error.code == UNSUPPORTED
    assert name in error.message


def write_header(path: Path, header: dict[str, Any] | str, num_bytes: int) -> None:
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(num_bytes))


def entry(dtype: Any, shape: Any, start: Any, end: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


@pytest.mark.parametrize("dtype", ["F8_E4M3", "U8", "I8"])
def test_weights_that_are_no_floating_point_numbers(folder: Path, dtype: str) -> None:
    write_header(folder / "model.safetensors", {"x.weight": entry(dtype, [2, 4], 0, 8)}, 8)
    error = refusal(folder)
    assert error.code == UNSUPPORTED
    assert f"x.weight: {dtype}" in error.message


def test_tables_of_whole_numbers_are_no_weights(folder: Path) -> None:
    header = {"embed_tokens.weight": entry("BF16", [16, 8], 0, 256), "position_ids": entry("I64", [1, 2], 256, 272)}
    write_header(folder / "model.safetensors", header | {"__metadata__": {"format": "pt"}}, 272)
    assert open_model_folder(folder).shapes["position_ids"] == (1, 2)


GOOD = entry("F32", [2, 2], 0, 16)


@pytest.mark.parametrize(
    ("header", "num_bytes", "words"),
    [
        ({"a": GOOD, "b": entry("F32", [2], 12, 20)}, 20, "tensors overlap at byte 12"),
        ({"a": GOOD, "b": entry("F32", [2], 20, 28)}, 28, "described by none, from byte 16"),
        ({"a": GOOD}, 20, "4 bytes more than the header describes"),
        ({"a": GOOD}, 12, "is cut short"),
        ({"a": entry("F32", [2, 3], 0, 16)}, 16, "a has 16 bytes, which is not what its shape [2, 3] needs"),
        ({"a": entry("F32", [2, 2], 16, 0)}, 16, "a has -16 bytes"),
        ({"a": entry("F33", [2, 2], 0, 16)}, 16, "a has the unknown number format F33"),
        ({"a": entry(7, [2, 2], 0, 16)}, 16, "unknown number format 7"),
        ({"a": entry("F32", [2, -2], 0, 16)}, 16, "malformed at the tensor a"),
        ({"a": entry("F32", 4, 0, 16)}, 16, "malformed at the tensor a"),
        ({"a": entry("F32", [2, 2], -4, 16)}, 16, "malformed at the tensor a"),
        ({"a": entry("F32", [2, 2], "0", 16)}, 16, "malformed at the tensor a"),
        ({"a": entry("F32", [2, 2], 0.5, 16)}, 16, "malformed at the tensor a"),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0]}}, 8, "malformed at the tensor a"),
        ({"a" * 500: 7}, 8, "malformed at the tensor aaa"),
        ({"a": GOOD, "__metadata__": {"format": 7}}, 16, "the safetensors header is malformed"),
        ({"a": GOOD, "__metadata__": []}, 16, "the safetensors header is malformed"),
        ('{"a": 1, "a": 2}', 8, 'in the safetensors header, "a" occurs twice'),
        ("[" * 100_000, 8, "not valid JSON"),
    ],
)
def test_a_header_that_describes_what_cannot_be(folder: Path, header: Any, num_bytes: int, words: str) -> None:
    path = folder / "model.safetensors"
    write_header(path, header, num_bytes)
    error = refusal(folder)
    assert str(path) in error.message
    assert words in error.message


def test_formats_of_less_than_a_byte_and_empty_tensors(tmp_path: Path) -> None:
    header = {"a": entry("F4", [2, 4], 0, 4), "none": entry("F32", [0, 4], 4, 4)}
    write_header(tmp_path / "x.safetensors", header, 4)
    assert read_header(tmp_path / "x.safetensors") == {"a": Tensor("F4", (2, 4)), "none": Tensor("F32", (0, 4))}
    write_header(tmp_path / "x.safetensors", "{}", 0)
    assert read_header(tmp_path / "x.safetensors") == {}


def test_a_single_file_counts_before_an_index(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "gone.safetensors"}}')
    open_model_folder(folder)
    assert weight_files(folder) == ["model.safetensors"]


# Tokenizer


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        *(("eos_token", value, "eos_token must be a token") for value in (7, [], {}, {"content": 7}, True)),
        *(("additional_special_tokens", value, "must be a list of tokens") for value in (7, "x", [7], {"a": 7})),
        ("added_tokens_decoder", [], "must be an object of tokens by their numbers"),
        ("added_tokens_decoder", {"x": {"content": "a"}}, "must be an object of tokens by their numbers"),
        ("added_tokens_decoder", {"1": "a"}, "must be an object of tokens by their numbers"),
        ("added_tokens_decoder", {"9" * 20: {"content": "a"}}, "must be an object of tokens by their numbers"),
        ("added_tokens_decoder", {"1": {"content": 7}}, "must be a list of tokens"),
        *(("chat_template", value, "must be a template") for value in (7, True, [7], [{"name": "x"}], {"a": 7})),
        ("tokenizer_class", 7, "tokenizer_class must be a text"),
        *(("model_max_length", value, "must be a number above 0") for value in ("x", 0, -1, True, [])),
    ],
)
def test_a_wrong_setting_of_the_tokenizer_is_named(folder: Path, name: str, value: object, words: str) -> None:
    edit(folder / "tokenizer_config.json", **{name: value})
    error = refusal(folder)
    assert error.code == CORRUPT
    assert f"{folder / 'tokenizer_config.json'}: " in error.message
    assert words in error.message


def test_what_sound_tokenizers_say_passes(folder: Path) -> None:
    edit(
        folder / "tokenizer_config.json",
        eos_token={"content": "<end>", "lstrip": False},
        pad_token=None,
        additional_special_tokens=["<a>", {"content": "<b>"}],
        extra_special_tokens={"image_token": "<image>"},
        added_tokens_decoder={"3": {"content": "<end>", "special": True}},
        chat_template=[{"name": "default", "template": "{{ messages }}"}],
        model_max_length=10**30,
    )
    edit(folder / "special_tokens_map.json", eos_token="<end>")
    edit(folder / "added_tokens.json", **{"<image>": 99})
    assert open_model_folder(folder).has_chat_template


@pytest.mark.parametrize("value", ["x", -1, 1.5, None, True, 10**7])
def test_added_tokens_have_numbers(folder: Path, value: object) -> None:
    edit(folder / "added_tokens.json", **{"<new>": value})
    assert "added_tokens.json: <new> must have the number of a token" in refusal(folder).message


@pytest.mark.parametrize("text", ["[]", '{"added_tokens": [', "null", '"x"', "x", "{} x"])
def test_a_tokenizer_that_is_no_whole_object(folder: Path, text: str) -> None:
    (folder / "tokenizer.json").write_text(text)
    assert "tokenizer.json: contains no JSON object, or its end is missing" in refusal(folder).message


@pytest.mark.parametrize(
    "token",
    [
        7,
        {"id": "3", "content": "x"},
        {"id": -1, "content": "x"},
        {"id": 3, "content": 7},
        {"id": 2**31, "content": "x"},
    ],
)
def test_an_added_token_that_is_none(folder: Path, token: object) -> None:
    edit(folder / "tokenizer.json", added_tokens=[token])
    assert "tokenizer.json: added_tokens contains" in refusal(folder).message


def test_an_end_that_the_model_does_not_know(folder: Path) -> None:
    edit(folder / "tokenizer.json", added_tokens=[{"id": 16, "content": "<end>"}])
    assert "end-of-text token <end> has the number 16, but the model knows only 16 tokens" in refusal(folder).message
    edit(folder / "special_tokens_map.json", eos_token="<other>")
    open_model_folder(folder)
    edit(folder / "special_tokens_map.json", eos_token={"content": "<end>"})
    refusal(folder)


@pytest.mark.parametrize(
    "text",
    ["{}", '{"added_tokens": 7}', '{"added_tokens" [}', '{"added_tokens": [{"id": 1}', '{"a": ["added_tokens", [}'],
)
def test_a_vocabulary_that_only_the_library_understands(folder: Path, text: str) -> None:
    (folder / "tokenizer.json").write_text(text if text.endswith("}") else text + "x}")
    open_model_folder(folder)


def test_many_added_tokens_are_read_too(folder: Path) -> None:
    added = [{"id": 1000 + number, "content": f"<{number}>"} for number in range(2000)]
    edit(folder / "tokenizer.json", added_tokens=[*added, {"id": 77, "content": "<end>"}])
    assert "has the number 77" in refusal(folder).message


def test_a_tokenizer_on_a_broken_disk_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_file = files.open_file

    def fail(path: Path, mode: str = "rb") -> object:
        if path.name == "tokenizer.json":
            raise OSError(5, "Input/output error")
        return open_file(path, mode)

    monkeypatch.setattr(files, "open_file", fail)
    assert "tokenizer.json: the file can't be read: Input/output error" in refusal(folder).message


def test_a_tokenizer_of_another_kind(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    (folder / "tokenizer.model").write_bytes(b"\x0a\x01")
    assert not open_model_folder(folder).has_chat_template


# Cards


@ON_LINUX
def test_a_readme_that_never_ends_has_no_license(folder: Path) -> None:
    os.mkfifo(folder / "README.md")
    assert read_model_card(folder).licence == ""


def test_one_bad_folder_does_not_hide_the_good_ones(folder: Path) -> None:
    bad = folder.parent / "bad"
    bad.mkdir()
    (bad / "config.json").write_text('{"model_type": "x", "quantization_config": {}}')
    assert [card.path for card in list_models(folder.parent)] == [folder]


# What fits nothing


def test_heads_must_share_the_queries(folder: Path) -> None:
    def queries(**rows: int) -> None:
        tensors = {f"{name}.weight".replace("__", "."): [each, 8] for name, each in rows.items()}
        write_safetensors(folder / "model.safetensors", {"embed_tokens.weight": [16, 8], **tensors})

    edit(folder / "config.json", num_attention_heads=3, num_hidden_layers=None)
    queries(model__layers__0__self_attn__q_proj=64)
    words = "3 attention heads can't share the 64 rows of model.layers.0.self_attn.q_proj.weight."
    assert refusal(folder).message == f"{folder / 'config.json'}: {words}"
    # Layers of other kinds and images have heads of their own.
    queries(model__layers__0__self_attn__q_proj=64, model__layers__1__self_attn__q_proj=66)
    open_model_folder(folder)
    queries(model__layers__0__linear_attn__q_proj=64, vision_tower__layers__0__self_attn__q_proj=64)
    open_model_folder(folder)


def test_a_chat_template_must_be_text(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "chat_template.jinja"
    path.write_bytes("{{ messages }}对话".encode())
    open_model_folder(folder)
    path.write_bytes(b"{{\xff\xfe}}")
    assert refusal(folder).message == f"{path}: the chat template is not UTF-8 text, see byte 3."
    path.write_bytes(b"{{ messages }}")
    monkeypatch.setattr(tokenizer_files, "MOST_TEMPLATE_BYTES", 4)
    assert "is larger than" in refusal(folder).message
    monkeypatch.undo()
    opened = files.open_file

    def refuse(where: Path, *arguments: Any, **options: Any) -> Any:
        if where == path:
            raise PermissionError(13, "Permission denied")
        return opened(where, *arguments, **options)

    monkeypatch.setattr(files, "open_file", refuse)
    assert refusal(folder).message == f"{path}: the file can't be read: Permission denied."
