"""Queries, keys and values of latent attention from what its expansions give, in one launch, and its backward pass.

A query head is a plain and a turning part, a key head a plain part of its own and a turning part that all heads share,
a value head is of another width (DeepSeek-V2, arXiv 2405.04434; transformers' modeling_deepseek_v3). The turning parts
are rotated as in rope.py. All is computed in float32 and rounded once; what is only moved keeps its bits.

# T tokens, H heads, N plain and R turning numbers of a head, V numbers of a value head, W room for one
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.launch import launch
from tunesmith_engine.kernels.triton_import import jit, tl, triton

NAME = "latent_heads"
NUMBERS_OF_PROGRAM = 2048
"""Of queries: several heads of one token."""
NUM_WARPS = 4

Table = tuple[torch.Tensor | None, torch.Tensor | None]
"""Cosines and sines, [T, R] as transformers makes them, each angle twice; None: nothing turns."""


@dataclass(frozen=True, slots=True)
class Form:
    """Widths of a head's parts.

    Attributes:
        num_heads: H.
        plain, turning: N and R.
        value: V.
        room: W: values are filled up with zeros to it.
        interleaved: rotation pairs neighbours instead of halves.
    """

    num_heads: int
    plain: int
    turning: int
    value: int
    room: int
    interleaved: bool

    @property
    def widths(self) -> tuple[int, int, int]:
        """Columns of queries, of what keys and values are expanded to, and of values with their room."""
        heads = self.num_heads
        return heads * (self.plain + self.turning), heads * (self.plain + self.value), heads * self.room


def spread(
    form: Form, q: torch.Tensor, kv: torch.Tensor, shared: torch.Tensor, table: Table, outs: tuple[torch.Tensor, ...]
) -> None:
    """Write queries, keys and values as attention takes them.

    Args:
        form: the widths.
        q: [T, H (N + R)], with any stride between rows, as all below.
        kv: each head's plain part of the key and, behind it, its value, [T, H (N + V)].
        shared: the turning part of all keys, [T, R].
        table: of the rotation.
        outs: queries and keys, [T, H (N + R)] each, and values, [T, H W].
    """
    if not registry.runs(NAME, q.device):
        for out, result in zip(outs, _spread_twin(form, q, kv, shared, table), strict=True):
            out.copy_(result.flatten(1))
    elif len(q):
        grid = len(q), triton.cdiv(form.num_heads, _heads_at_once(form)), 1
        _launch(_spread, grid, form, (q, kv, shared), table, outs)


def gather(
    form: Form, slopes: tuple[torch.Tensor, ...], table: Table, q: torch.Tensor, kv: torch.Tensor, shared: torch.Tensor
) -> None:
    """Write the gradients of what `spread` was given.

    Args:
        form: the widths.
        slopes: gradients of queries, keys and values, in the shapes of `spread`'s results.
        table: of the rotation.
        q, kv, shared: the results, in the shapes of what `spread` was given.
    """
    outs = q, kv, shared
    if not registry.runs(NAME, q.device):
        for out, result in zip(outs, _gather_twin(form, slopes, table), strict=True):
            out.copy_(result.flatten(1))
    elif len(q):
        _launch(_gather, (len(q), 1, 1), form, slopes, table, outs)


def _heads_at_once(form: Form) -> int:
    width = triton.next_power_of_2(form.plain + form.turning)
    return max(1, min(NUMBERS_OF_PROGRAM // width, triton.next_power_of_2(form.num_heads)))


def _launch(
    kernel: object,
    grid: tuple[int, int, int],
    form: Form,
    sources: tuple[torch.Tensor, ...],
    table: Table,
    outs: tuple[torch.Tensor, ...],
) -> None:
    tensors = (*sources, *outs, *table)
    launch(
        kernel,
        grid,
        tensors,
        [0 if tensor is None else tensor.stride(0) for tensor in tensors],
        (
            form.num_heads,
            _heads_at_once(form),
            form.plain,
            triton.next_power_of_2(form.plain),
            form.turning // 2,
            triton.next_power_of_2(form.turning // 2),
            form.value,
            form.room,
            triton.next_power_of_2(form.room),
            form.interleaved,
        ),
        num_warps=NUM_WARPS,
    )


# Triton programs, one for some heads of a token, and one for a token


@jit
def _angles(
    cos,
    sin,
    cos_stride,
    sin_stride,
    token,
    PAIRS: tl.constexpr,
    PAIR_BLOCK: tl.constexpr,
    INTERLEAVED: tl.constexpr,
):
    """Return cosines and sines of a token, [1, PAIR_BLOCK], and where the numbers of each pair are."""
    pair = tl.arange(0, PAIR_BLOCK)[None, :]
    first = pair * 2 if INTERLEAVED else pair
    second = first + (1 if INTERLEAVED else PAIRS)
    cosine = tl.full([1, PAIR_BLOCK], 1.0, tl.float32)
    sine = tl.full([1, PAIR_BLOCK], 0.0, tl.float32)
    if cos is not None:
        cosine = tl.load(cos + token * cos_stride + first, mask=pair < PAIRS, other=0.0).to(tl.float32)
        sine = tl.load(sin + token * sin_stride + first, mask=pair < PAIRS, other=0.0).to(tl.float32)
    return cosine, sine, first, second, pair < PAIRS


@jit
def _spread(
    q, kv, shared, out_q, out_k, out_v, cos, sin,
    q_stride, kv_stride, shared_stride, out_q_stride, out_k_stride, out_v_stride, cos_stride, sin_stride,
    NUM_HEADS: tl.constexpr,
    HEADS: tl.constexpr,
    PLAIN: tl.constexpr,
    PLAIN_BLOCK: tl.constexpr,
    PAIRS: tl.constexpr,
    PAIR_BLOCK: tl.constexpr,
    VALUE: tl.constexpr,
    ROOM: tl.constexpr,
    ROOM_BLOCK: tl.constexpr,
    INTERLEAVED: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)[:, None]
    exists = head < NUM_HEADS
    cosine, sine, first, second, in_pair = _angles(
        cos, sin, cos_stride, sin_stride, token, PAIRS, PAIR_BLOCK, INTERLEAVED
    )
    turns = exists & in_pair
    plain = tl.arange(0, PLAIN_BLOCK)[None, :]
    is_plain = exists & (plain < PLAIN)
    place = head * (PLAIN + 2 * PAIRS)
    source, target = q + token * q_stride + place, out_q + token * out_q_stride + place
    tl.store(target + plain, tl.load(source + plain, mask=is_plain), mask=is_plain)
    a = tl.load(source + PLAIN + first, mask=turns, other=0.0).to(tl.float32)
    b = tl.load(source + PLAIN + second, mask=turns, other=0.0).to(tl.float32)
    tl.store(target + PLAIN + first, (a * cosine - b * sine).to(out_q.dtype.element_ty), mask=turns)
    tl.store(target + PLAIN + second, (b * cosine + a * sine).to(out_q.dtype.element_ty), mask=turns)
    source, target = kv + token * kv_stride + head * (PLAIN + VALUE), out_k + token * out_k_stride + place
    tl.store(target + plain, tl.load(source + plain, mask=is_plain), mask=is_plain)
    a = tl.load(shared + token * shared_stride + first, mask=in_pair, other=0.0).to(tl.float32)
    b = tl.load(shared + token * shared_stride + second, mask=in_pair, other=0.0).to(tl.float32)
    everywhere = tl.zeros([HEADS, PAIR_BLOCK], tl.float32)
    tl.store(target + PLAIN + first, (a * cosine - b * sine + everywhere).to(out_k.dtype.element_ty), mask=turns)
    tl.store(target + PLAIN + second, (b * cosine + a * sine + everywhere).to(out_k.dtype.element_ty), mask=turns)
    column = tl.arange(0, ROOM_BLOCK)[None, :]
    values = tl.load(source + PLAIN + column, mask=exists & (column < VALUE), other=0.0)
    tl.store(out_v + token * out_v_stride + head * ROOM + column, values, mask=exists & (column < ROOM))


@jit
def _gather(
    dq, dk, dv, out_q, out_kv, out_shared, cos, sin,
    dq_stride, dk_stride, dv_stride, out_q_stride, out_kv_stride, out_shared_stride, cos_stride, sin_stride,
    NUM_HEADS: tl.constexpr,
    HEADS: tl.constexpr,
    PLAIN: tl.constexpr,
    PLAIN_BLOCK: tl.constexpr,
    PAIRS: tl.constexpr,
    PAIR_BLOCK: tl.constexpr,
    VALUE: tl.constexpr,
    ROOM: tl.constexpr,
    ROOM_BLOCK: tl.constexpr,
    INTERLEAVED: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    cosine, sine, first, second, in_pair = _angles(
        cos, sin, cos_stride, sin_stride, token, PAIRS, PAIR_BLOCK, INTERLEAVED
    )
    plain, column = tl.arange(0, PLAIN_BLOCK)[None, :], tl.arange(0, ROOM_BLOCK)[None, :]
    sum_a, sum_b = tl.zeros([1, PAIR_BLOCK], tl.float32), tl.zeros([1, PAIR_BLOCK], tl.float32)
    for start in range(0, NUM_HEADS, HEADS):
        head = start + tl.arange(0, HEADS)[:, None]
        exists = head < NUM_HEADS
        turns, is_plain = exists & in_pair, exists & (plain < PLAIN)
        place = head * (PLAIN + 2 * PAIRS)
        source, target = dq + token * dq_stride + place, out_q + token * out_q_stride + place
        moved = tl.load(source + plain, mask=is_plain, other=0.0)
        tl.store(target + plain, moved.to(out_q.dtype.element_ty), mask=is_plain)
        a = tl.load(source + PLAIN + first, mask=turns, other=0.0).to(tl.float32)
        b = tl.load(source + PLAIN + second, mask=turns, other=0.0).to(tl.float32)
        tl.store(target + PLAIN + first, (a * cosine + b * sine).to(out_q.dtype.element_ty), mask=turns)
        tl.store(target + PLAIN + second, (b * cosine - a * sine).to(out_q.dtype.element_ty), mask=turns)
        source = dk + token * dk_stride + place
        target = out_kv + token * out_kv_stride + head * (PLAIN + VALUE)
        moved = tl.load(source + plain, mask=is_plain, other=0.0)
        tl.store(target + plain, moved.to(out_kv.dtype.element_ty), mask=is_plain)
        a = tl.load(source + PLAIN + first, mask=turns, other=0.0).to(tl.float32)
        b = tl.load(source + PLAIN + second, mask=turns, other=0.0).to(tl.float32)
        sum_a += tl.sum(a, axis=0)[None, :]
        sum_b += tl.sum(b, axis=0)[None, :]
        inside = exists & (column < VALUE)
        values = tl.load(dv + token * dv_stride + head * ROOM + column, mask=inside, other=0.0)
        tl.store(target + PLAIN + column, values.to(out_kv.dtype.element_ty), mask=inside)
    target = out_shared + token * out_shared_stride
    tl.store(target + first, (sum_a * cosine + sum_b * sine).to(out_shared.dtype.element_ty), mask=in_pair)
    tl.store(target + second, (sum_b * cosine - sum_a * sine).to(out_shared.dtype.element_ty), mask=in_pair)


# The same in PyTorch; float64 stays float64


def _turned(form: Form, x: torch.Tensor, table: Table, back: bool = False) -> torch.Tensor:
    """Return turning parts, [T, heads, R], rotated, in float32 or wider."""
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    cos, sin = table
    if cos is None or sin is None:
        return x
    half = form.turning // 2
    one, other = (slice(0, None, 2), slice(1, None, 2)) if form.interleaved else (slice(0, half), slice(half, None))
    cosine, sine = (part[:, None, one].to(x.dtype) for part in (cos, -sin if back else sin))
    result = torch.empty_like(x)
    result[..., one] = x[..., one] * cosine - x[..., other] * sine
    result[..., other] = x[..., other] * cosine + x[..., one] * sine
    return result


def _spread_twin(
    form: Form, q: torch.Tensor, kv: torch.Tensor, shared: torch.Tensor, table: Table
) -> tuple[torch.Tensor, ...]:
    plain_q, turning_q = q.unflatten(1, (form.num_heads, -1)).split([form.plain, form.turning], dim=2)
    plain_k, values = kv.unflatten(1, (form.num_heads, -1)).split([form.plain, form.value], dim=2)
    turning_k = _turned(form, shared[:, None], table).to(q.dtype).expand(-1, form.num_heads, -1)
    queries = torch.cat([plain_q, _turned(form, turning_q, table).to(q.dtype)], dim=2)
    room = values.new_zeros(*values.shape[:2], form.room - form.value)
    return queries, torch.cat([plain_k, turning_k], dim=2), torch.cat([values, room], dim=2)


def _gather_twin(form: Form, slopes: tuple[torch.Tensor, ...], table: Table) -> tuple[torch.Tensor, ...]:
    dq, dk, dv = (slope.unflatten(1, (form.num_heads, -1)) for slope in slopes)
    plain_q, turning_q = dq.split([form.plain, form.turning], dim=2)
    plain_k, turning_k = dk.split([form.plain, form.turning], dim=2)
    summed = turning_k.to(torch.promote_types(dk.dtype, torch.float32)).sum(1, keepdim=True)
    queries = torch.cat([plain_q, _turned(form, turning_q, table, back=True).to(dq.dtype)], dim=2)
    return queries, torch.cat([plain_k, dv[..., : form.value]], dim=2), _turned(form, summed, table, back=True)
