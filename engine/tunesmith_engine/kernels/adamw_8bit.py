"""AdamW with states in 8 bits, over all trained weights in one launch; nothing here makes the host wait.

The states are what bitsandbytes' AdamW8bit holds (Dettmers et al. 2022, arXiv:2110.02861): for each block of 256
weights a float32 scale, the largest magnitude in it, and for each weight the place of the nearest value in a table of
256. The mean has a table with signs, the squares one without. A step is skipped by a number on the device.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.adamw import BLOCK_SIZE, twin_parts, updated, updated_in_torch
from tunesmith_engine.kernels.triton_import import jit, tl

NUM_WARPS = 1
"""A program has one block: its largest magnitude is found without shared memory."""
SMALLEST_SCALE = 1e-37
"""Blocks of smaller values come nearer to zero; a GPU takes numbers much smaller for zero, and divides by that."""


@dataclass(frozen=True, slots=True)
class State:
    """A flat state in 8 bits.

    Attributes:
        codes: places in the table, uint8; a multiple of 256 of them.
        scales: float32, one for each block.
        table: 256 ascending float32 values from -1, or 0, to 1; bitsandbytes' dynamic map, whose formula kernels know.
        bounds: the middles between neighbours of the table, 255.
    """

    codes: torch.Tensor
    scales: torch.Tensor
    table: torch.Tensor
    bounds: torch.Tensor

    @classmethod
    def zeros(cls, num_weights: int, table: torch.Tensor) -> State:
        """Return a state of zeros on the table's device."""
        codes = torch.zeros(num_weights, dtype=torch.uint8, device=table.device)
        scales = torch.zeros(num_weights // BLOCK_SIZE, device=table.device)
        return cls(codes, scales, table, (table[:-1] + table[1:]) / 2)

    def part(self, places: slice) -> State:
        """Return the blocks that hold some places, the first of which starts a block; as views."""
        blocks = slice(places.start // BLOCK_SIZE, -(-places.stop // BLOCK_SIZE))
        codes = self.codes[blocks.start * BLOCK_SIZE : blocks.stop * BLOCK_SIZE]
        return State(codes, self.scales[blocks], self.table, self.bounds)

    def read(self) -> torch.Tensor:
        """Return the values, flat float32."""
        values = self.table[self.codes.int()].view(-1, BLOCK_SIZE)
        return (values * self.scales[:, None]).view(-1)

    def write(self, values: torch.Tensor, apply: torch.Tensor | None = None) -> None:
        """Take over flat float32 values, or nothing where the 0-dim `apply` is false."""
        rows = values.view(-1, BLOCK_SIZE)
        scales = rows.abs().amax(1)
        shares = rows * (1.0 / scales.clamp(min=SMALLEST_SCALE))[:, None]
        codes = torch.bucketize(shares, self.bounds).to(torch.uint8).view(-1)
        if apply is not None:
            codes, scales = torch.where(apply, codes, self.codes), torch.where(apply, scales, self.scales)
        self.codes.copy_(codes)
        self.scales.copy_(scales)


def adamw_8bit_step(
    weights: torch.Tensor,
    gradients: torch.Tensor,
    exp_avg: State,
    exp_avg_sq: State,
    control: torch.Tensor,
    betas: tuple[float, float],
    epsilon: float,
    decayed: torch.Tensor | None = None,
    rates: torch.Tensor | None = None,
) -> None:
    """Update weights and states in place, and set the gradients to zero, applied or not.

    Args:
        weights, gradients: flat float32 tensors whose length is a multiple of 256.
        exp_avg, exp_avg_sq: states of the same length.
        control, betas, epsilon, decayed, rates: as in `adamw.adamw_step`.
    """
    if not registry.runs("adamw_8bit", weights.device):
        _twin(weights, gradients, exp_avg, exp_avg_sq, control, betas, epsilon, decayed, rates)
        return
    _adamw_8bit_step[(exp_avg.scales.numel(),)](
        weights,
        gradients,
        exp_avg.codes,
        exp_avg.scales,
        exp_avg.table,
        exp_avg.bounds,
        exp_avg_sq.codes,
        exp_avg_sq.scales,
        exp_avg_sq.table,
        exp_avg_sq.bounds,
        control,
        control if decayed is None else decayed,
        control if rates is None else rates,
        *betas,
        *(1.0 - beta for beta in betas),
        epsilon,
        SOME_DECAYED=decayed is not None,
        OWN_RATES=rates is not None,
        BLOCK_SIZE=BLOCK_SIZE,
        SMALLEST=SMALLEST_SCALE,
        num_warps=NUM_WARPS,
    )


@jit
def read_codes(codes, scales, table, place, block):
    code = tl.load(codes + place).to(tl.int32)
    return tl.load(table + code).to(tl.float32) * tl.load(scales + block).to(tl.float32)


@jit
def write_codes(values, codes, scales, bounds, place, block, SIGNED: tl.constexpr, SMALLEST: tl.constexpr):
    """Store values by the nearest of the table: guessed by its formula, then moved to a neighbour by the bounds."""
    scale = tl.max(tl.abs(values), axis=0)
    share = values * (1.0 / tl.maximum(scale, SMALLEST))
    guess = _guessed_code(share, SIGNED)
    below = tl.load(bounds + guess - 1, mask=guess > 0, other=-2.0).to(tl.float32)
    above = tl.load(bounds + guess, mask=guess < 255, other=2.0).to(tl.float32)
    code = guess + (above < share).to(tl.int32) - (below >= share).to(tl.int32)
    tl.store(codes + place, code.to(tl.uint8))
    tl.store(scales + block, scale)


@jit
def _guessed_code(share, SIGNED: tl.constexpr):
    """Return the code of a share of a block's scale, or a neighbour of it.

    The table (bitsandbytes.functional.create_dynamic_map) has 7 decades up to 1. The decade i from the smallest is cut
    into 2^i equal parts, without signs 2^(i+1), of which the table holds the middles; beside them 0 and 1.
    """
    size = tl.maximum(tl.abs(share), 1e-8)
    decade = tl.minimum(tl.maximum(tl.log2(size) * 0.3010299956639812 + 7.0, 0.0), 6.0).to(tl.int32)
    num_parts = (2 - SIGNED) << decade
    within = (size * tl.exp2((6 - decade).to(tl.float32) * 3.321928094887362) - 0.1) * (num_parts / 0.9)
    number = num_parts + tl.minimum(tl.maximum(within, 0.0).to(tl.int32), num_parts - 1)
    if SIGNED:
        return tl.where(share < 0.0, 127 - number, 127 + number)
    return number - 1


@jit
def _adamw_8bit_step(
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
    decayed_blocks,
    rate_of_blocks,
    beta1,
    beta2,
    rest1,
    rest2,
    epsilon,
    SOME_DECAYED: tl.constexpr,
    OWN_RATES: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    SMALLEST: tl.constexpr,
):
    block = tl.program_id(0).to(tl.int64)
    place = block * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    if tl.load(control) != 0.0:
        weight = tl.load(weights + place).to(tl.float32)
        gradient = tl.load(gradients + place).to(tl.float32)
        mean = read_codes(mean_codes, mean_scales, mean_table, place, block)
        square = read_codes(square_codes, square_scales, square_table, place, block)
        decayed = 1.0
        if SOME_DECAYED:
            decayed = tl.load(decayed_blocks + block).to(tl.float32)
        rate = 1.0
        if OWN_RATES:
            rate = tl.load(rate_of_blocks + block).to(tl.float32)
        weight, mean, square = updated(
            weight, gradient, mean, square, decayed, rate, control, beta1, beta2, rest1, rest2, epsilon
        )
        tl.store(weights + place, weight)
        write_codes(mean, mean_codes, mean_scales, mean_bounds, place, block, True, SMALLEST)
        write_codes(square, square_codes, square_scales, square_bounds, place, block, False, SMALLEST)
    tl.store(gradients + place, tl.zeros((BLOCK_SIZE,), dtype=tl.float32))


def _twin(
    weights: torch.Tensor,
    gradients: torch.Tensor,
    exp_avg: State,
    exp_avg_sq: State,
    control: torch.Tensor,
    betas: tuple[float, float],
    epsilon: float,
    decayed: torch.Tensor | None,
    rates: torch.Tensor | None,
) -> None:
    apply = control[0] != 0
    for places in twin_parts(weights.numel()):
        weight, states = weights[places], (exp_avg.part(places), exp_avg_sq.part(places))
        mean, square = (state.read() for state in states)
        new, *moments = updated_in_torch(
            weight, mean, square, gradients[places], places, control, betas, epsilon, decayed, rates
        )
        weight.copy_(torch.where(apply, new, weight))
        for state, moment in zip(states, moments, strict=True):
            state.write(moment, apply)
    gradients.zero_()
