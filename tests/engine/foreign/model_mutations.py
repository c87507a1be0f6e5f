"""Model folders that went wrong in one place each, by a fixed seed: downloaded in part, cut or edited."""

from __future__ import annotations

import json
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.engine.foreign.odd_values import NUMBERS, ODD_SETTINGS, QUANTIZATIONS, TOKENIZER_ODD
from tests.run_mutations import BYTES, DEEP, changed, put, remove

KINDS = ("llama", "qwen2", "qwen3", "gpt2")

ANY, REFUSED, TRAINS = "any", "refused", "trains"
"""What has to come of a mutant: any answer will do, it must be refused, or it is sound and must train."""

Made = tuple[str, str]
"""What was done, and what has to come of it."""


def _edit(path: Path, **changes: Any) -> None:
    values = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(values | changes))


def _shown(value: object) -> str:
    return f"{value!a:.90}"


# config.json


def config_number(folder: Path, chance: random.Random) -> Made:
    """Put a wrong value in place of a setting, or a new setting with it."""
    path = folder / "config.json"
    values = json.loads(path.read_text())
    name = chance.choice([*values, *values, "sliding_window", "head_dim", "num_experts", "attn_logit_softcapping"])
    values[name] = "@here@"
    new = chance.choice(NUMBERS)
    path.write_text(json.dumps(values).replace('"@here@"', new))
    return f"config.json {name} = {new[:50]}", ANY


def config_field(folder: Path, chance: random.Random) -> Made:
    """Change any place of config.json to anything."""
    path = folder / "config.json"
    text, what = changed(json.loads(path.read_text()), chance)
    path.write_text(text)
    return f"config.json {what}", ANY


def config_odd(folder: Path, chance: random.Random) -> Made:
    """Give the model settings that contradict its weights, each other or sense."""
    changes = chance.choice(ODD_SETTINGS)
    _edit(folder / "config.json", **changes)
    return f"config.json {_shown(changes)}", ANY


def quantized(folder: Path, chance: random.Random) -> Made:
    """Say that the weights are compressed."""
    value = chance.choice(QUANTIZATIONS)
    name = chance.choice(("quantization_config", "quantization_config", "quantization_config", "compression_config"))
    if chance.random() < 0.15:
        _edit(folder / "config.json", text_config={name: value})
    else:
        _edit(folder / "config.json", **{name: value})
    return f"config.json {name} {_shown(value)}", REFUSED


def fewer_layers(folder: Path, _chance: random.Random) -> Made:
    """Let config.json cut the model."""
    path = folder / "config.json"
    name = "n_layer" if "n_layer" in json.loads(path.read_text()) else "num_hidden_layers"
    values = {name: 1}
    if "layer_types" in json.loads(path.read_text()):
        values["layer_types"] = json.loads(path.read_text())["layer_types"][:1]
    _edit(path, **values)
    return "one layer fewer in config.json", REFUSED


# Tokenizer and generation


def tokenizer_odd(folder: Path, chance: random.Random) -> Made:
    """Give a file beside the weights a wrong value."""
    name, changes = chance.choice(TOKENIZER_ODD)
    _edit(folder / name, **changes)
    return f"{name} {_shown(changes)}", ANY


def side_field(folder: Path, chance: random.Random) -> Made:
    """Change any place of one of the JSON files beside config.json to anything."""
    name = chance.choice(("tokenizer_config.json", "generation_config.json", "tokenizer.json", "tokenizer.json"))
    values = json.loads((folder / name).read_text())
    if name == "tokenizer.json" and chance.random() < 0.7:
        # Most of its places are letters of the vocabulary, of which one more or less says little.
        part = chance.choice([key for key in values if key != "model"])
        inner, what = changed({part: values[part]}, chance)
        text = json.dumps({key: value for key, value in values.items() if key != part})[:-1] + ", " + inner[1:]
    else:
        text, what = changed(values, chance)
    (folder / name).write_text(text)
    return f"{name} {what}", ANY


def side_whole(folder: Path, chance: random.Random) -> Made:
    """Put other JSON in place of a file, among it what a parser of another kind would read."""
    names = ("tokenizer_config.json", "generation_config.json", "special_tokens_map.json", "added_tokens.json",
             "tokenizer.json", "config.json", "chat_template.jinja", "chat_template.json")  # fmt: skip
    name = chance.choice(names)
    whole = ("[]", "7", "null", '"x"', "{}", "", DEEP, "{", '{"a": 1}', "[[]]", "\ufeff{}", "NaN", "{'a': 1}")
    text = chance.choice(whole)
    (folder / name).write_text(text)
    return f"{name} = {text[:20]!r}", ANY


def far_token(folder: Path, chance: random.Random) -> Made:
    """Give a token that training needs a number that the embedding has no row for."""
    path = folder / "tokenizer.json"
    values = json.loads(path.read_text())
    far = chance.choice((len(values["model"]["vocab"]) + 50, 10**6, 2**31))
    word = chance.choice(("<|im_end|>", "<|im_start|>", "e", "<|endoftext|>"))
    values["model"]["vocab"][word] = far
    for token in values["added_tokens"]:
        if token["content"] == word:
            token["id"] = far
    path.write_text(json.dumps(values))
    return f"tokenizer.json {word} = {far}", ANY


# Weights


def _header(path: Path) -> tuple[dict[str, Any], bytes]:
    whole = path.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    return json.loads(whole[8 : 8 + length]), whole[8 + length :]


def _write(path: Path, header: str, data: bytes) -> None:
    text = header.encode("utf-8", "surrogatepass")
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def header_field(folder: Path, chance: random.Random) -> Made:
    """Change any place of the header of the weights to anything."""
    path = folder / "model.safetensors"
    header, data = _header(path)
    text, what = changed(header, chance)
    _write(path, text, data)
    return f"header {what}", ANY


HEADER_FAULTS = (
    "overlap", "hole", "dtype", "shape", "negative", "swapped", "beyond", "scalar", "huge shape", "empty shape",
    "no bytes", "float offset", "text offset", "same place", "rest", "metadata",
)  # fmt: skip
DTYPES = ("F33", "I64", "BOOL", "U8", "F8_E4M3", "C64", "", None, 7, "f32", "I32", "F64", "F4")
METADATA: tuple[Any, ...] = (7, {"format": 7}, {"format": "tf"}, [], {}, None, {"format": "of-tomorrow"})


def header_odd(folder: Path, chance: random.Random) -> Made:
    """Let the header of the weights describe what can't be."""
    path = folder / "model.safetensors"
    header, data = _header(path)
    names = [name for name in header if name != "__metadata__"]
    one, two = (header[name] for name in chance.sample(names, 2))
    start, end = one["data_offsets"]
    how = chance.choice(HEADER_FAULTS)
    if how == "overlap":
        one["data_offsets"] = [start, end + 4]
    elif how == "hole":
        one["data_offsets"] = [start + 4, end]
    elif how == "dtype":
        one["dtype"] = chance.choice(DTYPES)
    elif how == "shape":
        one["shape"] = [side + 1 for side in one["shape"]]
    elif how == "negative":
        one["data_offsets"] = [-4, end]
    elif how == "swapped":
        one["data_offsets"] = [end, start]
    elif how == "beyond":
        one["data_offsets"] = [start, 2**62]
    elif how == "scalar":
        one["shape"] = []
    elif how == "huge shape":
        one["shape"] = [2**40, 2**40]
    elif how == "empty shape":
        one["shape"] = [0, *one["shape"]]
    elif how == "no bytes":
        one["data_offsets"] = [start, start]
    elif how == "float offset":
        one["data_offsets"] = [start + 0.5, end]
    elif how == "text offset":
        one["data_offsets"] = [str(start), end]
    elif how == "same place":
        two["data_offsets"] = one["data_offsets"]
    elif how == "rest":
        data += b"more"
    else:
        header["__metadata__"] = chance.choice(METADATA)
    _write(path, json.dumps(header), data)
    return f"header {how}", ANY


TENSOR_FAULTS = (
    "missing", "turned", "cut", "nan in norm", "infinite", "nan in matrix", "whole numbers", "8 bits", "complex",
    "bool", "half", "double", "renamed", "prefixed", "more layers", "other bias", "spare", "three sides",
    "quantized names", "empty", "no head", "zeros",
)  # fmt: skip


def _misshape(weights: dict[str, Any], how: str, one: str, in_layer: str) -> None:
    """Give a tensor one side more, no rows, or the names of packed weights."""
    import torch

    if how == "three sides":
        weights[one] = weights[one][None].clone()
    elif how == "empty":
        weights[one] = torch.zeros(0, *weights[one].shape[1:])
    else:
        stem = in_layer.removesuffix("weight")
        del weights[in_layer]
        weights |= {stem + "qweight": torch.ones(8, 8, dtype=torch.int32), stem + "scales": torch.ones(8)}


def tensors(folder: Path, chance: random.Random) -> Made:
    """Change the tensors themselves, in a sound file."""
    import torch
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    weights = load_file(path)
    names = sorted(weights)
    norms = [name for name in names if weights[name].dim() == 1]
    matrices = [name for name in names if weights[name].dim() == 2]
    in_layers = [name for name in names if ".0." in name]
    one = chance.choice(names)
    expected = REFUSED
    how = chance.choice(TENSOR_FAULTS)
    if how == "missing":
        del weights[one]
    elif how == "turned":
        one = chance.choice([name for name in matrices if weights[name].shape[0] != weights[name].shape[1]])
        weights[one] = weights[one].T.contiguous()
    elif how == "cut":
        weights[one] = weights[one][:-1].clone()
    elif how == "nan in norm":
        one = chance.choice(norms)
        weights[one][3] = float("nan")
    elif how == "infinite":
        weights[one].view(-1)[5] = float("inf")
    elif how == "nan in matrix":
        one = chance.choice(matrices)
        weights[one][0, 0] = float("nan")
    elif how in ("whole numbers", "8 bits", "complex", "bool"):
        one = chance.choice(matrices)
        kinds = {"whole numbers": torch.int64, "8 bits": torch.float8_e4m3fn, "bool": torch.bool}
        weights[one] = weights[one].to(kinds.get(how, torch.complex64))
    elif how in ("half", "double"):
        weights[one] = weights[one].to(torch.float16 if how == "half" else torch.float64)
        expected = TRAINS
    elif how == "renamed":
        weights[one + "x"] = weights.pop(one)
    elif how == "prefixed":
        weights = {f"module.{name}": value for name, value in weights.items()}
    elif how == "more layers":
        weights |= {name.replace(".1.", ".2."): value.clone() for name, value in weights.items()}
    elif how == "other bias":
        one = chance.choice([name for name in in_layers if name in matrices and name.endswith(".weight")])
        bias = one.removesuffix("weight") + "bias"
        expected = ANY if bias in weights else REFUSED
        weights[bias] = torch.ones(weights[one].shape[0])
    elif how == "spare":
        weights["rotary_emb.inv_freq"] = torch.ones(8)
        expected = TRAINS
    elif how in ("three sides", "quantized names", "empty"):
        _misshape(weights, how, one, chance.choice([name for name in in_layers if name in matrices]))
    elif how == "no head":
        if weights.pop("lm_head.weight", None) is None:
            _edit(folder / "config.json", tie_word_embeddings=False)
    else:
        weights = {name: torch.zeros_like(value) for name, value in weights.items()}
        expected = ANY
    save_file(weights, path, {"format": "pt"})
    return f"tensors {how} {one if how not in ('spare', 'prefixed') else ''}", expected


def sharded(folder: Path, chance: random.Random) -> Made:
    """Split the weights into two files, with an index that goes wrong."""
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(weights)
    files = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, held in files.items():
        save_file({name: weights[name] for name in held}, folder / file, {"format": "pt"})
    index: Any = {
        "metadata": {"total_size": 7},
        "weight_map": {name: file for file, held in files.items() for name in held},
    }
    how = chance.choice(
        ("sound", "field", "swapped", "folder", "up", "absolute", "missing", "whole", "cut", "unlisted")
    )
    text = json.dumps(index)
    expected = REFUSED
    first = next(iter(index["weight_map"]))
    if how == "sound":
        expected = TRAINS
    elif how == "field":
        text, what = changed(index, chance)
        how, expected = f"field {what}", ANY
    elif how == "swapped":
        index["weight_map"][first], expected = list(files)[1], ANY
    elif how in ("folder", "up", "absolute", "missing"):
        names_of = {"folder": ".", "up": "../x.safetensors", "absolute": "/etc/passwd", "missing": "x.safetensors"}
        index["weight_map"][first] = names_of[how]
    elif how == "cut":
        path = folder / next(iter(files))
        path.write_bytes(path.read_bytes()[:-9])
    elif how == "unlisted":
        del index["weight_map"][first]
        expected = ANY
    if not how.startswith("field"):
        text = "[]" if how == "whole" else json.dumps(index)
    (folder / "model.safetensors.index.json").write_text(text)
    return f"sharded {how}", expected


# Files


FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json",
         "chat_template.jinja", "special_tokens_map.json", "added_tokens.json", "chat_template.json",
         "model.safetensors.index.json", "tokenizer.model", "vocab.json", "merges.txt", "preprocessor_config.json",
         "processor_config.json", "additional_chat_templates")  # fmt: skip


def file_kind(folder: Path, chance: random.Random) -> Made:
    """Put something else in place of a file, or beside the files."""
    name = chance.choice(FILES)
    place = folder / name
    remove(place)
    kinds = ("missing", "folder", "full folder", "fifo", "loop", "dangling", "device", "unreadable", "empty")
    kind = chance.choice(kinds)
    put(place, kind, "config.json", chance.choice(("/dev/null", "/dev/zero", "/dev/tty")) if kind == "device" else "")
    return f"{name} {kind}", ANY


def file_bytes(folder: Path, chance: random.Random) -> Made:
    """Write other bytes into a file, cut it or garble it."""
    name = chance.choice(FILES[:6])
    path = folder / name
    whole = bytearray(path.read_bytes())
    how = chance.choice(("other", "cut", "garbled", "utf-16", "bom", "latin", "twice", "huge"))
    if how == "other":
        whole = bytearray(chance.choice(BYTES))
    elif how == "cut":
        whole = whole[: chance.randrange(len(whole))]
    elif how == "garbled":
        head = min(len(whole), 4096)
        for _ in range(chance.randint(1, 4)):
            whole[chance.randrange(head)] = chance.randrange(256)
    elif how == "utf-16":
        whole = bytearray(bytes(whole).decode("latin-1").encode("utf-16"))
    elif how == "bom":
        whole = bytearray(b"\xef\xbb\xbf") + whole
    elif how == "latin":
        whole = whole.replace(b'": ', b'\xe9": ', 1)
    elif how == "twice":
        whole = whole * 2
    else:
        whole = bytearray(b'{"model_type": "llama", "x": [') + b"1," * 12_000_000 + b"1]}"
    path.write_bytes(bytes(whole))
    return f"{name} {how}", ANY


def doubled_key(folder: Path, chance: random.Random) -> Made:
    """Say a setting of config.json twice, with two values."""
    path = folder / "config.json"
    values = json.loads(path.read_text())
    name = chance.choice([key for key in values if isinstance(values[key], (int, float))])
    path.write_text(json.dumps(values)[:-1] + f', "{name}": {chance.choice(NUMBERS[:8])}}}')
    return f"config.json {name} twice", REFUSED


def stray_adapter(folder: Path, chance: random.Random) -> Made:
    """Leave an adapter, or what is called so, beside the weights."""
    adapter = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "c_attn"],
               "task_type": "CAUSAL_LM", "base_model_name_or_path": "org/other"}  # fmt: skip
    whole = json.dumps(adapter)
    text = chance.choice((whole, whole, "{}", "[]", "{", "", json.dumps(adapter | {"r": "x"})))
    (folder / "adapter_config.json").write_text(text)
    if chance.random() < 0.5:
        shutil.copyfile(folder / "model.safetensors", folder / "adapter_model.safetensors")
    return f"adapter_config.json {text[:30]}", REFUSED


def own_code(folder: Path, chance: random.Random) -> Made:
    """Name code of the model's own wherever that can be done."""
    (folder / "evil.py").write_text("raise SystemExit('ran')\n")
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate" / "generate.py").write_text("raise SystemExit('ran')\n")
    name = chance.choice(("config.json", "tokenizer_config.json", "generation_config.json", "processor_config.json"))
    values: tuple[Any, ...] = (
        {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"},
        {"AutoTokenizer": ["evil.T", None]},
        {"AutoTokenizer": "evil.T"},
        {"AutoModelForCausalLM": "org/evil--evil.M"},
        "evil.py",
    )
    value = chance.choice(values)
    changes: dict[str, Any] = {"auto_map": value, "trust_remote_code": True}
    if chance.random() < 0.4:
        changes |= {"model_type": "evil", "tokenizer_class": "EvilTokenizer", "architectures": ["EvilForCausalLM"]}
    _edit(folder / name, **changes)
    return f"{name} {_shown(changes)}", ANY


def unfit(folder: Path, chance: random.Random) -> Made:
    """Say what is read only when the model or a chat is made."""
    if chance.random() < 0.5:
        (folder / "chat_template.jinja").write_bytes(b"\xff\xfe{{ messages }}")
        return "chat_template.jinja is not UTF-8", REFUSED
    path = folder / "config.json"
    name = "n_head" if "n_head" in json.loads(path.read_text()) else "num_attention_heads"
    _edit(path, **{name: 3})
    return f"config.json {name} = 3", REFUSED


def sound(_folder: Path, _chance: random.Random) -> Made:
    """Leave the model as it is."""
    return "nothing", TRAINS


CHANGES: tuple[tuple[Callable[[Path, random.Random], Made], int], ...] = (
    (config_number, 22),
    (config_field, 8),
    (config_odd, 20),
    (quantized, 8),
    (fewer_layers, 1),
    (tokenizer_odd, 16),
    (side_field, 14),
    (side_whole, 4),
    (far_token, 3),
    (header_field, 5),
    (header_odd, 6),
    (tensors, 12),
    (sharded, 4),
    (file_kind, 9),
    (file_bytes, 8),
    (doubled_key, 2),
    (stray_adapter, 2),
    (own_code, 3),
    (sound, 1),
    (unfit, 3),
)


def mutate(originals: Path, folder: Path, number: int, seed: int) -> Made:
    """Write mutant number `number` of a seed into a folder: equal numbers give equal mutants."""
    chance = random.Random(f"{seed}/{number}")
    kind = chance.choice(KINDS)
    shutil.copytree(originals / kind, folder)
    (change,) = chance.choices([change for change, _ in CHANGES], [weight for _, weight in CHANGES])
    what, expected = change(folder, chance)
    return f"{kind}: {what}", expected


def build_originals(folder: Path) -> None:
    """Write a sound tiny model of each kind."""
    from tests.engine.causal_types import write_model
    from tests.tiny_model import build_tiny_model

    tokenizer = build_tiny_model(folder / "llama")
    rows = json.loads((tokenizer / "config.json").read_text())["vocab_size"]
    for kind in KINDS[1:]:
        write_model(kind, folder / kind, tokenizer, vocab_size=rows)
        assert (folder / kind / "generation_config.json").exists()
