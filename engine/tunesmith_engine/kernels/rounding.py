"""Stochastic rounding to bfloat16: up or down at random, so that small updates count on average.

Rounding to the nearest loses every update below half a unit in the last place, which most are at the learning rates of
fine-tuning (Gupta et al. 2015, arXiv:1502.02551; for bfloat16 weights Zamirai et al. 2020, arXiv:2010.06192). The
random bits are a function of seed, step and place alone, so that a resumed run draws what it would have drawn.
"""

from __future__ import annotations

import torch

_LOW_BITS = 0xFFFF
_WORD = 0xFFFFFFFF
_FACTORS = (0x7FEB352D, 0x846CA68B)
"""Of the "lowbias32" mixing function (Wellons 2018), whose every output bit depends evenly on every input bit."""


def key_of(seed: int, step: int, tensor: int) -> int:
    """Return 32 bits that differ between seeds, steps and tensors."""
    key = 0
    for part in (seed, step, tensor):
        key = _mixed((key ^ part) + 0x9E3779B9 & _WORD)
    return key


def _mixed(value: int) -> int:
    value ^= value >> 16
    value = value * _FACTORS[0] & _WORD
    value ^= value >> 15
    value = value * _FACTORS[1] & _WORD
    return value ^ value >> 16


def random_bits(key: int, start: int, count: int, device: torch.device) -> torch.Tensor:
    """Return 32 random bits for each of so many places from `start` on, int32 [count]."""
    places = torch.arange(start, start + count, device=device, dtype=torch.int64).to(torch.int32)
    value = places ^ signed(key & _WORD)
    # A shift of a signed number brings its sign in, which is masked out.
    value ^= (value >> 16) & 0xFFFF
    value *= signed(_FACTORS[0])
    value ^= (value >> 15) & 0x1FFFF
    value *= signed(_FACTORS[1])
    return value ^ ((value >> 16) & 0xFFFF)


def signed(word: int) -> int:
    """Return 32 bits as a signed number."""
    return word - (1 << 32) if word >= 1 << 31 else word


def store_rounded(target: torch.Tensor, values: torch.Tensor, key: int, start: int) -> None:
    """Write float32 values into a flat tensor: as they are, or rounded at random where it is bfloat16.

    Args:
        target: flat, float32 or bfloat16.
        values: of the same length.
        key: from `key_of`, with or without a sign.
        start: place of the first one in its tensor.
    """
    if target.dtype == torch.float32:
        target.copy_(values)
        return
    low = random_bits(key, start, values.numel(), values.device) & _LOW_BITS
    # bfloat16 is the upper half of a float32: what is added carries over into it as often as the lower half is large.
    bits = (values.contiguous().view(torch.int32) + low) & ~_LOW_BITS
    target.copy_(bits.view(torch.float32))
