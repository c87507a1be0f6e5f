"""Rows of the embedding table, scaled; the table may lie in the host's pinned memory, where the kernel reads it."""

from __future__ import annotations

import torch

from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.triton_import import jit, tl, triton
from tunesmith_engine.shapes import PositionTable

NAME = "embedding"
LARGEST_BLOCK = 2048
NUM_WARPS = 4


def embed(input_ids: torch.Tensor, table: torch.Tensor, scale: float, out: torch.Tensor) -> None:
    """Write out[t] = scale * table[input_ids[t]], rounded once.

    Args:
        input_ids: [T] int64, each below V; nothing checks that here.
        table: [V, d], on the device of `out`; or in pinned memory of the host, which unified addressing lets a
            kernel read over the bus: only the rows that occur cross it.
        scale: as the model multiplies: rounded to the table's number format before, where the model does so.
        out: [T, d], with any stride between rows.
    """
    num_tokens, width = out.shape
    if not registry.runs(NAME, out.device):
        rows = table[input_ids.to(table.device)].to(out.device)
        out.copy_(rows if scale == 1.0 else rows * scale)
    elif num_tokens:
        block = min(triton.next_power_of_2(width), LARGEST_BLOCK)
        _embed[(num_tokens, triton.cdiv(width, block))](
            input_ids, table, out, input_ids.stride(0), table.stride(0), out.stride(0), scale, WIDTH=width, BLOCK=block,
            num_warps=NUM_WARPS,
        )  # fmt: skip


def add_positions(
    positions: PositionTable, places: torch.Tensor, x: torch.Tensor, rows: torch.Tensor | None = None
) -> None:
    """Add learned positions to embedded tokens.

    Args:
        positions: their table.
        places: of the tokens in their documents, [T].
        x: [T, d], what is added to.
        rows: [T, d], memory for the rows of the table; None takes some.
    """
    rows = torch.empty_like(x) if rows is None else rows
    embed((places + positions.offset).long(), positions.embedding.weight.data, 1.0, rows)
    x.add_(rows)


@jit
def _embed(
    input_ids,
    table,
    out,
    input_stride,
    table_stride,
    out_stride,
    scale,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < WIDTH
    row = tl.load(input_ids + token * input_stride).to(tl.int64)
    values = tl.load(table + row * table_stride + columns, mask=inside, other=0.0).to(tl.float32) * scale
    tl.store(out + token * out_stride + columns, values.to(out.dtype.element_ty), mask=inside)
