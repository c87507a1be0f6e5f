"""Products of a few rows with matrices in NF4 and their adapters: the packed weights are read once for all rows.

`nf4_matvec` serves one row; unpacking every weight into memory and reading it back pays for hundreds. For the rows
between, those that are answered at once, a program unpacks a tile of weights in registers and multiplies it on the
tensor cores, as the tall factor: [outputs, K] x [K, rows]. A quantisation block is one turn: its codes' values are
rounded to the run's number format, and its scale is applied to the sums in float32.

A matrix with few outputs would leave multiprocessors idle, so its inputs are divided among programs, whose sums a
second one adds up in a fixed order.

For bfloat16 the table lies in registers, as in `nf4_matvec`, here as the two bytes of each value. Times 1.43675 the
values are nearest to such numbers: a search over factors found 0.085 % in the root mean square and 0.17 % at most;
unscaled it is 0.14 and 0.31 %, and transformers, which rounds each weight, is off by 0.11 and 0.39 %.

Looking codes up takes three instructions of the integer units a weight: for Llama 8B 1.5 ms a step on an H100 if
nothing else held them up, where reading the codes takes 1.1. A program in PTX that unpacks right into the fragments of
the tensor cores took 3.8 ms instead of 4.2 (2026-11-26), not enough to be kept beside this one: both wait for loads.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence

import torch

from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.launch import launch
from tunesmith_engine.kernels.matvec import WORD
from tunesmith_engine.kernels.nf4 import FourBitWeight, dequantise
from tunesmith_engine.kernels.nf4_matvec import MOST_MATRICES, NF4_TABLE, load_scale, unpacking
from tunesmith_engine.kernels.triton_import import jit, tl, triton

NAME = "nf4_rows"
MOST_ROWS = 32
LEAST_ROWS = 16
"""Rows of a tensor core's tile; fewer are filled up."""
OUTPUTS = 64
"""Of a program."""
PROGRAMS = 528
"""So many at least: four for each multiprocessor of a large GPU."""
MOST_SPLITS = 8
NUM_WARPS, NUM_STAGES = 4, 3
"""With the numbers above among the fastest of 108 choices for Llama 8B's matrices and 32 rows, 4.6 ms a step for all of
them on an H100, where unpacking into memory took 13.6 (2026-11-25)."""
EXTRA_BLOCK = 64
ADD_BLOCK = 1024
MORE = 1.43675
LESS = tl.constexpr(1.0 / MORE) if tl is not None else 1.0 / MORE
"""The factor of the permuted table, and what the sums are multiplied by."""


def rounded_table() -> list[int]:
    """Return the bits of the table's values times `MORE` as bfloat16 numbers."""
    table = []
    for value in NF4_TABLE:
        (bits,) = struct.unpack("<I", struct.pack("<f", value * MORE))
        table.append((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)
    return table


def _bfloat16_of(half: int) -> list[str]:
    """Return lines that write four numbers, two at once."""
    lines = []
    for pair, picked in enumerate((0x4051, 0x6273)):
        weight = 4 * half + 2 * pair
        lines.append(f"prmt.b32 a, l, h, {picked}; mov.b32 {{${weight}, ${weight + 1}}}, a;")
    return lines


def _unpacking() -> str:
    bits = rounded_table()
    return unpacking([value >> 8 for value in bits], [value & 255 for value in bits], _bfloat16_of)


UNPACK = tl.constexpr(_unpacking()) if tl is not None else ""


def problem(weights: Sequence[FourBitWeight], num_rows: int, dtype: torch.dtype) -> str | None:
    """Return why these matrices below each other can't be multiplied here, None when they can."""
    first = weights[0]
    if num_rows > MOST_ROWS or len(weights) > MOST_MATRICES:
        return "too many rows or matrices"
    if dtype == torch.float32:
        return "tensor cores round to fewer digits"
    for weight in weights:
        rows, width = weight.shape
        if weight.block_size != first.block_size or weight.outer_block_size != first.outer_block_size:
            return "blocks of different sizes"
        if weight.block_size not in (32, 64, 128):
            return "blocks of another size than a turn"
        if width % weight.block_size or rows % OUTPUTS:
            return "rows that share blocks or programs"
        if weight.packed.data_ptr() % 4:
            return "codes that start anywhere"
        if not torch.equal(weight.table.cpu(), torch.tensor(NF4_TABLE)):
            return "a table of another kind"
    return None


def num_splits(weights: Sequence[FourBitWeight]) -> int:
    """Return among how many programs the inputs are divided."""
    turns = weights[0].shape[1] // weights[0].block_size
    programs = sum(weight.shape[0] for weight in weights) // OUTPUTS
    splits = 1
    while splits < MOST_SPLITS and splits * programs < PROGRAMS and turns % (splits * 2) == 0:
        splits *= 2
    return splits


def multiply_rows_nf4(
    x: torch.Tensor,
    weights: Sequence[FourBitWeight],
    beside: torch.Tensor | None,
    out: torch.Tensor,
    sums: torch.Tensor,
) -> None:
    """Write out = X W^T + S B^T.

    Args:
        x: [M, K + R], at most 32 rows of any stride: X and S beside it.
        weights: matrices [N_i, K] below each other, for which `problem` is None.
        beside: B, [N, R] with any stride between rows, or None.
        out: [M, N], contiguous.
        sums: [`num_splits`, M, N] float32, contiguous: room for sums to be added up; not used when there is one.
    """
    if not registry.runs(NAME, x.device, needs_dot=True):
        _twin(x, weights, beside, out)
        return
    first = weights[0]
    nested = first.offset is not None
    splits = num_splits(weights)
    tensors: list[torch.Tensor | None] = [x, first.table, first.outer_table, beside, out if splits == 1 else sums]
    for index in range(MOST_MATRICES):
        # Programs of matrices that there are not don't exist.
        weight = weights[min(index, len(weights) - 1)]
        # Without nesting nothing is read there, but Triton 3.2 can't choose between matrices' pointers that are None.
        outer = (weight.outer_scales, weight.offset) if nested else (weight.scales, weight.scales)
        tensors += [weight.packed.view(torch.int32), weight.scales, *outer]
    rows = [weight.shape[0] for weight in weights]
    ends = [sum(rows[: index + 1]) for index in range(MOST_MATRICES)]
    num_outputs, width = sum(rows), first.shape[1]
    num_rows = x.shape[0]
    launch(
        _multiply,
        (num_outputs // OUTPUTS, splits, 1),
        tensors,
        (num_rows, x.stride(0), *ends[:2], num_outputs, width // WORD, 0 if beside is None else beside.stride(0)),
        (
            first.block_size // WORD,
            first.outer_block_size,
            nested,
            0 if beside is None else beside.shape[1],
            EXTRA_BLOCK,
            max(LEAST_ROWS, triton.next_power_of_2(num_rows)),
            OUTPUTS,
            splits,
            out.dtype == torch.bfloat16 and os.environ.get("TRITON_INTERPRET") != "1",
        ),
        num_warps=NUM_WARPS,
        num_stages=NUM_STAGES,
    )
    if splits > 1:
        count = num_rows * num_outputs
        launch(_add_up, (triton.cdiv(count, ADD_BLOCK), 1, 1), (sums, out), (count,), (splits, ADD_BLOCK), num_warps=4)


# The Triton programs


@jit
def _multiply(
    x, table, outer_table, beside, out,
    packed_a, scales_a, outer_a, offset_a, packed_b, scales_b, outer_b, offset_b, packed_c, scales_c, outer_c, offset_c,
    num_rows, x_stride, end_a, end_b, num_outputs, num_words, beside_stride,
    BLOCK_WORDS: tl.constexpr, OUTER_SIZE: tl.constexpr, NESTED: tl.constexpr, NUM_EXTRA: tl.constexpr,
    EXTRA_BLOCK: tl.constexpr, ROWS: tl.constexpr, OUTPUTS: tl.constexpr, SPLITS: tl.constexpr,
    PERMUTED: tl.constexpr,
):  # fmt: skip
    """Compute some outputs of all rows, by a part of the inputs; all outputs are of one matrix."""
    WIDTH: tl.constexpr = BLOCK_WORDS * 8
    first = tl.program_id(0) * OUTPUTS
    local, packed, scales, outer, offset = first, packed_a, scales_a, outer_a, offset_a
    if first >= end_b:
        local, packed, scales, outer, offset = first - end_b, packed_c, scales_c, outer_c, offset_c
    elif first >= end_a:
        local, packed, scales, outer, offset = first - end_a, packed_b, scales_b, outer_b, offset_b
    output = tl.arange(0, OUTPUTS)
    row = tl.arange(0, ROWS)
    exists = row < num_rows
    own = (local + output).to(tl.int64)
    per_row = num_words // BLOCK_WORDS
    more = 0.0
    if NESTED:
        more = tl.load(offset)
    words = packed + (own * num_words)[:, None] + tl.arange(0, BLOCK_WORDS)[None, :]
    numbers = x + (row * x_stride)[:, None] + tl.arange(0, WIDTH)[None, :]
    total = tl.zeros([OUTPUTS, ROWS], tl.float32)
    part = per_row // SPLITS
    begin = tl.program_id(1) * part
    for block in range(begin, begin + part):
        codes = tl.load(words + block * BLOCK_WORDS)
        some = tl.load(numbers + block * WIDTH, mask=exists[:, None], other=0.0)
        scale = load_scale(own * per_row + block, True, scales, outer_table, outer, more, OUTER_SIZE, NESTED, True)
        weights = _weights(codes, table, x.dtype.element_ty, OUTPUTS, WIDTH, PERMUTED)
        total += tl.dot(weights, tl.trans(some)) * scale[:, None]
    if PERMUTED:
        total = total * LESS
    output = first + output
    if NUM_EXTRA:  # noqa: SIM102 - a constant and a number of the program: Triton can't join them by `and`
        if tl.program_id(1) == 0:
            for start in range(0, NUM_EXTRA, EXTRA_BLOCK):
                column = start + tl.arange(0, EXTRA_BLOCK)
                inside = column < NUM_EXTRA
                factors = tl.load(
                    beside + (output.to(tl.int64) * beside_stride)[:, None] + column[None, :],
                    mask=inside[None, :],
                    other=0.0,
                )
                shrunk = tl.load(
                    x + (row * x_stride)[:, None] + (num_words * 8 + column)[None, :],
                    mask=exists[:, None] & inside[None, :],
                    other=0.0,
                )
                total += tl.dot(factors, tl.trans(shrunk))
    place = ((tl.program_id(1) * num_rows + row) * num_outputs)[None, :] + output[:, None]
    tl.store(out + place, total.to(out.dtype.element_ty), mask=exists[None, :])


@jit
def _weights(
    codes, table, KIND: tl.constexpr, OUTPUTS: tl.constexpr, WIDTH: tl.constexpr, PERMUTED: tl.constexpr
):  # fmt: skip
    """Return what words hold, [OUTPUTS, WIDTH], in the order of the weights and without the scales."""
    if PERMUTED:
        w0, w1, w2, w3, w4, w5, w6, w7 = tl.inline_asm_elementwise(
            UNPACK, "=h,=h,=h,=h,=h,=h,=h,=h,r", [codes],
            dtype=(tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16,
                   tl.bfloat16),
            is_pure=True, pack=1,
        )  # fmt: skip
    else:
        # The first weight of a byte is in its high half.
        w0, w1 = tl.load(table + ((codes >> 4) & 15)), tl.load(table + (codes & 15))
        w2, w3 = tl.load(table + ((codes >> 12) & 15)), tl.load(table + ((codes >> 8) & 15))
        w4, w5 = tl.load(table + ((codes >> 20) & 15)), tl.load(table + ((codes >> 16) & 15))
        w6, w7 = tl.load(table + ((codes >> 28) & 15)), tl.load(table + ((codes >> 24) & 15))
    evens = tl.join(tl.join(w0, w4), tl.join(w2, w6))
    odds = tl.join(tl.join(w1, w5), tl.join(w3, w7))
    # Rounded last: Triton 3.6 can't compile for compute capability 10.0 a product that takes what was just reshaped.
    return tl.reshape(tl.join(evens, odds), (OUTPUTS, WIDTH)).to(KIND)


@jit
def _add_up(sums, out, count, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    """Add the sums of all parts."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    total = tl.load(sums + place, mask=inside, other=0.0)
    for split in tl.static_range(1, SPLITS):
        total += tl.load(sums + split * count + place, mask=inside, other=0.0)
    tl.store(out + place, total.to(out.dtype.element_ty), mask=inside)


# The same in PyTorch


def _twin(x: torch.Tensor, weights: Sequence[FourBitWeight], beside: torch.Tensor | None, out: torch.Tensor) -> None:
    width = weights[0].shape[1]
    full = torch.cat([dequantise(weight, x.new_empty(weight.shape)) for weight in weights])
    products = x[:, :width] @ full.t()
    if beside is not None:
        products += x[:, width:] @ beside.t()
    out.copy_(products)
