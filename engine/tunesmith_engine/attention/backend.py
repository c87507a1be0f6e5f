"""What an attention backend is: one way to compute attention in documents, forward and backward, without autograd."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch

from tunesmith_core.errors import BugError
from tunesmith_core.messages import Message
from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.copy_rows import copy_rows
from tunesmith_engine.mixer_shapes import AttentionShape
from tunesmith_engine.packed.batch import Documents

Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Of queries [T, H, hd], keys and values [T, KV, hd]."""

ALIGNMENT_BYTES = 16
"""The vendors' kernels load 16 bytes at once and check nothing."""


@dataclass(frozen=True, slots=True)
class Case:
    """What a backend is asked to compute.

    Attributes:
        equal_length: length of all documents where it is the same, else None.
        num_tokens: tokens T of the largest batch.
        num_documents: documents of that batch, empty ones included.
    """

    shape: AttentionShape
    device: torch.device
    dtype: torch.dtype
    equal_length: int | None = None
    num_tokens: int = 0
    num_documents: int = 1

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability of the GPU, or (0, 0)."""
        return registry.capability(self.device)


@dataclass(frozen=True, slots=True)
class Operands:
    """What attention is computed of; rows may lie apart, heads may not.

    Attributes:
        q: queries [T, H, hd].
        k, v: keys [T, KV, hd] and values [T, KV, vd].
        documents: the bounds that no token looks past; they cover all T tokens.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    documents: Documents
    shape: AttentionShape

    def new_output(self) -> torch.Tensor:
        """Return room for the output, [T, H, vd]."""
        return torch.empty((*self.q.shape[:2], self.v.shape[2]), dtype=self.q.dtype, device=self.q.device)


class Backend(ABC):
    """One implementation of causal attention inside documents. Nothing waits for the GPU.

    Attributes:
        name: also its name in the kernel registry, after "attention-".
        capturable: a CUDA graph may hold it.
        reads_bounds: it reads the bounds on the device, so a captured graph serves other documents too; else the
            graph holds the lengths that it was captured with.
        deterministic: two runs give the same bits, without being asked for.
    """

    name: ClassVar[str]
    capturable: ClassVar[bool] = True
    reads_bounds: ClassVar[bool] = True
    deterministic: ClassVar[bool] = True

    @abstractmethod
    def problem(self, case: Case) -> str | None:
        """Return in a sentence why this backend can't compute a case, or None."""

    @abstractmethod
    def forward(
        self,
        operands: Operands,
        out: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Return the attention's output [T, H, vd] (`out` where given) and what backward needs beside it.

        Raises:
            BugError: The documents don't cover the tokens.
        """

    @abstractmethod
    def backward(
        self,
        do: torch.Tensor,
        operands: Operands,
        o: torch.Tensor,
        saved: tuple[torch.Tensor, ...],
        outs: Gradients | None = None,
        to_sinks: torch.Tensor | None = None,
    ) -> Gradients:
        """Return the gradients of q, k and v, in `outs` where given; `outs` may be q, k and v themselves.

        `to_sinks`, [H] float32, has the gradient of the sinks written to it where it is given.
        """


def check(operands: Operands) -> None:
    """Hold the documents to the tokens before a kernel reads memory by them.

    Raises:
        BugError: They don't cover the tokens, or a length is out of bounds.
    """
    documents, num_tokens = operands.documents, operands.q.shape[0]
    lengths = documents.lengths
    if (
        sum(lengths) != num_tokens
        or min(lengths, default=0) < 1
        or max(lengths, default=0) > documents.max_length
        or documents.bounds.numel() <= len(lengths)
    ):
        raise BugError(
            "illegal-memory-access-packing",
            "{num_documents} documents of {shortest} to {longest} tokens (bound {max_length}, {num_bounds} bounds) "
            "don't cover {num_tokens} tokens.",
            num_documents=len(lengths),
            shortest=min(lengths, default=0),
            longest=max(lengths, default=0),
            max_length=documents.max_length,
            num_bounds=documents.bounds.numel(),
            num_tokens=num_tokens,
        )


def beyond_vendors(shape: AttentionShape, adds_sinks: bool = False, widens: bool = False) -> str | None:
    """Return in a sentence what of a shape the vendors' kernels lack, or None.

    Args:
        adds_sinks: sinks are added behind the kernel.
        widens: values narrower than keys are filled up.
    """
    if shape.softcap is not None:
        return Message("It does not support a softcap.")
    if shape.sinks is not None and not adds_sinks:
        return Message("It does not support attention sinks.")
    if shape.slopes is not None:
        return Message("It does not support scores that fall with the distance (ALiBi).")
    if shape.chunk is not None:
        return Message("It does not support attention in chunks.")
    if shape.value_dim > shape.head_dim or (shape.value_dim < shape.head_dim and not widens):
        return Message("It needs values of the size of the keys.")
    return None


def window_within(shape: AttentionShape, longest: int) -> int | None:
    """Return the sliding window where it is shorter than the longest document, else None."""
    return shape.window if shape.window is not None and shape.window < longest else None


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """Return [T, heads, hd] as the vendors' kernels can load it: itself, or a copy where rows start anywhere."""
    step = ALIGNMENT_BYTES // tensor.element_size()
    strides = tensor.stride()
    if tensor.data_ptr() % ALIGNMENT_BYTES or strides[0] % step or strides[1] % step or strides[2] != 1:
        return tensor.clone(memory_format=torch.contiguous_format)
    return tensor


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor without gaps between its rows: itself, or a copy."""
    if tensor.is_contiguous():
        return aligned(tensor)
    return copy_rows(tensor.flatten(1), tensor.new_empty(tensor.shape).flatten(1)).view(tensor.shape)


def expand_heads(tensor: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Repeat key or value heads [T, KV, hd] for every query head of their group; [T, H, hd]."""
    tokens, heads, width = tensor.shape
    if heads == num_heads:
        return tensor
    return tensor[:, :, None].expand(tokens, heads, num_heads // heads, width).reshape(tokens, num_heads, width)


def sum_heads(gradient: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Sum gradients of repeated heads [T, H, hd] over their groups, in float32; [T, KV, hd]."""
    tokens, heads, width = gradient.shape
    if heads == num_heads:
        return gradient
    return gradient.reshape(tokens, num_heads, heads // num_heads, width).sum(2)


def placed(values: tuple[torch.Tensor, ...], outs: tuple[torch.Tensor, ...] | None) -> tuple[torch.Tensor, ...]:
    """Copy results to where they are wanted, if anywhere, and return them there."""
    if outs is None:
        return values
    for out, value in zip(outs, values, strict=True):
        copy_rows(value.flatten(1), out.flatten(1))
    return outs
