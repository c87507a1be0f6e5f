"""LFM2's convolution between two gates, inside packed documents, forwards and backwards.

    u = b * x,    z[t] = bias + sum_i weight[width - 1 - i] u[t - i],    y = c * z

over the tokens of t's document; what lies before its first token counts as zero. b, c and x lie side by side in one
product, and their gradients do so as well, so either direction is one pass. The backward pass computes u and z again.
All is added up in float32, in one order; weight and bias are frozen.
"""

from __future__ import annotations

import torch

from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.short_convolution import (
    CHANNELS,
    NUM_WARPS,
    TOKENS,
    _backward_twin,
    _convolved,
    _grid,
    _tile,
)
from tunesmith_engine.kernels.triton_import import jit, tl

NAME = "gated_convolution"
NUM_PARTS = 3
"""Of a row: b, c and x."""

LARGEST_WIDTH = 8
"""Columns of a weight."""


def gated_convolve(
    rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, begins: torch.Tensor, out: torch.Tensor
) -> None:
    """Write y of each document.

    Args:
        rows: b, c and x, [T, 3 channels], with any stride between rows, as all below.
        weight: [channels, width], contiguous; its last column is for the token itself. At most `LARGEST_WIDTH` columns.
        bias: [channels] or None.
        begins: first token of each token's document, [T] int32; see `short_convolution.first_tokens`.
        out: [T, channels]; none of the columns of `rows`.
    """
    if not registry.runs(NAME, rows.device):
        b, c, x = _parts(rows)
        out.copy_(c * _convolved(b * x, weight, bias, False, begins)[0])
    elif out.numel():
        _gated_convolve[_grid(out, TOKENS)](
            *(rows, weight, bias, begins, out, rows.stride(0), out.stride(0), len(out)),
            *(out.shape[1], weight.shape[1], TOKENS, CHANNELS),
            num_warps=NUM_WARPS,
        )


def gated_convolve_backward(
    gradient: torch.Tensor,
    rows: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    begins: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Write the gradients of b, c and x, side by side.

    Args:
        gradient: of y, [T, channels].
        out: [T, 3 channels]; neither `rows` nor the gradient.
        others: as in `gated_convolve`.
    """
    if not registry.runs(NAME, rows.device):
        b, c, x = _parts(rows)
        z, _ = _convolved(b * x, weight, bias, False, begins)
        slope = gradient.to(z.dtype)
        of_u = _backward_twin(slope * c, b * x, weight, bias, False, begins)
        out.copy_(torch.cat((of_u * x, slope * z, of_u * b), dim=1))
    elif gradient.numel():
        _gated_convolve_backward[_grid(gradient, TOKENS)](
            *(gradient, rows, weight, bias, begins, out),
            *(gradient.stride(0), rows.stride(0), out.stride(0), len(gradient)),
            *(gradient.shape[1], weight.shape[1], TOKENS, CHANNELS),
            num_warps=NUM_WARPS,
        )


def _parts(rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return b, c and x in the format that is computed in; float64 stays float64."""
    return rows.to(torch.promote_types(rows.dtype, torch.float32)).chunk(NUM_PARTS, dim=1)


# Triton programs


@jit
def _product(rows, stride, tokens, channels, inside, num_channels: tl.constexpr):
    """Return u [tokens, channels], zeros outside."""
    b = _tile(rows, stride, tokens, channels, inside)
    return b * _tile(rows + 2 * num_channels, stride, tokens, channels, inside)


@jit
def _sum(rows, stride, weight, bias, tokens, begins, channels, num_channels: tl.constexpr, width: tl.constexpr):
    """Return z [tokens, channels]; tokens may lie outside, with later ones as their document's first."""
    kept = channels < num_channels
    total = tl.zeros([tokens.shape[0], channels.shape[0]], tl.float32)
    if bias is not None:
        total += tl.load(bias + channels, mask=kept, other=0.0).to(tl.float32)[None, :]
    for age in tl.static_range(width):
        inside = (tokens - age >= begins)[:, None] & kept[None, :]
        factor = tl.load(weight + channels * width + width - 1 - age, mask=kept, other=0.0).to(tl.float32)
        total += _product(rows, stride, tokens - age, channels, inside, num_channels) * factor[None, :]
    return total


@jit(do_not_specialize=["num_tokens"])
def _gated_convolve(
    rows, weight, bias, begins_ptr, out, stride, out_stride, num_tokens,
    num_channels: tl.constexpr, width: tl.constexpr, TOKENS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    tokens = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    channels = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    inside = tokens < num_tokens
    begins = tl.load(begins_ptr + tokens, mask=inside, other=1 << 30)
    mask = inside[:, None] & (channels < num_channels)[None, :]
    z = _sum(rows, stride, weight, bias, tokens, begins, channels, num_channels, width)
    y = z * _tile(rows + num_channels, stride, tokens, channels, mask)
    places = tokens.to(tl.int64)[:, None] * out_stride + channels[None, :]
    tl.store(out + places, y.to(out.dtype.element_ty), mask=mask)


@jit(do_not_specialize=["num_tokens"])
def _gated_convolve_backward(
    gradient, rows, weight, bias, begins_ptr, out, gradient_stride, stride, out_stride, num_tokens,
    num_channels: tl.constexpr, width: tl.constexpr, TOKENS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    tokens = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    channels = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    kept = channels < num_channels
    of_u = tl.zeros([TOKENS, CHANNELS], tl.float32)
    for age in tl.static_range(width):
        later = tokens + age
        begins = tl.load(begins_ptr + later, mask=later < num_tokens, other=1 << 30)
        inside = (tokens >= begins)[:, None] & kept[None, :]
        slope = _tile(gradient, gradient_stride, later, channels, inside)
        slope *= _tile(rows + num_channels, stride, later, channels, inside)
        factor = tl.load(weight + channels * width + width - 1 - age, mask=kept, other=0.0).to(tl.float32)
        of_u += slope * factor[None, :]
    inside = tokens < num_tokens
    begins = tl.load(begins_ptr + tokens, mask=inside, other=1 << 30)
    mask = inside[:, None] & kept[None, :]
    slope = _tile(gradient, gradient_stride, tokens, channels, mask)
    of_c = slope * _sum(rows, stride, weight, bias, tokens, begins, channels, num_channels, width)
    of_b = of_u * _tile(rows + 2 * num_channels, stride, tokens, channels, mask)
    of_x = of_u * _tile(rows, stride, tokens, channels, mask)
    out += tokens.to(tl.int64)[:, None] * out_stride + channels[None, :]
    tl.store(out, of_b.to(out.dtype.element_ty), mask=mask)
    tl.store(out + num_channels, of_c.to(out.dtype.element_ty), mask=mask)
    tl.store(out + 2 * num_channels, of_x.to(out.dtype.element_ty), mask=mask)
