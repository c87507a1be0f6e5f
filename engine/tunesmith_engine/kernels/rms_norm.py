"""Residual addition with the norm behind it, and the norm's backward pass with the residual's gradient added.

Computed are RMS norm (Zhang and Sennrich 2019, arXiv 1910.07467) and LayerNorm, with weights that are frozen: they get
no gradient. The forward pass rounds where transformers does (modeling_llama.LlamaRMSNorm,
modeling_gemma2.Gemma2RMSNorm, modeling_olmo2.Olmo2RMSNorm, modeling_cohere.CohereLayerNorm, nn.LayerNorm); the backward
pass computes in float32 and rounds once.
"""

from __future__ import annotations

import torch

from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.launch import launch
from tunesmith_engine.kernels.triton_import import jit, tl, triton
from tunesmith_engine.mixer_shapes import Norm

NAME = "rms_norm"
COLUMNS_OF_WARP = {torch.float16: 256}
USUAL_COLUMNS_OF_WARP = 512
"""A thread holds 16 numbers of each tensor: two loads of 16 bytes in bfloat16. In float16 it holds half as many, for
Triton 3.2's assembler runs out of registers there at Gemma 2's width."""
MOST_WARPS = 16


def add_norm(
    x: torch.Tensor,
    y: torch.Tensor | None,
    norm: Norm,
    out: torch.Tensor,
    total: torch.Tensor | None = None,
    scale: float = 1.0,
) -> torch.Tensor:
    """Write out = norm(total) with total = x + scale * y, each product and sum rounded to x's number format.

    Args:
        x: [T, width], with any stride between rows, as all below.
        y: [T, width], or None: total is x.
        norm: what is computed.
        out: [T, width]; may be x or y.
        total: [T, width], where the sum is written; may be x or y. None keeps it nowhere.
        scale: factor of y.

    Returns:
        What `norm_backward` needs of every row: mean (0 where the norm doesn't subtract it) and reciprocal root,
        [T, 2] float32. The same call on `total` alone gives the same bits.
    """
    num_rows, width = x.shape
    if not registry.runs(NAME, x.device):
        return _add_norm_twin(x, y, norm, out, total, scale)
    statistics = x.new_empty((num_rows, 2), dtype=torch.float32)
    if num_rows:
        block = triton.next_power_of_2(width)
        strides = (
            x.stride(0),
            0 if y is None else y.stride(0),
            out.stride(0),
            0 if total is None else total.stride(0),
        )
        launch(
            _add_norm,
            (num_rows, 1, 1),
            (x, y, norm.weight, norm.bias, out, total, statistics),
            (*strides, scale, norm.eps),
            (width, block, norm.plus_one, norm.centred, norm.cast_last),
            num_warps=_num_warps(block, out.dtype),
        )
    return statistics


def norm_backward(
    gradient: torch.Tensor,
    total: torch.Tensor,
    norm: Norm,
    statistics: torch.Tensor,
    out: torch.Tensor,
    residual: torch.Tensor | None = None,
) -> None:
    """Write out = d norm / d total + residual, added in float32 and rounded once.

    With n = (total - mean) * root and g = gradient * weight, the first part is root * (g - n * mean(g * n)), less
    root * mean(g) where the norm subtracts the mean.

    Args:
        gradient: of the norm's output, [T, width], with any stride between rows, as all below.
        total: the norm's input, [T, width].
        norm: what was computed.
        statistics: what `add_norm` returned for `total`, [T, 2].
        out: [T, width]; may be any of the inputs.
        residual: the gradient that reaches `total` past the norm, [T, width], or None.
    """
    num_rows, width = total.shape
    if not registry.runs(NAME, total.device):
        _norm_backward_twin(gradient, total, norm, statistics, out, residual)
    elif num_rows:
        block = triton.next_power_of_2(width)
        strides = (
            gradient.stride(0),
            total.stride(0),
            out.stride(0),
            0 if residual is None else residual.stride(0),
        )
        launch(
            _norm_backward,
            (num_rows, 1, 1),
            (gradient, total, norm.weight, statistics, out, residual),
            strides,
            (width, block, norm.plus_one, norm.centred),
            num_warps=_num_warps(block, out.dtype),
        )


def _num_warps(block: int, dtype: torch.dtype) -> int:
    return min(max(block // COLUMNS_OF_WARP.get(dtype, USUAL_COLUMNS_OF_WARP), 1), MOST_WARPS)


# Triton programs, one a row


@jit
def _add_norm(
    x,
    y,
    weight,
    bias,
    out,
    total,
    statistics,
    x_stride,
    y_stride,
    out_stride,
    total_stride,
    scale,
    eps,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    PLUS_ONE: tl.constexpr,
    CENTRED: tl.constexpr,
    CAST_LAST: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < WIDTH
    values = tl.load(x + row * x_stride + columns, mask=inside, other=0.0).to(tl.float32)
    if y is not None:
        added = tl.load(y + row * y_stride + columns, mask=inside, other=0.0).to(tl.float32)
        added = (added * scale).to(x.dtype.element_ty).to(tl.float32)
        values = (values + added).to(x.dtype.element_ty).to(tl.float32)
    if total is not None:
        tl.store(total + row * total_stride + columns, values.to(total.dtype.element_ty), mask=inside)
    if CENTRED:
        mean = tl.sum(values, axis=0) / WIDTH
        normal = tl.where(inside, values - mean, 0.0)
    else:
        mean = 0.0
        normal = values
    root = tl.rsqrt(tl.sum(normal * normal, axis=0) / WIDTH + eps)
    tl.store(statistics + row * 2, mean)
    tl.store(statistics + row * 2 + 1, root)
    normal = normal * root
    if not CAST_LAST:
        normal = normal.to(x.dtype.element_ty).to(tl.float32)
    if weight is not None:
        factor = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
        if PLUS_ONE:
            factor += 1.0
            if CENTRED:
                factor = factor.to(weight.dtype.element_ty).to(tl.float32)
        normal = normal * factor
    if bias is not None:
        normal += tl.load(bias + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * out_stride + columns, normal.to(out.dtype.element_ty), mask=inside)


@jit
def _norm_backward(
    gradient,
    total,
    weight,
    statistics,
    out,
    residual,
    gradient_stride,
    total_stride,
    out_stride,
    residual_stride,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    PLUS_ONE: tl.constexpr,
    CENTRED: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < WIDTH
    slope = tl.load(gradient + row * gradient_stride + columns, mask=inside, other=0.0).to(tl.float32)
    values = tl.load(total + row * total_stride + columns, mask=inside, other=0.0).to(tl.float32)
    root = tl.load(statistics + row * 2 + 1).to(tl.float32)
    if weight is not None:
        factor = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
        if PLUS_ONE:
            factor += 1.0
            if CENTRED:
                factor = factor.to(weight.dtype.element_ty).to(tl.float32)
        slope = slope * factor
    if CENTRED:
        values = tl.where(inside, values - tl.load(statistics + row * 2).to(tl.float32), 0.0)
    normal = values * root
    result = slope - normal * (tl.sum(slope * normal, axis=0) / WIDTH)
    if CENTRED:
        result -= tl.sum(slope, axis=0) / WIDTH
    result = result * root
    if residual is not None:
        result += tl.load(residual + row * residual_stride + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * out_stride + columns, result.to(out.dtype.element_ty), mask=inside)


# The same in PyTorch; float64 stays float64


def _add_norm_twin(
    x: torch.Tensor,
    y: torch.Tensor | None,
    norm: Norm,
    out: torch.Tensor,
    total: torch.Tensor | None,
    scale: float,
) -> torch.Tensor:
    if y is not None:
        x = torch.add(x, y if scale == 1.0 else y * scale, out=total)
    elif total is not None:
        total.copy_(x)
    values = _wide(x)
    mean = values.mean(-1, keepdim=True) if norm.centred else values.new_zeros(values.shape[0], 1)
    normal = values - mean if norm.centred else values
    root = torch.rsqrt(normal.square().mean(-1, keepdim=True) + norm.eps)
    normal = normal * root
    if not norm.cast_last:
        normal = _wide(normal.to(x.dtype))
    factor = _factor(norm, values)
    if norm.bias is not None:
        out.copy_((normal if factor is None else normal * factor) + norm.bias.detach().to(normal.dtype))
    elif factor is None:
        out.copy_(normal)
    else:
        torch.mul(normal, factor, out=out)
    return torch.cat([mean, root], dim=1)


def _norm_backward_twin(
    gradient: torch.Tensor,
    total: torch.Tensor,
    norm: Norm,
    statistics: torch.Tensor,
    out: torch.Tensor,
    residual: torch.Tensor | None,
) -> None:
    slope, values = _wide(gradient), _wide(total)
    factor = _factor(norm, values)
    if factor is not None:
        slope = slope * factor
    mean, root = statistics[:, :1], statistics[:, 1:]
    normal = (values - mean if norm.centred else values) * root
    result = torch.addcmul(slope, normal, (slope * normal).mean(-1, keepdim=True), value=-1)
    if norm.centred:
        result -= slope.mean(-1, keepdim=True)
    result *= root
    if residual is None:
        out.copy_(result)
    else:
        torch.add(result, residual, out=out)


def _factor(norm: Norm, like: torch.Tensor) -> torch.Tensor | None:
    """Return what the normalised values are multiplied by."""
    if norm.weight is None:
        return None
    weight = norm.weight.detach()
    if norm.plus_one and norm.centred:
        return (weight + 1).to(like.dtype)
    return weight.to(like.dtype) + 1 if norm.plus_one else weight.to(like.dtype)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
