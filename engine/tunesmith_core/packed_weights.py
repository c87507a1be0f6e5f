"""Quantized checkpoints: which weights their packed tensors stand for, told by config.json and headers alone.

| format | tensors of a weight | source |
|---|---|---|
| FP8 | `weight` and `weight_scale_inv`, a scale for each block | DeepSeek-V3 technical report, arXiv:2412.19437 |
| MXFP4 | `_blocks` of two numbers a byte and `_scales`, powers of two of 32 numbers | OCP Microscaling Formats 1.0 |
| GPTQ | `qweight`, `qzeros`, `scales`, `g_idx`, packed along the inputs | Frantar et al. 2022, arXiv:2210.17323 |
| AWQ | `qweight`, `qzeros`, `scales`, packed along the outputs | Lin et al. 2023, arXiv:2306.00978 |
| bitsandbytes | `weight` with `absmax` and tables, or with `SCB` | arXiv:2305.14314, arXiv:2208.07339 |
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tunesmith_core.json_values import is_count, shortened
from tunesmith_core.model_json import damaged
from tunesmith_core.safetensors_header import Tensor, read_bytes

Settings = Mapping[str, Any]  # Any: JSON values

QUANTIZED_KEYS = ("quantization_config", "compression_config", "quant_config")
WORDS = {
    "fp8": "FP8",
    "mxfp4": "MXFP4",
    "gptq": "GPTQ",
    "awq": "AWQ",
    "nf4": "bitsandbytes NF4",
    "fp4": "bitsandbytes FP4",
    "int8": "bitsandbytes int8",
}
"""Formats that are read, and what they are called."""

WORD_BITS = 32
FP8 = "F8_E4M3"
SCALES_OF_FP8 = ("F32", "BF16", "F16")
MXFP4_GROUP = 32
_NOT_NEEDED = (".input_scale", ".activation_scale", ".k_scale", ".v_scale")
"""Ends of the names of tensors that only calculating in the packed format needs."""

_STATE = ".quant_state.bitsandbytes__"


@dataclass(frozen=True, slots=True)
class Packed:
    """A weight that files hold in parts.

    Attributes:
        format: a key of WORDS.
        parts: names of its tensors by what they are.
        settings: numbers that unpacking needs, by name.
    """

    format: str
    parts: Mapping[str, str]
    settings: Settings


@dataclass(slots=True)
class Layout:
    """The weights of a model folder.

    Attributes:
        files: the weights of each file by name, packed ones as what they stand for, in 16 bits.
        packed: those of them that are packed.
        places: name of the file of each tensor as it is stored.
    """

    files: dict[str, dict[str, Tensor]]
    packed: dict[str, Packed] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)

    @property
    def weights(self) -> dict[str, Tensor]:
        """All weights by name."""
        return {name: tensor for tensors in self.files.values() for name, tensor in tensors.items()}


def settings_of(config: Settings) -> Settings | None:
    """Return how a config.json says that its weights are quantized; None where it doesn't."""
    parts = [config, *(value for value in config.values() if isinstance(value, dict))]
    for part in parts:
        for key in QUANTIZED_KEYS:
            if part.get(key) is not None:
                return part[key] if isinstance(part[key], dict) else {}
    return None


def format_of(settings: Settings) -> str | None:
    """Return the format of quantized weights, a key of WORDS; None for one that isn't read."""
    method = settings.get("quant_method")
    if method == "bitsandbytes" or (method is None and ("load_in_4bit" in settings or "load_in_8bit" in settings)):
        if settings.get("load_in_4bit"):
            kind = settings.get("bnb_4bit_quant_type", "fp4")
            return kind if kind in ("nf4", "fp4") else None
        return "int8" if settings.get("load_in_8bit") else None
    match method:
        case "fp8":
            is_readable = settings.get("fmt", "e4m3") == "e4m3"
        case "gptq":
            is_readable = _is_plain_gptq(settings)
        case "awq":
            is_readable = settings.get("bits", 4) == 4 and str(settings.get("version", "gemm")).lower() == "gemm"
        case _:
            is_readable = method == "mxfp4"
    return method if is_readable else None


def _is_plain_gptq(settings: Settings) -> bool:
    layout = settings.get("checkpoint_format", settings.get("format", "gptq"))
    is_plain = layout in ("gptq", "gptq_v2") and not settings.get("dynamic") and not settings.get("is_marlin_format")
    return settings.get("bits") in (2, 4, 8) and is_plain


def is_kept(format_: str, kind: str) -> bool:
    """Return whether packed weights are loaded as they are, for a base of a kind, instead of being unpacked."""
    return format_ == kind and kind in ("nf4", "int8")


def unpack(folder: Path, config: Settings, stored: Mapping[str, Mapping[str, Tensor]]) -> Layout:
    """Return the weights of a folder, packed ones as what they stand for.

    Args:
        folder: of the model.
        config: its config.json.
        stored: the tensors of each file by name.

    Raises:
        UserError: `model-files-missing-or-corrupt` naming a weight whose parts are missing or don't fit together.
    """
    places = {name: file for file, tensors in stored.items() for name in tensors}
    tensors = {name: tensor for each in stored.values() for name, tensor in each.items()}
    settings = settings_of(config)
    format_ = format_of(settings) if settings is not None else None
    if settings is None or format_ is None:
        return Layout({file: dict(each) for file, each in stored.items()}, places=places)
    finder = _Finder(folder, format_, settings, tensors, places)
    found = dict(finder.all())
    if not found:
        raise damaged(
            folder / "config.json",
            "says that the weights are quantized ({format}), but none of them is",
            format=WORDS[format_],
        )
    used = {part for packed, _ in found.values() for part in packed.parts.values()}
    layout = Layout({file: {} for file in stored}, {name: packed for name, (packed, _) in found.items()}, places)
    number = unpacked_dtype(config)
    for name, (packed, shape) in found.items():
        layout.files[places[next(iter(packed.parts.values()))]][name] = Tensor(number, shape)
    for name, tensor in tensors.items():
        if name not in used and not name.endswith(_NOT_NEEDED):
            layout.files[places[name]][name] = tensor
    layout.files = {file: each for file, each in layout.files.items() if each}
    return layout


def unpacked_dtype(config: Settings) -> str:
    """Return the format of 16 bits in which packed weights count and are written: F16 or BF16."""
    text = config.get("text_config")
    parts = [text, config] if isinstance(text, dict) else [config]
    named = (str(part[key]) for part in parts for key in ("dtype", "torch_dtype") if part.get(key))
    return "F16" if next(named, "").removeprefix("torch.") == "float16" else "BF16"


Found = tuple[str, tuple[Packed, tuple[int, ...]]]


@dataclass(frozen=True, slots=True)
class _Finder:
    """Finds the packed weights of a folder."""

    folder: Path
    format: str
    settings: Settings
    tensors: Mapping[str, Tensor]
    places: Mapping[str, str]

    def all(self) -> Iterator[Found]:
        """Yield the name of each packed weight, its parts and its shape."""
        if self.format in ("nf4", "fp4"):
            yield from self._four_bit()
            return
        find = {
            "fp8": self._fp8,
            "mxfp4": self._mxfp4,
            "gptq": self._gptq,
            "awq": self._awq,
            "int8": self._int8,
        }[self.format]
        for name, tensor in self.tensors.items():
            if found := find(name, tensor):
                yield found

    def _packed(self, name: str, parts: Mapping[str, str], shape: tuple[int, ...], **settings: object) -> Found:
        return name, (Packed(self.format, parts, settings), shape)

    def _part(self, name: str, part: str) -> Tensor:
        if part not in self.tensors:
            raise damaged(self.folder, "the packed weight {name} has no {part}", name=shortened(name), part=part)
        return self.tensors[part]

    def _check(self, sound: bool, name: str) -> None:
        if not sound:
            raise damaged(self.folder, "the parts of the packed weight {name} don't fit together", name=shortened(name))

    def _fp8(self, name: str, tensor: Tensor) -> Found | None:
        if tensor.dtype != FP8 or len(tensor.shape) not in (2, 3):
            return None
        part = f"{name}_scale_inv"
        scale = self._part(name, part)
        block = self.settings.get("weight_block_size")
        rows, columns = tensor.shape[-2:]
        if block is None:
            # One scale for all numbers, or for those of an expert.
            block, grid = [rows, columns], {(), (1,), (1, 1), tensor.shape[:-2], (*tensor.shape[:-2], 1, 1)}
        else:
            sound = isinstance(block, list) and len(block) == 2 and all(is_count(each) and each for each in block)
            self._check(sound, name)
            grid = {(*tensor.shape[:-2], -(-rows // block[0]), -(-columns // block[1]))}
        if scale.dtype not in SCALES_OF_FP8:
            raise damaged(
                self.folder,
                "the scales {name} are in {format}, which this version can't read",
                name=shortened(part),
                format=scale.dtype,
            )
        self._check(scale.shape in grid, name)
        return self._packed(name, {"weight": name, "scale": part}, tensor.shape, block=block)

    def _mxfp4(self, name: str, tensor: Tensor) -> Found | None:
        whole = name.removesuffix("_blocks")
        if whole == name:
            return None
        scale = self._part(whole, f"{whole}_scales")
        sound = len(tensor.shape) == 4 and tensor.shape[3] * 2 == MXFP4_GROUP and scale.shape == tensor.shape[:3]
        self._check(sound and tensor.dtype == scale.dtype == "U8", whole)
        experts, rows, groups, _ = tensor.shape
        # The model keeps inputs before outputs.
        shape = (experts, groups * MXFP4_GROUP, rows)
        return self._packed(whole, {"blocks": name, "scales": f"{whole}_scales"}, shape)

    def _gptq(self, name: str, tensor: Tensor) -> Found | None:
        layer = name.removesuffix(".qweight")
        if layer == name:
            return None
        bits = self.settings["bits"]
        a_word = WORD_BITS // bits
        parts = {"weight": name, "zeros": f"{layer}.qzeros", "scales": f"{layer}.scales"}
        _, zeros, scales = (self._part(layer, part) for part in parts.values())
        sound = len(tensor.shape) == len(zeros.shape) == len(scales.shape) == 2
        self._check(sound and tensor.dtype == zeros.dtype == "I32", layer)
        inputs, outputs = tensor.shape[0] * a_word, tensor.shape[1]
        groups = scales.shape[0]
        self._check(scales.shape[1] == outputs and zeros.shape == (groups, outputs // a_word) and groups > 0, layer)
        size = self.settings.get("group_size", -1)
        size = size if is_count(size) and size else inputs
        if (group := f"{layer}.g_idx") in self.tensors:
            self._check(self.tensors[group].shape == (inputs,), layer)
            parts["groups"] = group
        else:
            self._check(-(-inputs // size) == groups, layer)
        # The first layout stores zero points less one.
        first = self.settings.get("checkpoint_format", self.settings.get("format", "gptq")) == "gptq"
        return self._packed(f"{layer}.weight", parts, (outputs, inputs), bits=bits, group=size, less=int(first))

    def _awq(self, name: str, tensor: Tensor) -> Found | None:
        layer = name.removesuffix(".qweight")
        if layer == name:
            return None
        parts = {"weight": name, "zeros": f"{layer}.qzeros", "scales": f"{layer}.scales"}
        _, zeros, scales = (self._part(layer, part) for part in parts.values())
        sound = len(tensor.shape) == len(scales.shape) == 2 and tensor.dtype == zeros.dtype == "I32"
        self._check(sound and scales.shape[0] > 0 and tensor.shape[0] % scales.shape[0] == 0, layer)
        inputs, words = tensor.shape
        groups, outputs = scales.shape
        self._check(outputs == words * 8 and zeros.shape == (groups, words), layer)
        return self._packed(f"{layer}.weight", parts, (outputs, inputs), group=inputs // groups)

    def _int8(self, name: str, tensor: Tensor) -> Found | None:
        layer = name.removesuffix(".weight")
        if tensor.dtype != "I8" or layer == name or len(tensor.shape) != 2:
            return None
        scales = self._part(name, f"{layer}.SCB")
        self._check(scales.shape == tensor.shape[:1] and scales.dtype == "F32", name)
        parts = {"weight": name, "scales": f"{layer}.SCB"}
        if f"{layer}.weight_format" in self.tensors:
            parts["format"] = f"{layer}.weight_format"
        return self._packed(name, parts, tensor.shape)

    def _four_bit(self) -> Iterator[Found]:
        states = {name.partition(_STATE)[0]: name for name in self.tensors if _STATE in name}
        by_file: dict[str, list[str]] = {}
        for state in states.values():
            by_file.setdefault(self.places[state], []).append(state)
        texts: dict[str, bytes] = {}
        for file, names in by_file.items():
            texts |= read_bytes(self.folder / file, names)
        for name, state in states.items():
            weight = self._part(name, name)
            parts = {"weight": name, "state": state, "scales": f"{name}.absmax", "table": f"{name}.quant_map"}
            try:
                said = json.loads(texts[state])
                shape, block = tuple(said["shape"]), said["blocksize"]
                nested = said.get("nested_blocksize")
                sound = all(map(is_count, shape)) and len(shape) == 2 and is_count(block) and block > 0
            except (ValueError, KeyError, TypeError, AttributeError):
                sound = False
            self._check(sound, name)
            num_numbers = shape[0] * shape[1]
            num_blocks = -(-num_numbers // block)
            settings = {"block": block, "rows": shape[0], "columns": shape[1]}
            if nested is not None:
                parts |= {"outer_scales": f"{name}.nested_absmax", "outer_table": f"{name}.nested_quant_map"}
                settings |= {"outer_block": nested, "offset": said.get("nested_offset")}
                self._check(is_count(nested) and nested > 0 and isinstance(settings["offset"], int | float), name)
            held = {role: self._part(name, part) for role, part in parts.items()}
            sizes = _size(held["scales"]), _size(held["table"]), 2 * _size(weight)
            self._check(sizes == (num_blocks, 16, num_numbers + num_numbers % 2) and weight.dtype == "U8", name)
            if nested is not None:
                sizes = _size(held["outer_scales"]), _size(held["outer_table"]), 0
                self._check(sizes == (-(-num_blocks // nested), 256, 0), name)
            yield self._packed(name, parts, shape, **settings)


def _size(tensor: Tensor) -> int:
    size = 1
    for each in tensor.shape:
        size *= each
    return size
