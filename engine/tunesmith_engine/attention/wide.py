"""The backend for wide heads: weights of a slice of queries in memory, and plain products of matrices with them.

Of PyTorch's own kernels only the memory-efficient ones take heads wider than 256, and their backward pass reads such
heads again for every block: 4 documents of 2,048 tokens with 8 heads of 512 took them 18.8 ms on an H200.

# T tokens, H heads of D numbers in KV groups, R queries of a slice and S keys that they may see
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tunesmith_core.messages import Message
from tunesmith_engine.attention.backend import Backend, Case, Gradients, Operands, beyond_vendors, check, placed
from tunesmith_engine.attention.flash import LARGEST_HEAD_DIM
from tunesmith_engine.kernels import registry, wide_heads
from tunesmith_engine.kernels.wide_heads import Slice
from tunesmith_engine.mixer_shapes import AttentionShape
from tunesmith_engine.packed.batch import Documents


def slice_tokens(shape: AttentionShape) -> int:
    """Return the queries of a slice, R = 2 D: weights and derivatives, 4 H R S bytes, fit the 8 H D T of a plan."""
    return 2 * shape.head_dim


class Wide(Backend):
    """Variable lengths and sliding windows; the same bits in every run."""

    name = "wide"
    reads_bounds = False

    def problem(self, case: Case) -> str | None:
        """Return why the case is not for it."""
        if case.shape.head_dim <= LARGEST_HEAD_DIM:
            return Message("It is for head sizes above {size}.", size=LARGEST_HEAD_DIM)
        if reason := registry.reason_off("attention-wide", case.device, needs_dot=True):
            return reason
        if case.dtype not in (torch.bfloat16, torch.float16):
            return Message("It needs bfloat16 or float16.")
        return beyond_vendors(case.shape)

    def forward(
        self,
        operands: Operands,
        out: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Return the output and the log-sum-exp [H, T]."""
        check(operands)
        q, k, v, shape, bounds = operands.q, operands.k, operands.v, operands.shape, operands.documents.bounds
        o = operands.new_output() if out is None else out
        log_sums = wide_heads.log_sums(q, k, bounds, shape)
        slices = list(_slices(operands.documents, shape))
        room = _room(q, slices)
        for part in slices:
            weights = _by_group(room, part, q, k)
            wide_heads.weights_of(part, q, k, log_sums, bounds, shape, weights)
            result = weights[..., : part.num_keys] @ v[part.keys].transpose(0, 1)
            o[part.rows].copy_(_by_token(result, part, q))
        return o, (log_sums,)

    def backward(
        self,
        do: torch.Tensor,
        operands: Operands,
        o: torch.Tensor,
        saved: tuple[torch.Tensor, ...],
        outs: Gradients | None = None,
        to_sinks: torch.Tensor | None = None,  # noqa: ARG002 - it has none
    ) -> Gradients:
        """Return the gradients; those of keys and values add up over slices in float32."""
        (log_sums,) = saved
        q, k, v, shape, bounds = operands.q, operands.k, operands.v, operands.shape, operands.documents.bounds
        dq = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        dk, dv = (torch.zeros(k.shape[1], k.shape[0], k.shape[2], device=k.device) for _ in range(2))
        slices = list(_slices(operands.documents, shape))
        rooms = _room(q, slices), _room(q, slices)
        for part in slices:
            shares = (do[part.rows].float() * o[part.rows]).sum(-1).t().contiguous()
            weights, slopes = (_by_group(room, part, q, k) for room in rooms)
            wide_heads.weights_and_slopes_of(
                part, q, k, v, do, log_sums, shares, bounds, shape, (weights, slopes)
            )
            weights, slopes = weights[..., : part.num_keys], slopes[..., : part.num_keys]
            dv[:, part.keys] += weights.mT @ _of_group(do, part, k)
            dk[:, part.keys] += slopes.mT @ _of_group(q, part, k)
            keys = k[part.keys].transpose(0, 1)
            of_queries = torch.baddbmm(keys.new_zeros(()), slopes, keys, beta=0, alpha=shape.scale)
            dq[part.rows].copy_(_by_token(of_queries, part, q))
        dk *= shape.scale
        return placed((dq, dk.transpose(0, 1).to(k.dtype), dv.transpose(0, 1).to(v.dtype)), outs)


def _slices(documents: Documents, shape: AttentionShape) -> Iterator[Slice]:
    """Yield the slices of a batch, with the keys from the begin of their first query's document, or its window."""
    num_tokens, begin, document = sum(documents.lengths), 0, 0
    step = slice_tokens(shape)
    for row in range(0, num_tokens, step):
        while row >= begin + documents.lengths[document]:
            begin += documents.lengths[document]
            document += 1
        end = min(row + step, num_tokens)
        first = begin if shape.window is None else max(begin, row - shape.window + 1)
        yield Slice(slice(row, end), slice(first, end))


def _room(q: torch.Tensor, slices: list[Slice]) -> torch.Tensor:
    """Return room for the weights of any slice."""
    most = max((part.num_rows * part.num_columns for part in slices), default=0)
    return q.new_empty(q.shape[1] * most)


def _by_group(room: torch.Tensor, part: Slice, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Return room for weights as [KV, G R, S or more], the heads of a group below each other."""
    num_rows = q.shape[1] * part.num_rows
    return room[: num_rows * part.num_columns].view(k.shape[1], num_rows // k.shape[1], part.num_columns)


def _of_group(tensor: torch.Tensor, part: Slice, k: torch.Tensor) -> torch.Tensor:
    """Return a slice's rows of [T, H, D] as [KV, G R, D]."""
    return tensor[part.rows].transpose(0, 1).reshape(k.shape[1], -1, tensor.shape[2])


def _by_token(tensor: torch.Tensor, part: Slice, q: torch.Tensor) -> torch.Tensor:
    """Undo `_of_group`: [R, H, D]."""
    return tensor.view(q.shape[1], part.num_rows, -1).transpose(0, 1)
