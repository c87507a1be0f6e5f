"""A check that packed documents never see each other, for kernels that carry a state through them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch


def check_others_are_ignored(
    compute: Callable[[], Sequence[torch.Tensor]], changed: Sequence[torch.Tensor], document: slice
) -> None:
    """Change what stands in other documents, where it is: nothing in this one may change, to the bit.

    Args:
        compute: gives what depends on the tokens, [T, ...] each.
        changed: inputs of the tokens, [T, ...] each.
        document: where the one is.
    """
    before = compute()
    outside = torch.ones(len(before[0]), dtype=torch.bool, device=before[0].device)
    outside[document] = False
    for tensor in changed:
        tensor[outside] = 3 * tensor[outside].flip(0)
    for one, other in zip(before, compute(), strict=True):
        assert torch.equal(one[~outside], other[~outside])
        assert not torch.equal(one, other)
