"""The kernel that proves Triton: SwiGLU of a row, divided by the row's norm. It is imported by its step only."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def gated_row_kernel(gate, up, out, num_columns, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write silu(gate) * up of one row, divided by the row's norm; all are contiguous (rows, num_columns)."""
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < num_columns
    place = row * num_columns + columns
    g = tl.load(gate + place, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(up + place, mask=inside, other=0.0).to(tl.float32)
    values = g * tl.sigmoid(g) * u
    norm = tl.sqrt(tl.sum(values * values, axis=0))
    tl.store(out + place, values / norm, mask=inside)
