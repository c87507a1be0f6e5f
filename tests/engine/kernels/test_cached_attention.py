"""Attention of a new token over a cache: every row by its own length, window and cap, and the cache grows by it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.engine.kernels.conftest import DTYPES, rows
from tests.engine.numerics import REDUCTION, judge, mutants_fail
from tunesmith_engine.kernels.cached_attention import attend, num_parts
from tunesmith_engine.mixer_shapes import AttentionShape

NOTHING = torch.nn.Identity()
SHAPE = AttentionShape((), NOTHING, num_heads=4, num_key_value_heads=2, head_dim=16, scale=0.2)
CASES = {
    "plain": SHAPE,
    "odd head": replace(SHAPE, head_dim=24, num_heads=6),
    "window": replace(SHAPE, window=70),
    "short window": replace(SHAPE, window=1),
    "cap": replace(SHAPE, softcap=1.5),
    "wide head": replace(SHAPE, head_dim=256, num_heads=2, num_key_value_heads=1),
    "sinks": replace(SHAPE, sinks=torch.linspace(-1.0, 2.5, 4)),
    "slopes": replace(SHAPE, slopes=torch.linspace(0.5, 0.01, 4)),
    "chunk": replace(SHAPE, chunk=70),
    "narrow values": replace(SHAPE, head_dim=24, num_heads=6, value_size=16),
    "wide values": replace(SHAPE, value_size=40, sinks=torch.linspace(-1.0, 2.5, 4), window=70),
}
LENGTHS = (0, 5, 64, 199)
CAPACITY = 200


def _parts(shape: AttentionShape, qkv: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return queries, keys and values, [rows, heads, size] each."""
    counts = shape.num_heads, shape.num_key_value_heads, shape.num_key_value_heads
    widths = shape.head_dim, shape.head_dim, shape.value_dim
    parts = qkv.split([count * width for count, width in zip(counts, widths, strict=True)], dim=1)
    return tuple(part.unflatten(1, (count, -1)) for part, count in zip(parts, counts, strict=True))


def exact(
    shape: AttentionShape, qkv: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """Return attention row by row, in a number format, from the tokens that there are."""
    outs = []
    for row, length in enumerate(LENGTHS):
        query, new_key, new_value = (part[0].to(dtype) for part in _parts(shape, qkv[row][None]))
        start = max(0, length + 1 - shape.window) if shape.window else 0
        start = length // shape.chunk * shape.chunk if shape.chunk else start
        heads = []
        for head in range(shape.num_heads):
            group = head // (shape.num_heads // shape.num_key_value_heads)
            key = torch.cat((keys[row, group, :length].to(dtype), new_key[group][None]))[start:]
            value = torch.cat((values[row, group, :length].to(dtype), new_value[group][None]))[start:]
            scores = key @ query[head] * shape.scale
            if shape.softcap:
                scores = shape.softcap * torch.tanh(scores / shape.softcap)
            if shape.slopes is not None:
                distance = torch.arange(len(scores) - 1, -1, -1, device=qkv.device)
                scores = (scores - shape.slopes[head].to(qkv.device) * distance).to(dtype)
            if shape.sinks is not None:
                scores = torch.cat((scores, shape.sinks[head, None].to(scores)))
            heads.append(scores.softmax(0)[: len(value)] @ value)
        outs.append(torch.cat(heads))
    return torch.stack(outs)


def all_at_once(shape: AttentionShape, qkv: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return attention of all rows by PyTorch's own function, as transformers calls it for shapes without a cap."""
    query, new_key, new_value = _parts(shape, qkv)
    keys, values = keys.clone(), values.clone()
    for row, length in enumerate(LENGTHS):
        keys[row, :, length], values[row, :, length] = new_key[row], new_value[row]
    place, length = torch.arange(CAPACITY, device=qkv.device), torch.tensor(LENGTHS, device=qkv.device)[:, None]
    seen = (place <= length) & (place > length - (shape.window or CAPACITY + 1))
    heads = torch.nn.functional.scaled_dot_product_attention(
        query[:, :, None],
        *(part.repeat_interleave(shape.num_heads // shape.num_key_value_heads, dim=1) for part in (keys, values)),
        attn_mask=seen[:, None, None],
        scale=shape.scale,
    )
    return heads.flatten(1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("count", [1, 3])
def test_each_row_sees_its_own_tokens(name: str, dtype: torch.dtype, count: int, device: torch.device) -> None:
    shape = CASES[name]
    groups, width = shape.num_key_value_heads, shape.value_dim
    shape = replace(
        shape,
        sinks=None if shape.sinks is None else shape.sinks.to(device),
        slopes=None if shape.slopes is None else shape.slopes.to(device),
    )
    qkv = rows(len(LENGTHS), (shape.num_heads + groups) * shape.head_dim + groups * width, dtype, device, 1)
    keys, values = (
        rows(len(LENGTHS) * groups * CAPACITY, size, dtype, device, seed)
        .contiguous()
        .view(len(LENGTHS), groups, CAPACITY, size)
        for seed, size in ((2, shape.head_dim), (3, width))
    )
    before = keys.clone(), values.clone()
    parts = torch.full((len(LENGTHS), shape.num_heads, count, width + 2), float("nan"), device=device)
    room = torch.full((len(LENGTHS), shape.num_heads * width + 8), 7.0, dtype=dtype, device=device)
    lengths = torch.tensor(LENGTHS, dtype=torch.int32, device=device)
    attend(qkv, keys, values, lengths, shape, parts, room[:, :-8])
    assert bool((room[:, -8:] == 7.0).all())
    row_by_row, oracle = (exact(shape, qkv, *before, kind) for kind in (dtype, torch.float64))
    is_special = any((shape.softcap, shape.chunk, shape.sinks is not None, shape.slopes is not None))
    usual = (row_by_row,) if is_special else (row_by_row, all_at_once(shape, qkv, *before))
    # A GPU's products in float32 add up a wide head's numbers in one chain.
    steps = REDUCTION * max(1, shape.head_dim // 64) if dtype == torch.float32 else REDUCTION
    judge(name, room[:, :-8], usual, oracle.cpu(), dtype, steps)
    if name != "short window":
        mutants_fail(lambda wrong: judge(name, wrong, usual, oracle.cpu(), dtype, steps), room[:, :-8])
    for cache, old, new in zip((keys, values), before, _parts(shape, qkv)[1:], strict=True):
        for row, length in enumerate(LENGTHS):
            old[row, :, length] = new[row]
        assert torch.equal(cache, old)


def test_parts_fill_a_gpu_and_no_more() -> None:
    assert num_parts(1, 32, 4096) == 16
    assert num_parts(1, 8, 256) == 4
    assert num_parts(32, 32, 4096) == 1
    assert num_parts(1, 8, 16) == 1
