"""Step numbers read from the device one step late, so that the GPU never waits for the host."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import torch


@dataclass(frozen=True, slots=True)
class StepReport:
    """What is known about a finished step; `num_tokens` is cumulative, `tokens_in_step` its own."""

    step: int
    epoch: float
    lr: float
    num_tokens: int
    tokens_in_step: int
    loss: float
    grad_norm: float
    step_s: float
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def finite(self) -> bool:
        """Whether the loss is a number."""
        return math.isfinite(self.loss)


def named(names: Sequence[str], values: Sequence[float]) -> dict[str, float]:
    """Return the metrics of an objective by their names, without those that rows don't have, which are NaN."""
    return {name: value for name, value in zip(names, values, strict=True) if not math.isnan(value)}


@dataclass(slots=True)
class _Pending:
    step: int
    epoch: float
    lr: float
    num_tokens: int
    tokens_in_step: int
    values: torch.Tensor
    arrived: torch.cuda.Event | None
    numbers: Mapping[str, float]


class StepMeter:
    """Gathers the numbers of each step; on a GPU they arrive after the following step was submitted.

    Args:
        device: of the run.
        metrics: names of the numbers behind the loss.
    """

    def __init__(self, device: torch.device, metrics: Sequence[str] = ()) -> None:
        self._device, self._metrics = device, metrics
        self._pending: _Pending | None = None
        self._last_s: float
        self._last_mark: torch.cuda.Event | None
        self.restart_clock()

    def submit(
        self,
        *,
        step: int,
        epoch: float,
        lr: float,
        num_tokens: int,
        tokens_in_step: int,
        losses: torch.Tensor,
        grad_norm: torch.Tensor,
        numbers: Mapping[str, float] = MappingProxyType({}),
    ) -> list[StepReport]:
        """Take over a step's numbers and return the reports that are complete by now, oldest first.

        Args:
            step, epoch, lr, num_tokens, tokens_in_step: see StepReport.
            losses: the loss and each of the metrics, [1 + metrics].
            grad_norm: before clipping, 0-dim.
            numbers: further metrics, which the host knows.
        """
        values, arrived = torch.cat((losses.detach().float(), grad_norm.detach().float().reshape(1))), None
        if self._device.type == "cuda":
            values = values.to("cpu", non_blocking=True)
            arrived = _mark_on_device()
        reports = self.flush()
        self._pending = _Pending(step, epoch, lr, num_tokens, tokens_in_step, values, arrived, numbers)
        return reports + (self.flush() if arrived is None else [])

    def flush(self) -> list[StepReport]:
        """Wait for the step that is under way, if any, and return its report."""
        pending, self._pending = self._pending, None
        if pending is None:
            return []
        step_s = self._lap(pending.arrived)
        loss, *metrics, grad_norm = pending.values.tolist()
        return [
            StepReport(
                pending.step,
                pending.epoch,
                pending.lr,
                pending.num_tokens,
                pending.tokens_in_step,
                loss,
                grad_norm,
                step_s,
                {**named(self._metrics, metrics), **pending.numbers},
            )
        ]

    def _lap(self, arrived: torch.cuda.Event | None) -> float:
        """Wait for a step's numbers and return its time; on a GPU by its own clock, since the host runs ahead of it."""
        if arrived is None:
            now_s = time.monotonic()
            step_s, self._last_s = now_s - self._last_s, now_s
            return step_s
        arrived.synchronize()
        assert self._last_mark is not None, "a GPU's clock is marked before its first step"
        step_s, self._last_mark = self._last_mark.elapsed_time(arrived) / 1000, arrived
        return step_s

    def restart_clock(self) -> None:
        """Leave the time since the last step out: it went into evaluation or saving."""
        self._last_s = time.monotonic()
        self._last_mark = _mark_on_device() if self._device.type == "cuda" else None


def _mark_on_device() -> torch.cuda.Event:
    mark = torch.cuda.Event(enable_timing=True)
    mark.record()
    return mark
