"""Quantized checkpoints written by the published layouts of their formats, with numpy's and plain Python's means alone.

Each writer takes a plain model folder and returns a packed copy of it, and what its weights stand for. It chooses codes
and scales itself and packs them number by number, so that nothing of it is shared with the code that unpacks.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

Tensors = dict[str, torch.Tensor]
Pack = Callable[[str, torch.Tensor, torch.Generator], tuple[Tensors, torch.Tensor]]

E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]
NF4 = [
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
]  # fmt: skip
"""The sixteen numbers of NF4 (arXiv:2305.14314, appendix E)."""


def is_packed(name: str, weight: torch.Tensor) -> bool:
    return name.endswith("_proj.weight") and weight.dim() == 2


def repack(plain: Path, folder: Path, settings: dict[str, Any], pack: Pack, *, parts: int = 1) -> Tensors:
    """Write a packed copy of a model and return all weights as what they stand for.

    Args:
        plain: folder of the model.
        folder: to write.
        settings: quantization_config.
        pack: returns the tensors of a weight, and what they stand for in float32.
        parts: files of weights; the tensors of a weight then lie in different ones.
    """
    shutil.copytree(plain, folder)
    (folder / "model.safetensors").unlink()
    config = json.loads((folder / "config.json").read_text())
    config |= {"quantization_config": settings, "dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(config))
    chance = torch.Generator().manual_seed(1)
    stored, meant = Tensors(), Tensors()
    for name, weight in load_file(plain / "model.safetensors").items():
        if is_packed(name, weight):
            tensors, meant[name] = pack(name, weight, chance)
            stored |= tensors
        else:
            stored[name] = weight.bfloat16()
            meant[name] = stored[name].float()
    names = list(stored)
    files = {f"model-{part + 1:05}-of-{parts:05}.safetensors": names[part::parts] for part in range(parts)}
    if parts == 1:
        files = {"model.safetensors": names}
    else:
        weight_map = {name: file for file, held in files.items() for name in held}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    meant = {name: weight.contiguous() for name, weight in meant.items()}
    for file, held in files.items():
        save_file({name: stored[name].contiguous() for name in held}, folder / file, {"format": "pt"})
    return meant


def words(codes: list[int], bits: int) -> int:
    """Return codes in a signed word of 32 bits, the first in the lowest."""
    word = sum(code << (bits * place) for place, code in enumerate(codes))
    return word - (1 << 32) if word >= 1 << 31 else word


def fp8(block: tuple[int, int]) -> Pack:
    def pack(name: str, weight: torch.Tensor, chance: torch.Generator) -> tuple[Tensors, torch.Tensor]:
        rows, columns = weight.shape
        grid = -(-rows // block[0]), -(-columns // block[1])
        scales = torch.rand(grid, generator=chance) / 100 + 0.001
        codes = (torch.randn(rows, columns, generator=chance) * 8).to(torch.float8_e4m3fn)
        meant = codes.float() * torch.kron(scales, torch.ones(block))[:rows, :columns]
        return {name: codes, f"{name}_scale_inv": scales}, meant

    return pack


def gptq(bits: int, group: int, *, first: bool = True, shuffled: bool = False) -> Pack:
    """Codes along the inputs; zero points less one along the outputs in the first layout."""

    def pack(name: str, weight: torch.Tensor, chance: torch.Generator) -> tuple[Tensors, torch.Tensor]:
        outputs, inputs = weight.shape
        groups, a_word = inputs // group, 32 // bits
        codes = torch.randint(2**bits, (inputs, outputs), generator=chance)
        zeros = torch.randint(2**bits, (groups, outputs), generator=chance)
        scales = ((torch.rand(groups, outputs, generator=chance) + 0.5) / 2**bits / 8).half()
        of_input = torch.arange(inputs) // group
        if shuffled:
            of_input = of_input[torch.randperm(inputs, generator=chance)]
        meant = ((codes - zeros[of_input]).float() * scales.float()[of_input]).T
        stored = (zeros - 1) % 2**bits if first else zeros
        qweight = [
            [words(codes[row : row + a_word, column].tolist(), bits) for column in range(outputs)]
            for row in range(0, inputs, a_word)
        ]
        qzeros = [
            [words(stored[row, column : column + a_word].tolist(), bits) for column in range(0, outputs, a_word)]
            for row in range(groups)
        ]
        layer = name.removesuffix(".weight")
        tensors = {
            f"{layer}.qweight": torch.tensor(qweight, dtype=torch.int32),
            f"{layer}.qzeros": torch.tensor(qzeros, dtype=torch.int32),
            f"{layer}.scales": scales,
        }
        if first or shuffled:
            tensors[f"{layer}.g_idx"] = of_input.to(torch.int32)
        return tensors, meant

    return pack


def awq(group: int) -> Pack:
    """Codes and zero points along the outputs, of which a word holds those at 0, 2, 4, 6, 1, 3, 5, 7."""
    order = [0, 2, 4, 6, 1, 3, 5, 7]

    def packed(codes: torch.Tensor) -> torch.Tensor:
        rows = [
            [words([row[start + place] for place in order], 4) for start in range(0, len(row), 8)]
            for row in codes.tolist()
        ]
        return torch.tensor(rows, dtype=torch.int32)

    def pack(name: str, weight: torch.Tensor, chance: torch.Generator) -> tuple[Tensors, torch.Tensor]:
        outputs, inputs = weight.shape
        codes = torch.randint(16, (inputs, outputs), generator=chance)
        zeros = torch.randint(16, (inputs // group, outputs), generator=chance)
        scales = ((torch.rand(inputs // group, outputs, generator=chance) + 0.5) / 128).half()
        meant = torch.zeros(inputs, outputs)
        for row in range(inputs):
            meant[row] = (codes[row] - zeros[row // group]).float() * scales[row // group].float()
        layer = name.removesuffix(".weight")
        tensors = {f"{layer}.qweight": packed(codes), f"{layer}.qzeros": packed(zeros), f"{layer}.scales": scales}
        return tensors, meant.T

    return pack


def int8(name: str, weight: torch.Tensor, chance: torch.Generator) -> tuple[Tensors, torch.Tensor]:
    codes = torch.randint(-127, 128, weight.shape, generator=chance, dtype=torch.int8)
    codes[:, 0] = 127
    scales = torch.rand(len(weight), generator=chance) / 10 + 0.01
    layer = name.removesuffix(".weight")
    meant = codes.float() * scales[:, None] / 127
    return {name: codes, f"{layer}.SCB": scales, f"{layer}.weight_format": torch.tensor(0, dtype=torch.uint8)}, meant


def four_bit(table: list[float], kind: str, *, nested: bool) -> Pack:
    """Blocks of 64 numbers, whose scales come packed by a table of 256 numbers and a scale of 256 of them."""

    def pack(name: str, weight: torch.Tensor, chance: torch.Generator) -> tuple[Tensors, torch.Tensor]:
        count = weight.numel()
        codes = torch.randint(16, (count,), generator=chance)
        num_blocks = count // 64
        state: dict[str, Any] = {
            "quant_type": kind, "blocksize": 64, "dtype": "bfloat16", "shape": list(weight.shape)
        }  # fmt: skip
        tensors: Tensors = {
            name: (codes[::2] << 4 | codes[1::2]).to(torch.uint8)[:, None],
            f"{name}.quant_map": torch.tensor(table),
        }
        if nested:
            # Signed numbers from -1 to 1, as bitsandbytes' own table has them in other steps.
            outer_table = torch.linspace(-1, 1, 256)
            outer = torch.rand(-(-num_blocks // 256), generator=chance) / 20
            coded = torch.randint(256, (num_blocks,), generator=chance, dtype=torch.uint8)
            state |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.15}
            tensors |= {
                f"{name}.absmax": coded,
                f"{name}.nested_absmax": outer,
                f"{name}.nested_quant_map": outer_table,
            }
            scales = torch.stack([outer_table[int(each)] * outer[at // 256] + 0.15 for at, each in enumerate(coded)])
        else:
            scales = torch.rand(num_blocks, generator=chance) / 5 + 0.05
            tensors[f"{name}.absmax"] = scales
        tensors[f"{name}.quant_state.bitsandbytes__{kind}"] = torch.tensor(
            list(json.dumps(state).encode()), dtype=torch.uint8
        )
        numbers = torch.tensor([table[code] for code in codes.tolist()])
        return tensors, (numbers.view(num_blocks, 64) * scales[:, None]).view_as(weight)

    return pack


def mxfp4(experts: torch.Size, chance: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return blocks, scales and what they stand for of a weight of experts, [experts, inputs, outputs].

    A block of 32 numbers of one output has a power of two; a byte holds two numbers, the first in its lower half.
    """
    number, inputs, outputs = experts
    groups = inputs // 32
    blocks = torch.randint(256, (number, outputs, groups, 16), generator=chance, dtype=torch.uint8)
    scales = torch.randint(118, 125, (number, outputs, groups), generator=chance, dtype=torch.uint8)
    meant = torch.zeros(experts)
    for expert in range(number):
        for output in range(outputs):
            for group in range(groups):
                power = 2.0 ** (int(scales[expert, output, group]) - 127)
                for at, byte in enumerate(blocks[expert, output, group].tolist()):
                    place = group * 32 + at * 2
                    meant[expert, place, output] = E2M1[byte & 15] * power
                    meant[expert, place + 1, output] = E2M1[byte >> 4] * power
    return blocks, scales, meant


def with_experts_in_mxfp4(folder: Path, seed: int = 0) -> dict[str, torch.Tensor]:
    """Store random experts in MXFP4 in place of those of a model folder; return what they stand for by name."""
    path, chance = folder / "model.safetensors", torch.Generator().manual_seed(seed)
    stored, meant = load_file(path), {}
    for name in [name for name in stored if name.endswith(("gate_up_proj", "down_proj"))]:
        blocks, scales, meant[name] = mxfp4(stored.pop(name).shape, chance)
        stored |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
    save_file(stored, path, {"format": "pt"})
    settings = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    values = json.loads((folder / "config.json").read_text()) | {"quantization_config": settings}
    (folder / "config.json").write_text(json.dumps(values))
    return meant


BNB = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True}
FORMATS: dict[str, tuple[dict[str, Any], Pack]] = {
    "fp8": ({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [32, 32]}, fp8((32, 32))),
    "fp8-cut": ({"quant_method": "fp8", "weight_block_size": [48, 40]}, fp8((48, 40))),
    "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False}, gptq(4, 32)),
    "gptq-8": ({"quant_method": "gptq", "bits": 8, "group_size": 32, "desc_act": True}, gptq(8, 32, shuffled=True)),
    "gptq-2": (
        {"quant_method": "gptq", "bits": 2, "group_size": 64, "checkpoint_format": "gptq_v2"},
        gptq(2, 64, first=False),
    ),
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": True}, awq(32)),
    "nf4": (BNB | {"bnb_4bit_quant_type": "nf4"}, four_bit(NF4, "nf4", nested=True)),
    "fp4": (BNB | {"bnb_4bit_quant_type": "fp4"}, four_bit([each / 6 for each in E2M1], "fp4", nested=False)),
    "int8": ({"quant_method": "bitsandbytes", "load_in_8bit": True}, int8),
}
"""Settings and writers by name."""
