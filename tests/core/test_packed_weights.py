"""Quantized checkpoints by their headers alone: which weights there are, how large, and what does not fit together."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

import pytest

from tunesmith_core import files
from tunesmith_core.errors import TunesmithError
from tunesmith_core.model_cards import read_model_card
from tunesmith_core.model_folder import open_model_folder, read_layout
from tunesmith_core.packed_weights import is_kept
from tunesmith_core.safetensors_header import BITS, Tensor, read_bytes
from tunesmith_core.spec import RunSpec
from tunesmith_core.unquantized import format_in, note

Tensors = dict[str, tuple[str, list[int]]]
LAYER = "model.layers.0.mlp.up_proj"
PLAIN: Tensors = {"model.embed_tokens.weight": ("BF16", [64, 32]), "model.norm.weight": ("BF16", [32])}


def write(path: Path, tensors: Tensors, filled: dict[str, bytes] | None = None) -> None:
    header, data = {}, b""
    for name, (dtype, shape) in tensors.items():
        held = (filled or {}).get(name) or bytes(math.prod(shape) * BITS[dtype] // 8)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(held)]}
        data += held
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def folder_of(
    folder: Path, settings: dict[str, Any], tensors: Tensors, filled: dict[str, bytes] | None = None, **config: Any
) -> Path:
    """Give a model folder a quantized layer of 48 outputs and 32 inputs beside weights that aren't."""
    values = {"model_type": "llama", "quantization_config": settings, "hidden_size": 32, **config}
    (folder / "config.json").write_text(json.dumps(values))
    write(folder / "model.safetensors", PLAIN | tensors, filled)
    return folder


def words(*parts: tuple[str, str, list[int]]) -> Tensors:
    return {f"{LAYER}.{name}": (dtype, shape) for name, dtype, shape in parts}


FP8 = words(("weight", "F8_E4M3", [48, 32]), ("weight_scale_inv", "F32", [2, 1]), ("input_scale", "F32", []))
GPTQ = words(
    ("qweight", "I32", [4, 48]), ("qzeros", "I32", [2, 6]), ("scales", "F16", [2, 48]), ("g_idx", "I32", [32])
)
AWQ = words(("qweight", "I32", [32, 6]), ("qzeros", "I32", [2, 6]), ("scales", "F16", [2, 48]))
INT8 = words(("weight", "I8", [48, 32]), ("SCB", "F32", [48]), ("weight_format", "U8", []))
MXFP4: Tensors = {
    "model.layers.0.mlp.experts.down_proj_blocks": ("U8", [2, 48, 1, 16]),
    "model.layers.0.mlp.experts.down_proj_scales": ("U8", [2, 48, 1]),
}
STATE = json.dumps({"shape": [48, 32], "blocksize": 64, "nested_blocksize": 256, "nested_offset": 0.1}).encode()
STATE_NAME = f"{LAYER}.weight.quant_state.bitsandbytes__nf4"
NF4 = words(
    ("weight", "U8", [768, 1]),
    ("weight.absmax", "U8", [24]),
    ("weight.quant_map", "F32", [16]),
    ("weight.nested_absmax", "F32", [1]),
    ("weight.nested_quant_map", "F32", [256]),
    ("weight.quant_state.bitsandbytes__nf4", "U8", [len(STATE)]),
)
METHODS: dict[str, dict[str, Any]] = {
    "fp8": {"quant_method": "fp8", "weight_block_size": [32, 32]},
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 16},
    "awq": {"quant_method": "awq"},
    "mxfp4": {"quant_method": "mxfp4"},
    "int8": {"load_in_8bit": True},
    "nf4": {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
}
TENSORS = {"fp8": FP8, "gptq": GPTQ, "awq": AWQ, "mxfp4": MXFP4, "int8": INT8, "nf4": NF4}


def made(folder: Path, name: str, **changes: Any) -> Path:
    return folder_of(folder, METHODS[name] | changes, TENSORS[name], {STATE_NAME: STATE})


@pytest.mark.parametrize("name", METHODS)
def test_a_packed_weight_counts_as_what_it_stands_for(name: str, model_folder: Path) -> None:
    layout = read_layout(made(model_folder, name))
    weight = "model.layers.0.mlp.experts.down_proj" if name == "mxfp4" else f"{LAYER}.weight"
    shape = (2, 32, 48) if name == "mxfp4" else (48, 32)
    plain = {key: Tensor(dtype, tuple(sides)) for key, (dtype, sides) in PLAIN.items()}
    assert layout.weights == plain | {weight: Tensor("BF16", shape)}
    assert list(layout.packed) == [weight]
    card = read_model_card(model_folder)
    assert card.num_parameters == 64 * 32 + 32 + math.prod(shape)
    assert (f"{LAYER}.weight" in card.linear_shapes) == (name != "mxfp4")
    assert format_in(model_folder) == name


def test_numbers_of_the_config_say_what_16_bits_are(model_folder: Path) -> None:
    folder = folder_of(model_folder, METHODS["awq"], AWQ, text_config={"dtype": "float16", "hidden_size": 32})
    assert read_layout(folder).weights[f"{LAYER}.weight"].dtype == "F16"
    folder_of(model_folder, METHODS["awq"], AWQ, torch_dtype="torch.bfloat16")
    assert read_layout(folder).weights[f"{LAYER}.weight"].dtype == "BF16"


def test_parts_in_several_files_are_one_weight(model_folder: Path) -> None:
    folder = made(model_folder, "gptq")
    (folder / "model.safetensors").unlink()
    shards = {"a.safetensors": PLAIN | {f"{LAYER}.qweight": GPTQ[f"{LAYER}.qweight"]}}
    shards["b.safetensors"] = {name: each for name, each in GPTQ.items() if not name.endswith(".qweight")}
    for file, tensors in shards.items():
        write(folder / file, tensors)
    weight_map = {name: file for file, tensors in shards.items() for name in tensors}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    layout = read_layout(folder)
    # The second file holds only parts of a weight of the first.
    assert list(layout.files) == ["a.safetensors"]
    assert layout.places[f"{LAYER}.scales"] == "b.safetensors"
    assert open_model_folder(folder).shapes[f"{LAYER}.weight"] == (48, 32)


@pytest.mark.parametrize(
    ("settings", "scale"),
    [({"weight_block_size": [48, 20]}, [1, 2]), ({}, []), ({}, [1]), ({"weight_block_size": None}, [1, 1])],
)
def test_scales_of_fp8_are_of_blocks_or_of_all(settings: dict[str, Any], scale: list[int], model_folder: Path) -> None:
    tensors = FP8 | words(("weight_scale_inv", "BF16", scale))
    layout = read_layout(folder_of(model_folder, {"quant_method": "fp8"} | settings, tensors))
    assert layout.packed[f"{LAYER}.weight"].settings["block"] == (settings.get("weight_block_size") or [48, 32])


def test_a_layout_of_8_bits_may_go_unsaid(model_folder: Path) -> None:
    folder_of(model_folder, METHODS["int8"], without("int8", ".weight_format"))
    assert list(read_layout(model_folder).packed[f"{LAYER}.weight"].parts) == ["weight", "scales"]


def test_groups_of_gptq_are_told_or_counted(model_folder: Path) -> None:
    told = read_layout(made(model_folder, "gptq")).packed[f"{LAYER}.weight"]
    assert told.parts["groups"] == f"{LAYER}.g_idx"
    assert told.settings == {"bits": 4, "group": 16, "less": 1}
    counted = {name: each for name, each in GPTQ.items() if not name.endswith("g_idx")}
    folder_of(model_folder, METHODS["gptq"] | {"checkpoint_format": "gptq_v2"}, counted)
    found = read_layout(model_folder).packed[f"{LAYER}.weight"]
    assert "groups" not in found.parts
    assert found.settings == {"bits": 4, "group": 16, "less": 0}
    whole = words(("qzeros", "I32", [1, 6]), ("scales", "F16", [1, 48]))
    folder_of(model_folder, METHODS["gptq"] | {"group_size": -1}, counted | whole)
    assert read_layout(model_folder).packed[f"{LAYER}.weight"].settings["group"] == 32


def without(name: str, part: str) -> Tensors:
    return {each: tensor for each, tensor in TENSORS[name].items() if not each.endswith(part)}


MISSING = [("fp8", "_scale_inv"), ("gptq", ".qzeros"), ("awq", ".scales"), ("int8", ".SCB"), ("nf4", ".absmax")]
MISSING += [("mxfp4", "_scales"), ("nf4", ".nested_absmax"), ("nf4", "up_proj.weight")]


@pytest.mark.parametrize(("name", "part"), MISSING)
def test_a_missing_part_is_named(name: str, part: str, model_folder: Path) -> None:
    folder_of(model_folder, METHODS[name], without(name, part), {STATE_NAME: STATE})
    with pytest.raises(TunesmithError, match=r"the packed weight \S+ has no \S+") as caught:
        open_model_folder(model_folder)
    assert caught.value.code == "model-files-missing-or-corrupt"
    assert part.split("_")[-1] in caught.value.message


WRONG: list[tuple[str, str, str, list[int]]] = [
    ("fp8", "weight_scale_inv", "F32", [2, 2]),
    ("gptq", "qzeros", "I32", [2, 5]),
    ("gptq", "qzeros", "F32", [2, 6]),
    ("gptq", "g_idx", "I32", [31]),
    ("awq", "scales", "F16", [2, 40]),
    ("awq", "scales", "F16", [3, 48]),
    ("int8", "SCB", "F32", [47]),
    ("nf4", "weight.absmax", "U8", [23]),
    ("nf4", "weight.nested_absmax", "F32", [2]),
]


@pytest.mark.parametrize(("name", "part", "dtype", "shape"), WRONG)
def test_parts_of_another_weight_are_named(
    name: str, part: str, dtype: str, shape: list[int], model_folder: Path
) -> None:
    folder_of(model_folder, METHODS[name], TENSORS[name] | words((part, dtype, shape)), {STATE_NAME: STATE})
    with pytest.raises(TunesmithError, match="don't fit together"):
        open_model_folder(model_folder)


def test_groups_of_awq_are_equally_long(model_folder: Path) -> None:
    three = words(("qzeros", "I32", [3, 6]), ("scales", "F16", [3, 48]))
    folder_of(model_folder, METHODS["awq"], AWQ | three)
    with pytest.raises(TunesmithError, match="don't fit together"):
        open_model_folder(model_folder)


def test_blocks_of_mxfp4_have_32_numbers(model_folder: Path) -> None:
    name = "model.layers.0.mlp.experts.down_proj_blocks"
    folder_of(model_folder, METHODS["mxfp4"], MXFP4 | {name: ("U8", [2, 48, 1, 8])})
    with pytest.raises(TunesmithError, match="don't fit together"):
        open_model_folder(model_folder)


@pytest.mark.parametrize("block", [[0, 32], [32], "32"])
def test_blocks_of_fp8_have_a_size(block: Any, model_folder: Path) -> None:
    with pytest.raises(TunesmithError, match="don't fit together"):
        open_model_folder(made(model_folder, "fp8", weight_block_size=block))


def test_groups_that_do_not_come_to_the_inputs(model_folder: Path) -> None:
    folder_of(model_folder, METHODS["gptq"] | {"group_size": 8}, without("gptq", ".g_idx"))
    with pytest.raises(TunesmithError, match="don't fit together"):
        open_model_folder(model_folder)


@pytest.mark.parametrize(
    "state", [b"{", b"[]", b"{}", STATE.replace(b"256", b"0.5"), STATE.replace(b"[48, 32]", b"[48]")]
)
def test_a_state_that_says_nothing(state: bytes, model_folder: Path) -> None:
    tensors = NF4 | {STATE_NAME: ("U8", [len(state)])}
    folder_of(model_folder, METHODS["nf4"], tensors, {STATE_NAME: state})
    with pytest.raises(TunesmithError, match="don't fit together"):
        open_model_folder(model_folder)


def test_a_state_without_nested_scales(model_folder: Path) -> None:
    state = json.dumps({"shape": [48, 32], "blocksize": 64}).encode()
    tensors = {name: each for name, each in NF4.items() if "nested" not in name}
    tensors |= {STATE_NAME: ("U8", [len(state)]), f"{LAYER}.weight.absmax": ("F32", [24])}
    folder_of(model_folder, METHODS["nf4"], tensors, {STATE_NAME: state})
    packed = read_layout(model_folder).packed[f"{LAYER}.weight"]
    assert packed.settings == {"block": 64, "rows": 48, "columns": 32}


def test_scales_in_a_format_of_tomorrow(model_folder: Path) -> None:
    folder_of(model_folder, METHODS["fp8"], FP8 | words(("weight_scale_inv", "F8_E8M0", [2, 1])))
    with pytest.raises(TunesmithError, match=r"weight_scale_inv are in F8_E8M0, which this version can't read"):
        open_model_folder(model_folder)


def test_a_config_that_speaks_of_other_weights(model_folder: Path) -> None:
    folder_of(model_folder, METHODS["awq"], {})
    with pytest.raises(TunesmithError, match=r"quantized \(AWQ\), but none of them is"):
        open_model_folder(model_folder)


def test_bytes_of_a_file_on_a_broken_disk(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(model_folder, "nf4") / "model.safetensors"
    assert read_bytes(path, [STATE_NAME]) == {STATE_NAME: STATE}
    open_file, opened = files.open_file, [0]

    def fail(which: Path, mode: str = "rb") -> object:
        opened[0] += 1
        if opened[0] == 2:
            raise OSError(5, "Input/output error")
        return open_file(which, mode)

    monkeypatch.setattr(files, "open_file", fail)
    with pytest.raises(TunesmithError, match=r"can't be read: Input/output error"):
        read_bytes(path, [STATE_NAME])


SAID = "The base model comes quantized ({0})"


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("awq", "none", "(AWQ). It is unpacked as it loads. The adapter"),
        ("awq", "nf4", "(AWQ). It is unpacked as it loads and quantized again to NF4."),
        ("nf4", "int8", "(bitsandbytes NF4). It is unpacked as it loads and quantized again to int8."),
        ("nf4", "nf4", "(bitsandbytes NF4) and is used as it is."),
        ("mxfp4", "nf4", "(MXFP4). Its experts are used as they are."),
        ("int8", "int8", "(bitsandbytes int8) and is used as it is."),
    ],
)
def test_a_run_says_what_its_base_is(name: str, kind: str, words: str, model_folder: Path) -> None:
    spec = RunSpec()
    spec.quantization.kind = kind
    said = str(note(made(model_folder, name), spec))
    assert said.startswith("The base model comes quantized " + words)
    assert said.endswith("The adapter fits this model better than the one that it was made from.")
    (model_folder / "README.md").write_text("---\nbase_model: org/Whole-1\n---\n")
    assert str(note(model_folder, spec)).endswith("better than org/Whole-1, which it was made from.")
    assert is_kept(name, kind) == ("as it is" in words)
    spec.quantization.kind, spec.adapter.kind = "none", "full"
    assert "adapter" not in str(note(model_folder, spec))


def test_others_say_nothing(model_folder: Path) -> None:
    assert note(model_folder, RunSpec()) is None
    (model_folder / "config.json").unlink()
    assert note(model_folder, RunSpec()) is None
