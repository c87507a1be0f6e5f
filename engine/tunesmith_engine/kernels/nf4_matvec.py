"""Products of one row with matrices in NF4 and their adapter: the packed weights are read once and never written out.

A word of 32 bits holds eight weights of a row. The row of numbers comes in eight planes (`matvec.multiply_row` lays
them out), so a program reads words and numbers alike: four bytes each, side by side. A value is table[code] * scale in
float32, as `nf4` computes it, but it isn't rounded to the run's number format.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.glu import gate_and_multiply
from tunesmith_engine.kernels.launch import launch
from tunesmith_engine.kernels.matvec import OUTPUTS, WORD, store_gated
from tunesmith_engine.kernels.nf4 import Nf4Weight, dequantise, nested_scale
from tunesmith_engine.kernels.triton_import import jit, tl, triton

NAME = "nf4_matvec"
MOST_MATRICES = 3
"""Below each other in one product: queries, keys and values."""
SPAN = 512
"""Words of one turn: 16 bytes a thread and row."""
NUM_WARPS = 4


def problem(weights: Sequence[Nf4Weight], gated: bool) -> str | None:
    """Return why these matrices below each other can't be multiplied here, for the code's reader; None when they can."""
    first = weights[0]
    if len(weights) > MOST_MATRICES or (gated and len(weights) > 2):
        return "too many matrices"
    for weight in weights:
        rows, width = weight.shape
        if weight.block_size != first.block_size or weight.outer_block_size != first.outer_block_size:
            return "blocks of different sizes"
        if width % weight.block_size or rows % (OUTPUTS * len(weights) if gated else OUTPUTS):
            return "rows that share blocks or programs"
        if weight.packed.data_ptr() % 4:
            return "codes that start anywhere"
    return None


def multiply_row_nf4(
    planes: torch.Tensor,
    weights: Sequence[Nf4Weight],
    beside: torch.Tensor | None,
    shrunk: torch.Tensor | None,
    out: torch.Tensor,
    activation: str | None = None,
) -> None:
    """Write out = W x + B s, or with an activation the gated product of its halves.

    Args:
        planes: [8, K / 8] float32: x as `matvec.multiply_row` lays it out.
        weights: matrices [N_i, K] below each other, for which `problem` is None.
        beside: B, the adapter's columns beside the weights, [N, R], with any stride between rows; None for none.
        shrunk: s, [R], contiguous.
        out: [N], or [N / 2] for a gated product; contiguous.
        activation: None, or as in `glu.gate_and_multiply`: the first half of the N outputs is the gate.
    """
    if not registry.runs(NAME, planes.device):
        _twin(planes, weights, beside, shrunk, out, activation)
        return
    first = weights[0]
    nested = first.offset is not None
    tensors: list[torch.Tensor | None] = [planes, first.table, first.outer_table, beside, shrunk, out]
    for index in range(MOST_MATRICES):
        # Programs of matrices that there are not don't exist.
        weight = weights[min(index, len(weights) - 1)]
        tensors += [weight.packed.view(torch.int32), weight.scales, weight.outer_scales, weight.offset]
    rows = [weight.shape[0] for weight in weights]
    ends = [sum(rows[: index + 1]) for index in range(MOST_MATRICES)]
    num_outputs, width = sum(rows), first.shape[1]
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
            SPAN,
            WORD,
        ),
        num_warps=NUM_WARPS,
    )


# The Triton program


@jit
def _multiply(
    planes,
    table,
    outer_table,
    beside,
    shrunk,
    out,
    packed_a,
    scales_a,
    outer_a,
    offset_a,
    packed_b,
    scales_b,
    outer_b,
    offset_b,
    packed_c,
    scales_c,
    outer_c,
    offset_c,
    end_a,
    end_b,
    num_outputs,
    num_words,
    beside_stride,
    BLOCK_WORDS: tl.constexpr,
    OUTER_SIZE: tl.constexpr,
    NESTED: tl.constexpr,
    ACTIVATION: tl.constexpr,
    MERGED: tl.constexpr,
    NUM_EXTRA: tl.constexpr,
    EXTRA_BLOCK: tl.constexpr,
    SPAN: tl.constexpr,
    WORD: tl.constexpr,
):
    """Compute four outputs, or two gated ones; all of a program are of one matrix, or two of each half."""
    program = tl.program_id(0)
    if ACTIVATION != "":
        half = num_outputs // 2
        first = program * 2
        second_half = half if MERGED else 0
        a, b = _two_rows(
            planes, table, outer_table, packed_a, scales_a, outer_a, offset_a, first,
            num_words, BLOCK_WORDS, OUTER_SIZE, NESTED, SPAN, WORD,
        )  # fmt: skip
        c, d = _two_rows(
            planes, table, outer_table, packed_b, scales_b, outer_b, offset_b, second_half + first,
            num_words, BLOCK_WORDS, OUTER_SIZE, NESTED, SPAN, WORD,
        )  # fmt: skip
        if NUM_EXTRA:
            a += _beside(beside, shrunk, first, beside_stride, NUM_EXTRA, EXTRA_BLOCK)
            b += _beside(beside, shrunk, first + 1, beside_stride, NUM_EXTRA, EXTRA_BLOCK)
            c += _beside(beside, shrunk, half + first, beside_stride, NUM_EXTRA, EXTRA_BLOCK)
            d += _beside(beside, shrunk, half + first + 1, beside_stride, NUM_EXTRA, EXTRA_BLOCK)
        store_gated(out, first, half, a, b, c, d, ACTIVATION)
    else:
        first = program * 4
        row, packed, scales, outer, offset = first, packed_a, scales_a, outer_a, offset_a
        if first >= end_b:
            row, packed, scales, outer, offset = first - end_b, packed_c, scales_c, outer_c, offset_c
        elif first >= end_a:
            row, packed, scales, outer, offset = first - end_a, packed_b, scales_b, outer_b, offset_b
        a, b, c, d = _four_rows(
            planes, table, outer_table, packed, scales, outer, offset, row,
            num_words, BLOCK_WORDS, OUTER_SIZE, NESTED, SPAN, WORD,
        )  # fmt: skip
        if NUM_EXTRA:
            a += _beside(beside, shrunk, first, beside_stride, NUM_EXTRA, EXTRA_BLOCK)
            b += _beside(beside, shrunk, first + 1, beside_stride, NUM_EXTRA, EXTRA_BLOCK)
            c += _beside(beside, shrunk, first + 2, beside_stride, NUM_EXTRA, EXTRA_BLOCK)
            d += _beside(beside, shrunk, first + 3, beside_stride, NUM_EXTRA, EXTRA_BLOCK)
        tl.store(out + first, a.to(out.dtype.element_ty))
        tl.store(out + first + 1, b.to(out.dtype.element_ty))
        tl.store(out + first + 2, c.to(out.dtype.element_ty))
        tl.store(out + first + 3, d.to(out.dtype.element_ty))


@jit
def _beside(beside, shrunk, row, stride, NUM_EXTRA: tl.constexpr, EXTRA_BLOCK: tl.constexpr):
    """Return what the adapter adds to an output."""
    column = tl.arange(0, EXTRA_BLOCK)
    inside = column < NUM_EXTRA
    factors = tl.load(beside + row.to(tl.int64) * stride + column, mask=inside, other=0.0).to(tl.float32)
    return tl.sum(factors * tl.load(shrunk + column, mask=inside, other=0.0).to(tl.float32), axis=0)


@jit
def _four_rows(
    planes, table, outer_table, packed, scales, outer_scales, offset, row, num_words,
    BLOCK_WORDS: tl.constexpr, OUTER_SIZE: tl.constexpr, NESTED: tl.constexpr, SPAN: tl.constexpr, WORD: tl.constexpr,
):  # fmt: skip
    """Return the products with four rows of a matrix."""
    row = row.to(tl.int64)
    a = tl.zeros([SPAN], tl.float32)
    b = tl.zeros([SPAN], tl.float32)
    c = tl.zeros([SPAN], tl.float32)
    d = tl.zeros([SPAN], tl.float32)
    for begin in range(0, num_words, SPAN):
        word = begin + tl.arange(0, SPAN)
        inside = word < num_words
        start = packed + row * num_words + word
        codes_a = tl.load(start, mask=inside, other=0)
        codes_b = tl.load(start + num_words, mask=inside, other=0)
        codes_c = tl.load(start + 2 * num_words, mask=inside, other=0)
        codes_d = tl.load(start + 3 * num_words, mask=inside, other=0)
        sum_a = tl.zeros([SPAN], tl.float32)
        sum_b = tl.zeros([SPAN], tl.float32)
        sum_c = tl.zeros([SPAN], tl.float32)
        sum_d = tl.zeros([SPAN], tl.float32)
        for place in tl.static_range(WORD):
            numbers = tl.load(planes + place * num_words + word, mask=inside, other=0.0)
            # The first weight of a byte is in its high half.
            shift = 8 * (place // 2) + 4 * (1 - place % 2)
            sum_a += tl.load(table + ((codes_a >> shift) & 15)) * numbers
            sum_b += tl.load(table + ((codes_b >> shift) & 15)) * numbers
            sum_c += tl.load(table + ((codes_c >> shift) & 15)) * numbers
            sum_d += tl.load(table + ((codes_d >> shift) & 15)) * numbers
        block = row * (num_words // BLOCK_WORDS) + word // BLOCK_WORDS
        per_row = num_words // BLOCK_WORDS
        a += sum_a * nested_scale(block, inside, scales, outer_table, outer_scales, offset, OUTER_SIZE, NESTED)
        b += sum_b * nested_scale(block + per_row, inside, scales, outer_table, outer_scales, offset, OUTER_SIZE, NESTED)
        c += sum_c * nested_scale(block + 2 * per_row, inside, scales, outer_table, outer_scales, offset, OUTER_SIZE, NESTED)
        d += sum_d * nested_scale(block + 3 * per_row, inside, scales, outer_table, outer_scales, offset, OUTER_SIZE, NESTED)
    return tl.sum(a, axis=0), tl.sum(b, axis=0), tl.sum(c, axis=0), tl.sum(d, axis=0)


@jit
def _two_rows(
    planes, table, outer_table, packed, scales, outer_scales, offset, row, num_words,
    BLOCK_WORDS: tl.constexpr, OUTER_SIZE: tl.constexpr, NESTED: tl.constexpr, SPAN: tl.constexpr, WORD: tl.constexpr,
):  # fmt: skip
    """Return the products with two rows of a matrix."""
    row = row.to(tl.int64)
    a = tl.zeros([SPAN], tl.float32)
    b = tl.zeros([SPAN], tl.float32)
    for begin in range(0, num_words, SPAN):
        word = begin + tl.arange(0, SPAN)
        inside = word < num_words
        start = packed + row * num_words + word
        codes_a = tl.load(start, mask=inside, other=0)
        codes_b = tl.load(start + num_words, mask=inside, other=0)
        sum_a = tl.zeros([SPAN], tl.float32)
        sum_b = tl.zeros([SPAN], tl.float32)
        for place in tl.static_range(WORD):
            numbers = tl.load(planes + place * num_words + word, mask=inside, other=0.0)
            shift = 8 * (place // 2) + 4 * (1 - place % 2)
            sum_a += tl.load(table + ((codes_a >> shift) & 15)) * numbers
            sum_b += tl.load(table + ((codes_b >> shift) & 15)) * numbers
        per_row = num_words // BLOCK_WORDS
        block = row * per_row + word // BLOCK_WORDS
        a += sum_a * nested_scale(block, inside, scales, outer_table, outer_scales, offset, OUTER_SIZE, NESTED)
        b += sum_b * nested_scale(block + per_row, inside, scales, outer_table, outer_scales, offset, OUTER_SIZE, NESTED)
    return tl.sum(a, axis=0), tl.sum(b, axis=0)


# The same in PyTorch


def _twin(
    planes: torch.Tensor,
    weights: Sequence[Nf4Weight],
    beside: torch.Tensor | None,
    shrunk: torch.Tensor | None,
    out: torch.Tensor,
    activation: str | None,
) -> None:
    row = planes.t().flatten()
    products = torch.cat([dequantise(weight, row.new_empty(weight.shape)) @ row for weight in weights])
    if beside is not None and shrunk is not None:
        products += beside.to(row.dtype) @ shrunk.to(row.dtype)
    if activation is None:
        out.copy_(products)
        return
    gate, up = products.to(out.dtype).view(2, 1, -1)
    gate_and_multiply(gate, up, activation, out[None])
