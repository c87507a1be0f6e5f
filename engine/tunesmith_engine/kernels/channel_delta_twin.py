"""The delta rule with a decay for each channel in plain PyTorch, by channel_delta.py's formulas; float64 stays so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch.nn import functional

from tunesmith_engine.kernels.chunk_places import CHUNK, places_of
from tunesmith_engine.kernels.delta_rule_twin import Inputs, cut, inverse_of, normal_rows

HALVES = tuple(CHUNK >> level for level in range(1, CHUNK.bit_length()))
"""Of the blocks of a chunk, the widest first: each pair of tokens meets in the two halves of one block."""


class Gates(NamedTuple):
    """What decays are made of.

    Attributes:
        raw: what a projection gives each channel, [T, H, K], with any strides between rows and heads.
        bias: added to it, [H, K] float32.
        rate: of each head, above 0, [H] float32.
        floor: None: the logarithm of the decay is -rate * softplus(raw + bias); else it is
            floor * sigmoid(rate * (raw + bias)), with a floor below 0.
    """

    raw: torch.Tensor
    bias: torch.Tensor
    rate: torch.Tensor
    floor: float | None = None


@dataclass(frozen=True, slots=True)
class Chunks(Inputs):
    """Inputs with a decay for each channel.

    Attributes:
        decay: logarithm of the decay of each channel since the chunk or the document began, in float64: where gates are
            strong, the difference of two large ones decides.
        slope: of a token's log decay, by its raw gate.
    """

    decay: torch.Tensor
    slope: torch.Tensor


def chunks_of(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gates: Gates, beta: torch.Tensor, bounds: torch.Tensor
) -> Chunks:
    """Cut the inputs of `channel_delta.forward` into chunks."""
    num_tokens, num_heads = beta.shape
    places = places_of(num_tokens, bounds)
    # A document's first token has no state to let decay.
    gate, slope = (cut(x, num_heads) * places.kept[..., None] for x in logarithms(gates))
    decay = places.seen.double() @ gate.double()
    at_last = decay.gather(2, places.last[..., None].expand(num_heads, -1, -1, decay.shape[-1]))
    rest = (at_last - decay).masked_fill(~places.stays[..., None], -torch.inf).exp()
    rows = normal_rows(q, k, v, beta, num_heads)
    dtype = rows["v"].dtype
    return Chunks(
        **rows,
        decay=decay,
        slope=slope,
        reach=(decay.exp() * places.crosses[..., None]).to(dtype),
        rest=rest.to(dtype),
        total=(at_last[:, :, 0].exp() * places.crosses.gather(1, places.last)).to(dtype),
        seen=places.seen,
    )


def logarithms(gates: Gates) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logarithms of the decays and their slopes by the raw gates, [T, H, K]."""
    wide = torch.promote_types(gates.raw.dtype, torch.float32)
    x, rate = gates.raw.to(wide) + gates.bias, gates.rate[:, None].to(wide)
    if gates.floor is None:
        return -rate * functional.softplus(x), -rate * x.sigmoid()
    share = (rate * x).sigmoid()
    return gates.floor * share, gates.floor * rate * share * (1 - share)


def forward(chunks: Chunks) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the outputs [H, N, C, V], the updates, and the states before the chunks and behind the last."""
    out, update, state, *_others = _passed(chunks)
    return out, update, state


def _passed(chunks: Chunks) -> tuple[torch.Tensor, ...]:
    """Return outputs, updates, states, the system's inverse and the weights of updates in the outputs."""
    alike, weights = _scores(chunks)
    inverse = inverse_of(chunks.beta * alike)
    u = inverse @ (chunks.beta * chunks.v)
    w = inverse @ (chunks.beta * chunks.reach * chunks.k)
    written = (chunks.rest * chunks.k).mT
    states = [u.new_zeros(len(u), w.shape[-1], u.shape[-1])]
    updates = []
    for chunk in range(u.shape[1]):
        updates.append(u[:, chunk] - w[:, chunk] @ states[-1])
        states.append(states[-1] * chunks.total[:, chunk, :, None] + written[:, chunk] @ updates[-1])
    update, state = torch.stack(updates, 1), torch.stack(states, 1)
    return (chunks.reach * chunks.q) @ state[:, :-1] + weights @ update, update, state, inverse, weights


def _factors(chunks: Chunks, half: int) -> torch.Tensor:
    """Return the decay of each token from or to the middle of its block, [H, N, C, K]: 1 at most."""
    places = torch.arange(CHUNK, device=chunks.decay.device)
    middle = places // (2 * half) * (2 * half) + half - 1
    since = (chunks.decay - chunks.decay[:, :, middle]).to(chunks.v.dtype)
    # Tokens of other documents than the middle's meet nobody there: theirs can be anything that is finite.
    return torch.where((places // half % 2 == 1)[:, None], since, -since).clamp(max=0).exp()


def _meet(half: int, device: torch.device) -> torch.Tensor:
    """Return whether tokens i and j are in the second and the first half of one block, [C, C]."""
    row, column = torch.arange(CHUNK, device=device)[:, None], torch.arange(CHUNK, device=device)
    return (row // (2 * half) == column // (2 * half)) & (row // half > column // half)


def _between(half: int, like: torch.Tensor) -> torch.Tensor:
    """Return what of the pairs that meet in a block goes through each token's decay, by the pairs' sums, [C, C].

    A pair goes through the decays of the later token and of all between the two: of a token in the second half through
    it come the sums of itself and of later ones, of one in the first half those of earlier ones. So nothing has to
    cancel.
    """
    places = torch.arange(CHUNK, device=like.device)
    row, column = places[:, None], places
    through = torch.where(row // half % 2 == 1, column >= row, column < row)
    return (through & (row // half == column // half)).to(like.dtype)


def _scores(chunks: Chunks) -> tuple[torch.Tensor, torch.Tensor]:
    """Return k k^T below the diagonal and q k^T, decayed channel by channel, 0 for what isn't seen."""
    weights = torch.diag_embed((chunks.q * chunks.k).sum(-1))
    alike = torch.zeros_like(weights)
    for half in HALVES:
        factors, meet = _factors(chunks, half), _meet(half, weights.device) & chunks.seen
        keys = (chunks.k * factors).mT
        alike += meet * ((chunks.k * factors) @ keys)
        weights += meet * ((chunks.q * factors) @ keys)
    return alike, weights


def backward(do: torch.Tensor, chunks: Chunks) -> tuple[torch.Tensor, ...]:
    """Return the gradients of normal queries and keys, of values, raw gates and betas, [H, N, C, ...]."""
    _out, update, state, inverse, weights = _passed(chunks)
    r = inverse.mT @ (weights.mT @ do)
    w = inverse.mT @ (chunks.rest * chunks.k)
    slopes = [torch.zeros_like(state[:, 0])]
    read, rewritten = (chunks.reach * chunks.q).mT, (chunks.beta * chunks.reach * chunks.k).mT
    for chunk in reversed(range(r.shape[1])):
        slope = slopes[-1]
        r[:, chunk] += w[:, chunk] @ slope
        slope = slope * chunks.total[:, chunk, :, None] + read[:, chunk] @ do[:, chunk]
        slopes.append(slope - rewritten[:, chunk] @ r[:, chunk])
    slope = torch.stack(slopes[-2::-1], 1)
    d_weights, da = do @ update.mT, -(r @ update.mT)
    itself = d_weights.diagonal(dim1=-2, dim2=-1)[..., None]
    dq = chunks.reach * (do @ state[:, :-1].mT)
    dk = chunks.rest * (update @ slope.mT)
    dx = -chunks.reach * (r @ state[:, :-1].mT)
    d_decay = dq * chunks.q + (chunks.beta * dx - dk) * chunks.k
    d_decay[:, :, -1] += (state[:, 1:] * slope).sum(-1)
    to_decays = chunks.seen.to(d_decay.dtype).mT @ d_decay
    for half in HALVES:
        factors, meet = _factors(chunks, half), _meet(half, do.device) & chunks.seen
        keys, of_weights, of_system = chunks.k * factors, meet * d_weights, meet * da
        to_query, to_written = factors * (of_weights @ keys), factors * (of_system @ keys)
        to_key = factors * (of_weights.mT @ (chunks.q * factors) + (chunks.beta * of_system).mT @ keys)
        across = to_query * chunks.q + (chunks.beta * to_written + to_key) * chunks.k
        to_decays += _between(half, do) @ across
        dq, dx, dk = dq + to_query, dx + to_written, dk + to_key
    dbeta = (r * chunks.v).sum(-1) + (dx * chunks.k).sum(-1)
    to_raw = to_decays * chunks.slope
    # What a token reads of itself doesn't decay.
    return dq + itself * chunks.k, dk + chunks.beta * dx + itself * chunks.q, chunks.beta * r, to_raw, dbeta
