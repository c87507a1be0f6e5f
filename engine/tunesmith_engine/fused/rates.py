"""How fast this machine copies and multiplies, and how much memory may be pinned; each takes a moment to find."""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import torch

from tunesmith_engine.host_memory import PinningError

COPY_BYTES = 64 * 2**20
TRIALS = 3
PRODUCTS = 8
LEAST_S = 0.05
"""Products are timed for so long at least: a GPU that idled is not at its full clock at first, and rates of sizes that
differ by a few percent decide between plans."""

MOST_SIZES = {"cuda": (4096, 4096), "cpu": (128, 512)}
"""Rows and width of products that are timed; larger ones are no faster."""


class CopyRates(NamedTuple):
    """Bytes per second between pinned memory and a GPU."""

    to_host: float
    to_device: float


def measure_copy_rate(device: torch.device) -> CopyRates:
    """Time copies of 64 MiB from and to pinned memory, each direction alone; the best of three counts.

    Raises:
        PinningError: this machine gives no pinned memory.
    """
    try:
        on_host = torch.empty(COPY_BYTES, dtype=torch.uint8, pin_memory=True)
    except RuntimeError as error:
        raise PinningError(str(error)) from error
    on_device = torch.empty(COPY_BYTES, dtype=torch.uint8, device=device)
    return CopyRates(_copy_rate(on_host, on_device, device), _copy_rate(on_device, on_host, device))


def _copy_rate(destination: torch.Tensor, source: torch.Tensor, device: torch.device) -> float:
    stream = torch.cuda.current_stream(device)
    best_ms = math.inf
    for _ in range(TRIALS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record(stream)
        destination.copy_(source, non_blocking=True)
        end.record(stream)
        end.synchronize()
        best_ms = min(best_ms, start.elapsed_time(end))
    return COPY_BYTES / best_ms * 1e3


def measure_memory_rate(device: torch.device) -> float:
    """Return bytes per second that a GPU's memory reads and writes together; the best of three copies counts."""
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device=device)
    return 2 * _copy_rate(torch.empty_like(source), source, device)


def measure_matmul_rate(device: torch.device, dtype: torch.dtype, rows: int, width: int, inner_width: int) -> float:
    """Return floating-point operations per second of an MLP's two products; the best of several trials.

    The numbers are random, and not those of a run: products of zeros take less power and so run faster than real ones.

    Args:
        device, dtype: of the products.
        rows: at a time.
        width, inner_width: of the MLP; of larger ones a part is timed.
    """
    most_rows, most_width = MOST_SIZES[device.type]
    rows, width, inner_width = min(rows, most_rows), min(width, most_width), min(inner_width, most_width)
    chance = torch.Generator(device)
    x, into, out_of = (
        torch.randn(shape, device=device, generator=chance).to(dtype)
        for shape in ((rows, width), (width, inner_width), (inner_width, width))
    )
    inner, out = x @ into, torch.empty_like(x)
    trials_s: list[float] = []
    while len(trials_s) < TRIALS or sum(trials_s) < LEAST_S:
        _finish(device)
        start_s = time.perf_counter()
        for _ in range(PRODUCTS):
            torch.mm(x, into, out=inner)
            torch.mm(inner, out_of, out=out)
        _finish(device)
        trials_s.append(time.perf_counter() - start_s)
    best_s = min(trials_s)
    return 4.0 * PRODUCTS * rows * width * inner_width / best_s


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
