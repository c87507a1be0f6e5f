"""The fastest backend where documents are equally long: cuDNN's attention on views of the projections, no copies.

On one H200 it took 0.325 ms forward and 0.979 ms backward per Llama-3.1-8B layer of 4 x 2048 tokens, where flash took
0.659 and 1.798. Facts about PyTorch's operator are from aten/src/ATen/native/cudnn/MHA.cpp and
transformers/cuda/sdp_utils.cpp: the built plan of a shape is kept by sizes and strides of q, k and v alone, so o and
its gradient always come in the same layout (dense) here; before cuDNN 9.5.1 both had to be alike anyway.
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
from tunesmith_engine.kernels import registry

OLDEST_CAPABILITY = (8, 0)
LARGEST_HEAD_DIM = 128
GROUPED = "attention-cudnn-grouped"
"""Switched off by this name, keys and values are repeated for each query head instead of shared inside cuDNN."""

LENGTH_STEP = 128
"""Other lengths read out of bounds in cuDNN before 9.16 (pytorch issue 169849), and each costs a new plan."""


class Cudnn(Backend):
    """[T, heads, hd] seen as [documents, heads, length, hd], without moving a number."""

    name = "cudnn"
    reads_bounds = False
    deterministic = False

    def problem(self, case: Case) -> str | None:
        """Return why cuDNN can't take the case; it wants documents of one length."""
        shape, length = case.shape, case.equal_length
        if case.device.type != "cuda" or case.capability < OLDEST_CAPABILITY:
            return Message("It needs an NVIDIA GPU of compute capability 8.0.")
        if case.dtype not in (torch.bfloat16, torch.float16):
            return Message("It needs bfloat16 or float16.")
        if problem := beyond_vendors(shape):
            return problem
        if shape.head_dim > LARGEST_HEAD_DIM or shape.head_dim % 8:
            return Message("It needs a head size of at most {size}, divisible by 8.", size=LARGEST_HEAD_DIM)
        if length is None or length % LENGTH_STEP:
            return Message("It needs examples of one length, divisible by {tokens} tokens.", tokens=LENGTH_STEP)
        if window_within(shape, length) is not None:
            return Message("It does not support a sliding window.")
        if not hasattr(torch.ops.aten, "_scaled_dot_product_cudnn_attention_backward"):
            return Message("This PyTorch has no cuDNN attention.")
        return None

    def forward(
        self,
        operands: Operands,
        out: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Return the output and cuDNN's statistics [documents, H, length] with its two unused random states."""
        check(operands)
        queries, keys, values = _views(operands)
        o, statistics, _, _, _, _, seed, offset, _ = torch.ops.aten._scaled_dot_product_cudnn_attention(
            queries, keys, values, None, True, 0.0, True, False, scale=operands.shape.scale
        )
        (result,) = placed((_rows(o),), None if out is None else (out,))
        return result, (statistics, seed, offset)

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
        statistics, seed, offset = saved
        queries, keys, values = _views(operands)
        length = operands.documents.lengths[0]
        dq, dk, dv = torch.ops.aten._scaled_dot_product_cudnn_attention_backward(
            _batched(dense(do), length),
            queries,
            keys,
            values,
            _batched(dense(o), length),
            statistics,
            seed,
            offset,
            None,
            None,
            None,
            length,
            length,
            0.0,
            True,
            scale=operands.shape.scale,
        )
        heads = operands.k.shape[1]
        return placed((_rows(dq), sum_heads(_rows(dk), heads), sum_heads(_rows(dv), heads)), outs)


def _views(operands: Operands) -> tuple[torch.Tensor, ...]:
    q, k, v = operands.q, operands.k, operands.v
    if registry.switched_off(GROUPED):
        k, v = expand_heads(k, q.shape[1]), expand_heads(v, q.shape[1])
    return tuple(_batched(aligned(tensor), operands.documents.lengths[0]) for tensor in (q, k, v))


def _batched(tensor: torch.Tensor, length: int) -> torch.Tensor:
    """[T, heads, hd] as [documents, heads, length, hd], a view."""
    return tensor.unflatten(0, (-1, length)).transpose(1, 2)


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    """[documents, heads, length, hd] as [T, heads, hd]; a view of what cuDNN lays out like its queries."""
    return tensor.transpose(1, 2).flatten(0, 1)
