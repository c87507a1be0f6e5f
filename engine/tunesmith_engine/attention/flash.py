"""The backend for documents of any lengths on Ampere and newer: the FlashAttention-2 that is inside PyTorch.

Its operators are private (`torch.ops.aten._flash_attention_*`) but have kept their order of arguments from PyTorch 2.6
on; the public one (`torch.nn.attention.varlen`, from 2.10) calls the same and hides the backward half.
"""

from __future__ import annotations

import torch
from torch import nn

from tunesmith_core.errors import TunesmithError
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
    placed,
    window_within,
)
from tunesmith_engine.attention.efficient import packed, places
from tunesmith_engine.attention.sinks import add_sinks, gradient_of_sinks
from tunesmith_engine.mixer_shapes import AttentionShape
from tunesmith_engine.packed.batch import Documents

OLDEST_CAPABILITY = (8, 0)
LARGEST_HEAD_DIM = 256
NO_BACKWARD_HEAD_DIMS = range(193, 225)
"""Their backward wants more shared memory than consumer GPUs have (aten/.../cuda/sdp_utils.cpp)."""

PADDING_TOKENS = 128
"""The backward's float32 buffer of query gradients has so many rows more for each document."""


class Flash(Backend):
    """Variable lengths, grouped heads and sliding windows by PyTorch's own FlashAttention-2."""

    name = "flash"
    deterministic = False

    def problem(self, case: Case) -> str | None:
        """Return why flash can't take the case."""
        shape = case.shape
        if case.device.type != "cuda" or case.capability < OLDEST_CAPABILITY:
            return Message("It needs an NVIDIA GPU of compute capability 8.0.")
        if case.dtype not in (torch.bfloat16, torch.float16):
            return Message("It needs bfloat16 or float16.")
        if problem := beyond_vendors(shape, adds_sinks=True, widens=True):
            return problem
        if shape.head_dim > LARGEST_HEAD_DIM or shape.head_dim % 8:
            return Message("It needs a head size of at most {size}, divisible by 8.", size=LARGEST_HEAD_DIM)
        if shape.head_dim in NO_BACKWARD_HEAD_DIMS and case.capability not in ((8, 0), (9, 0), (10, 0)):
            return Message("On this GPU, its backward pass does not support head sizes from 193 to 224.")
        return _too_large(shape, case.num_tokens, case.num_documents)

    def forward(
        self,
        operands: Operands,
        out: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Return the output and the log-sum-exp as the kernel lays it out, with two unused random states.

        Raises:
            RunFailure: The batch is too large for the kernel's 32-bit offsets.
        """
        check(operands)
        shape, documents = operands.shape, operands.documents
        if problem := _too_large(shape, operands.q.shape[0], documents.bounds.numel() - 1):
            raise TunesmithError("illegal-memory-access-packing", problem)
        longest = _longest(documents)
        o, log_sums, state, unused, _ = torch.ops.aten._flash_attention_forward(
            aligned(operands.q),
            aligned(operands.k),
            _wide(operands.v, shape),
            documents.bounds,
            documents.bounds,
            longest,
            longest,
            0.0,
            True,
            False,
            scale=shape.scale,
            **_window(shape, longest),
        )
        o = o[..., : shape.value_dim]
        if shape.sinks is not None:
            log_sums = _with_sinks(o, log_sums, shape.sinks, documents)
        (result,) = placed((o,), None if out is None else (out,))
        return result, (log_sums, state, unused)

    def backward(
        self,
        do: torch.Tensor,
        operands: Operands,
        o: torch.Tensor,
        saved: tuple[torch.Tensor, ...],
        outs: Gradients | None = None,
        to_sinks: torch.Tensor | None = None,
    ) -> Gradients:
        """Return the gradients; `o` and `do` are copied first where their rows lie apart."""
        log_sums, state, unused = saved
        shape, documents = operands.shape, operands.documents
        longest = _longest(documents)
        if to_sinks is not None and shape.sinks is not None:
            whole = log_sums
            if _is_padded(log_sums):
                whole = packed(log_sums, documents.bounds, o.shape[0]).t()
            to_sinks.copy_(gradient_of_sinks(do, o, whole, shape.sinks))
        dq, dk, dv = torch.ops.aten._flash_attention_backward(
            dense(do) if shape.value_size is None else _wide(do, shape),
            aligned(operands.q),
            aligned(operands.k),
            _wide(operands.v, shape),
            dense(o) if shape.value_size is None else _wide(o, shape),
            log_sums,
            documents.bounds,
            documents.bounds,
            longest,
            longest,
            0.0,
            True,
            state,
            unused,
            scale=shape.scale,
            **_window(shape, longest),
        )
        return placed((dq, dk, dv[..., : shape.value_dim]), outs)


def _wide(values: torch.Tensor, shape: AttentionShape) -> torch.Tensor:
    """Return values, or what is as wide, with zeros up to the width of keys."""
    missing = shape.head_dim - shape.value_dim
    return nn.functional.pad(values, (0, missing)) if missing else aligned(values)


def _with_sinks(
    o: torch.Tensor, log_sums: torch.Tensor, sinks: torch.Tensor, documents: Documents
) -> torch.Tensor:
    """Give sinks their share of the output where it is; return the log-sum-exp with them, laid out as before."""
    if not _is_padded(log_sums):
        return add_sinks(o, log_sums, sinks)
    document, place = places(documents.bounds, o.shape[0])
    log_sums[document, :, place] = add_sinks(o, log_sums[document, :, place].t(), sinks).t()
    return log_sums


def _is_padded(log_sums: torch.Tensor) -> bool:
    """Return whether the log-sum-exp is [documents, H, longest], as in PyTorch 2.6, and not [H, T]."""
    return log_sums.dim() == 3


def _longest(documents: Documents) -> int:
    # For a length of 1 flash folds heads into rows, which only works without empty documents.
    return max(2, documents.max_length)


def _window(shape: AttentionShape, longest: int) -> dict[str, int]:
    window = window_within(shape, longest)
    return {} if window is None else {"window_size_left": window - 1, "window_size_right": 0}


def _too_large(shape: AttentionShape, num_tokens: int, num_documents: int) -> str | None:
    """Return in a sentence why a batch is beyond the kernel's 32-bit offsets, or None."""
    width = shape.num_heads * ((shape.head_dim + 31) // 32 * 32)
    if (num_tokens + PADDING_TOKENS * num_documents) * width < 1 << 31:
        return None
    return Message(
        "{num_tokens} tokens in {num_documents} examples are too many for its 32-bit offsets.",
        num_tokens=num_tokens,
        num_documents=num_documents,
    )
