"""States of recurrent heads, token by token: one more for each row while answers are written, or a whole prompt.

A head keeps a state S [K, V] in float32 that decays, is written and then read:

    S <- exp(g) S;   S <- S + beta k (v - S^T k)^T  or  S + beta k v^T;   o = S^T q

With a correction this is the gated delta rule (delta_rule.py), whose decay may differ from channel to channel of a key
(channel_delta.py); without it, and with b, x and c for k, v and q, it is the state-space scan (state_space.py), where
beta is the step. A program has some columns of a head's state in its registers and goes through the tokens of its row.

# T tokens, M rows, H heads, K and V numbers of a key and of a value
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import torch

from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.launch import launch
from tunesmith_engine.kernels.triton_import import jit, tl, triton

NAME = "state_step"
MOST_NUMBERS = 4096
"""Of a state in a program: 32 registers of each thread."""
CHUNK = 16
"""Tokens that the twin takes at once."""


class Tokens(NamedTuple):
    """What tokens do to the states of their row, with any strides; heads of one group may have one place.

    Attributes:
        q, k: [T, HK, K]; each serves H / HK consecutive heads.
        v: [T, H, V].
        decay: g, [T, H, K] float32.
        strength: beta, [T, H].
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    decay: torch.Tensor
    strength: torch.Tensor


def advance(
    tokens: Tokens, bounds: torch.Tensor, corrects: bool, states: torch.Tensor, out: torch.Tensor | None
) -> None:
    """Let the states go through the tokens of their rows.

    Args:
        tokens: of all rows behind each other.
        bounds: where each row's tokens begin, and the end of the last, [M + 1] int32; each has one at least.
        corrects: whether a token corrects what the state has for its key.
        states: [M, H, K, V] float32, contiguous; what they become is written.
        out: [T, H, V], contiguous: what is read from them, or None.
    """
    if not registry.runs(NAME, states.device) or states.dtype == torch.float64:
        _advance_twin(tokens, bounds, corrects, states, out)
        return
    q, k, v, decay, strength = tokens
    num_rows, num_heads, key_dim, value_dim = states.shape
    width = triton.next_power_of_2(key_dim)
    columns = min(max(16, MOST_NUMBERS // width), triton.next_power_of_2(value_dim))
    launch(
        _advance,
        (num_rows, num_heads, triton.cdiv(value_dim, columns)),
        (k, q, v, decay, strength, bounds, states, out),
        (*k.stride(), *q.stride(), *v.stride(), *decay.stride(), *strength.stride(), num_heads // k.shape[1]),
        (key_dim, width, value_dim, columns, corrects, out is not None),
        num_warps=4,
    )


# Triton program


@jit
def _advance(
    k_ptr, q_ptr, v_ptr, decay_ptr, strength_ptr, bounds, states, out, k_token, k_head, k_number, q_token, q_head,
    q_number, v_token, v_head, v_number, decay_token, decay_head, decay_number, strength_token, strength_head, group,
    KEY_DIM: tl.constexpr, KEY_WIDTH: tl.constexpr, VALUE_DIM: tl.constexpr, COLUMNS: tl.constexpr,
    CORRECTS: tl.constexpr, READS: tl.constexpr,
):  # fmt: skip
    row, head, num_heads = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64), tl.num_programs(1)
    key = tl.arange(0, KEY_WIDTH)
    column = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    is_key, is_value = key < KEY_DIM, column < VALUE_DIM
    place = states + ((row * num_heads + head) * KEY_DIM + key[:, None]) * VALUE_DIM + column[None, :]
    inside = is_key[:, None] & is_value[None, :]
    state = tl.load(place, mask=inside, other=0.0)
    first = tl.load(bounds + row).to(tl.int64)
    k_ptr += first * k_token + head // group * k_head + key * k_number
    q_ptr += first * q_token + head // group * q_head + key * q_number
    v_ptr += first * v_token + head * v_head + column * v_number
    decay_ptr += first * decay_token + head * decay_head + key * decay_number
    strength_ptr += first * strength_token + head * strength_head
    target = out + (first * num_heads + head) * VALUE_DIM + column if READS else states
    for _ in range(tl.load(bounds + row + 1) - tl.load(bounds + row)):
        k = tl.load(k_ptr, mask=is_key, other=0.0).to(tl.float32)
        v = tl.load(v_ptr, mask=is_value, other=0.0).to(tl.float32)
        state = state * tl.exp(tl.load(decay_ptr, mask=is_key, other=0.0).to(tl.float32))[:, None]
        if CORRECTS:
            v -= tl.sum(state * k[:, None], 0)
        v *= tl.load(strength_ptr).to(tl.float32)
        state += k[:, None] * v[None, :]
        if READS:
            q = tl.load(q_ptr, mask=is_key, other=0.0).to(tl.float32)
            tl.store(target, tl.sum(state * q[:, None], 0).to(out.dtype.element_ty), mask=is_value)
            target += num_heads * VALUE_DIM
        k_ptr += k_token
        q_ptr += q_token
        v_ptr += v_token
        decay_ptr += decay_token
        strength_ptr += strength_token
    tl.store(place, state, mask=inside)


# The same in PyTorch; float64 stays float64


def _advance_twin(
    tokens: Tokens, bounds: torch.Tensor, corrects: bool, states: torch.Tensor, out: torch.Tensor | None
) -> None:
    num_heads = states.shape[1]
    q, k = (part.repeat_interleave(num_heads // part.shape[1], 1) for part in tokens[:2])
    parts = [part.to(states.dtype) for part in (q, k, *tokens[2:])]
    if len(k) == len(states):
        # One token each: the host needs no bounds, so a graph can hold it.
        _through([part[:, None] for part in parts], corrects, states, None if out is None else out[:, None])
        return
    for row, (begin, end) in enumerate(itertools.pairwise(bounds.tolist())):
        for first in range(begin, end, CHUNK):
            some = slice(first, min(first + CHUNK, end))
            read = None if out is None else out[None, some]
            _through([part[None, some] for part in parts], corrects, states[row : row + 1], read)


def _through(
    tokens: Sequence[torch.Tensor], corrects: bool, states: torch.Tensor, out: torch.Tensor | None
) -> None:
    """Let each state go through a few tokens at once, [M, C, H, ...]: what they write solves a triangular system."""
    q, k, v, decay = (part.transpose(1, 2) for part in tokens[:4])
    strength = tokens[4].transpose(1, 2)[..., None]
    # One decay of a head is enough where its channels share it.
    since, length = decay[..., : 1 if decay.stride(3) == 0 else None].double().cumsum(2), decay.shape[2]
    later = torch.ones(length, length, dtype=torch.bool, device=k.device).triu(1)[..., None]
    apart = (since[..., :, None, :] - since[..., None, :, :]).masked_fill(later, -torch.inf).exp().to(k.dtype)
    reach, rest = (part.exp().to(k.dtype) for part in (since, since[:, :, -1:] - since))
    written = strength * v
    if corrects:
        written = strength * (v - (k * reach) @ states)
        if length > 1:
            system = strength * _scores(k, k, apart)
            written = torch.linalg.solve_triangular(system, written, upper=False, unitriangular=True)
    if out is not None:
        out.copy_(((q * reach) @ states + _scores(q, k, apart) @ written).transpose(1, 2))
    states.mul_(reach[:, :, -1, :, None]).add_((k * rest).mT @ written)


def _scores(a: torch.Tensor, k: torch.Tensor, apart: torch.Tensor) -> torch.Tensor:
    """Return what each token has of the keys before it, [B, H, C, C], which have decayed since."""
    if apart.shape[-1] == 1:
        return (a @ k.mT) * apart[..., 0]
    return (a[..., :, None, :] * apart * k[..., None, :, :]).sum(-1)
