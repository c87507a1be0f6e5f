"""The backend for Turing, for float32, and for what flash leaves: PyTorch's memory-efficient attention.

Its keys and values are repeated for each query head. It lays its log-sum-exp out as [documents, H, longest]: many times
the tokens where lengths differ, so the tokens' own are kept. Facts are from PyTorch's
aten/src/ATen/native/transformers/cuda/{attention,attention_backward}.cu.
"""

from __future__ import annotations

import torch

from tunesmith_core.messages import Message
from tunesmith_engine.attention.backend import (
    Backend,
    Case,
    Gradients,
    Operands,
    aligned,
    beyond_vendors,
    check,
    dense,
    expand_heads,
    placed,
    sum_heads,
    window_within,
)

OLDEST_CAPABILITY = (7, 5)
CAUSAL_FROM_TOP_LEFT = 1
"""The number of the causal mask (`sdp::CustomMaskType`)."""

LENGTH_STEP = 32
"""The log-sum-exp of a document has room for so many tokens or a multiple."""

ONE_SPLIT = 1
"""More splits of the keys add up in any order; one keeps the sum the same in every run."""


class Efficient(Backend):
    """Variable lengths and sliding windows by PyTorch's own CUTLASS kernels."""

    name = "efficient"

    def problem(self, case: Case) -> str | None:
        """Return why the kernel can't take the case."""
        if case.device.type != "cuda" or case.capability < OLDEST_CAPABILITY:
            return Message("It needs an NVIDIA GPU of compute capability 7.5.")
        formats = [torch.float16, torch.float32]
        if case.capability >= (8, 0):
            formats.append(torch.bfloat16)
        if case.dtype not in formats:
            return Message("It does not support {dtype} on this GPU.", dtype=str(case.dtype).removeprefix("torch."))
        if problem := beyond_vendors(case.shape):
            return problem
        if case.shape.head_dim % 8:
            return Message("It needs a head size divisible by 8.")
        return None

    def forward(
        self,
        operands: Operands,
        out: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Return the output and the log-sum-exp [T, H]."""
        check(operands)
        shape, documents, longest = operands.shape, operands.documents, _longest(operands)
        o, log_sums, *_ = torch.ops.aten._efficient_attention_forward(
            *_repeated(operands),
            None,
            documents.bounds,
            documents.bounds,
            longest,
            longest,
            0.0,
            CAUSAL_FROM_TOP_LEFT,
            True,
            scale=shape.scale,
            window_size=window_within(shape, longest),
        )
        (result,) = placed((o[0],), None if out is None else (out,))
        return result, (packed(log_sums, documents.bounds, operands.q.shape[0]),)

    def backward(
        self,
        do: torch.Tensor,
        operands: Operands,
        o: torch.Tensor,
        saved: tuple[torch.Tensor, ...],
        outs: Gradients | None = None,
        to_sinks: torch.Tensor | None = None,  # noqa: ARG002 - it has none
    ) -> Gradients:
        """Return the gradients; `o` and `do` are copied first where their rows lie apart."""
        (log_sums,) = saved
        shape, documents, longest = operands.shape, operands.documents, _longest(operands)
        unused = torch.empty((), dtype=torch.int64)
        dq, dk, dv, _ = torch.ops.aten._efficient_attention_backward(
            dense(do)[None],
            *_repeated(operands),
            None,
            dense(o)[None],
            documents.bounds,
            documents.bounds,
            longest,
            longest,
            padded(log_sums, documents.bounds, longest),
            0.0,
            unused,
            unused,
            CAUSAL_FROM_TOP_LEFT,
            False,
            scale=shape.scale,
            num_splits_key=ONE_SPLIT,
            window_size=window_within(shape, longest),
        )
        heads = operands.k.shape[1]
        return placed((dq[0], sum_heads(dk[0], heads), sum_heads(dv[0], heads)), outs)


def _repeated(operands: Operands) -> tuple[torch.Tensor, ...]:
    heads = operands.q.shape[1]
    keys, values = expand_heads(operands.k, heads), expand_heads(operands.v, heads)
    return tuple(aligned(tensor)[None] for tensor in (operands.q, keys, values))


def _longest(operands: Operands) -> int:
    # The kernel refuses a bound above the number of tokens.
    return min(operands.documents.max_length, operands.q.shape[0])


def packed(log_sums: torch.Tensor, bounds: torch.Tensor, num_tokens: int) -> torch.Tensor:
    """Return the tokens' own of [documents, H, longest], as [T, H]."""
    document, place = places(bounds, num_tokens)
    return log_sums[document, :, place]


def padded(log_sums: torch.Tensor, bounds: torch.Tensor, longest: int) -> torch.Tensor:
    """Undo `packed`; places without a token hold infinity, as the kernel leaves them: their weights become zero."""
    room = (longest + LENGTH_STEP - 1) // LENGTH_STEP * LENGTH_STEP
    out = log_sums.new_full((bounds.numel() - 1, log_sums.shape[1], room), float("inf"))
    document, place = places(bounds, log_sums.shape[0])
    out[document, :, place] = log_sums
    return out


def places(bounds: torch.Tensor, num_tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the document of each token and its place there."""
    token = torch.arange(num_tokens, dtype=bounds.dtype, device=bounds.device)
    document = torch.searchsorted(bounds, token, right=True) - 1
    return document, token - bounds[document]
