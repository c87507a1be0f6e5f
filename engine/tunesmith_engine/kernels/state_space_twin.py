"""The chunked state-space scan in plain PyTorch, by the formulas of state_space.py; float64 stays float64."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from tunesmith_engine.kernels.chunk_places import Passing, decays_of, places_of
from tunesmith_engine.kernels.delta_rule_twin import cut


@dataclass(frozen=True, slots=True)
class Chunks(Passing):
    """Inputs cut into chunks of all heads, [H, N, C, ...]; tokens behind the last are zeros and see nothing.

    Attributes:
        x, b, c: as they are given, for each head.
        steps: [H, N, C, 1].
        slope: of each step by its raw number, likewise.
        decays: of each token since each one that it sees.
        kept: C tokens that have something before them in their document.
        stays: those of the last document in the chunk.
    """

    x: torch.Tensor
    b: torch.Tensor
    c: torch.Tensor
    steps: torch.Tensor
    slope: torch.Tensor
    decays: torch.Tensor
    kept: torch.Tensor
    stays: torch.Tensor


def chunks_of(
    x: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    raw: torch.Tensor,
    bias: torch.Tensor,
    rates: torch.Tensor,
    limits: tuple[float, float],
    bounds: torch.Tensor,
) -> Chunks:
    """Cut the inputs of `state_space.forward` into chunks; `rates` are [H] and below zero."""
    num_tokens, num_heads = raw.shape
    places = places_of(num_tokens, bounds)
    wide = raw.to(torch.promote_types(raw.dtype, torch.float32)) + bias
    unlimited = functional.softplus(wide)
    steps = unlimited.clamp(*limits)
    slope = wide.sigmoid() * ((unlimited >= limits[0]) & (unlimited <= limits[1]))
    gates = cut(steps.double() * rates.double(), num_heads) * places.kept
    x, b, c, steps, slope = (cut(each, num_heads) for each in (x, b, c, steps, slope))
    decays = decays_of(gates, places, x.dtype)
    return Chunks(
        x=x,
        b=b,
        c=c,
        steps=steps[..., None],
        slope=slope,
        decays=decays.pairs,
        reach=decays.reach,
        rest=decays.rest,
        total=decays.total,
        seen=places.seen,
        kept=places.kept,
        stays=places.stays,
    )


def _states(chunks: Chunks) -> torch.Tensor:
    """Return the states before the chunks and behind the last, [H, N + 1, K, V]."""
    written = (chunks.rest * chunks.b).mT @ (chunks.steps * chunks.x)
    states = [torch.zeros_like(written[:, 0])]
    for chunk in range(written.shape[1]):
        states.append(states[-1] * chunks.total[:, chunk, None, None] + written[:, chunk])
    return torch.stack(states, 1)


def forward(chunks: Chunks, skip: torch.Tensor) -> torch.Tensor:
    """Return the outputs, [H, N, C, V]."""
    weights = (chunks.c @ chunks.b.mT) * chunks.decays
    out = chunks.reach * (chunks.c @ _states(chunks)[:, :-1]) + weights @ (chunks.steps * chunks.x)
    return out + skip.to(out.dtype)[:, None, None, None] * chunks.x


def backward(
    do: torch.Tensor, chunks: Chunks, skip: torch.Tensor, rates: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of x, b, c and the raw steps, [H, N, C, ...]."""
    values, states = chunks.steps * chunks.x, _states(chunks)
    read = (chunks.reach * chunks.c).mT @ do
    slopes = [torch.zeros_like(states[:, 0])]
    for chunk in reversed(range(read.shape[1])):
        slopes.append(slopes[-1] * chunks.total[:, chunk, None, None] + read[:, chunk])
    slope = torch.stack(slopes[-2::-1], 1)
    d_weights = (do @ values.mT) * chunks.decays
    from_state, to_state = chunks.reach * (do @ states[:, :-1].mT), chunks.rest * (values @ slope.mT)
    dc, db = from_state + d_weights @ chunks.b, to_state + d_weights.mT @ chunks.c
    weights = (chunks.c @ chunks.b.mT) * chunks.decays
    d_values = weights.mT @ do + chunks.rest * (chunks.b @ slope)
    # A gate decays what crosses it: from before to behind the chunk, to or from a state, or between two tokens.
    through = chunks.total * (states[:, :-1] * slope).sum((-1, -2))
    read_later = (chunks.seen * (from_state * chunks.c).sum(-1)[..., None]).sum(-2)
    written_before = (chunks.seen.tril(-1) * (to_state * chunks.b).sum(-1)[..., None, :]).sum(-1)
    pairs = (d_weights * (chunks.c @ chunks.b.mT)).tril(-1)
    between = (torch.ones_like(pairs).triu() @ pairs).tril(-1).sum(-1)
    dg = (through[..., None] * chunks.stays + read_later + written_before + between) * chunks.kept
    d_steps = (d_values * chunks.x).sum(-1) + rates.to(dg.dtype)[:, None, None] * dg
    dx = chunks.steps * d_values + skip.to(do.dtype)[:, None, None, None] * do
    return dx, db, dc, d_steps * chunks.slope

