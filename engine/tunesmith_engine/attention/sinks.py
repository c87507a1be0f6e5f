"""Sinks for kernels that know none: what they computed without, and their log-sum-exp, are all that is needed.

A sink takes its share of each query's weights and gives nothing. With the log-sum-exp that has it, a kernel's backward
pass gets every weight right, and from the output that is smaller by that share the sum of do * o, too.
"""

from __future__ import annotations

import torch


def add_sinks(o: torch.Tensor, log_sums: torch.Tensor, sinks: torch.Tensor) -> torch.Tensor:
    """Give sinks their share of an output, [T, H, hd], where it is; return the log-sum-exp with them.

    Args:
        o: the output without.
        log_sums: of each query's scores without, [H, T] float32.
        sinks: [H].
    """
    whole = torch.logaddexp(log_sums, sinks.to(log_sums.dtype)[:, None])
    o.mul_(torch.exp(log_sums - whole).t()[:, :, None])
    return whole


def gradient_of_sinks(do: torch.Tensor, o: torch.Tensor, whole: torch.Tensor, sinks: torch.Tensor) -> torch.Tensor:
    """Return the gradient of sinks, [H] float32; see `kernels.attention.sink_gradient`."""
    shares = torch.linalg.vecdot(do.float(), o.float()).t()
    return -(torch.exp(sinks.to(whole.dtype)[:, None] - whole) * shares).sum(1)
