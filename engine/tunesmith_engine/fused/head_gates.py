"""Gates of attention's heads: one number of a token for each head multiplies the head's output.

# T tokens, H heads, D size of a value head
"""

from __future__ import annotations

import torch
from torch.nn import functional

from tunesmith_engine.mixer_shapes import AttentionShape


def forward(shape: AttentionShape, heads: torch.Tensor, gates: torch.Tensor, out: torch.Tensor) -> None:
    """Write the heads' outputs times the function of their gates; heads and out are [T, H D], gates [T, H]."""
    factors = _factors(shape, gates).to(heads.dtype)
    torch.mul(_apart(shape, heads), factors[..., None], out=_apart(shape, out))


def backward(
    shape: AttentionShape, gradient: torch.Tensor, gates: torch.Tensor, heads: torch.Tensor, to_gates: torch.Tensor
) -> None:
    """Turn the gradient of what `forward` wrote, [T, H D], into that of the heads; write that of the gates."""
    factors = _factors(shape, gates)
    slopes = factors * (1.0 - factors) if shape.head_gate == "sigmoid" else -torch.expm1(-factors)
    # A product of rows with columns needs no memory for the products of their numbers.
    dots = torch.einsum("thd,thd->th", _apart(shape, gradient), _apart(shape, heads))
    to_gates.copy_(dots * slopes)
    _apart(shape, gradient).mul_(factors.to(gradient.dtype)[..., None])


def _factors(shape: AttentionShape, gates: torch.Tensor) -> torch.Tensor:
    """Return what heads are multiplied by, [T, H], in 32 bits at least."""
    gates = gates.to(torch.promote_types(gates.dtype, torch.float32))
    return torch.sigmoid(gates) if shape.head_gate == "sigmoid" else functional.softplus(gates)


def _apart(shape: AttentionShape, numbers: torch.Tensor) -> torch.Tensor:
    return numbers.unflatten(1, (shape.num_heads, shape.value_dim))
