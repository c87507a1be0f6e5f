"""ALiBi: scores that fall with the distance between query and key, which some decoders hand their layers ready-made."""

from __future__ import annotations

import torch
from torch import nn

from tunesmith_engine.fused.recognise import words
from tunesmith_engine.fused.recognise.stand_ins import NUM_TOKENS

BIASES = ("alibi", "position_bias")
"""What transformers calls the tensor."""

STEP_TOLERANCE = 1e-5
"""Share of the largest step from key to key."""


def slopes_of(bias: torch.Tensor) -> torch.Tensor | None:
    """Return what a bias of the scores loses for each token of distance, [heads]; None where it is another bias.

    Args:
        bias: [heads, 1, keys], which is the same for all queries: a softmax doesn't see a constant.
    """
    if bias.dim() != len(("heads", "queries", "keys")) or bias.shape[1] != 1 or bias.shape[2] < NUM_TOKENS:
        return None
    steps = bias[:, 0].float().diff(dim=1)
    even = (steps - steps[:, :1]).abs().max() <= STEP_TOLERANCE * steps.abs().max()
    return steps[:, 0].clone() if bool(even) and bool((steps[:, 0] > 0).all()) else None


def alibi_of(slopes: torch.Tensor | None) -> torch.Tensor | None:
    """Return the bias for as many tokens as a trial has, [heads, 1, keys], on the CPU."""
    return None if slopes is None else slopes.cpu()[:, None, None] * torch.arange(NUM_TOKENS)


def takes_truth(module: nn.Module) -> bool:
    """Whether attention fills where its mask is true, instead of adding it to the scores (MPT)."""
    return "masked_fill" in words.words(module)
