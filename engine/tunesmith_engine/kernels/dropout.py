"""Dropout of an adapter's input without a mask in memory: whoever needs a number's mask computes it from its place.

The generator is Philox-4x32 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3") with the 7 rounds that
its authors found to pass every test of BigCrush. Key: the seed of an adapter in a micro-batch. Counter: the row, and an
eighth of the column; the four words that come out are eight numbers of 16 bits, those of eight columns. A number of the
input is dropped where its 16 bits are below share * 65536, and what is left is divided by what that leaves on average.

With M the mask, divided: S = (X * M) A^T, then backward dA = dS^T (X * M) and dX += (dS A) * M.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.launch import launch
from tunesmith_engine.kernels.triton_import import jit, tl, triton

NAME = "dropout"
LEVELS = 1 << 16
NUM_ROUNDS = 7
COLUMNS_OF_COUNTER = 8
TILE, FLOAT32_TILE = (32, 64), (16, 32)
"""Rows and columns. A float32 product uses no tensor core: threads hold its factors, and a larger tile spills."""
FLOAT32_SPAN = 128
"""Columns, or rows, whose products are added up before they join the sum: one sum over 14,336 columns in a row errs
ten times as much as PyTorch's product."""
LEAST_RANKS, MOST_RANKS = 16, 64
"""Of a program: what a tensor core takes, and what registers hold."""
MOST_SPLITS, LEAST_ROWS_OF_SPLIT = 4, 512
"""Into how many groups rows are divided whose sums lie apart: they take memory."""
NUM_WARPS = 4
TWIN_ROWS = 256
"""Whose random numbers exist at once."""


@dataclass(frozen=True, slots=True)
class Mask:
    """Which numbers of an adapter's input are dropped.

    Attributes:
        seed: int64 [1] on the device.
        share: of the numbers that are dropped, at least 0 and below 1.
        first_row: where in the micro-batch the rows at hand begin.
    """

    seed: torch.Tensor
    share: float
    first_row: int = 0

    @property
    def threshold(self) -> int:
        """Numbers of 16 bits below this are dropped."""
        return round(self.share * LEVELS)

    @property
    def factor(self) -> float:
        """What is left is multiplied by this."""
        return LEVELS / (LEVELS - self.threshold)


def shrink(x: torch.Tensor, a: torch.Tensor, mask: Mask, out: torch.Tensor) -> None:
    """Write (X * M) A^T.

    Args:
        x: [T, K], with any stride between rows, as all.
        a: [R, K].
        mask: of x.
        out: [T, R].
    """
    num_rows, width = x.shape
    if not _runs(x.device):
        for some in _portions(num_rows):
            out[some] = torch.mm(_dropped(x, mask, some), a.t())
        return
    ranks = _ranks(a.shape[0])
    rows, columns = _tile(x.dtype)
    launch(
        _shrink,
        (triton.cdiv(num_rows, rows), triton.cdiv(a.shape[0], ranks), 1),
        (x, a, mask.seed, out),
        (x.stride(0), a.stride(0), out.stride(0), num_rows, mask.first_row, a.shape[0], mask.factor),
        (width, FLOAT32_SPAN if x.dtype == torch.float32 else width, rows, columns, ranks, mask.threshold, NUM_ROUNDS),
        num_warps=NUM_WARPS,
    )


def weight_gradient(to_shrunk: torch.Tensor, x: torch.Tensor, mask: Mask) -> torch.Tensor:
    """Return dS^T (X * M), [R, K], in float32 at least.

    Args:
        to_shrunk: dS, [T, R].
        x, mask: as `shrink` was given them.
    """
    (num_rows, width), num_ranks = x.shape, to_shrunk.shape[1]
    if not _runs(x.device):
        total = torch.zeros(num_ranks, width, device=x.device, dtype=torch.promote_types(x.dtype, torch.float32))
        for some in _portions(num_rows):
            total += torch.mm(to_shrunk[some].t(), _dropped(x, mask, some))
        return total
    ranks = _ranks(num_ranks)
    rows, columns = _tile(x.dtype)
    num_splits = min(MOST_SPLITS, triton.cdiv(num_rows, LEAST_ROWS_OF_SPLIT))
    sums = torch.empty(num_splits, num_ranks, width, device=x.device, dtype=torch.float32)
    rows_of_split = triton.cdiv(triton.cdiv(num_rows, num_splits), rows) * rows
    launch(
        _weight_gradient,
        (triton.cdiv(width, columns), triton.cdiv(num_ranks, ranks), num_splits),
        (to_shrunk, x, mask.seed, sums),
        (to_shrunk.stride(0), x.stride(0), num_rows, rows_of_split, mask.first_row, num_ranks, mask.factor),
        (width, FLOAT32_SPAN if x.dtype == torch.float32 else 0, rows, columns, ranks, mask.threshold, NUM_ROUNDS),
        num_warps=NUM_WARPS,
    )
    return sums.sum(0)


def add_input_gradient(to_shrunk: torch.Tensor, a: torch.Tensor, mask: Mask, out: torch.Tensor) -> None:
    """Add (dS A) * M to out, [T, K]; see `weight_gradient` and `shrink`."""
    num_rows, width = out.shape
    if not _runs(out.device):
        for some in _portions(num_rows):
            out[some] += torch.mm(to_shrunk[some], a) * (keep(mask, some, width) * mask.factor).to(out.dtype)
        return
    rows, columns = _tile(out.dtype)
    launch(
        _add_input_gradient,
        (triton.cdiv(num_rows, rows), triton.cdiv(width, columns), 1),
        (to_shrunk, a, mask.seed, out),
        (to_shrunk.stride(0), a.stride(0), out.stride(0), num_rows, mask.first_row, a.shape[0], mask.factor),
        (width, rows, columns, _ranks(a.shape[0]), mask.threshold, NUM_ROUNDS),
        num_warps=NUM_WARPS,
    )


def _runs(device: torch.device) -> bool:
    return registry.runs(NAME, device, needs_dot=True)


def _ranks(num_ranks: int) -> int:
    """Return of how many ranks a program computes."""
    return max(LEAST_RANKS, min(MOST_RANKS, triton.next_power_of_2(num_ranks)))


def _tile(dtype: torch.dtype) -> tuple[int, int]:
    return FLOAT32_TILE if dtype == torch.float32 else TILE


# Triton programs


@jit
def _kept(seed, row, group, THRESHOLD: tl.constexpr, NUM_ROUNDS: tl.constexpr):
    """Return which numbers stay, [rows, 8 groups]: row is [rows, 1], group [1, groups], each int32."""
    zero = row * 0 + group * 0
    first, second, third, fourth = tl.philox(seed, zero + group, zero + row, zero, zero, NUM_ROUNDS)
    left = tl.interleave(
        tl.interleave(_at_least(first & 0xFFFF, THRESHOLD), _at_least(first >> 16, THRESHOLD)),
        tl.interleave(_at_least(third & 0xFFFF, THRESHOLD), _at_least(third >> 16, THRESHOLD)),
    )
    right = tl.interleave(
        tl.interleave(_at_least(second & 0xFFFF, THRESHOLD), _at_least(second >> 16, THRESHOLD)),
        tl.interleave(_at_least(fourth & 0xFFFF, THRESHOLD), _at_least(fourth >> 16, THRESHOLD)),
    )
    return tl.interleave(left, right) != 0


@jit
def _at_least(number, THRESHOLD: tl.constexpr):
    return (number.to(tl.int32) >= THRESHOLD).to(tl.int8)


@jit
def _shrink(
    x,
    a,
    seed,
    out,
    x_stride,
    a_stride,
    out_stride,
    num_rows,
    first_row,
    num_ranks,
    factor,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    RANKS: tl.constexpr,
    THRESHOLD: tl.constexpr,
    NUM_ROUNDS: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    rank = tl.program_id(1) * RANKS + tl.arange(0, RANKS)
    key = tl.load(seed)
    total = tl.zeros((ROWS, RANKS), dtype=tl.float32)
    for begin in range(0, WIDTH, SPAN):
        part = tl.zeros((ROWS, RANKS), dtype=tl.float32)
        for start in range(begin, min(begin + SPAN, WIDTH), COLUMNS):
            column = start + tl.arange(0, COLUMNS)
            inside = (row < num_rows)[:, None] & (column < WIDTH)[None, :]
            some = tl.load(x + row.to(tl.int64)[:, None] * x_stride + column[None, :], mask=inside, other=0.0)
            group = start // 8 + tl.arange(0, COLUMNS // 8)
            stays = _kept(key, (first_row + row)[:, None], group[None, :], THRESHOLD, NUM_ROUNDS)
            some = tl.where(stays, some, 0.0).to(x.dtype.element_ty)
            exists = (rank < num_ranks)[:, None] & (column < WIDTH)[None, :]
            weights = tl.load(a + rank.to(tl.int64)[:, None] * a_stride + column[None, :], mask=exists, other=0.0)
            part += tl.dot(some, tl.trans(weights), input_precision="ieee")
        total += part
    places = out + row.to(tl.int64)[:, None] * out_stride + rank[None, :]
    wanted = (row < num_rows)[:, None] & (rank < num_ranks)[None, :]
    tl.store(places, (total * factor).to(out.dtype.element_ty), mask=wanted)


@jit
def _weight_gradient(
    to_shrunk,
    x,
    seed,
    sums,
    to_shrunk_stride,
    x_stride,
    num_rows,
    rows_of_split,
    first_row,
    num_ranks,
    factor,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    RANKS: tl.constexpr,
    THRESHOLD: tl.constexpr,
    NUM_ROUNDS: tl.constexpr,
):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    group = tl.program_id(0) * (COLUMNS // 8) + tl.arange(0, COLUMNS // 8)
    rank = tl.program_id(1) * RANKS + tl.arange(0, RANKS)
    begin = tl.program_id(2) * rows_of_split
    key = tl.load(seed)
    total = tl.zeros((RANKS, COLUMNS), dtype=tl.float32)
    part = total
    for start in range(begin, min(begin + rows_of_split, num_rows), ROWS):
        row = start + tl.arange(0, ROWS)
        inside = (row < num_rows)[:, None] & (column < WIDTH)[None, :]
        some = tl.load(x + row.to(tl.int64)[:, None] * x_stride + column[None, :], mask=inside, other=0.0)
        stays = _kept(key, (first_row + row)[:, None], group[None, :], THRESHOLD, NUM_ROUNDS)
        some = tl.where(stays, some, 0.0).to(x.dtype.element_ty)
        exists = (row < num_rows)[:, None] & (rank < num_ranks)[None, :]
        places = to_shrunk + row.to(tl.int64)[:, None] * to_shrunk_stride + rank[None, :]
        slopes = tl.load(places, mask=exists, other=0.0)
        part += tl.dot(tl.trans(slopes), some, input_precision="ieee")
        # Where one sum is exact enough, a second one would only take registers.
        if SPAN > 0:  # noqa: SIM102 - a constant and a number of the program: Triton can't join them by `and`
            if (start - begin + ROWS) % SPAN == 0:
                total += part
                part = tl.zeros((RANKS, COLUMNS), dtype=tl.float32)
    if SPAN > 0:
        part += total
    places = sums + (tl.program_id(2) * num_ranks + rank).to(tl.int64)[:, None] * WIDTH + column[None, :]
    tl.store(places, part * factor, mask=(rank < num_ranks)[:, None] & (column < WIDTH)[None, :])


@jit
def _add_input_gradient(
    to_shrunk,
    a,
    seed,
    out,
    to_shrunk_stride,
    a_stride,
    out_stride,
    num_rows,
    first_row,
    num_ranks,
    factor,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    RANKS: tl.constexpr,
    THRESHOLD: tl.constexpr,
    NUM_ROUNDS: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    group = tl.program_id(1) * (COLUMNS // 8) + tl.arange(0, COLUMNS // 8)
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in range(0, num_ranks, RANKS):
        rank = start + tl.arange(0, RANKS)
        exists = (row < num_rows)[:, None] & (rank < num_ranks)[None, :]
        places = to_shrunk + row.to(tl.int64)[:, None] * to_shrunk_stride + rank[None, :]
        slopes = tl.load(places, mask=exists, other=0.0)
        inside = (rank < num_ranks)[:, None] & (column < WIDTH)[None, :]
        weights = tl.load(a + rank.to(tl.int64)[:, None] * a_stride + column[None, :], mask=inside, other=0.0)
        total += tl.dot(slopes, weights, input_precision="ieee")
    stays = _kept(tl.load(seed), (first_row + row)[:, None], group[None, :], THRESHOLD, NUM_ROUNDS)
    places = out + row.to(tl.int64)[:, None] * out_stride + column[None, :]
    wanted = (row < num_rows)[:, None] & (column < WIDTH)[None, :]
    before = tl.load(places, mask=wanted, other=0.0).to(tl.float32)
    tl.store(places, (before + tl.where(stays, total * factor, 0.0)).to(out.dtype.element_ty), mask=wanted)


# The same in PyTorch


def keep(mask: Mask, rows: slice, width: int) -> torch.Tensor:
    """Return which numbers of some rows stay, bool [rows, width]."""
    device = mask.seed.device
    row = torch.arange(mask.first_row + rows.start, mask.first_row + rows.stop, device=device)[:, None]
    group = torch.arange(-(-width // COLUMNS_OF_COUNTER), device=device)[None, :]
    words = random_words(mask.seed, group + 0 * row, row + 0 * group)
    parts = [word & 0xFFFF for word in words] + [word >> 16 for word in words]
    return torch.stack(parts, dim=2).flatten(1)[:, :width] >= mask.threshold


def random_words(seed: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> list[torch.Tensor]:
    """Return four words of 32 bits, in int64, for the counter (first, second, 0, 0)."""
    bits = 0xFFFFFFFF
    words = [first, second, torch.zeros_like(first), torch.zeros_like(first)]
    low, high = seed & bits, (seed >> 32) & bits
    for _ in range(NUM_ROUNDS):
        words = [
            _high(0xCD9E8D57, words[2]) ^ words[1] ^ low,
            (0xCD9E8D57 * words[2]) & bits,
            _high(0xD2511F53, words[0]) ^ words[3] ^ high,
            (0xD2511F53 * words[0]) & bits,
        ]
        low, high = (low + 0x9E3779B9) & bits, (high + 0xBB67AE85) & bits
    return words


def _high(factor: int, word: torch.Tensor) -> torch.Tensor:
    """Return the upper 32 bits of a product, in two halves that don't overflow."""
    return (factor * (word >> 16) + (factor * (word & 0xFFFF) >> 16)) >> 16


def _dropped(x: torch.Tensor, mask: Mask, rows: slice) -> torch.Tensor:
    return x[rows] * (keep(mask, rows, x.shape[1]) * mask.factor).to(x.dtype)


def _portions(num_rows: int) -> list[slice]:
    return [slice(start, min(start + TWIN_ROWS, num_rows)) for start in range(0, num_rows, TWIN_ROWS)]
