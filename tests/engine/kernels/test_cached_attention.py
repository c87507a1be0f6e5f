"""Attention of a new token over a cache: every row by its own length, window and cap, and the cache grows by it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.engine.kernels.conftest import DTYPES, rows
from tests.engine.numerics import REDUCTION, judge, mutants_fail
from tunesmith_engine.kernels.cached_attention import attend, num_parts
from tunesmith_engine.shapes import AttentionShape

NOTHING = torch.nn.Identity()
SHAPE = AttentionShape((), NOTHING, num_heads=4, num_key_value_heads=2, head_dim=16, scale=0.2)
CASES = {
    "plain": SHAPE,
    "odd head": replace(SHAPE, head_dim=24, num_heads=6),
    "window": replace(SHAPE, window=70),
    "short window": replace(SHAPE, window=1),
    "cap": replace(SHAPE, softcap=1.5),
    "wide head": replace(SHAPE, head_dim=256, num_heads=2, num_key_value_heads=1),
}
LENGTHS = (0, 5, 64, 199)
CAPACITY = 200


def exact(
    shape: AttentionShape, qkv: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """Return attention row by row, in a number format, from the tokens that there are."""
    outs = []
    sizes = [shape.num_heads * shape.head_dim, *[shape.num_key_value_heads * shape.head_dim] * 2]
    for row, length in enumerate(LENGTHS):
        query, new_key, new_value = (p.to(dtype).view(-1, shape.head_dim) for p in qkv[row].split(sizes))
        start = max(0, length + 1 - shape.window) if shape.window else 0
        heads = []
        for head in range(shape.num_heads):
            group = head // (shape.num_heads // shape.num_key_value_heads)
            key = torch.cat((keys[row, group, :length].to(dtype), new_key[group][None]))[start:]
            value = torch.cat((values[row, group, :length].to(dtype), new_value[group][None]))[start:]
            scores = key @ query[head] * shape.scale
            if shape.softcap:
                scores = shape.softcap * torch.tanh(scores / shape.softcap)
            heads.append(scores.softmax(0) @ value)
        outs.append(torch.cat(heads))
    return torch.stack(outs)


def all_at_once(shape: AttentionShape, qkv: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return attention of all rows by PyTorch's own function, as transformers calls it for shapes without a cap."""
    sizes = [shape.num_heads * shape.head_dim, *[shape.num_key_value_heads * shape.head_dim] * 2]
    query, new_key, new_value = (part.unflatten(1, (-1, shape.head_dim)) for part in qkv.split(sizes, dim=1))
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
    groups, width = shape.num_key_value_heads, shape.head_dim
    qkv = rows(len(LENGTHS), (shape.num_heads + 2 * groups) * width, dtype, device, 1)
    keys, values = (
        rows(len(LENGTHS) * groups * CAPACITY, width, dtype, device, seed)
        .contiguous()
        .view(len(LENGTHS), groups, CAPACITY, width)
        for seed in (2, 3)
    )
    before = keys.clone(), values.clone()
    parts = torch.full((len(LENGTHS), shape.num_heads, count, width + 2), float("nan"), device=device)
    room = torch.full((len(LENGTHS), shape.num_heads * width + 8), 7.0, dtype=dtype, device=device)
    lengths = torch.tensor(LENGTHS, dtype=torch.int32, device=device)
    attend(qkv, keys, values, lengths, shape, parts, room[:, :-8])
    assert bool((room[:, -8:] == 7.0).all())
    row_by_row, oracle = (exact(shape, qkv, *before, kind) for kind in (dtype, torch.float64))
    usual = (row_by_row,) if shape.softcap else (row_by_row, all_at_once(shape, qkv, *before))
    judge(name, room[:, :-8], usual, oracle.cpu(), dtype, REDUCTION)
    if name != "short window":
        mutants_fail(lambda wrong: judge(name, wrong, usual, oracle.cpu(), dtype, REDUCTION), room[:, :-8])
    for index, (cache, old) in enumerate(zip((keys, values), before, strict=True)):
        start = (shape.num_heads + index * groups) * width
        for row, length in enumerate(LENGTHS):
            old[row, :, length] = qkv[row, start : start + groups * width].view(groups, width)
        assert torch.equal(cache, old)


def test_parts_fill_a_gpu_and_no_more() -> None:
    assert num_parts(1, 32, 4096) == 16
    assert num_parts(1, 8, 256) == 4
    assert num_parts(32, 32, 4096) == 1
    assert num_parts(1, 8, 16) == 1
