"""How the backends of the attention backends are tried: each that serves a model against the last, in plain PyTorch."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import torch

from tunesmith_engine.attention import BACKENDS, Backend, Operands
from tunesmith_engine.attention.backend import Case
from tunesmith_engine.attention.cudnn import LENGTH_STEP as WHOLE_BLOCK
from tunesmith_engine.kernels import registry
from tunesmith_engine.packed.batch import Documents
from tunesmith_engine.proof.inputs import NUM_ROWS, Inputs, Results, Sizes
from tunesmith_engine.shapes import AttentionShape

SMALL_WINDOW = 8
"""Tokens that a token sees where the model has a sliding window: fewer than a case has."""


@dataclass(frozen=True, slots=True)
class BackendCase:
    """One backend.

    Attributes:
        in_float32, exact_dtype: as in `cases.KernelCase`.
    """

    backend: Backend
    in_float32: bool = False
    exact_dtype: torch.dtype = torch.float64

    @property
    def name(self) -> str:
        """Name in the kernel registry."""
        return f"attention-{self.backend.name}"

    def wanted(self, sizes: Sizes) -> bool:
        """Return whether such a model has attention: every one."""
        return sizes.num_heads > 0

    def runs(self, sizes: Sizes, device: torch.device) -> bool:
        """Return whether the backend serves any layer of such a model on a device."""
        return registry.switched_off(self.name) is None and bool(_served(self.backend, sizes, device))

    def compute(self, sizes: Sizes, inputs: Inputs, twin: bool = False) -> Results:
        """Return outputs and gradients of every kind of layer and documents that the backend serves."""
        backend = BACKENDS[-1] if twin else self.backend
        widths = [sizes.num_heads, sizes.num_key_value_heads, sizes.num_key_value_heads, sizes.num_heads]
        found: Results = {}
        for label, (shape, documents) in _served(self.backend, sizes, inputs.device).items():
            q, k, v, slope = (
                inputs.rows(num * sizes.head_dim, sum(documents.lengths)).unflatten(1, (num, sizes.head_dim))
                for num in widths
            )
            placed = replace(documents, bounds=documents.bounds.to(inputs.device))
            operands = Operands(q, k, v, placed, shape)
            out, saved = backend.forward(operands)
            slopes = backend.backward(slope, operands, out, saved)
            parts = ("output", "query gradient", "key gradient", "value gradient")
            found |= {f"{part} ({label})": values for part, values in zip(parts, (out, *slopes), strict=True)}
        return found


BACKEND_CASES = tuple(BackendCase(backend) for backend in BACKENDS[:-1])


def _served(backend: Backend, sizes: Sizes, device: torch.device) -> dict[str, tuple[AttentionShape, Documents]]:
    """Return the kinds of layers and documents that a backend serves, by a name; the bounds are not on the device."""
    found = {}
    for window in (None, SMALL_WINDOW) if sizes.window else (None,):
        shape = AttentionShape(
            inputs=(),
            output=torch.nn.Identity(),
            num_heads=sizes.num_heads,
            num_key_value_heads=sizes.num_key_value_heads,
            head_dim=sizes.head_dim,
            scale=sizes.head_dim**-0.5,
            softcap=sizes.attention_softcap,
            window=window,
        )
        # cuDNN takes whole blocks only.
        for lengths in ((NUM_ROWS - 6, 1, 5), (NUM_ROWS,), (WHOLE_BLOCK, WHOLE_BLOCK)):
            bounds = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32)
            documents = Documents(bounds, lengths, max(lengths))
            dtype = getattr(torch, sizes.dtype)
            asked = Case(shape, device, dtype, documents.equal_length, sum(lengths), len(lengths))
            if backend.problem(asked) is None:
                found[f"documents of {lengths}, window {window}"] = (shape, documents)
    return found
