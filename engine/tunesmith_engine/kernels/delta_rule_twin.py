"""The chunked gated delta rule in plain PyTorch, by the formulas of delta_rule.py; float64 stays float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from tunesmith_engine.kernels.chunk_places import CHUNK, Passing, decays_of, places_of

EPS = 1e-6


@dataclass(frozen=True, slots=True)
class Inputs(Passing):
    """Inputs cut into chunks of all heads, [H, N, C, ...]; tokens behind the last are zeros and see nothing.

    Attributes:
        q, k: normal queries, scaled, and normal keys.
        roots: reciprocal lengths of queries and keys.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    beta: torch.Tensor
    roots: tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Chunks(Inputs):
    """Inputs with a decay for each head.

    Attributes:
        decays: of each token since each one that it sees.
        kept: C tokens that have something before them in their document.
    """

    decays: torch.Tensor
    kept: torch.Tensor


def cut(x: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Return [T, H', ...] as [H, N, C, ...] in the format that is computed in, heads repeated for their group."""
    x = x.to(torch.promote_types(x.dtype, torch.float32)).repeat_interleave(num_heads // x.shape[1], 1)
    x = torch.cat([x, x.new_zeros(-len(x) % CHUNK, *x.shape[1:])])
    return x.unflatten(0, (-1, CHUNK)).movedim(2, 0)


def joined(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return [H, N, C, ...] as [T, H', ...], summed over the heads of a group."""
    x = x.movedim(0, 2).flatten(0, 1)[: len(like)]
    return x.unflatten(1, (like.shape[1], -1)).sum(2)


def chunks_of(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, beta: torch.Tensor, bounds: torch.Tensor
) -> Chunks:
    """Cut the inputs of `delta_rule.forward` into chunks."""
    num_tokens, num_heads = g.shape
    places = places_of(num_tokens, bounds)
    rows = normal_rows(q, k, v, beta, num_heads)
    decays = decays_of(cut(g.double(), num_heads) * places.kept, places, rows["v"].dtype)
    return Chunks(
        **rows,
        decays=decays.pairs,
        reach=decays.reach,
        rest=decays.rest,
        total=decays.total,
        seen=places.seen,
        kept=places.kept,
    )


def normal_rows(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, beta: torch.Tensor, num_heads: int
) -> dict[str, Any]:  # Any: tensors, and a pair of them
    """Return the fields of `Inputs` that are rows of tokens, from [T, H', ...]."""
    q, k, v, beta = (cut(x, num_heads) for x in (q, k, v, beta))
    roots = tuple((x.square().sum(-1, keepdim=True) + EPS).rsqrt() for x in (q, k))
    return {
        "q": q * roots[0] * q.shape[-1] ** -0.5,
        "k": k * roots[1],
        "v": v,
        "beta": beta[..., None],
        "roots": roots,
    }


def forward(chunks: Chunks) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the outputs [H, N, C, V], the updates, and the states before the chunks and behind the last."""
    out, update, state, *_others = _passed(chunks)
    return out, update, state


def _passed(chunks: Chunks) -> tuple[torch.Tensor, ...]:
    """Return outputs, updates, states, the system and its inverse, and the weights of updates in the outputs."""
    system = chunks.beta * (chunks.k @ chunks.k.mT) * chunks.decays
    inverse = inverse_of(system)
    u = inverse @ (chunks.beta * chunks.v)
    w = inverse @ (chunks.beta * chunks.reach * chunks.k)
    written = (chunks.rest * chunks.k).mT
    states = [u.new_zeros(len(u), w.shape[-1], u.shape[-1])]
    updates = []
    for chunk in range(u.shape[1]):
        updates.append(u[:, chunk] - w[:, chunk] @ states[-1])
        states.append(states[-1] * chunks.total[:, chunk, None, None] + written[:, chunk] @ updates[-1])
    update, state = torch.stack(updates, 1), torch.stack(states, 1)
    weights = (chunks.q @ chunks.k.mT) * chunks.decays
    out = chunks.reach * (chunks.q @ state[:, :-1]) + weights @ update
    return out, update, state, system, inverse, weights


def inverse_of(system: torch.Tensor) -> torch.Tensor:
    """Return (1 + a)^-1, with a the system below its diagonal.

    It is solved for in float64: where keys are alike, a GPU's float32 errs there more than in all that follows.
    """
    ones = torch.eye(CHUNK, dtype=torch.float64, device=system.device).expand_as(system)
    inverse = torch.linalg.solve_triangular(system.double(), ones, upper=False, unitriangular=True)
    return inverse.to(system.dtype)


def backward(do: torch.Tensor, chunks: Chunks) -> tuple[torch.Tensor, ...]:
    """Return the gradients of normal queries and keys, of values, betas and gates, [H, N, C, ...]."""
    _out, update, state, system, inverse, weights = _passed(chunks)
    r = (weights @ inverse).mT @ do
    w = inverse.mT @ (chunks.rest * chunks.k)
    slopes = [torch.zeros_like(state[:, 0])]
    read, rewritten = (chunks.reach * chunks.q).mT, (chunks.beta * chunks.reach * chunks.k).mT
    for chunk in reversed(range(r.shape[1])):
        slope = slopes[-1]
        r[:, chunk] += w[:, chunk] @ slope
        slope = slope * chunks.total[:, chunk, None, None] + read[:, chunk] @ do[:, chunk]
        slopes.append(slope - rewritten[:, chunk] @ r[:, chunk])
    slope = torch.stack(slopes[-2::-1], 1)
    d_weights, da = do @ update.mT, -(r @ update.mT)
    dq = chunks.reach * (do @ state[:, :-1].mT)
    dk = chunks.rest * (update @ slope.mT)
    dx = chunks.reach * -(r @ state[:, :-1].mT)
    # What a pair of tokens adds to one decay it takes from another: of sums of products only the same numbers cancel.
    pairs = (d_weights * weights + da * system).tril(-1)
    d_decay = (dq * chunks.q + (chunks.beta * dx - dk) * chunks.k).sum(-1) + pairs.sum(-1) - pairs.sum(-2)
    d_decay[..., -1] += (state[:, 1:] * slope).sum((-1, -2))
    dg = (chunks.seen * d_decay[..., None]).sum(-2) * chunks.kept
    d_weights, da = d_weights * chunks.decays, (da * chunks.decays).tril(-1)
    dq += d_weights @ chunks.k
    dx += da @ chunks.k
    dk += d_weights.mT @ chunks.q + (chunks.beta * da).mT @ chunks.k
    dbeta = (r * chunks.v).sum(-1) + (dx * chunks.k).sum(-1)
    return dq, dk + chunks.beta * dx, chunks.beta * r, dg, dbeta


def through_norm(d_normal: torch.Tensor, normal: torch.Tensor, root: torch.Tensor, scale: float) -> torch.Tensor:
    """Return the gradient of x from that of its normal form, scale * root * x."""
    along = (normal * d_normal).sum(-1, keepdim=True) / scale**2
    return (d_normal - normal * along) * (scale * root)
