"""Attention of one new token a row over what the row's cache holds, split into parts that run side by side.

Each part has its own softmax, of which the second program makes one (the log-sum-exp merge of flash decoding, Dao et
al. 2023; https://crfm.stanford.edu/2023/10/12/flashdecoding.html). The new token's key and value are written into the
cache by the program that reads them. Everything is computed in float32 and rounded once.
"""

from __future__ import annotations

import torch

from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.launch import launch
from tunesmith_engine.kernels.triton_import import jit, tl, triton
from tunesmith_engine.mixer_shapes import AttentionShape

NAME = "cached_attention"
NUMBERS = 4096
"""Keys of one turn: 32 numbers a thread, and as many of the values and of their sums."""
DOT_SIZE = 16
LEAST_TOKENS = 64
"""Of a part, so that it is worth its program."""
MOST_PARTS = 16
PROGRAMS = 512
"""Enough to fill a GPU: no more parts than that takes."""
NUM_WARPS, MORE_WARPS = 4, 8
USUAL_WIDTH = 256
"""Numbers of twice the size, and wider heads, want twice the threads for their registers."""


def num_parts(num_rows: int, num_heads: int, capacity: int) -> int:
    """Return into how many parts the tokens of a row are split."""
    return max(1, min(MOST_PARTS, capacity // LEAST_TOKENS, PROGRAMS // (num_rows * num_heads)))


def attend(
    qkv: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    lengths: torch.Tensor,
    shape: AttentionShape,
    parts: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Write the attention's output for one new token of each row, and its key and value into the cache.

    Args:
        qkv: rotated queries and keys, and values, side by side, [M, (H + K) head_dim + K value_dim], with any stride
            between rows.
        keys, values: the cache, [M, K, capacity, head_dim] and [M, K, capacity, value_dim], contiguous.
        lengths: tokens of each row that are in the cache, [M] int32, each less than the capacity; on the device.
        shape: of attention: scale, softcap, window, chunk, sinks and slopes are its own.
        parts: scratch, [M, H, num_parts, value_dim + 2] float32, contiguous.
        out: [M, H value_dim], with any stride between rows.
    """
    num_rows, num_groups, capacity, head_dim = keys.shape
    if not registry.runs(NAME, qkv.device):
        _twin(qkv, keys, values, lengths, shape, out)
        return
    num_heads, count, value_dim = shape.num_heads, parts.shape[2], values.shape[3]
    block, value_block = triton.next_power_of_2(head_dim), triton.next_power_of_2(value_dim)
    wider = max(block, value_block)
    # Matrix products want 16 queries, so a group of heads is filled up; the keys are read once for all of them.
    fits = qkv.dtype != torch.float32 and min(block, value_block) >= DOT_SIZE
    grouped = fits and registry.runs(NAME, qkv.device, needs_dot=True)
    sizes = (num_heads, num_groups, head_dim, block, value_dim, value_block)
    launch(
        _attend_grouped if grouped else _attend,
        (num_rows * (num_groups if grouped else num_heads), count, 1),
        (qkv, keys, values, lengths, parts, parts if shape.slopes is None else shape.slopes),
        (qkv.stride(0), capacity, shape.scale, shape.softcap or 1.0, shape.window or shape.chunk or 0),
        (
            *sizes,
            count,
            shape.softcap is not None,
            shape.window is not None,
            shape.chunk is not None,
            shape.slopes is not None,
            max(NUMBERS // wider, DOT_SIZE),
            max(triton.next_power_of_2(num_heads // num_groups), DOT_SIZE),
        ),
        num_warps=MORE_WARPS if qkv.dtype == torch.float32 or wider > USUAL_WIDTH else NUM_WARPS,
    )
    launch(
        _merge,
        (num_rows * num_heads, 1, 1),
        (parts, out, parts if shape.sinks is None else shape.sinks),
        (out.stride(0),),
        (num_heads, value_dim, value_block, count, triton.next_power_of_2(count), shape.sinks is not None),
        num_warps=NUM_WARPS,
    )


# Triton programs


@jit
def _attend(
    qkv, keys, values, lengths, parts, slopes, qkv_stride, capacity, scale, softcap, window,
    NUM_HEADS: tl.constexpr, NUM_GROUPS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK: tl.constexpr,
    VALUE_DIM: tl.constexpr, VALUE_BLOCK: tl.constexpr, NUM_PARTS: tl.constexpr, CAPPED: tl.constexpr,
    WINDOWED: tl.constexpr, CHUNKED: tl.constexpr, SLOPES: tl.constexpr, TOKENS: tl.constexpr, _QUERIES: tl.constexpr,
):  # fmt: skip
    """Attend with one query to a part of the row's tokens; the first part has the new token, too."""
    row = (tl.program_id(0) // NUM_HEADS).to(tl.int64)
    head = tl.program_id(0) % NUM_HEADS
    group = head // (NUM_HEADS // NUM_GROUPS)
    part = tl.program_id(1)
    column, value_column = tl.arange(0, BLOCK), tl.arange(0, VALUE_BLOCK)
    inside, value_inside = column < HEAD_DIM, value_column < VALUE_DIM
    source = qkv + row * qkv_stride
    query = tl.load(source + head * HEAD_DIM + column, mask=inside, other=0.0).to(tl.float32) * scale
    length = tl.load(lengths + row)
    begin, end = _part(length, part, window, NUM_PARTS, WINDOWED, CHUNKED, TOKENS)
    cache = (row * NUM_GROUPS + group) * capacity
    if SLOPES:
        slope = tl.load(slopes + head)
    largest = -float("inf")
    total = 0.0
    sums = tl.zeros([TOKENS, VALUE_BLOCK], tl.float32)
    for first in range(begin, end, TOKENS):
        token = first + tl.arange(0, TOKENS)
        exists = token < end
        place = (cache + token)[:, None] * HEAD_DIM + column[None, :]
        value_place = (cache + token)[:, None] * VALUE_DIM + value_column[None, :]
        key = tl.load(keys + place, mask=exists[:, None] & inside[None, :], other=0.0).to(tl.float32)
        value = tl.load(values + value_place, mask=exists[:, None] & value_inside[None, :], other=0.0).to(tl.float32)
        scores = _capped(tl.sum(key * query[None, :], axis=1), softcap, CAPPED)
        if SLOPES:
            scores -= slope * (length - token)
        scores = tl.where(exists, scores, -float("inf"))
        highest = tl.maximum(largest, tl.max(scores, axis=0))
        faded = tl.exp(largest - highest)
        weights = tl.exp(scores - highest)
        total = total * faded + tl.sum(weights, axis=0)
        sums = sums * faded + weights[:, None] * value
        largest = highest
    result = tl.sum(sums, axis=0)
    if part == 0:
        at_value = (NUM_HEADS + NUM_GROUPS) * HEAD_DIM + group * VALUE_DIM
        new_key = tl.load(source + (NUM_HEADS + group) * HEAD_DIM + column, mask=inside, other=0.0)
        new_value = tl.load(source + at_value + value_column, mask=value_inside, other=0.0)
        score = _capped(tl.sum(new_key.to(tl.float32) * query, axis=0), softcap, CAPPED)
        highest = tl.maximum(largest, score)
        faded = tl.exp(largest - highest)
        weight = tl.exp(score - highest)
        total = total * faded + weight
        result = result * faded + weight * new_value.to(tl.float32)
        largest = highest
        if head % (NUM_HEADS // NUM_GROUPS) == 0:
            tl.store(keys + (cache + length) * HEAD_DIM + column, new_key, mask=inside)
            tl.store(values + (cache + length) * VALUE_DIM + value_column, new_value, mask=value_inside)
    target = parts + ((row * NUM_HEADS + head) * NUM_PARTS + part) * (VALUE_DIM + 2)
    tl.store(target + value_column, result, mask=value_inside)
    tl.store(target + VALUE_DIM, largest)
    tl.store(target + VALUE_DIM + 1, total)


@jit
def _attend_grouped(
    qkv, keys, values, lengths, parts, slopes, qkv_stride, capacity, scale, softcap, window,
    NUM_HEADS: tl.constexpr, NUM_GROUPS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK: tl.constexpr,
    VALUE_DIM: tl.constexpr, VALUE_BLOCK: tl.constexpr, NUM_PARTS: tl.constexpr, CAPPED: tl.constexpr,
    WINDOWED: tl.constexpr, CHUNKED: tl.constexpr, SLOPES: tl.constexpr, TOKENS: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    """Do the same with all queries that share keys and values."""
    SHARING: tl.constexpr = NUM_HEADS // NUM_GROUPS
    row = (tl.program_id(0) // NUM_GROUPS).to(tl.int64)
    group, part = tl.program_id(0) % NUM_GROUPS, tl.program_id(1)
    column, value_column = tl.arange(0, BLOCK), tl.arange(0, VALUE_BLOCK)
    inside, value_inside = column < HEAD_DIM, value_column < VALUE_DIM
    head = tl.arange(0, QUERIES)
    source = qkv + row * qkv_stride
    mine = (head < SHARING)[:, None] & inside[None, :]
    query = tl.load(source + (group * SHARING + head)[:, None] * HEAD_DIM + column[None, :], mask=mine, other=0.0)
    length = tl.load(lengths + row)
    begin, end = _part(length, part, window, NUM_PARTS, WINDOWED, CHUNKED, TOKENS)
    cache = (row * NUM_GROUPS + group) * capacity
    if SLOPES:
        slope = tl.load(slopes + group * SHARING + head, mask=head < SHARING, other=0.0)
    largest = tl.full([QUERIES], -float("inf"), tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    result = tl.zeros([QUERIES, VALUE_BLOCK], tl.float32)
    for first in range(begin, end, TOKENS):
        token = first + tl.arange(0, TOKENS)
        exists = token < end
        place = (cache + token)[:, None] * HEAD_DIM + column[None, :]
        value_place = (cache + token)[:, None] * VALUE_DIM + value_column[None, :]
        key = tl.load(keys + place, mask=exists[:, None] & inside[None, :], other=0.0)
        value = tl.load(values + value_place, mask=exists[:, None] & value_inside[None, :], other=0.0)
        scores = _capped(tl.dot(query, tl.trans(key)) * scale, softcap, CAPPED)
        if SLOPES:
            scores -= slope[:, None] * (length - token)[None, :]
        scores = tl.where(exists[None, :], scores, -float("inf"))
        highest = tl.maximum(largest, tl.max(scores, axis=1))
        faded = tl.exp(largest - highest)
        weights = tl.exp(scores - highest[:, None])
        total = total * faded + tl.sum(weights, axis=1)
        result = result * faded[:, None] + tl.dot(weights.to(value.dtype), value)
        largest = highest
    if part == 0:
        at_value = (NUM_HEADS + NUM_GROUPS) * HEAD_DIM + group * VALUE_DIM
        new_key = tl.load(source + (NUM_HEADS + group) * HEAD_DIM + column, mask=inside, other=0.0)
        new_value = tl.load(source + at_value + value_column, mask=value_inside, other=0.0)
        score = tl.sum(query.to(tl.float32) * new_key.to(tl.float32)[None, :], axis=1)
        score = _capped(score * scale, softcap, CAPPED)
        highest = tl.maximum(largest, score)
        faded = tl.exp(largest - highest)
        weight = tl.exp(score - highest)
        total = total * faded + weight
        result = result * faded[:, None] + weight[:, None] * new_value.to(tl.float32)[None, :]
        largest = highest
        tl.store(keys + (cache + length) * HEAD_DIM + column, new_key, mask=inside)
        tl.store(values + (cache + length) * VALUE_DIM + value_column, new_value, mask=value_inside)
    target = parts + ((row * NUM_HEADS + group * SHARING + head) * NUM_PARTS + part) * (VALUE_DIM + 2)
    mine = (head < SHARING)[:, None] & value_inside[None, :]
    tl.store(target[:, None] + value_column[None, :], result, mask=mine)
    tl.store(target + VALUE_DIM, largest, mask=head < SHARING)
    tl.store(target + VALUE_DIM + 1, total, mask=head < SHARING)


@jit
def _merge(
    parts,
    out,
    sinks,
    out_stride,
    NUM_HEADS: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    NUM_PARTS: tl.constexpr,
    PARTS_BLOCK: tl.constexpr,
    SINKS: tl.constexpr,
):
    """Make one softmax of those of the parts, and of a sink; the first part is never empty."""
    row = (tl.program_id(0) // NUM_HEADS).to(tl.int64)
    head = tl.program_id(0) % NUM_HEADS
    part = tl.arange(0, PARTS_BLOCK)
    column = tl.arange(0, BLOCK)
    exists = part < NUM_PARTS
    source = parts + ((row * NUM_HEADS + head) * NUM_PARTS + part) * (VALUE_DIM + 2)
    largest = tl.load(source + VALUE_DIM, mask=exists, other=-float("inf"))
    total = tl.load(source + VALUE_DIM + 1, mask=exists, other=0.0)
    highest = tl.max(largest, axis=0)
    if SINKS:
        sink = tl.load(sinks + head).to(tl.float32)
        highest = tl.maximum(highest, sink)
    share = tl.exp(largest - highest)
    valid = exists[:, None] & (column < VALUE_DIM)[None, :]
    sums = tl.load(source[:, None] + column[None, :], mask=valid, other=0.0)
    whole = tl.sum(total * share, axis=0)
    if SINKS:
        whole += tl.exp(sink - highest)
    result = tl.sum(sums * share[:, None], axis=0) / whole
    place = out + row * out_stride + head * VALUE_DIM + column
    tl.store(place, result.to(out.dtype.element_ty), mask=column < VALUE_DIM)


@jit
def _part(
    length,
    part,
    window,
    NUM_PARTS: tl.constexpr,
    WINDOWED: tl.constexpr,
    CHUNKED: tl.constexpr,
    TOKENS: tl.constexpr,
):
    """Return the bounds of a part of a row's tokens, in whole turns; an empty one begins at or behind its end."""
    start = 0
    if WINDOWED:
        start = tl.maximum(length - window + 1, 0)
    if CHUNKED:
        start = length // window * window
    share = tl.cdiv(tl.cdiv(length - start, NUM_PARTS), TOKENS) * TOKENS
    begin = start + part * share
    return begin, tl.minimum(begin + share, length)


@jit
def _capped(scores, softcap, CAPPED: tl.constexpr):
    """Return softcap * tanh(scores / softcap) without overflow, where the model caps its scores."""
    if CAPPED:
        x = scores / softcap
        small = tl.exp(-2.0 * tl.abs(x))
        size = (1.0 - small) / (1.0 + small)
        scores = softcap * tl.where(x >= 0, size, -size)
    return scores


# The same in PyTorch; float64 stays float64


def _twin(
    qkv: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    lengths: torch.Tensor,
    shape: AttentionShape,
    out: torch.Tensor,
) -> None:
    num_rows, num_groups, capacity, head_dim = keys.shape
    sizes = [shape.num_heads * head_dim, num_groups * head_dim, num_groups * values.shape[3]]
    query, new_key, new_value = qkv.split(sizes, dim=1)
    query, new_key = query.unflatten(1, (-1, head_dim)), new_key.unflatten(1, (-1, head_dim))
    new_value = new_value.unflatten(1, (num_groups, -1))
    rows, places = torch.arange(num_rows, device=qkv.device), lengths.long()
    keys[rows, :, places] = new_key
    values[rows, :, places] = new_value
    # [M, K, heads of a group, head_dim]
    wide = torch.promote_types(qkv.dtype, torch.float32)
    query = query.to(wide).unflatten(1, (num_groups, -1))
    scores = _head_by_head(query, keys.to(wide).transpose(2, 3)) * shape.scale
    if shape.softcap is not None:
        scores = shape.softcap * torch.tanh(scores / shape.softcap)
    token = torch.arange(capacity, device=qkv.device)
    seen = token <= places[:, None]
    if shape.window is not None:
        seen &= token > places[:, None] - shape.window
    if shape.chunk is not None:
        seen &= token >= (places // shape.chunk * shape.chunk)[:, None]
    if shape.slopes is not None:
        lost = shape.slopes.to(wide).view(num_groups, -1, 1) * (places[:, None] - token)[:, None, None]
        scores = scores - lost
    scores = scores.masked_fill(~seen[:, None, None], -torch.inf)
    if shape.sinks is not None:
        sinks = shape.sinks.to(wide).view(num_groups, -1, 1).expand(num_rows, -1, -1, -1)
        scores = torch.cat((scores, sinks), -1)
    shares = scores.softmax(-1)[..., :capacity]
    out.copy_(_head_by_head(shares, values.to(wide)).flatten(1))


def _head_by_head(rows: torch.Tensor, matrices: torch.Tensor) -> torch.Tensor:
    """Return [M, K, G, N] of rows [M, K, G, D] and matrices [M, K, D, N], each of the G rows by itself.

    Together a GPU takes them as products of matrices, and adds up wide heads in one chain: an H200 erred eight times as
    much in float32.
    """
    return torch.cat([rows[:, :, [head]] @ matrices for head in range(rows.shape[2])], 2)
