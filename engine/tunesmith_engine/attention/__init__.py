"""The attention backends: the fastest way to compute attention inside documents that this GPU and these shapes allow.

cuDNN, FlashAttention-2 and the memory-efficient kernels are PyTorch's own; between and below them stand our Triton
kernels and plain PyTorch. Every backend has an explicit forward and backward; each can be switched off in the kernel
registry by "attention-" and its name.
"""

from __future__ import annotations

import torch

from tunesmith_core.messages import Message, joined
from tunesmith_engine.attention.backend import Backend, Case, Gradients, Operands
from tunesmith_engine.attention.cudnn import Cudnn
from tunesmith_engine.attention.efficient import Efficient
from tunesmith_engine.attention.flash import Flash
from tunesmith_engine.attention.own import Triton
from tunesmith_engine.attention.plain import Plain
from tunesmith_engine.attention.wide import Wide
from tunesmith_engine.kernels import registry
from tunesmith_engine.mixer_shapes import AttentionShape

__all__ = ["BACKENDS", "Backend", "Gradients", "Operands", "backends_report", "choose"]

BACKENDS: tuple[Backend, ...] = (Cudnn(), Flash(), Wide(), Efficient(), Triton(), Plain())
"""Fastest first; the last takes everything."""


def choose(
    shape: AttentionShape,
    device: torch.device,
    dtype: torch.dtype,
    equal_length: int | None = None,
    num_tokens: int = 0,
    num_documents: int = 1,
) -> Backend:
    """Return the fastest backend for a layer.

    Where `torch.use_deterministic_algorithms` is on, backends that add up in any order are passed over.

    Args:
        equal_length: `Documents.equal_length`: tokens of each document where all are equally long.
        num_tokens: tokens of the batch, or the most that there may be.
        num_documents: its documents, or the most that there may be.
    """
    case = Case(shape, device, dtype, equal_length, num_tokens, num_documents)
    return next(backend for backend in BACKENDS if _reason_against(backend, case) is None)


def backends_report(
    shape: AttentionShape,
    device: torch.device,
    dtype: torch.dtype,
    equal_length: int | None = None,
    num_tokens: int = 0,
    num_documents: int = 1,
) -> str:
    """Return in sentences which backend a layer gets and why not a faster one; the arguments are those of `choose`."""
    case = Case(shape, device, dtype, equal_length, num_tokens, num_documents)
    reasons: list[str] = []
    for backend in BACKENDS:
        if (reason := _reason_against(backend, case)) is None:
            return joined([Message("Attention: {name}.", name=backend.name), *reasons])
        reasons.append(Message("Not {name}: {reason}", name=backend.name, reason=reason))
    raise AssertionError("The last backend takes everything.")


def _reason_against(backend: Backend, case: Case) -> str | None:
    if backend is BACKENDS[-1]:
        return None
    if reason := registry.switched_off(f"attention-{backend.name}"):
        return reason
    if not backend.deterministic and torch.are_deterministic_algorithms_enabled():
        return Message("It is not deterministic, as this run needs.")
    return backend.problem(case)
