"""The backend of our own: the Triton kernel, for softcaps and for whatever the vendors' kernels refuse."""

from __future__ import annotations

import torch

from tunesmith_core.messages import Message
from tunesmith_engine.attention.backend import Backend, Case, Gradients, Operands, check, placed
from tunesmith_engine.kernels import attention, registry


class Triton(Backend):
    """All of `AttentionShape` on variable lengths; the same bits in every run."""

    name = "triton"

    def problem(self, case: Case) -> str | None:
        """Return why the kernel can't take the case."""
        if reason := registry.reason_off("attention-triton", case.device, needs_dot=True):
            return reason
        if case.dtype not in (torch.bfloat16, torch.float16):
            return Message("It needs bfloat16 or float16.")
        if max(case.shape.head_dim, case.shape.value_dim) > attention.LARGEST_HEAD_DIM:
            return Message("It needs a head size of at most {size}.", size=attention.LARGEST_HEAD_DIM)
        return None

    def forward(
        self,
        operands: Operands,
        out: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Return the output and the log-sum-exp [H, T]."""
        check(operands)
        o = operands.new_output() if out is None else out
        form = operands.documents.bounds, operands.shape
        return o, (attention.forward(operands.q, operands.k, operands.v, *form, o),)

    def backward(
        self,
        do: torch.Tensor,
        operands: Operands,
        o: torch.Tensor,
        saved: tuple[torch.Tensor, ...],
        outs: Gradients | None = None,
        to_sinks: torch.Tensor | None = None,
    ) -> Gradients:
        """Return the gradients."""
        (log_sums,) = saved
        q, k, v = operands.q, operands.k, operands.v
        dq, dk, dv = (torch.empty(tensor.shape, dtype=q.dtype, device=q.device) for tensor in (q, k, v))
        form = operands.documents.bounds, operands.shape
        shares = attention.backward(do, q, k, v, o, log_sums, *form, (dq, dk, dv))
        if to_sinks is not None and operands.shape.sinks is not None:
            to_sinks.copy_(attention.sink_gradient(operands.shape.sinks, log_sums, shares))
        return placed((dq, dk, dv), outs)
