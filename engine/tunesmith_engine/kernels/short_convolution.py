"""A causal convolution over a few tokens, each channel for itself, inside packed documents.

    z[t] = bias + sum_i weight[width - 1 - i] x[t - i],    y = z or silu(z)

over the tokens of t's document; what lies before its first token counts as zero. Qwen3-Next, LFM2, Mamba 2 and Falcon
H1 mix neighbouring tokens so (in transformers `causal_conv1d_fn`). The backward pass computes z again, so nothing is
kept but x. All is added up in float32, in one order. The gradients of weights and biases are sums over blocks of tokens
that lie apart until all are there.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.triton_import import jit, tl, triton

NAME = "short_convolution"
LARGEST_WIDTH = 4
TOKENS, CHANNELS, NUM_WARPS = 8, 128, 4
"""A tile: half a line of the cache in each row."""
RUN, CHANNELS_OF_RUN, NUM_WARPS_OF_RUN = 29, 256, 2
"""Of a program that goes through tokens one by one. With the three that may see its last, a run is a multiple of the
four that are unrolled. A thread has four channels: twice as many would take too many registers, fewer would share the
work on places and bounds less."""
TOKENS_OF_SUM = 256
"""Of a program that adds up gradients of weights."""


def convolve(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    silu: bool,
    begins: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Write the convolution of each document.

    Args:
        x: [T, channels], with any stride between rows, as all below.
        weight: [channels, width], contiguous; its last column is for the token itself. At most 4 columns.
        bias: [channels] or None.
        silu: whether SiLU follows.
        begins: first token of each token's document, [T] int32; see `first_tokens`.
        out: [T, channels]; not x.
    """
    if not registry.runs(NAME, x.device):
        out.copy_(_convolved(x, weight, bias, silu, begins)[0])
    elif x.numel():
        _convolve[_grid(x, TOKENS)](
            *(x, weight, bias, begins, out, x.stride(0), out.stride(0), len(x)),
            *(x.shape[1], weight.shape[1], silu, TOKENS, CHANNELS),
            num_warps=NUM_WARPS,
        )


def convolve_backward(
    gradient: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    silu: bool,
    begins: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Write the gradient of x.

    Args:
        gradient: of the output [T, channels].
        out: [T, channels]; neither x nor the gradient.
        others: as in `convolve`.
    """
    if not registry.runs(NAME, x.device):
        out.copy_(_backward_twin(gradient, x, weight, bias, silu, begins))
    elif x.numel():
        _convolve_backward[triton.cdiv(x.shape[1], CHANNELS_OF_RUN), triton.cdiv(len(x), RUN)](
            *(gradient, x, weight, bias, begins, out, gradient.stride(0), x.stride(0), out.stride(0), len(x)),
            *(x.shape[1], weight.shape[1], silu, RUN, CHANNELS_OF_RUN),
            num_warps=NUM_WARPS_OF_RUN,
        )


def convolution_gradients(
    gradient: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    silu: bool,
    begins: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of weight and bias, [channels, width] and [channels] float32; float64 for float64.

    Args:
        as in `convolve_backward`; the second is also there where `bias` is None.
    """
    num_channels, width = weight.shape
    if not registry.runs(NAME, x.device):
        return _gradients_twin(gradient, x, weight, bias, silu, begins)
    num_blocks = max(1, triton.cdiv(len(x), TOKENS_OF_SUM))
    sums = torch.empty(num_blocks, width + 1, num_channels, dtype=torch.float32, device=x.device)
    _convolution_gradients[triton.cdiv(num_channels, CHANNELS), num_blocks](
        *(gradient, x, weight, bias, begins, sums, gradient.stride(0), x.stride(0), len(x)),
        *(num_channels, width, silu, TOKENS, CHANNELS, TOKENS_OF_SUM),
        num_warps=NUM_WARPS,
    )
    total = sums.sum(0)
    return total[:width].T.contiguous(), total[width]


def first_tokens(bounds: torch.Tensor, num_tokens: int) -> torch.Tensor:
    """Return the first token of each token's document, [T] int32.

    Args:
        bounds: start of each document and the end of the last, [num_documents + 1] int32; empty ones may follow.
        num_tokens: T.
    """
    places = torch.arange(num_tokens, dtype=bounds.dtype, device=bounds.device)
    return bounds[torch.searchsorted(bounds, places, right=True) - 1]


def _grid(x: torch.Tensor, tokens: int) -> tuple[int, int]:
    return triton.cdiv(x.shape[0], tokens), triton.cdiv(x.shape[1], CHANNELS)


# Triton programs


@jit
def _tile(pointer, stride, tokens, channels, inside):
    return tl.load(
        pointer + tokens.to(tl.int64)[:, None] * stride + channels[None, :], mask=inside, other=0.0
    ).to(tl.float32)


@jit
def _sum(x, x_stride, weight, bias, tokens, begins, channels, there, width: tl.constexpr):
    """Return z [tokens, channels]; tokens may lie outside, with themselves or later ones as their document's first."""
    kept = channels < there
    total = tl.zeros([tokens.shape[0], channels.shape[0]], tl.float32)
    if bias is not None:
        total += tl.load(bias + channels, mask=kept, other=0.0).to(tl.float32)[None, :]
    for age in tl.static_range(width):
        inside = (tokens - age >= begins)[:, None] & kept[None, :]
        factor = tl.load(weight + channels * width + width - 1 - age, mask=kept, other=0.0).to(tl.float32)
        total += _tile(x, x_stride, tokens - age, channels, inside) * factor[None, :]
    return total


@jit
def _slope(gradient, gradient_stride, x, x_stride, weight, bias, begins_ptr, tokens, channels, num_tokens, there,
           width: tl.constexpr, SILU: tl.constexpr):  # fmt: skip
    """Return the gradient of z [tokens, channels], zeros outside, and the first tokens of documents."""
    inside = tokens < num_tokens
    begins = tl.load(begins_ptr + tokens, mask=inside, other=1 << 30)
    slope = _tile(gradient, gradient_stride, tokens, channels, inside[:, None] & (channels < there)[None, :])
    if SILU:
        z = _sum(x, x_stride, weight, bias, tokens, begins, channels, there, width)
        share = 1.0 / (1.0 + tl.exp(-z))
        slope = slope * share * (1.0 + z * (1.0 - share))
    return slope, begins


@jit(do_not_specialize=["num_tokens"])
def _convolve(
    x, weight, bias, begins_ptr, out, x_stride, out_stride, num_tokens, num_channels: tl.constexpr,
    width: tl.constexpr, SILU: tl.constexpr, TOKENS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    tokens = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    channels = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    inside = tokens < num_tokens
    begins = tl.load(begins_ptr + tokens, mask=inside, other=1 << 30)
    total = _sum(x, x_stride, weight, bias, tokens, begins, channels, num_channels, width)
    if SILU:
        total = total / (1.0 + tl.exp(-total))
    places = tokens.to(tl.int64)[:, None] * out_stride + channels[None, :]
    tl.store(out + places, total.to(out.dtype.element_ty), mask=inside[:, None] & (channels < num_channels)[None, :])


@jit
def _factor(weight, channels, kept, age: tl.constexpr, width: tl.constexpr):
    """Return what tokens that are so old are multiplied with; zeros where none is seen."""
    factor = tl.zeros([channels.shape[0]], tl.float32)
    if age < width:
        factor += tl.load(weight + channels * width + width - 1 - age, mask=kept, other=0.0).to(tl.float32)
    return factor


@jit
def _add(total, value, factor, token, begin, age: tl.constexpr, width: tl.constexpr):
    """Return a sum with a product more, if the token sees one that is so old."""
    if age < width:
        total += tl.where(token - age >= begin, value, 0.0) * factor
    return total


@jit(do_not_specialize=["num_tokens"])
def _convolve_backward(
    gradient, x, weight, bias, begins_ptr, out, gradient_stride, x_stride, out_stride, num_tokens,
    num_channels: tl.constexpr, width: tl.constexpr, SILU: tl.constexpr, RUN: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Go through a run of tokens and the three that may see its last; what the next ones need stays in registers.

    So each token's slope is computed once, from one load of x, where a tile would do so for each token that it sees.
    """
    channels = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    kept = channels < num_channels
    factor0 = _factor(weight, channels, kept, 0, width)
    factor1 = _factor(weight, channels, kept, 1, width)
    factor2 = _factor(weight, channels, kept, 2, width)
    factor3 = _factor(weight, channels, kept, 3, width)
    constant = tl.zeros([CHANNELS], tl.float32)
    if bias is not None:
        constant += tl.load(bias + channels, mask=kept, other=0.0).to(tl.float32)
    first = tl.program_id(1) * RUN
    gradient += first.to(tl.int64) * gradient_stride
    x += first.to(tl.int64) * x_stride
    out += (first - 3).to(tl.int64) * out_stride
    next_begin = tl.load(begins_ptr + first)
    next_slope = tl.load(gradient + channels, mask=kept, other=0.0)
    next_x = tl.load(x + channels, mask=kept, other=0.0)
    # x of one, two and three tokens ago, and the gradients of these as far as they are added up.
    before = kept & (first > 0)
    x1 = tl.load(x - x_stride + channels, mask=before, other=0.0).to(tl.float32)
    x2 = tl.load(x - 2 * x_stride + channels, mask=before, other=0.0).to(tl.float32)
    x3 = tl.load(x - 3 * x_stride + channels, mask=before, other=0.0).to(tl.float32)
    nothing = tl.zeros([CHANNELS], tl.float32)
    sum1, sum2, sum3 = nothing, nothing, nothing
    for token in tl.range(first, first + RUN + 3, loop_unroll_factor=4):
        begin = next_begin
        slope = next_slope.to(tl.float32)
        x0 = next_x.to(tl.float32)
        # The next rows are on their way meanwhile: the compiler can't move loads before a store.
        gradient += gradient_stride
        x += x_stride
        inside = token + 1 < num_tokens
        next_begin = tl.load(begins_ptr + token + 1, mask=inside, other=1 << 30)
        next_slope = tl.load(gradient + channels, mask=kept & inside, other=0.0)
        next_x = tl.load(x + channels, mask=kept & inside, other=0.0)
        if SILU:
            z = constant + x0 * factor0
            z = _add(z, x1, factor1, token, begin, 1, width)
            z = _add(z, x2, factor2, token, begin, 2, width)
            z = _add(z, x3, factor3, token, begin, 3, width)
            share = 1.0 / (1.0 + tl.exp(-z))
            slope = slope * share * (1.0 + z * (1.0 - share))
        result = _add(sum3, slope, factor3, token, begin, 3, width)
        done = (token - 3 >= first) & (token - 3 < num_tokens)
        tl.store(out + channels, result.to(out.dtype.element_ty), mask=kept & done)
        out += out_stride
        sum3 = _add(sum2, slope, factor2, token, begin, 2, width)
        sum2 = _add(sum1, slope, factor1, token, begin, 1, width)
        # A sum from the start: of two bare products the compiler may fuse either, not the same in each unrolled token.
        sum1 = nothing + slope * factor0
        x3, x2, x1 = x2, x1, x0


@jit(do_not_specialize=["num_tokens"])
def _convolution_gradients(
    gradient, x, weight, bias, begins_ptr, sums, gradient_stride, x_stride, num_tokens,
    num_channels: tl.constexpr, width: tl.constexpr, SILU: tl.constexpr, TOKENS: tl.constexpr,
    CHANNELS: tl.constexpr, TOKENS_OF_SUM: tl.constexpr,
):  # fmt: skip
    channels = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    kept = channels < num_channels
    sums += tl.program_id(1).to(tl.int64) * (width + 1) * num_channels
    # One array for weights and bias: the last row is the bias's, the others' places are as old as they say.
    ages = tl.arange(0, 8)
    total = tl.zeros([8, CHANNELS], tl.float32)
    first = tl.program_id(1) * TOKENS_OF_SUM
    for start in range(first, tl.minimum(first + TOKENS_OF_SUM, num_tokens), TOKENS):
        tokens = start + tl.arange(0, TOKENS)
        slope, begins = _slope(
            gradient, gradient_stride, x, x_stride, weight, bias, begins_ptr, tokens, channels, num_tokens,
            num_channels, width, SILU,
        )  # fmt: skip
        for age in tl.static_range(width):
            inside = (tokens - age >= begins)[:, None] & kept[None, :]
            part = tl.sum(slope * _tile(x, x_stride, tokens - age, channels, inside), 0)
            total += tl.where((ages == width - 1 - age)[:, None], part[None, :], 0.0)
        total += tl.where((ages == width)[:, None], tl.sum(slope, 0)[None, :], 0.0)
    places = ages[:, None] * num_channels + channels[None, :]
    tl.store(sums + places, total, mask=(ages <= width)[:, None] & kept[None, :])


# The same in PyTorch; float64 stays float64


def _shifted(x: torch.Tensor, begins: torch.Tensor, age: int) -> torch.Tensor:
    """Return what each token sees some tokens ago, zeros before its document."""
    places = torch.arange(len(x), device=x.device)
    seen = places - age >= begins
    return torch.where(seen[:, None], x[(places - age).clamp(min=0)], 0.0)


def _convolved(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, silu: bool, begins: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the output and z."""
    wide = torch.promote_types(x.dtype, torch.float32)
    x, weight = x.to(wide), weight.to(wide)
    z = x.new_zeros(x.shape) if bias is None else bias.to(wide).expand_as(x)
    for age in range(weight.shape[1]):
        z = z + _shifted(x, begins, age) * weight[:, -1 - age]
    return functional.silu(z) if silu else z, z


def _z_slope(
    gradient: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    silu: bool,
    begins: torch.Tensor,
) -> torch.Tensor:
    z = _convolved(x, weight, bias, silu, begins)[1]
    share = torch.sigmoid(z)
    slope = gradient.to(z.dtype)
    return slope * share * (1 + z * (1 - share)) if silu else slope


def _backward_twin(
    gradient: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    silu: bool,
    begins: torch.Tensor,
) -> torch.Tensor:
    slope = _z_slope(gradient, x, weight, bias, silu, begins)
    result = torch.zeros_like(slope)
    places = torch.arange(len(x), device=x.device)
    for age in range(min(weight.shape[1], len(x))):
        seen = (places[age:] - age >= begins[age:])[:, None]
        result[: len(x) - age] += torch.where(seen, slope[age:] * weight[:, -1 - age].to(slope.dtype), 0.0)
    return result


def _gradients_twin(
    gradient: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    silu: bool,
    begins: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    slope = _z_slope(gradient, x, weight, bias, silu, begins)
    columns = [(slope * _shifted(x.to(slope.dtype), begins, age)).sum(0) for age in range(weight.shape[1])]
    return torch.stack(columns[::-1], 1), slope.sum(0)
