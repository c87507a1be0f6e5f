"""AdamW of whole weights in one pass: float32 or bfloat16 weights, states in 32 or 8 bits, nothing more in memory.

A weight in bfloat16 is rounded at random, by bits that are a function of a key and its place alone (see
`rounding`, whose numbers these are). `control` lies on the device: whether to update at all, and the factor of the
gradient, so that neither a clipped norm nor one that isn't finite makes the host wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from tunesmith_core.trained_parts import TRANSIENT_WEIGHTS
from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.adamw import BLOCK_SIZE, STEP_SPAN, STEP_WARPS
from tunesmith_engine.kernels.adamw_8bit import NUM_WARPS, SMALLEST_SCALE, State, read_codes, write_codes
from tunesmith_engine.kernels.rounding import store_rounded
from tunesmith_engine.kernels.triton_import import jit, tl, triton

NAME = "full_adamw"


class Numbers(NamedTuple):
    """The numbers of an update.

    Attributes:
        kept: 1 - learning rate * weight decay.
        step_size: learning rate / (1 - beta1^step).
        root_correction: sqrt(1 - beta2^step).
        key: signed 32 bits of the random rounding.
    """

    beta1: float
    beta2: float
    epsilon: float
    kept: float
    step_size: float
    root_correction: float
    key: int

    @property
    def floats(self) -> tuple[float, ...]:
        """What the kernels take: both betas and, in float64, what they leave of 1; then the others."""
        rest = (1.0 - self.beta1, 1.0 - self.beta2)
        return self.beta2, *rest, self.epsilon, self.kept, self.step_size, self.root_correction


def full_adamw(
    weight: torch.Tensor,
    gradient: torch.Tensor,
    mean: torch.Tensor,
    square: torch.Tensor,
    control: torch.Tensor,
    numbers: Numbers,
) -> None:
    """Update a weight and its moments in place.

    Args:
        weight, gradient: flat, contiguous, float32 or bfloat16.
        mean, square: flat float32 of the same length.
        control: float32 [2]: 1 to update or 0 to leave all alone, and the factor of the gradient.
        numbers: see `Numbers`.
    """
    if not registry.runs(NAME, weight.device):
        for places in _parts(weight.numel()):
            moments = mean[places], square[places]
            new = _updated_in_torch(weight, gradient, *moments, control, numbers, places)
            _store_all(weight, moments, new, control, numbers, places)
        return
    _full_adamw[(triton.cdiv(weight.numel(), STEP_SPAN),)](
        weight,
        gradient,
        mean,
        square,
        control,
        weight.numel(),
        numbers.key,
        *numbers.floats,
        ROUNDED=weight.dtype == torch.bfloat16,
        SPAN=STEP_SPAN,
        num_warps=STEP_WARPS,
    )


def full_adamw_8bit(
    weight: torch.Tensor,
    gradient: torch.Tensor,
    mean: State,
    square: State,
    control: torch.Tensor,
    numbers: Numbers,
) -> None:
    """Do the same with states in 8 bits, which have as many whole blocks as the weight begins."""
    if not registry.runs(NAME, weight.device):
        for places in _parts(weight.numel()):
            count = places.stop - places.start
            states = [state.part(places) for state in (mean, square)]
            moments = [state.read() for state in states]
            some = moments[0][:count], moments[1][:count]
            new = _updated_in_torch(weight, gradient, *some, control, numbers, places)
            _store_all(weight, some, new, control, numbers, places)
            for state, moment in zip(states, moments, strict=True):
                state.write(moment, control[0] != 0)
        return
    _full_adamw_8bit[(mean.scales.numel(),)](
        weight,
        gradient,
        mean.codes,
        mean.scales,
        mean.table,
        mean.bounds,
        square.codes,
        square.scales,
        square.table,
        square.bounds,
        control,
        weight.numel(),
        numbers.key,
        *numbers.floats,
        ROUNDED=weight.dtype == torch.bfloat16,
        BLOCK_SIZE=BLOCK_SIZE,
        SMALLEST=SMALLEST_SCALE,
        num_warps=NUM_WARPS,
    )


@jit
def _updated(weight, gradient, mean, square, beta2, rest1, rest2, epsilon, kept, step_size, root_correction):
    mean = mean + (gradient - mean) * rest1
    square = beta2 * square + rest2 * gradient * gradient
    root = tl.sqrt(square) / root_correction + epsilon
    return weight * kept - step_size * mean / root, mean, square


@jit
def _store(weights, place, inside, weight, key, ROUNDED: tl.constexpr):
    """Store new weights; in bfloat16 rounded up as often as the half that is cut off is large."""
    if ROUNDED:
        value = place.to(tl.uint32) ^ key.to(tl.uint32)
        value = (value ^ (value >> 16)) * 0x7FEB352D
        value = (value ^ (value >> 15)) * 0x846CA68B
        value = value ^ (value >> 16)
        bits = weight.to(tl.uint32, bitcast=True) + (value & 0xFFFF)
        weight = (bits & 0xFFFF0000).to(tl.float32, bitcast=True)
    tl.store(weights + place, weight.to(weights.dtype.element_ty), mask=inside)


@jit(do_not_specialize=["key"])
def _full_adamw(
    weights,
    gradients,
    means,
    squares,
    control,
    num_weights,
    key,
    beta2,
    rest1,
    rest2,
    epsilon,
    kept,
    step_size,
    root_correction,
    ROUNDED: tl.constexpr,
    SPAN: tl.constexpr,
):
    place = tl.program_id(0).to(tl.int64) * SPAN + tl.arange(0, SPAN)
    inside = place < num_weights
    if tl.load(control) != 0.0:
        weight = tl.load(weights + place, mask=inside, other=0.0).to(tl.float32)
        gradient = tl.load(gradients + place, mask=inside, other=0.0).to(tl.float32) * tl.load(control + 1)
        mean = tl.load(means + place, mask=inside, other=0.0).to(tl.float32)
        square = tl.load(squares + place, mask=inside, other=0.0).to(tl.float32)
        weight, mean, square = _updated(
            weight, gradient, mean, square, beta2, rest1, rest2, epsilon, kept, step_size, root_correction
        )
        _store(weights, place, inside, weight, key, ROUNDED)
        tl.store(means + place, mean, mask=inside)
        tl.store(squares + place, square, mask=inside)


@jit(do_not_specialize=["key"])
def _full_adamw_8bit(
    weights,
    gradients,
    mean_codes,
    mean_scales,
    mean_table,
    mean_bounds,
    square_codes,
    square_scales,
    square_table,
    square_bounds,
    control,
    num_weights,
    key,
    beta2,
    rest1,
    rest2,
    epsilon,
    kept,
    step_size,
    root_correction,
    ROUNDED: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    SMALLEST: tl.constexpr,
):
    block = tl.program_id(0).to(tl.int64)
    place = block * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    inside = place < num_weights
    if tl.load(control) != 0.0:
        weight = tl.load(weights + place, mask=inside, other=0.0).to(tl.float32)
        gradient = tl.load(gradients + place, mask=inside, other=0.0).to(tl.float32) * tl.load(control + 1)
        mean = read_codes(mean_codes, mean_scales, mean_table, place, block)
        square = read_codes(square_codes, square_scales, square_table, place, block)
        weight, mean, square = _updated(
            weight, gradient, mean, square, beta2, rest1, rest2, epsilon, kept, step_size, root_correction
        )
        _store(weights, place, inside, weight, key, ROUNDED)
        write_codes(mean, mean_codes, mean_scales, mean_bounds, place, block, True, SMALLEST)
        write_codes(square, square_codes, square_scales, square_bounds, place, block, False, SMALLEST)


# The same in PyTorch, part by part, so that what is computed on the way stays small


def _parts(num_weights: int) -> Iterator[slice]:
    for start in range(0, num_weights, TRANSIENT_WEIGHTS):
        yield slice(start, min(start + TRANSIENT_WEIGHTS, num_weights))


def _updated_in_torch(
    weight: torch.Tensor,
    gradient: torch.Tensor,
    mean: torch.Tensor,
    square: torch.Tensor,
    control: torch.Tensor,
    numbers: Numbers,
    places: slice,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the new weight, mean and square of a part, in float32."""
    slope = gradient[places].float() * control[1]
    mean = mean.lerp(slope, 1.0 - numbers.beta1)
    square = (square * numbers.beta2).addcmul_(slope, slope, value=1.0 - numbers.beta2)
    root = (square.sqrt() / numbers.root_correction).add_(numbers.epsilon)
    return (weight[places].float() * numbers.kept).addcdiv_(mean, root, value=-numbers.step_size), mean, square


def _store_all(
    weight: torch.Tensor,
    moments: Sequence[torch.Tensor],
    new: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    control: torch.Tensor,
    numbers: Numbers,
    places: slice,
) -> None:
    """Write a part's new numbers where `control` says so."""
    apply = control[0] != 0
    # What a format holds exactly is not rounded.
    store_rounded(weight[places], torch.where(apply, new[0], weight[places].float()), numbers.key, places.start)
    for old, value in zip(moments, new[1:], strict=True):
        old.copy_(torch.where(apply, value, old))
