"""The kernels of mixers beside attention, as cases of the proof: packed documents, forwards and backwards."""

from __future__ import annotations

import itertools

import torch

from tunesmith_engine.proof.inputs import Inputs, Results, Sizes

LENGTHS = (5, 70, 1, 61)
"""Of documents: inside a chunk of the delta rule, over its boundary, and over two at once."""


def delta_rule(sizes: Sizes, inputs: Inputs) -> Results:
    """Return the gated delta rule's outputs and gradients."""
    from tunesmith_engine.kernels.delta_rule import backward, forward

    num_key_heads, num_heads, key_dim, value_dim = sizes.delta_heads
    num_rows = sum(LENGTHS)
    q, k = (
        inputs.rows(num_key_heads * key_dim, num_rows).unflatten(1, (num_key_heads, key_dim)) for _ in range(2)
    )
    v, slope = (inputs.rows(num_heads * value_dim, num_rows).unflatten(1, (num_heads, value_dim)) for _ in range(2))
    beta = inputs.random(num_rows, num_heads).sigmoid()
    wide = torch.promote_types(inputs.dtype, torch.float32)
    gates = -inputs.random(num_rows, num_heads).to(wide).square()
    bounds = torch.tensor([0, *itertools.accumulate(LENGTHS)], dtype=torch.int32, device=inputs.device)
    out = torch.empty_like(v)
    outs = tuple(torch.empty_like(x) for x in (q, k, v, gates, beta))
    forward(q, k, v, gates, beta, bounds, out)
    backward(slope, q, k, v, gates, beta, bounds, outs)  # type: ignore[arg-type]
    names = ("query gradient", "key gradient", "value gradient", "gate gradient", "beta gradient")
    return {"out": out, **dict(zip(names, outs, strict=True))}
