"""Unpacking of NF4 weights: one launch a weight, the nested scales inside it, bit for bit what bitsandbytes gives.

A weight is a run of 4-bit codes, two a byte with the first in the high half, in blocks that share a scale. Nested
scales are 8-bit codes themselves: scale = table[code] * outer + offset, product and sum rounded separately, so the
kernel must not contract them into one multiply-add. The value is table[code] * scale in float32, rounded once. MXFP4
weights, see `model.mxfp4`, have another table and exponents as scales' codes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.launch import launch
from tunesmith_engine.kernels.triton_import import jit, tl, triton

BLOCK_SIZES = (32, 64, 128, 256, 512, 1024, 2048, 4096)
SPAN, LONGEST_SPAN = 1024, 4096
NUM_WARPS = 4
"""A thread reads 4 bytes of codes and writes 16 bytes of 8 weights, so nothing is exchanged between threads; four times
in the longest span: 39 instead of 48 µs for 14336 x 4096 on an H200, where look-ups of scales were waited for."""


@dataclass(frozen=True, slots=True)
class FourBitWeight:
    """The parts of a weight in NF4 or MXFP4, all on its device and none of them copied.

    Attributes:
        packed: codes as flat uint8, ceil(N * K / 2).
        table: the 16 values of the codes, float32.
        scales: of each block; float32, or uint8 codes when nested.
        outer_table, outer_scales, offset: how nested scales are read: 256 float32 values, a float32 scale for each
            `outer_block_size` scales, and a 0-dim float32 tensor; None when not nested.
        shape: (N, K); those of a stack of matrices lie behind each other.
        block_size: weights that share a scale.
        quant_type: "nf4" or "mxfp4".
    """

    packed: torch.Tensor
    table: torch.Tensor
    scales: torch.Tensor
    outer_table: torch.Tensor | None
    outer_scales: torch.Tensor | None
    offset: torch.Tensor | None
    shape: tuple[int, int]
    block_size: int
    outer_block_size: int
    quant_type: str = "nf4"

    @classmethod
    def of(cls, parameter: Any) -> FourBitWeight:  # Any: bitsandbytes' Params4bit has no types
        """Return the parts of a `bitsandbytes.nn.Params4bit` that is on its device.

        Raises:
            ValueError: It is no matrix or stack in NF4 in bitsandbytes' common layout and no stack in MXFP4; the
                message says what it is.
        """
        state = getattr(parameter, "quant_state", None)
        if state is None:
            raise ValueError("The weight isn't quantised yet.")
        if state.quant_type not in ("nf4", "mxfp4"):
            raise ValueError(f"The weight is in {state.quant_type}, not in nf4.")
        if getattr(state, "packing_format_for_cpu", False):
            raise ValueError("The weight is packed for inference on the CPU.")
        if len(state.shape) < 2 or state.blocksize not in BLOCK_SIZES:
            raise ValueError(f"The weight has the shape {tuple(state.shape)} in blocks of {state.blocksize}.")
        # In MXFP4 the blocks lie along the inputs, which a stack of such experts has before the outputs.
        sides = state.shape if state.quant_type == "nf4" else (state.shape[0], state.shape[2], state.shape[1])
        outer = state.state2 if state.nested else None
        if outer is not None and outer.code.dtype != torch.float32:
            raise ValueError(f"The weight's nested scales are read by a table in {outer.code.dtype}.")
        return cls(
            packed=parameter.data.view(-1).view(torch.uint8),
            table=state.code,
            scales=state.absmax,
            outer_table=outer.code if outer is not None else None,
            outer_scales=outer.absmax if outer is not None else None,
            offset=state.offset if outer is not None else None,
            shape=(math.prod(sides[:-1]), sides[-1]),
            block_size=state.blocksize,
            outer_block_size=outer.blocksize if outer is not None else 0,
            quant_type=state.quant_type,
        )


def dequantise(
    weight: FourBitWeight,
    out: torch.Tensor,
    row_scales: torch.Tensor | None = None,
    counts: torch.Tensor | None = None,
) -> torch.Tensor:
    """Write a weight in full and return it.

    Args:
        weight: what to unpack.
        out: [N, K] float32, bfloat16 or float16 with any row stride.
        row_scales: float32 [N], by which the rows are multiplied before they are rounded; None for nothing.
        counts: of tokens that go to each expert of a stack, int32 [E]; what no token needs may stay as it is. None for
            all of it.
    """
    if not registry.runs("nf4", out.device):
        if row_scales is None:
            return out.copy_(_twin(weight, out.dtype))
        return torch.mul(_twin(weight, torch.float32), row_scales[:, None], out=out)
    num_rows, width = weight.shape
    nested = weight.offset is not None
    # Pointers are needed in any case; without nesting the kernel doesn't look at them.
    nothing = weight.scales
    parts = (
        weight.packed,
        weight.table,
        weight.scales,
        weight.outer_table if nested else nothing,
        weight.outer_scales if nested else nothing,
        weight.offset if nested else nothing,
        row_scales,
        counts,
    )
    rows_of_one = num_rows if counts is None else num_rows // len(counts)
    blocks = (weight.block_size, weight.outer_block_size, nested)
    options = {"num_warps": NUM_WARPS, "enable_fp_fusion": False}
    group = min(weight.block_size, SPAN)
    if width % group == 0:
        # Half the width as an argument: the compiler sees whether loads of several bytes are aligned.
        span = max(SPAN, min(LONGEST_SPAN, triton.next_power_of_2(width)))
        grid = (num_rows, triton.cdiv(width, span), 1)
        numbers = (out.stride(0), width, width // 2, rows_of_one)
        launch(_dequantise_rows, grid, (*parts, out), numbers, (*blocks, group, span), **options)
    else:
        num_weights = num_rows * width
        grid = (triton.cdiv(num_weights, SPAN), 1, 1)
        numbers = (out.stride(0), width, num_weights, rows_of_one)
        launch(_dequantise_any, grid, (*parts, out), numbers, (*blocks, SPAN), **options)
    return out


@jit
def _scale(block, exists, scales, outer_table, outer_scales, offset, OUTER_SIZE: tl.constexpr, NESTED: tl.constexpr):
    """Return the scales of some quantisation blocks."""
    if NESTED:
        code = tl.load(scales + block, mask=exists, other=0).to(tl.int32)
        outer = tl.load(outer_scales + block // OUTER_SIZE, mask=exists, other=0.0).to(tl.float32)
        scale = tl.load(outer_table + code).to(tl.float32) * outer + tl.load(offset).to(tl.float32)
    else:
        scale = tl.load(scales + block, mask=exists, other=0.0).to(tl.float32)
    return scale


@jit
def _dequantise_rows(
    packed,
    table,
    scales,
    outer_table,
    outer_scales,
    offset,
    row_scales,
    counts,
    out,
    row_stride,
    width,
    half_width,
    rows_of_one,
    BLOCK_SIZE: tl.constexpr,
    OUTER_SIZE: tl.constexpr,
    NESTED: tl.constexpr,
    GROUP: tl.constexpr,
    SPAN: tl.constexpr,
):
    """Unpack a part of a row that begins and ends with a quantisation block, or lies in one."""
    NUM_GROUPS: tl.constexpr = SPAN // GROUP
    row = tl.program_id(0).to(tl.int64)
    if counts is not None:  # noqa: SIM102 (the first is decided when the program is compiled)
        if tl.load(counts + row // rows_of_one) == 0:
            return
    first = tl.program_id(1) * SPAN
    group = first + tl.arange(0, NUM_GROUPS) * GROUP
    block = (row * width + group) // BLOCK_SIZE
    scale = _scale(block, group < width, scales, outer_table, outer_scales, offset, OUTER_SIZE, NESTED)
    scale = tl.reshape(tl.broadcast_to(scale[:, None], (NUM_GROUPS, GROUP // 2)), (SPAN // 2,))
    # One dimension from here: the compiler spreads look-ups in two dimensions over threads in another order.
    byte = tl.program_id(1) * (SPAN // 2) + tl.arange(0, SPAN // 2)
    codes = tl.load(packed + row * half_width + byte, mask=byte < half_width, other=0).to(tl.int32)
    first_of_pair = tl.load(table + (codes >> 4)).to(tl.float32) * scale
    second_of_pair = tl.load(table + (codes & 15)).to(tl.float32) * scale
    if row_scales is not None:
        factor = tl.load(row_scales + row)
        first_of_pair, second_of_pair = first_of_pair * factor, second_of_pair * factor
    first_of_pair, second_of_pair = first_of_pair.to(out.dtype.element_ty), second_of_pair.to(out.dtype.element_ty)
    column = first + tl.arange(0, SPAN)
    tl.store(out + row * row_stride + column, tl.interleave(first_of_pair, second_of_pair), mask=column < width)


@jit
def _dequantise_any(
    packed,
    table,
    scales,
    outer_table,
    outer_scales,
    offset,
    row_scales,
    counts,
    out,
    row_stride,
    width,
    num_weights,
    rows_of_one,
    BLOCK_SIZE: tl.constexpr,
    OUTER_SIZE: tl.constexpr,
    NESTED: tl.constexpr,
    SPAN: tl.constexpr,
):
    """Unpack weights one by one, whose blocks, and even bytes, may lie across the end of a row."""
    place = tl.program_id(0).to(tl.int64) * SPAN + tl.arange(0, SPAN)
    exists = place < num_weights
    if counts is not None:
        exists &= tl.load(counts + place // width // rows_of_one, mask=exists, other=0) > 0
    scale = _scale(place // BLOCK_SIZE, exists, scales, outer_table, outer_scales, offset, OUTER_SIZE, NESTED)
    codes = tl.load(packed + place // 2, mask=exists, other=0).to(tl.int32)
    code = tl.where(place % 2 == 0, codes >> 4, codes & 15)
    value = tl.load(table + code).to(tl.float32) * scale
    row = place // width
    if row_scales is not None:
        value = value * tl.load(row_scales + row, mask=exists, other=0.0)
    tl.store(out + row * row_stride + (place - row * width), value.to(out.dtype.element_ty), mask=exists)


def _twin(weight: FourBitWeight, dtype: torch.dtype) -> torch.Tensor:
    """Return the weight as bitsandbytes unpacks it, which doesn't know MXFP4."""
    from bitsandbytes.functional import QuantState, dequantize_4bit

    if weight.quant_type == "mxfp4" and weight.outer_table is not None:
        codes = torch.stack([weight.packed >> 4, weight.packed & 15], -1).view(-1, weight.block_size)
        scales = weight.outer_table[weight.scales.int()]
        return (weight.table[codes.int()] * scales[:, None]).to(dtype).view(weight.shape)
    outer = None
    if weight.offset is not None:
        outer = QuantState(
            weight.outer_scales, code=weight.outer_table, blocksize=weight.outer_block_size, dtype=torch.float32
        )
    state = QuantState(
        weight.scales,
        shape=torch.Size(weight.shape),
        code=weight.table,
        blocksize=weight.block_size,
        quant_type="nf4",
        dtype=dtype,
        offset=weight.offset,
        state2=outer,
    )
    return dequantize_4bit(weight.packed[:, None], state)
