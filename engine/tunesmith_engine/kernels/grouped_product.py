"""Products of sorted rows with the weights of their experts: one launch over all experts, with a table of tiles.

Each program multiplies one tile of rows of one expert (see expert_order.py) with some columns of that expert's weight,
and adds the expert's adapter, whose shrunk input it is given, and bias in the same sum. Weights are read as they lie in
memory, transposed or not, so the same program serves forwards and backwards. The gradients of adapters are sums over
an expert's rows, taken by one program in order. So the same inputs give the same bits.

# M rows, T tokens, K inputs, N outputs, E experts, R columns of an adapter: a power of two, at least 16
"""

from __future__ import annotations

import itertools

import torch

from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.expert_order import Order
from tunesmith_engine.kernels.launch import launch
from tunesmith_engine.kernels.triton_import import jit, tl, triton

NAME = "grouped_product"

MOST_COLUMNS = 128
"""Outputs of a program."""

def multiply(
    x: torch.Tensor,
    weight: torch.Tensor,
    order: Order,
    out: torch.Tensor,
    gathered: bool = False,
    shrunk: torch.Tensor | None = None,
    beside: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """Write out[m] = weight[e] x[m] + beside[e] shrunk[m] + bias[e] for each row m and its expert e.

    Args:
        x: [M, K], or [T, K] with `gathered`: rows are read where their tokens are.
        weight: [E, N, K] with any strides.
        order: of the rows.
        out: [M, N], rows anywhere.
        gathered: see `x`.
        shrunk: [M, R], or None with `beside`.
        beside: [E, N, R] with any strides.
        bias: [E, N] or None.
    """
    if not order.num_rows:
        return out
    if out.dtype == torch.float64 or not registry.runs(NAME, out.device, needs_dot=True):
        return _multiply_twin(x, weight, order, out, gathered, shrunk, beside, bias)
    num_outputs, num_inputs = weight.shape[1:]
    wide = out.dtype.itemsize > 2
    columns = min(64 if wide else MOST_COLUMNS, max(16, triton.next_power_of_2(num_outputs)))
    rows = min(64, order.tile_rows) if wide else order.tile_rows
    inner = 32 if wide else 64
    parts, is_even = order.tile_rows // rows, num_inputs % inner == 0 and num_outputs % columns == 0
    num_blocks = triton.cdiv(num_outputs, columns)
    launch(
        _multiply,
        (num_blocks * parts * len(order.tile_expert), 1, 1),
        (
            *(x, weight, out, order.token if gathered else None),
            *(order.tile_expert, order.tile_row, order.offsets),
            *(shrunk, beside, bias),
        ),
        (
            x.stride(0),
            *weight.stride(),
            out.stride(0),
            0 if shrunk is None else shrunk.stride(0),
            *((0, 0, 0) if beside is None else beside.stride()),
            num_outputs,
            num_inputs,
            order.num_experts,
        ),
        (num_blocks, parts, rows, columns, inner, 0 if beside is None else beside.shape[2], is_even),
        num_warps=8 if rows * columns > 64 * 64 else 4,
        num_stages=2 if wide else 3,
    )
    return out


def sum_products(
    wide: torch.Tensor, narrow: torch.Tensor, order: Order, gathered: bool = False
) -> torch.Tensor:
    """Return sum over an expert's rows of wide[m] narrow[m]^T, [E, N, R] in float32 at least.

    Args:
        wide: [M, N], or [T, N] with `gathered`.
        narrow: [M, R].
        order: of the rows.
        gathered: see `wide`.
    """
    num_columns, num_ranks = wide.shape[1], narrow.shape[1]
    dtype = torch.promote_types(wide.dtype, torch.float32)
    out = torch.empty(order.num_experts, num_columns, num_ranks, dtype=dtype, device=wide.device)
    if wide.dtype == torch.float64 or not registry.runs(NAME, wide.device, needs_dot=True):
        for expert, rows in _rows_of(order):
            x = wide[order.token[rows].long()] if gathered else wide[rows]
            torch.mm(x.to(dtype).t(), narrow[rows].to(dtype), out=out[expert])
        return out
    columns = min(64, max(16, triton.next_power_of_2(num_columns)))
    num_blocks = triton.cdiv(num_columns, columns)
    launch(
        _sum_products,
        (num_blocks, order.num_experts, 1),
        (wide, narrow, out, order.token if gathered else None, order.offsets),
        (wide.stride(0), narrow.stride(0), num_columns),
        (32, columns, num_ranks),
        num_warps=4,
        num_stages=2,
    )
    return out


# Triton programs


@jit
def _multiply(
    x, weight, out, token,
    tile_expert, tile_row, offsets,
    shrunk, beside, bias,
    x_stride, weight_expert, weight_output, weight_input,
    out_stride, shrunk_stride,
    beside_expert, beside_output, beside_rank,
    num_outputs, num_inputs, num_experts,
    NUM_BLOCKS: tl.constexpr,
    PARTS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    INNER: tl.constexpr,
    RANKS: tl.constexpr,
    EVEN: tl.constexpr,
):
    """Write ROWS by COLUMNS numbers of one expert's product; neighbours share the rows."""
    tile = tl.program_id(0) // (NUM_BLOCKS * PARTS)
    expert = tl.load(tile_expert + tile)
    if expert >= num_experts:
        return
    part = tl.program_id(0) // NUM_BLOCKS % PARTS
    end = tl.load(offsets + expert + 1)
    row = tl.load(tile_row + tile) + part * ROWS + tl.arange(0, ROWS)
    inside = row < end
    row = tl.minimum(row, end - 1).to(tl.int64)
    source = row
    if token is not None:
        source = tl.load(token + row).to(tl.int64)
    column = tl.program_id(0) % NUM_BLOCKS * COLUMNS + tl.arange(0, COLUMNS)
    there = column < num_outputs
    inner = tl.arange(0, INNER)
    whose = expert.to(tl.int64)
    some_x = x + source[:, None] * x_stride + inner[None, :]
    # One expert's weight has fewer numbers than 2^31, all of them together may have more.
    some_weights = (weight + whose * weight_expert) + (column[None, :] * weight_output + inner[:, None] * weight_input)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, num_inputs, INNER):
        if EVEN:
            a, b = tl.load(some_x), tl.load(some_weights)
        else:
            left = inner < num_inputs - start
            a = tl.load(some_x, mask=left[None, :], other=0.0)
            b = tl.load(some_weights, mask=left[:, None] & there[None, :], other=0.0)
        total += tl.dot(a, b, input_precision="ieee")
        some_x += INNER
        some_weights += INNER * weight_input
    if RANKS > 0:
        rank = tl.arange(0, RANKS)
        a = tl.load(shrunk + row[:, None] * shrunk_stride + rank[None, :])
        places = column[None, :] * beside_output + rank[:, None] * beside_rank
        b = tl.load((beside + whose * beside_expert) + places, mask=there[None, :], other=0.0)
        total += tl.dot(a, b, input_precision="ieee")
    if bias is not None:
        total += tl.load(bias + whose * num_outputs + column, mask=there, other=0.0).to(tl.float32)[None, :]
    mask = inside[:, None] & there[None, :]
    tl.store(out + row[:, None] * out_stride + column[None, :], total.to(out.dtype.element_ty), mask=mask)


@jit
def _sum_products(
    wide,
    narrow,
    out,
    token,
    offsets,
    wide_stride,
    narrow_stride,
    num_columns,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    RANKS: tl.constexpr,
):
    """Sum one expert's rows for COLUMNS numbers of each, in order."""
    expert = tl.program_id(1)
    first, end = tl.load(offsets + expert), tl.load(offsets + expert + 1)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    rank = tl.arange(0, RANKS)
    total = tl.zeros((COLUMNS, RANKS), tl.float32)
    for start in range(first, end, ROWS):
        row = start + tl.arange(0, ROWS)
        inside = row < end
        source = row
        if token is not None:
            source = tl.load(token + row, mask=inside, other=0)
        mask = inside[:, None] & (column < num_columns)[None, :]
        a = tl.load(wide + source.to(tl.int64)[:, None] * wide_stride + column[None, :], mask=mask, other=0.0)
        b = tl.load(narrow + row.to(tl.int64)[:, None] * narrow_stride + rank[None, :], mask=inside[:, None], other=0.0)
        total += tl.dot(tl.trans(a), b, input_precision="ieee")
    places = (expert.to(tl.int64) * num_columns + column[:, None]) * RANKS + rank[None, :]
    tl.store(out + places, total, mask=(column < num_columns)[:, None])


# The same in PyTorch; the host waits for the numbers of rows


def _rows_of(order: Order) -> list[tuple[int, slice]]:
    return [(expert, slice(*both)) for expert, both in enumerate(itertools.pairwise(order.offsets.tolist()))]


def _multiply_twin(
    x: torch.Tensor,
    weight: torch.Tensor,
    order: Order,
    out: torch.Tensor,
    gathered: bool,
    shrunk: torch.Tensor | None,
    beside: torch.Tensor | None,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    for expert, rows in _rows_of(order):
        if rows.start == rows.stop:
            continue
        some = x[order.token[rows].long()] if gathered else x[rows]
        product = torch.mm(some, weight[expert].t())
        if shrunk is not None and beside is not None:
            product.addmm_(shrunk[rows], beside[expert].t())
        out[rows] = product if bias is None else product + bias[expert]
    return out
