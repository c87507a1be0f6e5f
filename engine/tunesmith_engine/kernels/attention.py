"""Causal attention inside documents in Triton, with all that the vendors' kernels lack, such as a softcap.

Forward and backward follow algorithms 1 and 2 of FlashAttention-2 (arXiv 2307.08691), with one change for packed
documents: blocks are cut from the whole batch, not from each document. A query sees the keys from the first token of
its document, found by bisection in the bounds, to itself; that interval is the whole mask, so a hundred short documents
cost no more blocks than one long one, and no sizes are needed on the host. Gradients of queries and of keys are two
kernels, each adding up in a fixed order. The PyTorch twin is the last backend (`attention.plain`).

A sink is a score of each head's own, with nothing to give, that stands among a query's scores from the beginning: it
is in the log-sum-exp, so the backward pass is as without, and its own gradient is left over from it (`sink_gradient`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.triton_import import jit, tl, triton
from tunesmith_engine.mixer_shapes import AttentionShape

LARGEST_HEAD_DIM = 256
NEVER = -1.0e30
"""Start of a running maximum: finite, so that a row without keys yet gives no NaN."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Rows and keys of a block, warps, and loads in flight."""

    rows: int
    keys: int
    num_warps: int
    num_stages: int = 2


@dataclass(frozen=True, slots=True)
class Tiling:
    """Blocks of the three kernels."""

    forward: Blocks
    query_gradient: Blocks
    key_gradient: Blocks


TILINGS = {
    64: Tiling(Blocks(128, 64, 8), Blocks(64, 64, 4), Blocks(64, 64, 4)),
    128: Tiling(Blocks(128, 64, 8), Blocks(32, 64, 4), Blocks(32, 64, 4)),
    256: Tiling(Blocks(64, 32, 8), Blocks(16, 64, 8, 1), Blocks(16, 64, 8, 1)),
}
"""By the largest head: what fits the 99 KiB of shared memory and the registers of consumer GPUs."""

WIDE_ON_SERVERS = Tiling(Blocks(128, 64, 8), Blocks(64, 64, 8), Blocks(32, 64, 8, 1))
"""For the widest heads on GPUs of compute capability 9 and 10, which have 227 KiB."""

UNSPECIALISED = ["num_tokens", "num_documents", "search_steps", "window", "group"]
"""Their values change with each batch and would each compile the kernel again."""


@jit
def _document(bounds_ptr, num_documents, search_steps, tokens):
    """Return the first token of each token's document and the one behind its last."""
    low = tokens * 0
    high = low + num_documents
    for _ in range(search_steps):
        middle = (low + high) // 2
        before = tl.load(bounds_ptr + middle) <= tokens
        low = tl.where(before, middle, low)
        high = tl.where(before, high, middle)
    return tl.load(bounds_ptr + low), tl.load(bounds_ptr + low + 1)


@jit
def _tile(pointer, tokens, token_stride, dims, num_tokens, HEAD_DIM: tl.constexpr):
    """Load [tokens, dims] of one head, zeros where there is nothing."""
    places = tokens.to(tl.int64)[:, None] * token_stride + dims[None, :]
    return tl.load(pointer + places, mask=(tokens < num_tokens)[:, None] & (dims < HEAD_DIM)[None, :], other=0.0)


@jit
def _put(pointer, tokens, token_stride, dims, num_tokens, values, HEAD_DIM: tl.constexpr):
    """Store [tokens, dims] of one head in the tensor's own number format."""
    places = tokens.to(tl.int64)[:, None] * token_stride + dims[None, :]
    mask = (tokens < num_tokens)[:, None] & (dims < HEAD_DIM)[None, :]
    tl.store(pointer + places, values.to(pointer.dtype.element_ty), mask=mask)


@jit
def _first_key(begin, rows, window, CHUNKED: tl.constexpr):
    """Return the first key that each row sees: within the window, or within the row's chunk of its document."""
    if CHUNKED:
        return begin + (rows - begin) // window * window
    return tl.maximum(begin, rows - window + 1)


@jit
def _behind_last_row(begin, end, keys, window, CHUNKED: tl.constexpr):
    """Return the row behind the last one that sees each key."""
    if CHUNKED:
        return tl.minimum(end, begin + ((keys - begin) // window + 1) * window)
    return tl.minimum(end, keys + window)


@jit
def _tanh(x):
    # exp may overflow to infinity: the quotient is zero then, which is right.
    return 1.0 - 2.0 / (tl.exp(2.0 * x) + 1.0)


@jit(do_not_specialize=UNSPECIALISED)
def _forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, log_sum_ptr, bounds_ptr, slopes_ptr, sinks_ptr,
    q_token, q_head, k_token, k_head, v_token, v_head, o_token, o_head,
    num_tokens, num_documents, search_steps, window, group, scale, softcap,
    HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_WIDTH: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, SOFTCAP: tl.constexpr, SLOPES: tl.constexpr, CHUNKED: tl.constexpr,
    SINKS: tl.constexpr, START: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    dims = tl.arange(0, WIDTH)
    value_dims = tl.arange(0, VALUE_WIDTH)
    begin, _end = _document(bounds_ptr, num_documents, search_steps, rows)
    first = _first_key(begin, rows, window, CHUNKED)
    q = _tile(q_ptr + head * q_head, rows, q_token, dims, num_tokens, HEAD_DIM)
    slope = tl.load(slopes_ptr + head) if SLOPES else 0.0
    maximum = tl.full([ROWS], START, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    if SINKS:
        maximum = tl.zeros([ROWS], tl.float32) + tl.load(sinks_ptr + head).to(tl.float32)
        total += 1.0
    result = tl.zeros([ROWS, VALUE_WIDTH], tl.float32)
    for start in range(tl.min(first, 0) // KEYS * KEYS, tl.minimum(tl.max(rows, 0) + 1, num_tokens), KEYS):
        keys = start + tl.arange(0, KEYS)
        k = _tile(k_ptr + head // group * k_head, keys, k_token, dims, num_tokens, HEAD_DIM)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        if SOFTCAP:
            scores = _tanh(scores / softcap) * softcap
        if SLOPES:
            scores -= slope * (rows[:, None] - keys[None, :])
        seen = (keys[None, :] >= first[:, None]) & (keys[None, :] <= rows[:, None])
        scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(maximum, tl.max(scores, 1))
        weights = tl.exp(scores - higher[:, None])
        shrink = tl.exp(maximum - higher)
        total = total * shrink + tl.sum(weights, 1)
        v = _tile(v_ptr + head // group * v_head, keys, v_token, value_dims, num_tokens, VALUE_DIM)
        result = result * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        maximum = higher
    total = tl.where(total > 0, total, 1.0)
    _put(o_ptr + head * o_head, rows, o_token, value_dims, num_tokens, result / total[:, None], VALUE_DIM)
    tl.store(log_sum_ptr + head * num_tokens + rows, maximum + tl.log(total), mask=rows < num_tokens)


@jit
def _derivatives(
    q, k, v, do, log_sum, share, rows, keys, first, slope, scale, softcap, SOFTCAP: tl.constexpr, SLOPES: tl.constexpr
):
    """Return the weights [rows, keys] of a block and the derivatives of its scores before scale, in float32.

    Rows behind the last token have zeros for q and do: they add nothing.
    """
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    if SOFTCAP:
        curve = _tanh(scores / softcap)
        scores = curve * softcap
    if SLOPES:
        scores -= slope * (rows[:, None] - keys[None, :])
    seen = (keys[None, :] >= first[:, None]) & (keys[None, :] <= rows[:, None])
    weights = tl.where(seen, tl.exp(scores - log_sum[:, None]), 0.0)
    d_scores = weights * (tl.dot(do, tl.trans(v), input_precision="ieee") - share[:, None])
    if SOFTCAP:
        d_scores = d_scores * (1.0 - curve * curve)
    return weights, d_scores


@jit(do_not_specialize=UNSPECIALISED)
def _query_gradient_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, do_ptr, log_sum_ptr, share_ptr, dq_ptr, bounds_ptr, slopes_ptr,
    q_token, q_head, k_token, k_head, v_token, v_head, o_token, o_head, do_token, do_head, dq_token, dq_head,
    num_tokens, num_documents, search_steps, window, group, scale, softcap,
    HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_WIDTH: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, SOFTCAP: tl.constexpr, SLOPES: tl.constexpr, CHUNKED: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    dims = tl.arange(0, WIDTH)
    value_dims = tl.arange(0, VALUE_WIDTH)
    begin, _end = _document(bounds_ptr, num_documents, search_steps, rows)
    first = _first_key(begin, rows, window, CHUNKED)
    q = _tile(q_ptr + head * q_head, rows, q_token, dims, num_tokens, HEAD_DIM)
    do = _tile(do_ptr + head * do_head, rows, do_token, value_dims, num_tokens, VALUE_DIM)
    o = _tile(o_ptr + head * o_head, rows, o_token, value_dims, num_tokens, VALUE_DIM)
    share = tl.sum(do.to(tl.float32) * o.to(tl.float32), 1)
    tl.store(share_ptr + head * num_tokens + rows, share, mask=rows < num_tokens)
    log_sum = tl.load(log_sum_ptr + head * num_tokens + rows, mask=rows < num_tokens, other=0.0).to(tl.float32)
    slope = tl.load(slopes_ptr + head) if SLOPES else 0.0
    result = tl.zeros([ROWS, WIDTH], tl.float32)
    for start in range(tl.min(first, 0) // KEYS * KEYS, tl.minimum(tl.max(rows, 0) + 1, num_tokens), KEYS):
        keys = start + tl.arange(0, KEYS)
        k = _tile(k_ptr + head // group * k_head, keys, k_token, dims, num_tokens, HEAD_DIM)
        v = _tile(v_ptr + head // group * v_head, keys, v_token, value_dims, num_tokens, VALUE_DIM)
        _weights, d_scores = _derivatives(
            q, k, v, do, log_sum, share, rows, keys, first, slope, scale, softcap, SOFTCAP, SLOPES
        )
        result += tl.dot(d_scores.to(k.dtype), k, input_precision="ieee")
    _put(dq_ptr + head * dq_head, rows, dq_token, dims, num_tokens, result * scale, HEAD_DIM)


@jit(do_not_specialize=UNSPECIALISED)
def _key_gradient_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, log_sum_ptr, share_ptr, dk_ptr, dv_ptr, bounds_ptr, slopes_ptr,
    q_token, q_head, k_token, k_head, v_token, v_head, do_token, do_head, dk_token, dk_head, dv_token, dv_head,
    num_tokens, num_documents, search_steps, window, group, scale, softcap,
    HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_WIDTH: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, SOFTCAP: tl.constexpr, SLOPES: tl.constexpr, CHUNKED: tl.constexpr,
):  # fmt: skip
    key_head = tl.program_id(1).to(tl.int64)
    keys = tl.program_id(0) * KEYS + tl.arange(0, KEYS)
    dims = tl.arange(0, WIDTH)
    value_dims = tl.arange(0, VALUE_WIDTH)
    of_keys, end = _document(bounds_ptr, num_documents, search_steps, keys)
    behind = tl.max(_behind_last_row(of_keys, end, keys, window, CHUNKED), 0)
    k = _tile(k_ptr + key_head * k_head, keys, k_token, dims, num_tokens, HEAD_DIM)
    v = _tile(v_ptr + key_head * v_head, keys, v_token, value_dims, num_tokens, VALUE_DIM)
    dk = tl.zeros([KEYS, WIDTH], tl.float32)
    dv = tl.zeros([KEYS, VALUE_WIDTH], tl.float32)
    for member in range(group):
        head = key_head * group + member
        slope = tl.load(slopes_ptr + head) if SLOPES else 0.0
        for start in range(tl.program_id(0) * KEYS // ROWS * ROWS, tl.minimum(behind, num_tokens), ROWS):
            rows = start + tl.arange(0, ROWS)
            begin, _end = _document(bounds_ptr, num_documents, search_steps, rows)
            first = _first_key(begin, rows, window, CHUNKED)
            q = _tile(q_ptr + head * q_head, rows, q_token, dims, num_tokens, HEAD_DIM)
            do = _tile(do_ptr + head * do_head, rows, do_token, value_dims, num_tokens, VALUE_DIM)
            places = head * num_tokens + rows
            log_sum = tl.load(log_sum_ptr + places, mask=rows < num_tokens, other=0.0).to(tl.float32)
            share = tl.load(share_ptr + places, mask=rows < num_tokens, other=0.0).to(tl.float32)
            weights, d_scores = _derivatives(
                q, k, v, do, log_sum, share, rows, keys, first, slope, scale, softcap, SOFTCAP, SLOPES
            )
            dv += tl.dot(tl.trans(weights.to(do.dtype)), do, input_precision="ieee")
            dk += tl.dot(tl.trans(d_scores.to(q.dtype)), q, input_precision="ieee")
    _put(dk_ptr + key_head * dk_head, keys, dk_token, dims, num_tokens, dk * scale, HEAD_DIM)
    _put(dv_ptr + key_head * dv_head, keys, dv_token, value_dims, num_tokens, dv, VALUE_DIM)


def forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    bounds: torch.Tensor,
    shape: AttentionShape,
    out: torch.Tensor,
) -> torch.Tensor:
    """Write attention's output and return the log-sum-exp of each query's scores, [H, T] float32, natural logarithm.

    Args:
        q: queries [T, H, hd]; float16 or bfloat16 (float32 is for tests in the interpreter); rows and heads may
            lie apart.
        k, v: keys [T, KV, hd] and values [T, KV, vd] of the same format.
        bounds: start of each document and the end of the last, [num_documents + 1] int32; empty ones may follow.
        shape: of attention; a sink is in the log-sum-exp.
        out: [T, H, vd].
    """
    log_sums = torch.empty(q.shape[1], q.shape[0], dtype=torch.float32, device=q.device)
    blocks = _tiling(q, v).forward
    grid = (triton.cdiv(q.shape[0], blocks.rows), q.shape[1])
    _forward_kernel[grid](
        *(q, k, v, out, log_sums, bounds),
        *(log_sums if extra is None else extra for extra in (shape.slopes, shape.sinks)),
        *strides(q, k, v, out),
        *numbers(q, k, bounds, shape),
        START=NEVER,
        SINKS=shape.sinks is not None,
        **_form(q, v, shape, blocks),
    )
    return log_sums


def backward(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    log_sums: torch.Tensor,
    bounds: torch.Tensor,
    shape: AttentionShape,
    outs: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
) -> torch.Tensor:
    """Write the gradients of q, k and v; the same bits in every run.

    Args:
        do: gradient of the output [T, H, vd].
        o, log_sums: as `forward` left them.
        outs: [T, H, hd], [T, KV, hd] and [T, KV, vd]; none of the inputs.
        others: as in `forward`.

    Returns:
        Each query's sum of do * o, [H, T] float32.
    """
    dq, dk, dv = outs
    shares = torch.empty_like(log_sums)
    tiling = _tiling(q, v)
    of_batch = numbers(q, k, bounds, shape)
    slopes = log_sums if shape.slopes is None else shape.slopes
    # The first kernel also leaves each query's sum of do * o for the second.
    blocks = tiling.query_gradient
    _query_gradient_kernel[(triton.cdiv(q.shape[0], blocks.rows), q.shape[1])](
        *(q, k, v, o, do, log_sums, shares, dq, bounds, slopes),
        *strides(q, k, v, o, do, dq),
        *of_batch,
        **_form(q, v, shape, blocks),
    )
    blocks = tiling.key_gradient
    _key_gradient_kernel[(triton.cdiv(q.shape[0], blocks.keys), k.shape[1])](
        *(q, k, v, do, log_sums, shares, dk, dv, bounds, slopes),
        *strides(q, k, v, do, dk, dv),
        *of_batch,
        **_form(q, v, shape, blocks),
    )
    return shares


def sink_gradient(sinks: torch.Tensor, log_sums: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    """Return the gradient of sinks, [H] float32, from what a forward and a backward pass leave, [H, T] each.

    A sink's value is zero, so of the derivative weight * (do v - share) of a score only the share is left.
    """
    return -(torch.exp(sinks[:, None] - log_sums) * shares).sum(1)


def _tiling(q: torch.Tensor, v: torch.Tensor) -> Tiling:
    widest = max(q.shape[2], v.shape[2])
    width = next(width for width in TILINGS if widest <= width)
    if width == LARGEST_HEAD_DIM and registry.is_server(q.device):
        return WIDE_ON_SERVERS
    return TILINGS[width]


def strides(*tensors: torch.Tensor) -> list[int]:
    """Return the numbers between tokens and between heads of each tensor, for a launch."""
    return [stride for tensor in tensors for stride in tensor.stride()[:2]]


def numbers(
    q: torch.Tensor, k: torch.Tensor, bounds: torch.Tensor, shape: AttentionShape
) -> tuple[int | float, ...]:
    """Return what a launch is told of a batch: its sizes, how far a query sees, the scale and the softcap."""
    num_tokens, num_documents = q.shape[0], bounds.numel() - 1
    reach = min(shape.window or shape.chunk or num_tokens, num_tokens)
    group = q.shape[1] // k.shape[1]
    return num_tokens, num_documents, num_documents.bit_length(), reach, group, shape.scale, shape.softcap or 0.0


def _form(q: torch.Tensor, v: torch.Tensor, shape: AttentionShape, blocks: Blocks) -> dict[str, int | bool]:
    return {
        "HEAD_DIM": q.shape[2],
        "WIDTH": max(16, triton.next_power_of_2(q.shape[2])),
        "VALUE_DIM": v.shape[2],
        "VALUE_WIDTH": max(16, triton.next_power_of_2(v.shape[2])),
        "ROWS": blocks.rows,
        "KEYS": blocks.keys,
        "SOFTCAP": shape.softcap is not None,
        "SLOPES": shape.slopes is not None,
        "CHUNKED": shape.chunk is not None,
        "num_warps": blocks.num_warps,
        "num_stages": blocks.num_stages,
    }
