"""The backend of our own: the Triton kernel, for softcaps and for whatever the vendors' kernels refuse."""

from __future__ import annotations

import torch

from tunesmith_core.messages import Message
from tunesmith_engine.attention.backend import Backend, Case, Gradients, Operands, check, placed
from tunesmith_engine.kernels import attention, registry


class Triton(Backend):
    """Variable lengths, grouped heads, softcap and sliding window; the same bits in every run."""

    name = "triton"

    def problem(self, case: Case) -> str | None:
        """Return why the kernel can't take the case."""
        if reason := registry.reason_off("attention-triton", case.device, needs_dot=True):
            return reason
        if case.dtype not in (torch.bfloat16, torch.float16):
            return Message("It needs bfloat16 or float16.")
        if case.shape.head_dim > attention.LARGEST_HEAD_DIM:
            return Message("It needs a head size of at most {size}.", size=attention.LARGEST_HEAD_DIM)
        return None

    def forward(
        self,
        operands: Operands,
        out: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Return the output and the log-sum-exp [H, T]."""
        check(operands)
        q = operands.q
        o = torch.empty(q.shape, dtype=q.dtype, device=q.device) if out is None else out
        return o, (attention.forward(q, operands.k, operands.v, *_form(operands), o),)

    def backward(
        self,
        do: torch.Tensor,
        operands: Operands,
        o: torch.Tensor,
        saved: tuple[torch.Tensor, ...],
        outs: Gradients | None = None,
    ) -> Gradients:
        """Return the gradients."""
        (log_sums,) = saved
        q, k, v = operands.q, operands.k, operands.v
        dq, dk, dv = (torch.empty(tensor.shape, dtype=q.dtype, device=q.device) for tensor in (q, k, v))
        attention.backward(do, q, k, v, o, log_sums, *_form(operands), (dq, dk, dv))
        return placed((dq, dk, dv), outs)


def _form(operands: Operands) -> tuple[torch.Tensor, float, float | None, int | None]:
    shape = operands.shape
    return operands.documents.bounds, shape.scale, shape.softcap, shape.window
