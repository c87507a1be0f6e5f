"""AdamW over all trained weights in one launch, and the norm of all gradients, without the host waiting for either.

The weights are one flat tensor, and so are gradients and states. What differs from step to step is a small tensor on
the device, `control`, so an update can be clipped, or left out when a gradient isn't finite, by numbers that the host
never sees. The formula is Loshchilov and Hutter 2019 (arXiv:1711.05101, algorithm 2), as in torch.optim.AdamW.
"""

from __future__ import annotations

import torch

from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.triton_import import jit, tl, triton

NORM_SPAN = 8192
NORM_WARPS = 8
PARTS_SPAN = 1024
"""Partial sums that one program adds up in a turn."""
STEP_SPAN = 1024
STEP_WARPS = 4
TWIN_SPAN = 1 << 22
BLOCK_SIZE = 256
"""Weights of the smallest unit: a parameter starts at a multiple, and 8-bit states share a scale."""

CONTROL = ("apply", "factor", "decay", "step_size", "root_correction")
"""The float32 numbers of `control`: 1 to update or 0 to leave weights and states alone; the factor of the gradients
(clipping and the inverse loss scale); learning rate times weight decay; learning rate / (1 - beta1^step); and
sqrt(1 - beta2^step)."""


def gradient_norm(gradients: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Write the Euclidean norm of a flat float32 tensor into `out`, 0-dim float32, and return it.

    The order of the sum is fixed, so the same gradients give the same bits. NaN or infinity makes it not finite.
    """
    if not registry.runs("adamw", gradients.device):
        return out.copy_(torch.linalg.vector_norm(gradients))
    num_parts = triton.cdiv(gradients.numel(), NORM_SPAN)
    parts = torch.empty(num_parts, device=gradients.device, dtype=torch.float32)
    _square_sums[(num_parts,)](gradients, parts, gradients.numel(), SPAN=NORM_SPAN, num_warps=NORM_WARPS)
    _root_of_sum[(1,)](parts, out, NUM_PARTS=num_parts, SPAN=PARTS_SPAN, num_warps=STEP_WARPS)
    return out


def adamw_step(
    weights: torch.Tensor,
    gradients: torch.Tensor,
    exp_avg: torch.Tensor,
    exp_avg_sq: torch.Tensor,
    control: torch.Tensor,
    betas: tuple[float, float],
    epsilon: float,
    decayed: torch.Tensor | None = None,
    rates: torch.Tensor | None = None,
) -> None:
    """Update weights and states in place, and set the gradients to zero, applied or not.

    Args:
        weights, gradients, exp_avg, exp_avg_sq: flat float32 tensors of one length, which is a multiple of 256.
        control: the float32 numbers named in `CONTROL`, on the device.
        betas: memory of the mean and of the squares.
        epsilon: added to the root of the squares.
        decayed: which blocks of 256 weights take part in weight decay, uint8; None for all.
        rates: by what the learning rate is multiplied for each block of 256 weights, float32; None for nothing.
    """
    if not registry.runs("adamw", weights.device):
        _twin(weights, gradients, exp_avg, exp_avg_sq, control, betas, epsilon, decayed, rates)
        return
    _adamw_step[(triton.cdiv(weights.numel(), STEP_SPAN),)](
        weights,
        gradients,
        exp_avg,
        exp_avg_sq,
        control,
        control if decayed is None else decayed,
        control if rates is None else rates,
        weights.numel(),
        *betas,
        # In float64: 1 - 0.999 from the float32 number would be off in the fifth digit.
        *(1.0 - beta for beta in betas),
        epsilon,
        SOME_DECAYED=decayed is not None,
        OWN_RATES=rates is not None,
        SPAN=STEP_SPAN,
        num_warps=STEP_WARPS,
    )


@jit
def _square_sums(values, parts, num_values, SPAN: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * SPAN + tl.arange(0, SPAN)
    value = tl.load(values + place, mask=place < num_values, other=0.0).to(tl.float32)
    tl.store(parts + tl.program_id(0), tl.sum(value * value, axis=0))


@jit
def _root_of_sum(parts, out, NUM_PARTS: tl.constexpr, SPAN: tl.constexpr):
    place = tl.arange(0, SPAN)
    total = tl.zeros((SPAN,), dtype=tl.float32)
    for start in range(0, NUM_PARTS, SPAN):
        total += tl.load(parts + start + place, mask=start + place < NUM_PARTS, other=0.0).to(tl.float32)
    tl.store(out, tl.sqrt(tl.sum(total, axis=0)))


@jit
def updated(weight, gradient, mean, square, decayed, rate, control, beta1, beta2, rest1, rest2, epsilon):
    """Return the new weight, mean and square of a step; `rest` is 1 - beta, `decayed` 1 or 0, `rate` a factor."""
    gradient = gradient * tl.load(control + 1).to(tl.float32)
    decay = tl.load(control + 2).to(tl.float32) * decayed * rate
    step_size = tl.load(control + 3).to(tl.float32) * rate
    root_correction = tl.load(control + 4).to(tl.float32)
    mean = beta1 * mean + rest1 * gradient
    square = beta2 * square + rest2 * gradient * gradient
    change = step_size * mean / (tl.sqrt(square) / root_correction + epsilon)
    return weight - (decay * weight + change), mean, square


@jit
def _adamw_step(
    weights,
    gradients,
    means,
    squares,
    control,
    decayed_blocks,
    rate_of_blocks,
    num_weights,
    beta1,
    beta2,
    rest1,
    rest2,
    epsilon,
    SOME_DECAYED: tl.constexpr,
    OWN_RATES: tl.constexpr,
    SPAN: tl.constexpr,
):
    place = tl.program_id(0).to(tl.int64) * SPAN + tl.arange(0, SPAN)
    inside = place < num_weights
    if tl.load(control) != 0.0:
        weight = tl.load(weights + place, mask=inside, other=0.0).to(tl.float32)
        gradient = tl.load(gradients + place, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(means + place, mask=inside, other=0.0).to(tl.float32)
        square = tl.load(squares + place, mask=inside, other=0.0).to(tl.float32)
        decayed = 1.0
        if SOME_DECAYED:
            decayed = tl.load(decayed_blocks + place // 256, mask=inside, other=0).to(tl.float32)
        rate = 1.0
        if OWN_RATES:
            rate = tl.load(rate_of_blocks + place // 256, mask=inside, other=0.0).to(tl.float32)
        weight, mean, square = updated(
            weight, gradient, mean, square, decayed, rate, control, beta1, beta2, rest1, rest2, epsilon
        )
        tl.store(weights + place, weight, mask=inside)
        tl.store(means + place, mean, mask=inside)
        tl.store(squares + place, square, mask=inside)
    tl.store(gradients + place, tl.zeros((SPAN,), dtype=tl.float32), mask=inside)


def _twin(
    weights: torch.Tensor,
    gradients: torch.Tensor,
    exp_avg: torch.Tensor,
    exp_avg_sq: torch.Tensor,
    control: torch.Tensor,
    betas: tuple[float, float],
    epsilon: float,
    decayed: torch.Tensor | None,
    rates: torch.Tensor | None,
) -> None:
    for places in twin_parts(weights.numel()):
        weight, mean, square = weights[places], exp_avg[places], exp_avg_sq[places]
        new = updated_in_torch(weight, mean, square, gradients[places], places, control, betas, epsilon, decayed, rates)
        for old, value in zip((weight, mean, square), new, strict=True):
            old.copy_(torch.where(control[0] != 0, value, old))
    gradients.zero_()


def twin_parts(num_weights: int) -> list[slice]:
    """Return the parts that a twin goes by, so that its temporaries stay small."""
    return [slice(start, min(start + TWIN_SPAN, num_weights)) for start in range(0, num_weights, TWIN_SPAN)]


def updated_in_torch(
    weight: torch.Tensor,
    mean: torch.Tensor,
    square: torch.Tensor,
    gradient: torch.Tensor,
    places: slice,
    control: torch.Tensor,
    betas: tuple[float, float],
    epsilon: float,
    decayed: torch.Tensor | None,
    rates: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return what the kernel's `updated` does, for the part of all weights at `places`."""
    _, factor, decay, step_size, root_correction = control.unbind()
    if decayed is not None:
        blocks = decayed[places.start // BLOCK_SIZE : places.stop // BLOCK_SIZE]
        decay = decay * blocks.repeat_interleave(BLOCK_SIZE)
    if rates is not None:
        blocks = rates[places.start // BLOCK_SIZE : places.stop // BLOCK_SIZE].repeat_interleave(BLOCK_SIZE)
        decay, step_size = decay * blocks, step_size * blocks
    gradient = gradient * factor
    mean = betas[0] * mean + (1.0 - betas[0]) * gradient
    square = betas[1] * square + (1.0 - betas[1]) * gradient * gradient
    change = step_size * mean / (square.sqrt() / root_correction + epsilon)
    return weight - (decay * weight + change), mean, square
