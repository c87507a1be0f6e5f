"""Products of one row with matrices in NF4 and their adapter: the packed weights are read once and never written out.

A word of 32 bits holds eight weights of a row. The row of numbers comes in eight planes (`matvec.multiply_row` lays
them out), so a program reads words and numbers alike: four bytes each, side by side. A block's products are added up
before they are scaled.

A look-up in memory takes a GPU longer than all else together, so for bfloat16 the table lies in registers: the bytes
of its values, picked by the instruction that permutes bytes. A value is four bytes of which the lower three are equal.
Values times 4.11 are near such numbers: a search over factors found the one that is least off, 0.034 % in the root mean
square and 0.11 % at most; rounding to bfloat16, as transformers does with each weight, is off by 0.11 and 0.39 %.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence

import torch

from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.glu import gate_and_multiply
from tunesmith_engine.kernels.launch import launch
from tunesmith_engine.kernels.matvec import OUTPUTS, WORD, store_gated
from tunesmith_engine.kernels.nf4 import FourBitWeight, dequantise
from tunesmith_engine.kernels.triton_import import jit, tl, triton

NAME = "nf4_matvec"
MOST_MATRICES = 3
"""Below each other in one product: queries, keys and values."""
NF4_TABLE = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
"""Dettmers et al. 2023 (arXiv 2305.14314), appendix E, as bitsandbytes has it."""
MORE = 4.110359123148722
LESS = tl.constexpr(1.0 / MORE) if tl is not None else 1.0 / MORE
"""The factor of the permuted table, and what the sums are multiplied by."""
SHAPES = ((128, 1), (256, 1))
LONG = 8192
"""Words of one turn, 16 bytes a thread and row, and warps of a program, for short and for long rows: the fastest of
ten for Llama 8B's matrices on an H200 (2026-11-24)."""


def permuted_table() -> tuple[list[int], list[int]]:
    """Return the high bytes and the three equal low bytes of the table's values, times `MORE`."""
    highs, lows = [], []
    for value in NF4_TABLE:
        (bits,) = struct.unpack("<I", struct.pack("<f", value * MORE))
        highs.append(bits >> 24)
        lows.append(round((bits & 0xFFFFFF) / 0x010101))
    return highs, lows


def unpacking(highs: Sequence[int], lows: Sequence[int], number_of: Callable[[int], list[str]]) -> str:
    """Return PTX that looks up the eight codes of the word $8 in a table of two bytes each.

    Args:
        highs, lows: of the 16 values.
        number_of: lines that make numbers of four codes, of the word's lower (0) or upper (1) half; their bytes lie in
            the registers h and l in the order of the codes. Of a byte's two codes the first weight's is the second.
    """
    lines = ["{ .reg .b32 w, s, m, a, b, l, h;"]
    quads = {
        name: [sum(byte << 8 * at for at, byte in enumerate(table[quad : quad + 4])) for quad in range(0, 16, 4)]
        for name, table in (("h", highs), ("l", lows))
    }
    lines += [
        "and.b32 s, $8, 0x77777777;",
        # A byte of ones for each code from 8 on: the sign of 0x80, spread over the byte.
        "shr.b32 w, $8, 3; and.b32 w, w, 0x11111111; or.b32 w, w, 0x88888888;",
    ]
    for half in range(2):
        # The instruction reads the lower half of what it picks by.
        lines += ["shr.b32 s, s, 16; shr.b32 w, w, 16;"] * half
        lines.append("prmt.b32 m, 0x8000, 0, w;")
        for name, (first, second, third, fourth) in quads.items():
            lines += [
                f"mov.b32 a, {first}; mov.b32 b, {second}; prmt.b32 a, a, b, s;",
                f"mov.b32 b, {third}; mov.b32 {name}, {fourth}; prmt.b32 b, b, {name}, s;",
                f"lop3.b32 {name}, m, b, a, 0xCA;",
            ]
        lines += number_of(half)
    return " ".join([*lines, "}"])


def _float32_of(half: int) -> list[str]:
    """Return lines that write four numbers of the high byte and three times the low one."""
    return [
        f"prmt.b32 ${4 * half + weight}, l, h, {(4 + code) << 12 | code * 0x111};"
        for code, weight in enumerate((1, 0, 3, 2))
    ]


UNPACK = tl.constexpr(unpacking(*permuted_table(), _float32_of)) if tl is not None else ""


def _permutes(dtype: torch.dtype) -> bool:
    """Return whether the table lies in registers: where the format rounds as much, and not in Triton's interpreter."""
    return dtype == torch.bfloat16 and os.environ.get("TRITON_INTERPRET") != "1"


def problem(weights: Sequence[FourBitWeight], gated: bool) -> str | None:
    """Return why these matrices below each other can't be multiplied here, None when they can."""
    first = weights[0]
    if len(weights) > MOST_MATRICES or (gated and len(weights) > 2):
        return "too many matrices"
    for weight in weights:
        rows, width = weight.shape
        if weight.block_size != first.block_size or weight.outer_block_size != first.outer_block_size:
            return "blocks of different sizes"
        if weight.block_size > WORD * SHAPES[0][0]:
            return "blocks longer than a turn"
        if width % weight.block_size or rows % (OUTPUTS * len(weights) if gated else OUTPUTS):
            return "rows that share blocks or programs"
        if weight.packed.data_ptr() % 4:
            return "codes that start anywhere"
        if not torch.equal(weight.table.cpu(), torch.tensor(NF4_TABLE)):
            return "a table of another kind"
    return None


def multiply_row_nf4(
    planes: torch.Tensor,
    weights: Sequence[FourBitWeight],
    adapter: tuple[torch.Tensor, torch.Tensor] | None,
    out: torch.Tensor,
    activation: str | None = None,
) -> None:
    """Write out = W x + B s, or with an activation the gated product of its halves.

    Args:
        planes: [8, K / 8] float32: x as `matvec.multiply_row` lays it out.
        weights: matrices [N_i, K] below each other, for which `problem` is None.
        adapter: B, its columns beside the weights, [N, R] with any stride between rows, and s, [R], contiguous.
        out: [N], or [N / 2] for a gated product; contiguous.
        activation: None, or as in `glu.gate_and_multiply`: the first half of the N outputs is the gate.
    """
    if not registry.runs(NAME, planes.device):
        _twin(planes, weights, adapter, out, activation)
        return
    first = weights[0]
    nested = first.offset is not None
    beside, shrunk = adapter or (None, None)
    tensors: list[torch.Tensor | None] = [planes, first.table, first.outer_table, beside, shrunk, out]
    for index in range(MOST_MATRICES):
        # Programs of matrices that there are not don't exist.
        weight = weights[min(index, len(weights) - 1)]
        # Without nesting nothing is read there, but Triton 3.2 can't choose between matrices' pointers that are None.
        outer = (weight.outer_scales, weight.offset) if nested else (weight.scales, weight.scales)
        tensors += [weight.packed.view(torch.int32), weight.scales, *outer]
    rows = [weight.shape[0] for weight in weights]
    ends = [sum(rows[: index + 1]) for index in range(MOST_MATRICES)]
    num_outputs, width = sum(rows), first.shape[1]
    span, num_warps = SHAPES[width > LONG]
    launch(
        _multiply,
        (num_outputs // OUTPUTS, 1, 1),
        tensors,
        (*ends[:2], num_outputs, width // WORD, 0 if beside is None else beside.stride(0)),
        (
            first.block_size // WORD,
            first.outer_block_size,
            nested,
            activation or "",
            len(weights) == 1,
            0 if beside is None else beside.shape[1],
            0 if beside is None else triton.next_power_of_2(beside.shape[1]),
            span,
            _permutes(out.dtype),
            width % (WORD * span) == 0,
        ),
        num_warps=num_warps,
    )


# The Triton program


@jit
def _multiply(
    planes, table, outer_table, beside, shrunk, out,
    packed_a, scales_a, outer_a, offset_a, packed_b, scales_b, outer_b, offset_b, packed_c, scales_c, outer_c, offset_c,
    end_a, end_b, num_outputs, num_words, beside_stride,
    BLOCK_WORDS: tl.constexpr, OUTER_SIZE: tl.constexpr, NESTED: tl.constexpr, ACTIVATION: tl.constexpr,
    MERGED: tl.constexpr, NUM_EXTRA: tl.constexpr, EXTRA_BLOCK: tl.constexpr, SPAN: tl.constexpr,
    PERMUTED: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Compute four outputs, or two gated ones; all of a program are of one matrix, or two of each half."""
    program = tl.program_id(0)
    if ACTIVATION != "":
        half = num_outputs // 2
        first = program * 2
        other = half + first
        a, b, c, d = _four_rows(
            planes, table, outer_table, packed_a, scales_a, outer_a, offset_a, first,
            packed_b, scales_b, outer_b, offset_b, other if MERGED else first,
            num_words, BLOCK_WORDS, OUTER_SIZE, NESTED, SPAN, PERMUTED, EVEN,
        )  # fmt: skip
        if NUM_EXTRA:
            a, b = _with_two(a, b, beside, shrunk, first, beside_stride, NUM_EXTRA, EXTRA_BLOCK)
            c, d = _with_two(c, d, beside, shrunk, other, beside_stride, NUM_EXTRA, EXTRA_BLOCK)
        store_gated(out, first, half, a, b, c, d, ACTIVATION)
    else:
        first = program * 4
        row, packed, scales, outer, offset = first, packed_a, scales_a, outer_a, offset_a
        if first >= end_b:
            row, packed, scales, outer, offset = first - end_b, packed_c, scales_c, outer_c, offset_c
        elif first >= end_a:
            row, packed, scales, outer, offset = first - end_a, packed_b, scales_b, outer_b, offset_b
        a, b, c, d = _four_rows(
            planes, table, outer_table, packed, scales, outer, offset, row, packed, scales, outer, offset, row + 2,
            num_words, BLOCK_WORDS, OUTER_SIZE, NESTED, SPAN, PERMUTED, EVEN,
        )  # fmt: skip
        if NUM_EXTRA:
            a, b = _with_two(a, b, beside, shrunk, first, beside_stride, NUM_EXTRA, EXTRA_BLOCK)
            c, d = _with_two(c, d, beside, shrunk, first + 2, beside_stride, NUM_EXTRA, EXTRA_BLOCK)
        tl.store(out + first, a.to(out.dtype.element_ty))
        tl.store(out + first + 1, b.to(out.dtype.element_ty))
        tl.store(out + first + 2, c.to(out.dtype.element_ty))
        tl.store(out + first + 3, d.to(out.dtype.element_ty))


@jit
def _with_two(a, b, beside, shrunk, row, stride, NUM_EXTRA: tl.constexpr, EXTRA_BLOCK: tl.constexpr):
    """Return two neighbouring outputs with what the adapter adds."""
    first = _beside(beside, shrunk, row, stride, NUM_EXTRA, EXTRA_BLOCK)
    return a + first, b + _beside(beside, shrunk, row + 1, stride, NUM_EXTRA, EXTRA_BLOCK)


@jit
def _beside(beside, shrunk, row, stride, NUM_EXTRA: tl.constexpr, EXTRA_BLOCK: tl.constexpr):
    """Return what the adapter adds to an output."""
    column = tl.arange(0, EXTRA_BLOCK)
    inside = column < NUM_EXTRA
    factors = tl.load(beside + row.to(tl.int64) * stride + column, mask=inside, other=0.0).to(tl.float32)
    return tl.sum(factors * tl.load(shrunk + column, mask=inside, other=0.0).to(tl.float32), axis=0)


@jit
def _four_rows(
    planes, table, outer_table,
    packed_a, scales_a, outer_a, offset_a, row_a,
    packed_c, scales_c, outer_c, offset_c, row_c,
    num_words,
    BLOCK_WORDS: tl.constexpr, OUTER_SIZE: tl.constexpr, NESTED: tl.constexpr, SPAN: tl.constexpr,
    PERMUTED: tl.constexpr,
    EVEN: tl.constexpr,
):  # fmt: skip
    """Return the products with two neighbouring rows of one matrix and two of another, which may be the same."""
    GROUPS: tl.constexpr = SPAN // BLOCK_WORDS
    start_a, start_c = packed_a + row_a.to(tl.int64) * num_words, packed_c + row_c.to(tl.int64) * num_words
    per_row = num_words // BLOCK_WORDS
    block_a, block_c = row_a.to(tl.int64) * per_row, row_c.to(tl.int64) * per_row
    more_a, more_c = 0.0, 0.0
    if NESTED:
        more_a, more_c = tl.load(offset_a), tl.load(offset_c)
    a = tl.zeros([GROUPS], tl.float32)
    b = tl.zeros([GROUPS], tl.float32)
    c = tl.zeros([GROUPS], tl.float32)
    d = tl.zeros([GROUPS], tl.float32)
    for begin in range(0, num_words, SPAN):
        word = begin + tl.arange(0, SPAN)
        inside = word < num_words
        codes_a = _load(start_a + word, inside, EVEN)
        codes_b = _load(start_a + num_words + word, inside, EVEN)
        codes_c = _load(start_c + word, inside, EVEN)
        codes_d = _load(start_c + num_words + word, inside, EVEN)
        # Before the products: each look-up of a nested scale waits for another.
        group = begin // BLOCK_WORDS + tl.arange(0, GROUPS)
        exists = group < per_row
        at_a, at_c = block_a + group, block_c + group
        scale_a = load_scale(at_a, exists, scales_a, outer_table, outer_a, more_a, OUTER_SIZE, NESTED, EVEN)
        scale_b = load_scale(at_a + per_row, exists, scales_a, outer_table, outer_a, more_a, OUTER_SIZE, NESTED, EVEN)
        scale_c = load_scale(at_c, exists, scales_c, outer_table, outer_c, more_c, OUTER_SIZE, NESTED, EVEN)
        scale_d = load_scale(at_c + per_row, exists, scales_c, outer_table, outer_c, more_c, OUTER_SIZE, NESTED, EVEN)
        # Once for all four: Triton never shares loads.
        n0 = _load(planes + word, inside, EVEN)
        n1 = _load(planes + num_words + word, inside, EVEN)
        n2 = _load(planes + 2 * num_words + word, inside, EVEN)
        n3 = _load(planes + 3 * num_words + word, inside, EVEN)
        n4 = _load(planes + 4 * num_words + word, inside, EVEN)
        n5 = _load(planes + 5 * num_words + word, inside, EVEN)
        n6 = _load(planes + 6 * num_words + word, inside, EVEN)
        n7 = _load(planes + 7 * num_words + word, inside, EVEN)
        sum_a = _products(codes_a, n0, n1, n2, n3, n4, n5, n6, n7, table, PERMUTED)
        sum_b = _products(codes_b, n0, n1, n2, n3, n4, n5, n6, n7, table, PERMUTED)
        sum_c = _products(codes_c, n0, n1, n2, n3, n4, n5, n6, n7, table, PERMUTED)
        sum_d = _products(codes_d, n0, n1, n2, n3, n4, n5, n6, n7, table, PERMUTED)
        a += tl.sum(tl.reshape(sum_a, (GROUPS, BLOCK_WORDS)), axis=1) * scale_a
        b += tl.sum(tl.reshape(sum_b, (GROUPS, BLOCK_WORDS)), axis=1) * scale_b
        c += tl.sum(tl.reshape(sum_c, (GROUPS, BLOCK_WORDS)), axis=1) * scale_c
        d += tl.sum(tl.reshape(sum_d, (GROUPS, BLOCK_WORDS)), axis=1) * scale_d
    factor = LESS if PERMUTED else 1.0
    a, b, c, d = a * factor, b * factor, c * factor, d * factor
    return tl.sum(a, axis=0), tl.sum(b, axis=0), tl.sum(c, axis=0), tl.sum(d, axis=0)


@jit
def _load(places, exists, EVEN: tl.constexpr):
    """Return what is at some places, zero where nothing is."""
    return tl.load(places) if EVEN else tl.load(places, mask=exists, other=0)


@jit
def load_scale(
    block, exists, scales, outer_table, outer_scales, offset,
    OUTER_SIZE: tl.constexpr, NESTED: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Return the scales of some quantisation blocks; `nf4` reads them alike, but loads the offset each time."""
    if NESTED:
        code = _load(scales + block, exists, EVEN).to(tl.int32)
        outer = _load(outer_scales + block // OUTER_SIZE, exists, EVEN)
        scale = _load(outer_table + code, exists, EVEN) * outer + offset
    else:
        scale = _load(scales + block, exists, EVEN)
    return scale


@jit
def _products(codes, n0, n1, n2, n3, n4, n5, n6, n7, table, PERMUTED: tl.constexpr):
    """Return the sum of each word's eight products, without the scales."""
    if PERMUTED:
        w0, w1, w2, w3, w4, w5, w6, w7 = tl.inline_asm_elementwise(
            UNPACK, "=f,=f,=f,=f,=f,=f,=f,=f,r", [codes],
            dtype=(tl.float32, tl.float32, tl.float32, tl.float32, tl.float32, tl.float32, tl.float32, tl.float32),
            is_pure=True, pack=1,
        )  # fmt: skip
    else:
        # The first weight of a byte is in its high half.
        w0, w1 = tl.load(table + ((codes >> 4) & 15)), tl.load(table + (codes & 15))
        w2, w3 = tl.load(table + ((codes >> 12) & 15)), tl.load(table + ((codes >> 8) & 15))
        w4, w5 = tl.load(table + ((codes >> 20) & 15)), tl.load(table + ((codes >> 16) & 15))
        w6, w7 = tl.load(table + ((codes >> 28) & 15)), tl.load(table + ((codes >> 24) & 15))
    return w0 * n0 + w1 * n1 + w2 * n2 + w3 * n3 + w4 * n4 + w5 * n5 + w6 * n6 + w7 * n7


# The same in PyTorch


def _twin(
    planes: torch.Tensor,
    weights: Sequence[FourBitWeight],
    adapter: tuple[torch.Tensor, torch.Tensor] | None,
    out: torch.Tensor,
    activation: str | None,
) -> None:
    row = planes.t().flatten()
    products = torch.cat([dequantise(weight, row.new_empty(weight.shape)) @ row for weight in weights])
    if adapter is not None:
        products += adapter[0].to(row.dtype) @ adapter[1].to(row.dtype)
    if activation is None:
        out.copy_(products)
        return
    gate, up = products.to(out.dtype).view(2, 1, -1)
    gate_and_multiply(gate, up, activation, out[None])
