"""How the backends of the attention backends are tried: each that serves a model against the last, in plain PyTorch."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import torch

from tunesmith_engine.attention import BACKENDS, Backend, Operands
from tunesmith_engine.attention.backend import Case
from tunesmith_engine.attention.cudnn import LENGTH_STEP as WHOLE_BLOCK
from tunesmith_engine.kernels import registry
from tunesmith_engine.mixer_shapes import AttentionShape
from tunesmith_engine.packed.batch import Documents
from tunesmith_engine.proof.inputs import NUM_ROWS, Inputs, Results, Sizes

SMALL_WINDOW = 8
"""Tokens that a token sees where the model has a sliding window, or of a chunk: fewer than a case has."""


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
        """Return whether any attention of such a model is ours, and not run as written."""
        return sizes.num_heads > 0

    def runs(self, sizes: Sizes, device: torch.device) -> bool:
        """Return whether the backend serves any layer of such a model on a device."""
        if not self.wanted(sizes) or registry.switched_off(self.name) is not None:
            return False
        return bool(_served(self.backend, Inputs(sizes, device, getattr(torch, sizes.dtype))))

    def compute(self, sizes: Sizes, inputs: Inputs, twin: bool = False) -> Results:  # noqa: ARG002 (as a KernelCase has it)
        """Return outputs and gradients of every kind of layer and documents that the backend serves."""
        backend = BACKENDS[-1] if twin else self.backend
        found: Results = {}
        for label, (shape, documents) in _served(self.backend, inputs).items():
            heads, groups = shape.num_heads, shape.num_key_value_heads
            width, value_width = shape.head_dim, shape.value_dim
            counts = ((heads, width), (groups, width), (groups, value_width), (heads, value_width))
            q, k, v, slope = (
                inputs.rows(num * width, sum(documents.lengths)).unflatten(1, (num, width)) for num, width in counts
            )
            placed = replace(documents, bounds=documents.bounds.to(inputs.device))
            operands = Operands(q, k, v, placed, shape)
            out, saved = backend.forward(operands)
            to_sinks = None if shape.sinks is None else torch.empty_like(shape.sinks)
            slopes = backend.backward(slope, operands, out, saved, to_sinks=to_sinks)
            if to_sinks is not None:
                found[f"gradient of sinks ({label})"] = to_sinks
            parts = ("output", "query gradient", "key gradient", "value gradient")
            found |= {f"{part} ({label})": values for part, values in zip(parts, (out, *slopes), strict=True)}
        return found


BACKEND_CASES = tuple(BackendCase(backend) for backend in BACKENDS[:-1])


def _served(backend: Backend, inputs: Inputs) -> dict[str, tuple[AttentionShape, Documents]]:
    """Return the kinds of layers and documents that a backend serves, by a name; the bounds are not on the device."""
    found, sizes, device = {}, inputs.sizes, inputs.device
    shapes = {"window None": inputs.attention(None, None)}
    if sizes.window:
        shapes[f"window {SMALL_WINDOW}"] = inputs.attention(SMALL_WINDOW, None)
    if sizes.chunk:
        shapes[f"chunk {SMALL_WINDOW}"] = inputs.attention(None, SMALL_WINDOW)
    if sizes.wide_heads:
        shapes["wide heads"] = inputs.attention(None, None, wide=True)
    for label, shape in shapes.items():
        # cuDNN takes whole blocks only.
        for lengths in ((NUM_ROWS - 6, 1, 5), (NUM_ROWS,), (WHOLE_BLOCK, WHOLE_BLOCK)):
            bounds = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32)
            documents = Documents(bounds, lengths, max(lengths))
            dtype = getattr(torch, sizes.dtype)
            asked = Case(shape, device, dtype, documents.equal_length, sum(lengths), len(lengths))
            if backend.problem(asked) is None:
                found[f"documents of {lengths}, {label}"] = (shape, documents)
    return found
