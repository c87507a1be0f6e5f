"""What a layer with several streams looks like to the fused path: AltUp around its blocks, Laurel beside attention."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from tunesmith_engine.mixer_shapes import Norm


@dataclass(frozen=True, slots=True)
class AltUpShape:
    """Several streams, one of which goes through the layer's blocks (Baykal et al. 2023, arXiv 2301.13310).

    With streams S_i of a token the layer reads P_i = S_i + sum of p_ij S_j over j. Its blocks make y of the active one,
    P_a, and what leaves the layer is C_i = P_i + (1 + c_i)(y - P_a). The numbers p and c are linear in the token's
    modalities, tanh(router(factor * norm(x))), where x is S_a for p and y for c. The third block reads scale * C_a, and
    what it gives is added to all streams but the first.

    Attributes:
        module: has the coefficients' linear layers; they run as they are written, for they are small and in training
            their code is another.
        router: from `hidden` numbers to the modalities, as many as streams.
        prediction, correction: from the modalities to p, a row for each i, and to c.
        norm: of what the router reads.
        factor: of what the norm gives.
        num_streams, active: how many streams there are, and which one goes through the blocks.
        clip: in training the weights that give p and c are within this bound, and the correction's adapter is left out.
        scale: of what the third block reads, [hidden], or None.
    """

    module: nn.Module
    router: nn.Module
    prediction: nn.Module
    correction: nn.Module
    norm: Norm
    factor: float
    num_streams: int
    active: int
    clip: float
    scale: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class LaurelShape:
    """A low-rank branch beside attention (Menghani et al. 2024, arXiv 2411.07501).

    With n = input_norm(x) the MLP's norm reads factor * (x + attention(n) + n + norm(right(left(n)))).

    Attributes:
        left, right: linear layers, from `hidden` numbers to `rank` and back.
    """

    left: nn.Module
    right: nn.Module
    norm: Norm
    rank: int
    factor: float


@dataclass(frozen=True, slots=True)
class AltUpEndsShape:
    """What makes the streams of the embedded tokens, and one of the streams before the last norm.

    The first stream is what is embedded, x. The others are projections of it, made as large: with |v| the root of the
    mean square, p |x| / max(|p|, root of LEAST_SQUARE). Before the last norm each stream but the first, S_0, is
    projected and made as large as S_0, and the mean of all is taken.

    Attributes:
        projections: that make the other streams.
        back: those at the end, one for each stream but the first.
    """

    projections: tuple[nn.Module, ...]
    back: tuple[nn.Module, ...]


LEAST_SQUARE = 1e-5
