"""Attention over documents that share their beginnings: spread to whole documents, computed by a backend, gathered.

Everything else of a layer treats tokens one by one, so a common beginning passes through it once.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from tunesmith_engine.attention.backend import Backend, Gradients, Operands
from tunesmith_engine.packed.batch import Documents, SharedBeginnings


def forward(
    backend: Backend, operands: Operands, out: torch.Tensor | None = None
) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    """See `Backend.forward`; q, k, v and the result have the T computed tokens."""
    shared = operands.documents.shared
    if shared is None:
        return backend.forward(operands, out)
    result, saved = backend.forward(_whole(operands))
    gathered = result.index_select(0, shared.first)
    return gathered if out is None else out.copy_(gathered), saved


def backward(
    backend: Backend,
    do: torch.Tensor,
    operands: Operands,
    o: torch.Tensor,
    saved: tuple[torch.Tensor, ...],
    to_sinks: torch.Tensor | None = None,
) -> Gradients:
    """See `Backend.backward`; all tensors but `saved` have the T computed tokens.

    What a shared token's query sees depends on the beginning alone, so its output counts once; its key and value are
    seen by every document that it begins, whose gradients add up.
    """
    shared = operands.documents.shared
    if shared is None:
        return backend.backward(do, operands, o, saved, to_sinks=to_sinks)
    to_whole = slopes(do, operands.documents)
    dq, dk, dv = backend.backward(
        to_whole, _whole(operands), o.index_select(0, shared.rows), saved, to_sinks=to_sinks
    )
    return dq.index_select(0, shared.first), collect(dk, shared), collect(dv, shared)


def whole(tensor: torch.Tensor, documents: Documents) -> torch.Tensor:
    """Return the rows of every document's tokens behind each other, from those of the T computed ones."""
    return tensor if documents.shared is None else tensor.index_select(0, documents.shared.rows)


def slopes(gradient: torch.Tensor, documents: Documents) -> torch.Tensor:
    """Return the gradient of what comes out for every document's tokens: that of a computed token counts once."""
    if documents.shared is None:
        return gradient
    return whole(gradient, documents).index_fill_(0, documents.shared.again, 0)


def collect(gradient: torch.Tensor, shared: SharedBeginnings, out: torch.Tensor | None = None) -> torch.Tensor:
    """Return the gradient by the T computed tokens' rows, from that by the rows of `whole`."""
    total = gradient.index_select(0, shared.first)
    total.index_add_(0, shared.again_rows, gradient.index_select(0, shared.again))
    return total if out is None else out.copy_(total)


def _whole(operands: Operands) -> Operands:
    """Return the operands with every document's tokens behind each other."""
    shared = operands.documents.shared
    if shared is None:
        return operands
    q, k, v = (whole(tensor, operands.documents) for tensor in (operands.q, operands.k, operands.v))
    return replace(operands, q=q, k=k, v=v, documents=replace(operands.documents, shared=None))
