"""The gradient of a trained embedding: each row of the table gets the sum of the gradients of its tokens.

Tokens are sorted, and one program adds up those that are alike, in their order and in float32, so the same inputs give
the same bits, which atomic additions don't.
"""

from __future__ import annotations

import torch

from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.triton_import import jit, tl, triton

NAME = "embedding_gradient"
LARGEST_BLOCK = 512
NUM_WARPS = 4


def add_embedding_gradient(
    input_ids: torch.Tensor,
    gradient: torch.Tensor,
    scale: float,
    padding_id: int | None,
    out: torch.Tensor,
) -> None:
    """Add scale * (sum of gradient[t] over the t with input_ids[t] = v) to each row v of `out`, rounded once.

    Args:
        input_ids: [T] int64.
        gradient: of what `embedding.embed` wrote, [T, d], with any stride between rows.
        scale: as it got.
        padding_id: the row of the table that gets nothing, as PyTorch's `padding_idx`; None for none.
        out: gradient of the table, [V, d], contiguous.
    """
    num_tokens, width = gradient.shape
    if not registry.runs(NAME, gradient.device):
        _twin(input_ids, gradient, scale, padding_id, out)
    elif num_tokens:
        ids, order = torch.sort(input_ids, stable=True)
        ends = torch.searchsorted(ids, ids, right=True)
        block = min(triton.next_power_of_2(width), LARGEST_BLOCK)
        _add_rows[(num_tokens, triton.cdiv(width, block))](
            ids, order, ends, gradient, out, gradient.stride(0), out.stride(0), scale,
            -1 if padding_id is None else padding_id, WIDTH=width, BLOCK=block, num_warps=NUM_WARPS,
        )  # fmt: skip


@jit(do_not_specialize=["padding_id"])
def _add_rows(
    ids,
    order,
    ends,
    gradient,
    out,
    gradient_stride,
    out_stride,
    scale,
    padding_id,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    place = tl.program_id(0).to(tl.int64)
    token = tl.load(ids + place).to(tl.int64)
    before = tl.load(ids + place - 1, mask=place > 0, other=-1).to(tl.int64)
    if (token != before) & (token != padding_id):
        columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        inside = columns < WIDTH
        added = tl.zeros((BLOCK,), dtype=tl.float32)
        for current in range(place, tl.load(ends + place).to(tl.int64)):
            row = tl.load(order + current).to(tl.int64)
            added += tl.load(gradient + row * gradient_stride + columns, mask=inside, other=0.0).to(tl.float32)
        target = out + token * out_stride + columns
        value = added * scale + tl.load(target, mask=inside, other=0.0).to(tl.float32)
        tl.store(target, value.to(out.dtype.element_ty), mask=inside)


def _twin(
    input_ids: torch.Tensor, gradient: torch.Tensor, scale: float, padding_id: int | None, out: torch.Tensor
) -> None:
    wide = torch.promote_types(gradient.dtype, torch.float32)
    ids, order = torch.sort(input_ids, stable=True)
    # Each token has the number of its kind: how many numbers of the host's this takes isn't asked.
    kinds = torch.cumsum(torch.diff(ids, prepend=ids[:1]) != 0, 0)
    sums = torch.zeros(gradient.shape, device=gradient.device, dtype=wide)
    sums.index_add_(0, kinds, gradient[order].to(wide))
    added = sums[kinds] * scale
    if padding_id is not None:
        added[ids == padding_id] = 0.0
    # Tokens of a kind write the same numbers to the same row.
    out[ids] = (out[ids].to(wide) + added).to(out.dtype)
