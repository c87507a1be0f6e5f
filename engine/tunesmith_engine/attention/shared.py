"""Attention over documents that share their beginnings: spread to whole documents, computed by a backend, gathered.

Everything else of a layer treats tokens one by one, so a common beginning passes through it once.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from tunesmith_engine.attention.backend import Backend, Gradients, Operands


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
    backend: Backend, do: torch.Tensor, operands: Operands, o: torch.Tensor, saved: tuple[torch.Tensor, ...]
) -> Gradients:
    """See `Backend.backward`; all tensors but `saved` have the T computed tokens.

    What a shared token's query sees depends on the beginning alone, so its output counts once; its key and value are
    seen by every document that it begins, whose gradients add up.
    """
    shared = operands.documents.shared
    if shared is None:
        return backend.backward(do, operands, o, saved)
    to_whole = do.index_select(0, shared.rows).index_fill_(0, shared.again, 0)
    dq, dk, dv = backend.backward(to_whole, _whole(operands), o.index_select(0, shared.rows), saved)
    gathered = [gradient.index_select(0, shared.first) for gradient in (dq, dk, dv)]
    for total, gradient in zip(gathered[1:], (dk, dv), strict=True):
        total.index_add_(0, shared.again_rows, gradient.index_select(0, shared.again))
    return gathered[0], gathered[1], gathered[2]


def _whole(operands: Operands) -> Operands:
    """Return the operands with every document's tokens behind each other."""
    shared = operands.documents.shared
    if shared is None:
        return operands
    q, k, v = (tensor.index_select(0, shared.rows) for tensor in (operands.q, operands.k, operands.v))
    return replace(operands, q=q, k=k, v=v, documents=replace(operands.documents, shared=None))
