"""What the chunked rules' twins have in common: where tokens are, and what passes from chunk to chunk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch

CHUNK = 64


class Places(NamedTuple):
    """Where the tokens of N chunks are in their documents; tokens behind the last see nothing.

    Attributes:
        kept: those that have something before them in their document, [N, C].
        seen: whether token i sees token j, [N, C, C].
        crosses: whether a token's document began before the chunk, [N, C].
        last: place of the chunk's last token, [N, 1].
        stays: those of the last document in the chunk, [N, C].
    """

    kept: torch.Tensor
    seen: torch.Tensor
    crosses: torch.Tensor
    last: torch.Tensor
    stays: torch.Tensor


@dataclass(frozen=True, slots=True)
class Passing:
    """What passes through a chunk, [H, N, C, ...] for each token.

    Attributes:
        reach: factor of the state before the chunk; rest: of the token in the state behind it.
        total: factor of the state before the chunk in the one behind it, [H, N, ...].
        seen: whether token i sees token j.
    """

    reach: torch.Tensor
    rest: torch.Tensor
    total: torch.Tensor
    seen: torch.Tensor


def places_of(num_tokens: int, bounds: torch.Tensor) -> Places:
    """Return where the tokens of documents with these bounds are."""
    places = torch.arange(-(-num_tokens // CHUNK) * CHUNK, device=bounds.device)
    document = torch.searchsorted(bounds.long(), places, right=True)
    begins = bounds.long()[document - 1]
    document, begins, places = (x.unflatten(0, (-1, CHUNK)) for x in (document, begins, places))
    last = places[:, -1:].clamp(max=num_tokens - 1) - places[:, :1]
    return Places(
        kept=(places > begins) & (places < num_tokens),
        seen=(document[:, :, None] == document[:, None, :]) & (places[:, :, None] >= places[:, None, :]),
        crosses=begins < places[:, :1],
        last=last,
        stays=document == document.gather(1, last),
    )


class Decays(NamedTuple):
    """Factors of one decay for each head.

    Attributes:
        pairs: of each token since each one that it sees, [H, N, C, C].
        reach, rest, total: as in `Passing`.
    """

    pairs: torch.Tensor
    reach: torch.Tensor
    rest: torch.Tensor
    total: torch.Tensor


def decays_of(gates: torch.Tensor, places: Places, dtype: torch.dtype) -> Decays:
    """Return the factors of logarithms of decays, [H, N, C] float64 and 0 where nothing is before a token."""
    decay = (places.seen * gates[:, :, None, :]).sum(-1)
    at_last = decay.gather(2, places.last.expand(len(gates), -1, -1))
    return Decays(
        pairs=(decay[..., None] - decay[..., None, :]).masked_fill(~places.seen, -torch.inf).exp().to(dtype),
        reach=(decay.exp() * places.crosses)[..., None].to(dtype),
        rest=(at_last - decay).masked_fill(~places.stays, -torch.inf).exp()[..., None].to(dtype),
        total=(at_last[..., 0].exp() * places.crosses.gather(1, places.last)[:, 0]).to(dtype),
    )
