"""Weights of attention with heads too wide for one tile, and the derivatives of their scores, written to memory.

A flash kernel keeps whole heads of a block of queries next to the block's scores, which for 512 numbers a head leaves
room for few rows, and its backward pass then waits for memory. Here a head is read in pieces while scores add up, and
weights are written for a slice of queries, in 16 bits, so that what is made of them are plain products of matrices
(`attention.wide`). The PyTorch twin is the last backend (`attention.plain`).

# T tokens, H heads of D numbers, R queries of a slice that begins at token r, S keys that begin at token s
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.attention import NEVER, Blocks, _document, _first_key, _tile, numbers, strides
from tunesmith_engine.kernels.triton_import import jit, tl, triton
from tunesmith_engine.mixer_shapes import AttentionShape

NUMBERS = 64
"""Of a head that are read at once."""
SMALL = Blocks(128, 64, 8, 3)
"""72 KiB of shared memory at most: what consumer GPUs have room for."""
LARGE = Blocks(128, 128, 8, 3)
"""For GPUs of compute capability 9 and 10: 96 KiB."""

COLUMN_STEP = 64
"""Rows of weights begin at whole multiples of it, so that stores and products load 16 bytes at once."""

UNSPECIALISED = ["num_tokens", "num_documents", "search_steps", "window", "group", "first_row", "first_key", "num_rows"]
"""Their values change with each batch and slice, and would each compile the kernel again."""


@jit
def _products(
    a_ptr, b_ptr, rows, keys, a_token, b_token, num_tokens,
    HEAD_DIM: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, NUMBERS: tl.constexpr,
):  # fmt: skip
    """Return a b^T of one head, [rows, keys] in float32, read in pieces of the head."""
    result = tl.zeros([ROWS, KEYS], tl.float32)
    for start in range(0, HEAD_DIM, NUMBERS):
        dims = start + tl.arange(0, NUMBERS)
        a = _tile(a_ptr, rows, a_token, dims, num_tokens, HEAD_DIM)
        b = _tile(b_ptr, keys, b_token, dims, num_tokens, HEAD_DIM)
        result += tl.dot(a, tl.trans(b), input_precision="ieee")
    return result


@jit(do_not_specialize=UNSPECIALISED)
def _log_sum_kernel(
    q_ptr, k_ptr, log_sum_ptr, bounds_ptr, q_token, q_head, k_token, k_head,
    num_tokens, num_documents, search_steps, window, group, scale,
    HEAD_DIM: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, NUMBERS: tl.constexpr, START: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    begin, _end = _document(bounds_ptr, num_documents, search_steps, rows)
    first = _first_key(begin, rows, window, False)
    maximum = tl.full([ROWS], START, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    for start in range(tl.min(first, 0) // KEYS * KEYS, tl.minimum(tl.max(rows, 0) + 1, num_tokens), KEYS):
        keys = start + tl.arange(0, KEYS)
        scores = scale * _products(
            q_ptr + head * q_head, k_ptr + head // group * k_head, rows, keys, q_token, k_token, num_tokens,
            HEAD_DIM, ROWS, KEYS, NUMBERS,
        )  # fmt: skip
        seen = (keys[None, :] >= first[:, None]) & (keys[None, :] <= rows[:, None])
        scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(maximum, tl.max(scores, 1))
        total = total * tl.exp(maximum - higher) + tl.sum(tl.exp(scores - higher[:, None]), 1)
        maximum = higher
    total = tl.where(total > 0, total, 1.0)
    tl.store(log_sum_ptr + head * num_tokens + rows, maximum + tl.log(total), mask=rows < num_tokens)


@jit(do_not_specialize=UNSPECIALISED)
def _weights_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, log_sum_ptr, share_ptr, weights_ptr, slopes_ptr, bounds_ptr,
    q_token, q_head, k_token, k_head, v_token, v_head, do_token, do_head,
    num_tokens, num_documents, search_steps, window, group, scale, first_row, first_key, num_rows, num_columns,
    HEAD_DIM: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, NUMBERS: tl.constexpr, SLOPES: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(2).to(tl.int64)
    row, column = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.program_id(0) * KEYS + tl.arange(0, KEYS)
    rows, keys = first_row + row, first_key + column
    begin, _end = _document(bounds_ptr, num_documents, search_steps, rows)
    first = _first_key(begin, rows, window, False)
    weights = tl.zeros([ROWS, KEYS], tl.float32)
    slopes = tl.zeros([ROWS, KEYS], tl.float32)
    # A block that none of its rows sees is zeros, without a product.
    if (tl.min(keys, 0) <= tl.max(rows, 0)) & (tl.max(keys, 0) >= tl.min(first, 0)):
        log_sum = tl.load(log_sum_ptr + head * num_tokens + rows, mask=rows < num_tokens, other=0.0)
        scores = scale * _products(
            q_ptr + head * q_head, k_ptr + head // group * k_head, rows, keys, q_token, k_token, num_tokens,
            HEAD_DIM, ROWS, KEYS, NUMBERS,
        )  # fmt: skip
        seen = (keys[None, :] >= first[:, None]) & (keys[None, :] <= rows[:, None])
        weights = tl.where(seen, tl.exp(scores - log_sum[:, None]), 0.0)
        if SLOPES:
            share = tl.load(share_ptr + head * num_rows + row, mask=row < num_rows, other=0.0)
            of_weights = _products(
                do_ptr + head * do_head, v_ptr + head // group * v_head, rows, keys, do_token, v_token, num_tokens,
                HEAD_DIM, ROWS, KEYS, NUMBERS,
            )  # fmt: skip
            slopes = weights * (of_weights - share[:, None])
    places = (head * num_rows + row)[:, None] * num_columns + column[None, :]
    inside = (row < num_rows)[:, None] & (column < num_columns)[None, :]
    tl.store(weights_ptr + places, weights.to(weights_ptr.dtype.element_ty), mask=inside)
    if SLOPES:
        tl.store(slopes_ptr + places, slopes.to(slopes_ptr.dtype.element_ty), mask=inside)


@dataclass(frozen=True, slots=True)
class Slice:
    """Queries that are taken together, and the keys that any of them may see.

    Attributes:
        rows, keys: of the batch; the last row is the last key.
    """

    rows: slice
    keys: slice

    @property
    def num_rows(self) -> int:
        """How many queries, R."""
        return self.rows.stop - self.rows.start

    @property
    def num_keys(self) -> int:
        """How many keys, S."""
        return self.keys.stop - self.keys.start

    @property
    def num_columns(self) -> int:
        """Numbers between rows of weights: S or a little more."""
        return triton.cdiv(self.num_keys, COLUMN_STEP) * COLUMN_STEP


def log_sums(q: torch.Tensor, k: torch.Tensor, bounds: torch.Tensor, shape: AttentionShape) -> torch.Tensor:
    """Return the log-sum-exp of each query's scores, [H, T] float32, natural logarithm.

    Args:
        q, k: queries [T, H, D] and keys [T, KV, D], float16 or bfloat16; rows and heads may lie apart.
        bounds: start of each document and the end of the last, [num_documents + 1] int32; empty ones may follow.
        shape: of attention: its scale and window are used.
    """
    found = torch.empty(q.shape[1], q.shape[0], dtype=torch.float32, device=q.device)
    blocks = _blocks(q)
    _log_sum_kernel[(triton.cdiv(q.shape[0], blocks.rows), q.shape[1])](
        *(q, k, found, bounds),
        *strides(q, k),
        *numbers(q, k, bounds, shape)[:-1],
        START=NEVER,
        **_form(q, blocks),
    )
    return found


def weights_of(
    part: Slice,
    q: torch.Tensor,
    k: torch.Tensor,
    log_sums: torch.Tensor,
    bounds: torch.Tensor,
    shape: AttentionShape,
    out: torch.Tensor,
) -> None:
    """Write how much a slice's queries take of each key, zeros where they don't see it.

    Args:
        out: room for H R rows of `part.num_columns` numbers, in the format of q.
        others: as in `log_sums` and as it returned them.
    """
    _write(part, (q, k, k, q), (log_sums, log_sums), bounds, shape, (out, out), False)


def weights_and_slopes_of(
    part: Slice,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    do: torch.Tensor,
    log_sums: torch.Tensor,
    shares: torch.Tensor,
    bounds: torch.Tensor,
    shape: AttentionShape,
    outs: tuple[torch.Tensor, torch.Tensor],
) -> None:
    """Write the weights and the derivatives by the scores before scale.

    Args:
        v, do: values [T, KV, D] and the output's gradient [T, H, D].
        shares: each of the slice's queries' sum of do * o, [H, R] float32.
        outs: of weights and derivatives, as in `weights_of`.
        others: as in `weights_of`.
    """
    _write(part, (q, k, v, do), (log_sums, shares), bounds, shape, outs, True)


def _write(
    part: Slice,
    operands: tuple[torch.Tensor, ...],
    by_row: tuple[torch.Tensor, torch.Tensor],
    bounds: torch.Tensor,
    shape: AttentionShape,
    outs: tuple[torch.Tensor, torch.Tensor],
    with_slopes: bool,
) -> None:
    q, k, *_ = operands
    blocks = _blocks(q)
    grid = triton.cdiv(part.num_columns, blocks.keys), triton.cdiv(part.num_rows, blocks.rows), q.shape[1]
    _weights_kernel[grid](
        *operands,
        *by_row,
        *outs,
        bounds,
        *strides(*operands),
        *numbers(q, k, bounds, shape)[:-1],
        *(part.rows.start, part.keys.start, part.num_rows, part.num_columns),
        SLOPES=with_slopes,
        **_form(q, blocks),
    )


def _blocks(q: torch.Tensor) -> Blocks:
    return LARGE if registry.is_server(q.device) else SMALL


def _form(q: torch.Tensor, blocks: Blocks) -> dict[str, int]:
    return {
        "HEAD_DIM": q.shape[2],
        "ROWS": blocks.rows,
        "KEYS": blocks.keys,
        "NUMBERS": NUMBERS,
        "num_warps": blocks.num_warps,
        "num_stages": blocks.num_stages,
    }
