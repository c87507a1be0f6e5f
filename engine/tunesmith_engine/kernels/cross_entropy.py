"""Cross entropy of rows of logits, and its gradient in their place: two reads and one write of the logits.

One program takes a row. It first finds the largest logit and the sum of exponentials in one pass (online softmax,
Milakov and Gimelshein 2018, arXiv:1805.02867), then overwrites the row by the gradient. Logits may be scaled and
capped: z = softcap * tanh(logit_scale * x / softcap), as in Gemma 2 (softcap), Cohere and Granite (scale) in
transformers. All of it is float32, so the gradient rounds once. A row whose target is ignored is not read.
"""

from __future__ import annotations

import torch

from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.triton_import import jit, tl, triton

IGNORED = -100
BLOCK, NUM_WARPS = 8192, 8
"""Logits of one turn, and the warps that share them: on an H200 (PyTorch 2.11, 2026-11-29) the quickest or nearly for
256 to 1024 rows of 65,536 to 248,320; twice as many of both took 1.1 to 1.4 times as long."""
EXACT_BLOCK, EXACT_WARPS = 4096, 16
"""The same in float32, where each logit takes more registers."""


def cross_entropy(
    logits: torch.Tensor,
    targets: torch.Tensor,
    losses_out: torch.Tensor,
    gradient_scale: torch.Tensor | None,
    logit_scale: float = 1.0,
    softcap: float | None = None,
) -> None:
    """Write each row's loss in nats and, when a scale is given, the gradient over the logits.

    Args:
        logits: [n, vocabulary] float32, bfloat16 or float16 with any row stride; overwritten by gradient_scale * d loss
            / d logits when that is given, and left alone otherwise.
        targets: [n] int64; -100 is ignored: loss and gradient are 0. Any other number outside the vocabulary gives NaN.
        losses_out: [n] float32.
        gradient_scale: float32 on the device, one for all rows (0-dim) or one for each ([n]), as an objective weighs
            its tokens; None for the losses alone.
        logit_scale: factor of the logits.
        softcap: bound of the scaled logits; None without.
    """
    num_rows, vocabulary = logits.shape
    if not registry.runs("cross_entropy", logits.device):
        _twin(logits, targets, losses_out, gradient_scale, logit_scale, softcap)
        return
    if num_rows == 0:
        return
    exact = logits.dtype == torch.float32
    _cross_entropy[(num_rows,)](
        logits,
        targets,
        losses_out,
        losses_out if gradient_scale is None else gradient_scale,
        logits.stride(0),
        gradient_scale.stride(0) if gradient_scale is not None and gradient_scale.ndim else 0,
        logit_scale,
        softcap or 1.0,
        1.0 / (softcap or 1.0),
        VOCABULARY=vocabulary,
        IGNORED=IGNORED,
        CAPPED=softcap is not None,
        EXACT=exact,
        WITH_GRADIENT=gradient_scale is not None,
        BLOCK=min(EXACT_BLOCK if exact else BLOCK, triton.next_power_of_2(vocabulary)),
        num_warps=EXACT_WARPS if exact else NUM_WARPS,
        # A product fused into the subtraction of the largest logit isn't rounded as that was: several float32 steps.
        enable_fp_fusion=not exact,
    )


@jit
def _tanh(x, EXACT: tl.constexpr):
    """Return tanh: from an exponential that can't overflow, and below 0.625, where that cancels, from a polynomial.

    The bound and the polynomial, good to one float32 step, are those of tanhf in Moshier's Cephes library.
    """
    shrunk = _exp(-2.0 * tl.abs(x), EXACT)
    size = 1.0 - _quotient(2.0 * shrunk, 1.0 + shrunk, EXACT)
    square = tl.minimum(x * x, 0.390625)
    series = -3.33332819422e-1 + square * (1.33314422036e-1 + square * (-5.37397155531e-2 + square * 2.06390887954e-2))
    series += square * square * square * square * -5.70498872745e-3
    return tl.where(tl.abs(x) < 0.625, x + x * square * series, tl.where(x < 0, -size, size))


@jit
def _exp(x, EXACT: tl.constexpr):
    """Return e^x for x <= 0; if EXACT, to one float32 step: the GPU's own takes several, which float32 logits show.

    The polynomial and the parts of log 2 are those of expf in Cephes. Below -87, a little above where float32 loses
    digits, it is 0.
    """
    if EXACT:
        binades = tl.floor(tl.where(x < -87.0, -87.0, x) * 1.44269504088896341 + 0.5)
        rest = x - binades * 0.693359375
        rest -= binades * -2.12194440e-4
        series = 4.1665795894e-2 + rest * (8.3334519073e-3 + rest * (1.3981999507e-3 + rest * 1.9875691500e-4))
        series = rest * rest * (5.0000001201e-1 + rest * (1.6666665459e-1 + rest * series)) + rest + 1.0
        power = ((binades.to(tl.int32) + 127) << 23).to(tl.float32, bitcast=True)
        result = tl.where(x < -87.0, 0.0, series * power)
    else:
        result = tl.exp(x)
    return result


@jit
def _quotient(numerator, denominator, EXACT: tl.constexpr):
    """Return a quotient; if EXACT, rounded as IEEE 754 wants it."""
    return tl.div_rn(numerator, denominator) if EXACT else numerator / denominator


@jit(do_not_specialize=["scale_stride"])
def _cross_entropy(
    logits,
    targets,
    losses,
    gradient_scale,
    row_stride,
    scale_stride,
    logit_scale,
    softcap,
    inverse_softcap,
    VOCABULARY: tl.constexpr,
    IGNORED: tl.constexpr,
    CAPPED: tl.constexpr,
    EXACT: tl.constexpr,
    WITH_GRADIENT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    logits += row * row_stride
    target = tl.load(targets + row)
    columns = tl.arange(0, BLOCK)
    if target == IGNORED:
        tl.store(losses + row, 0.0)
        if WITH_GRADIENT:
            for start in range(0, VOCABULARY, BLOCK):
                nothing = tl.zeros((BLOCK,), dtype=logits.dtype.element_ty)
                tl.store(logits + start + columns, nothing, mask=start + columns < VOCABULARY)
    else:
        exists = (target >= 0) & (target < VOCABULARY)
        target_logit = tl.load(logits + target, mask=exists, other=float("nan")).to(tl.float32) * logit_scale
        if CAPPED:
            target_logit = softcap * _tanh(target_logit * inverse_softcap, EXACT)
        largest = float("-inf")
        total = 0.0
        for start in range(0, VOCABULARY, BLOCK):
            inside = start + columns < VOCABULARY
            values = tl.load(logits + start + columns, mask=inside, other=0.0).to(tl.float32) * logit_scale
            if CAPPED:
                values = softcap * _tanh(values * inverse_softcap, EXACT)
            values = tl.where(inside, values, float("-inf"))
            previous = largest
            largest = tl.maximum(largest, tl.max(values, axis=0))
            # As long as all logits are -inf there is nothing to subtract.
            shift = tl.where(largest == float("-inf"), 0.0, largest)
            total = total * _exp(previous - shift, EXACT) + tl.sum(_exp(values - shift, EXACT), axis=0)
        tl.store(losses + row, tl.log(total) - (target_logit - largest))
        if WITH_GRADIENT:
            factor = tl.load(gradient_scale + row * scale_stride).to(tl.float32) * logit_scale
            for start in range(0, VOCABULARY, BLOCK):
                inside = start + columns < VOCABULARY
                values = tl.load(logits + start + columns, mask=inside, other=0.0).to(tl.float32) * logit_scale
                if CAPPED:
                    cap = _tanh(values * inverse_softcap, EXACT)
                    values = softcap * cap
                share = _quotient(_exp(values - largest, EXACT), total, EXACT)
                slope = share - tl.where(start + columns == target, 1.0, 0.0)
                if CAPPED:
                    slope *= 1.0 - cap * cap
                slope = tl.where(exists, slope * factor, float("nan"))
                tl.store(logits + start + columns, slope.to(logits.dtype.element_ty), mask=inside)


def _twin(
    logits: torch.Tensor,
    targets: torch.Tensor,
    losses_out: torch.Tensor,
    gradient_scale: torch.Tensor | None,
    logit_scale: float,
    softcap: float | None,
) -> None:
    """Do what the kernel does, at the cost of a few float32 copies of the logits."""
    ignored = targets == IGNORED
    exists = (targets >= 0) & (targets < logits.shape[1])
    values = logits.float()
    if logit_scale != 1.0:
        values = values * logit_scale
    cap = torch.tanh(values / softcap) if softcap is not None else None
    if cap is not None:
        values = softcap * cap
    target = targets.where(exists, 0)[:, None]
    largest = values.amax(1, keepdim=True)
    exponentials = torch.exp(values - largest)
    total = exponentials.sum(1, keepdim=True)
    losses = (total.log() - (values.gather(1, target) - largest)).squeeze(1)
    losses_out.copy_(losses.where(exists, float("nan")).where(~ignored, 0.0))
    if gradient_scale is None:
        return
    slope = exponentials.div_(total)
    slope.scatter_add_(1, target, torch.full_like(slope[:, :1], -1.0))
    if cap is not None:
        slope *= 1.0 - cap * cap
    factor = (gradient_scale * logit_scale).where(exists, float("nan")).reshape(-1, 1)
    torch.mul(slope, factor, out=logits).masked_fill_(ignored[:, None], 0.0)
