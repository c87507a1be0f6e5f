"""The divergence of rows of logits from soft targets, and its gradient in their place: the kernel of cross-entropy, and
a few numbers of each row by PyTorch.

The gradient of KL(p || q) over the logits is q - p. That of the cross-entropy of one token differs from it only where
p has a share. So the kernel goes over the whole rows as it does for one token, and what it comes to at the K tokens of
each row is computed from their logits as they were, and written over it: rounded once, like all the others.
"""

from __future__ import annotations

import torch

from tunesmith_engine.kernels.cross_entropy import IGNORED, cross_entropy


def divergence(
    logits: torch.Tensor,
    targets: torch.Tensor,
    soft_ids: torch.Tensor,
    shares: torch.Tensor,
    losses_out: torch.Tensor,
    gradient_scale: torch.Tensor | None,
    logit_scale: float = 1.0,
    softcap: float | None = None,
) -> None:
    """Write each row's KL(p || q) = sum p (log p - log q) in nats and, when a scale is given, its gradient.

    Forward KL as in Hinton et al. 2015 (arXiv:1503.02531) at a temperature of 1; q is the softmax of a row.

    Args:
        logits, losses_out, gradient_scale, logit_scale, softcap: as in `cross_entropy`.
        targets: [n] int64, the first of `soft_ids` in each row, or -100 for a row that is ignored.
        soft_ids: [n, K] int64: tokens with a share. Those that are equal to the first one fill up.
        shares: p of these tokens, float32 [n, K], 0 where they fill up.
    """
    before = logits.gather(1, soft_ids).float() * logit_scale
    cap = torch.tanh(before / softcap) if softcap is not None else None
    values = before if softcap is None or cap is None else softcap * cap
    # The loss of any of them is log sum exp minus its logit. That of the likeliest is the smallest, so it rounds least.
    highest, best = values.max(1, keepdim=True)
    is_learned = (targets != IGNORED)[:, None]
    some = torch.where(is_learned, soft_ids.gather(1, best), IGNORED).squeeze(1)
    cross_entropy(logits, some, losses_out, gradient_scale, logit_scale, softcap)
    log_q = values - highest - losses_out[:, None]
    terms = torch.where(shares > 0, shares * (shares.log() - log_q), 0.0)
    losses_out.copy_(torch.where(is_learned, terms, 0.0).sum(1))
    if gradient_scale is None:
        return
    slope = log_q.exp() - shares
    # Those that fill up are written to the place of the first one, whichever comes last.
    slope = torch.where(soft_ids == soft_ids[:, :1], slope[:, :1], slope)
    if cap is not None:
        slope *= 1.0 - cap * cap
    slope *= (gradient_scale * logit_scale).reshape(-1, 1)
    logits.scatter_(1, soft_ids, torch.where(is_learned, slope, 0.0).to(logits.dtype))
