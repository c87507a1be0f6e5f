"""The rung of our own: the Triton kernel, for softcaps and for whatever the vendors' kernels refuse."""

from __future__ import annotations

import torch

from tunesmith_engine.attention.rung import Case, Gradients, Rung, check, placed
from tunesmith_engine.kernels import attention, registry
from tunesmith_engine.packed.batch import Documents
from tunesmith_engine.shapes import AttentionShape


class Triton(Rung):
    """Variable lengths, grouped heads, softcap and sliding window; the same bits in every run."""

    name = "triton"

    def problem(self, case: Case) -> str | None:
        """Return why the kernel can't take the case."""
        if reason := registry.reason_off("attention-triton", case.device, needs_dot=True):
            return reason
        if case.dtype not in (torch.bfloat16, torch.float16):
            return "It computes in bfloat16 or float16."
        if case.shape.head_dim > attention.LARGEST_HEAD_DIM:
            return f"Its heads have up to {attention.LARGEST_HEAD_DIM} numbers."
        return None

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        documents: Documents,
        shape: AttentionShape,
        out: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Return the output and the log-sum-exp [H, T]."""
        check(documents, q.shape[0])
        o = torch.empty(q.shape, dtype=q.dtype, device=q.device) if out is None else out
        form = (documents.bounds, shape.scale, shape.softcap, shape.window)
        return o, (attention.forward(q, k, v, *form, o),)

    def backward(
        self,
        do: torch.Tensor,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        o: torch.Tensor,
        saved: tuple[torch.Tensor, ...],
        documents: Documents,
        shape: AttentionShape,
        outs: Gradients | None = None,
    ) -> Gradients:
        """Return the gradients."""
        (log_sums,) = saved
        dq, dk, dv = (torch.empty(tensor.shape, dtype=q.dtype, device=q.device) for tensor in (q, k, v))
        form = (documents.bounds, shape.scale, shape.softcap, shape.window)
        attention.backward(do, q, k, v, o, log_sums, *form, (dq, dk, dv))
        return placed((dq, dk, dv), outs)
