"""Weights of a model folder one at a time; quantized ones unpacked by the formula of their format.

The whole model never lies in memory in 16 bits unless that is how it is loaded: each weight is unpacked when it is
asked for, and whoever asks rounds or quantizes it before the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from tunesmith_core.packed_weights import MXFP4_GROUP, WORD_BITS, Layout, Packed

Parts = Mapping[str, torch.Tensor]

CPU = torch.device("cpu")

FP4_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Numbers of 4 bits without their sign, which is the highest bit (OCP Microscaling Formats 1.0, table 5)."""

EXPONENT_BIAS = 127
AWQ_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)
"""Where a word holds the weight of each of eight outputs that follow one another."""


class Lazy:
    """A weight that is read when transformers takes it, as it takes slices of safetensors files.

    Args:
        read: returns it.
    """

    def __init__(self, read: Callable[[], torch.Tensor]) -> None:
        self._read = read

    def __getitem__(self, _: object) -> torch.Tensor:
        """Return the whole weight; transformers asks for no part of one."""
        return self._read()


class StoredWeights(AbstractContextManager["StoredWeights"]):
    """The weights in the files of a model folder, which are open until the context ends."""

    def __init__(self, folder: Path, layout: Layout, dtype: torch.dtype, device: torch.device = CPU) -> None:
        """Open nothing yet.

        Args:
            folder: of the model.
            layout: of its weights.
            dtype: number format of unpacked weights; others keep theirs.
            device: where they are unpacked; others are read to the CPU.
        """
        self._folder, self._layout, self._dtype, self._device = folder, layout, dtype, device
        self._open: dict[str, Any] = {}  # Any: an open file of safetensors
        self._stack = ExitStack()

    def __exit__(self, *error: object) -> None:
        self._open.clear()
        self._stack.close()

    def read(self, name: str) -> torch.Tensor:
        """Return a weight."""
        packed = self._layout.packed.get(name)
        if packed is None:
            return self._stored(name)
        parts = {role: self._stored(part).to(self._device) for role, part in packed.parts.items() if role != "state"}
        return unpacked(packed, parts, self._dtype)

    def lazy(self) -> dict[str, Lazy]:
        """Return all weights, each to be read when it is taken."""
        return {name: Lazy(lambda name=name: self.read(name)) for name in self._layout.weights}  # type: ignore[misc]

    def _stored(self, name: str) -> torch.Tensor:
        file = self._layout.places[name]
        if file not in self._open:
            self._open[file] = self._stack.enter_context(safe_open(self._folder / file, framework="pt"))
        stored: torch.Tensor = self._open[file].get_tensor(name)
        return stored


@torch.no_grad()
def unpacked(packed: Packed, parts: Parts, dtype: torch.dtype) -> torch.Tensor:
    """Return the weight that tensors stand for, calculated in float32 and rounded once.

    Args:
        packed: its format and settings.
        parts: its tensors by what they are.
        dtype: of the result.
    """
    matrices = {
        "fp8": _fp8,
        "mxfp4": _mxfp4,
        "gptq": _gptq,
        "awq": _awq,
        "nf4": _four_bit,
        "fp4": _four_bit,
        "int8": _int8,
    }[packed.format](packed.settings, parts)
    whole = [matrix.to(dtype) for matrix in matrices]
    has_experts = packed.format in ("mxfp4", "fp8") and next(iter(parts.values())).dim() > 2
    return torch.stack(whole) if has_experts else whole[0].contiguous()


Settings = Mapping[str, Any]  # Any: JSON values
Matrices = Iterator[torch.Tensor]
"""A weight in float32; one of experts a matrix at a time, so that it never exists whole in 32 bits."""


def _fp8(settings: Settings, parts: Parts) -> Matrices:
    """w = q x s of its block; the last block of a side can be cut short."""
    weight, scale = parts["weight"], parts["scale"].float()
    rows, columns = weight.shape[-2:]
    high, wide = settings["block"]
    for expert, scales in zip(
        weight.view(-1, rows, columns), scale.reshape(-1, -(-rows // high), -(-columns // wide)), strict=True
    ):
        of_rows = scales.repeat_interleave(high, 0)[:rows]
        yield expert.float() * of_rows.repeat_interleave(wide, 1)[:, :columns]


def _mxfp4(settings: Settings, parts: Parts) -> Matrices:
    """w = q x 2^(s - 127); the lower half of a byte comes first."""
    del settings
    sized = torch.tensor(FP4_E2M1, device=parts["blocks"].device)
    table = torch.cat([sized, -sized])
    for blocks, scales in zip(parts["blocks"], parts["scales"], strict=True):
        rows, groups, _ = blocks.shape
        codes = torch.stack([blocks & 0xF, blocks >> 4], -1).view(rows, groups, MXFP4_GROUP)
        numbers = table[codes.int()]
        yield torch.ldexp(numbers, (scales.int() - EXPONENT_BIAS)[..., None]).view(rows, -1).T


def _words(packed: torch.Tensor, bits: int) -> torch.Tensor:
    """Return the numbers in words of 32 bits along a new last side, the lowest bits first."""
    shifts = torch.arange(0, WORD_BITS, bits, dtype=torch.int32, device=packed.device)
    return (packed[..., None] >> shifts) & (2**bits - 1)


def _gptq(settings: Settings, parts: Parts) -> Matrices:
    """w = s x (q - z) of the group of its input."""
    bits = settings["bits"]
    codes = _words(parts["weight"], bits).transpose(1, 2).flatten(0, 1)
    # A zero point of 0 is stored as the largest number where one less is stored.
    zeros = (_words(parts["zeros"], bits).flatten(1) + settings["less"]) & (2**bits - 1)
    inputs = torch.arange(len(codes), device=codes.device)
    groups = parts["groups"].long() if "groups" in parts else inputs // settings["group"]
    yield ((codes - zeros[groups]).float() * parts["scales"].float()[groups]).T


def _awq(settings: Settings, parts: Parts) -> Matrices:
    """w = s x (q - z) of the group of its input."""
    codes = _words(parts["weight"], 4)[..., AWQ_PLACES].flatten(1)
    zeros = _words(parts["zeros"], 4)[..., AWQ_PLACES].flatten(1)
    groups = torch.arange(len(codes), device=codes.device) // settings["group"]
    yield ((codes - zeros[groups]).float() * parts["scales"].float()[groups]).T


def _four_bit(settings: Settings, parts: Parts) -> Matrices:
    """w = table[q] x s of its block; a block's scale can itself be packed. The upper half of a byte comes first."""
    scales = parts["scales"].flatten()
    if "outer_scales" in parts:
        outer = parts["outer_scales"].flatten().repeat_interleave(settings["outer_block"])[: len(scales)]
        scales = parts["outer_table"].flatten()[scales.long()] * outer + settings["offset"]
    packed = parts["weight"].flatten()
    codes = torch.stack([packed >> 4, packed & 0xF], -1).flatten()
    rows, columns = settings["rows"], settings["columns"]
    numbers = parts["table"].flatten().float()[codes.int()][: rows * columns]
    yield (numbers * scales.float().repeat_interleave(settings["block"])[: len(numbers)]).view(rows, columns)


def _int8(settings: Settings, parts: Parts) -> Matrices:
    """w = q x s / 127 of its output."""
    del settings
    yield parts["weight"].float() * (parts["scales"][:, None] / 127)
