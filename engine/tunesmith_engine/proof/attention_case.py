"""How the rungs of the attention ladder are tried: each that serves a model against the last, in plain PyTorch."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import torch

from tunesmith_engine.attention import LADDER, Operands, Rung
from tunesmith_engine.attention.cudnn import LENGTH_STEP as WHOLE_BLOCK
from tunesmith_engine.attention.rung import Case
from tunesmith_engine.kernels import registry
from tunesmith_engine.packed.batch import Documents
from tunesmith_engine.proof.inputs import NUM_ROWS, Inputs, Results, Sizes
from tunesmith_engine.shapes import AttentionShape

SMALL_WINDOW = 8
"""Tokens that a token sees where the model has a sliding window: fewer than a case has."""


@dataclass(frozen=True, slots=True)
class RungCase:
    """One rung.

    Attributes:
        in_float32, exact_dtype: as in `cases.KernelCase`.
    """

    rung: Rung
    in_float32: bool = False
    exact_dtype: torch.dtype = torch.float64

    @property
    def name(self) -> str:
        """Name in the kernel registry."""
        return f"attention-{self.rung.name}"

    def wanted(self, sizes: Sizes) -> bool:
        """Return whether such a model has attention: every one."""
        return sizes.num_heads > 0

    def runs(self, sizes: Sizes, device: torch.device) -> bool:
        """Return whether the rung serves any layer of such a model on a device."""
        return registry.switched_off(self.name) is None and bool(_served(self.rung, sizes, device))

    def compute(self, sizes: Sizes, inputs: Inputs, twin: bool = False) -> Results:
        """Return outputs and gradients of every kind of layer and documents that the rung serves."""
        rung = LADDER[-1] if twin else self.rung
        widths = [sizes.num_heads, sizes.num_key_value_heads, sizes.num_key_value_heads, sizes.num_heads]
        found: Results = {}
        for label, (shape, documents) in _served(self.rung, sizes, inputs.device).items():
            q, k, v, slope = (
                inputs.rows(num * sizes.head_dim, sum(documents.lengths)).unflatten(1, (num, sizes.head_dim))
                for num in widths
            )
            placed = replace(documents, bounds=documents.bounds.to(inputs.device))
            operands = Operands(q, k, v, placed, shape)
            out, saved = rung.forward(operands)
            slopes = rung.backward(slope, operands, out, saved)
            parts = ("output", "query gradient", "key gradient", "value gradient")
            found |= {f"{part} ({label})": values for part, values in zip(parts, (out, *slopes), strict=True)}
        return found


RUNG_CASES = tuple(RungCase(rung) for rung in LADDER[:-1])


def _served(rung: Rung, sizes: Sizes, device: torch.device) -> dict[str, tuple[AttentionShape, Documents]]:
    """Return the kinds of layers and documents that a rung serves, by a name; the bounds are not on the device."""
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
            if rung.problem(asked) is None:
                found[f"documents of {lengths}, window {window}"] = (shape, documents)
    return found
