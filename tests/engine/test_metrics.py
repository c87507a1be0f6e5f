"""The numbers of a step: on the CPU at once, on a GPU one step late and timed by the GPU's own clock."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch

from tunesmith_engine.train import metrics
from tunesmith_engine.train.metrics import StepMeter, StepReport

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@dataclass
class Mark:
    """Stands for an event on a GPU, at a time of the GPU's clock."""

    at_ms: float
    reached: bool = False

    def synchronize(self) -> None:
        self.reached = True

    def elapsed_time(self, later: Mark) -> float:
        assert later.reached, "asking earlier is an error in CUDA"
        return later.at_ms - self.at_ms


def submit(meter: StepMeter, step: int, loss: float = 2.5) -> list[StepReport]:
    return meter.submit(
        step=step,
        epoch=step / 4,
        lr=1e-4,
        num_tokens=100 * step,
        tokens_in_step=100,
        losses=torch.tensor([loss], requires_grad=True),
        grad_norm=torch.tensor(0.5, dtype=torch.float64),
    )


def test_on_the_cpu_a_step_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 10.0
    monkeypatch.setattr(metrics.time, "monotonic", lambda: now_s)
    meter = StepMeter(CPU)
    assert meter.flush() == []
    now_s = 12.5
    assert submit(meter, 1) == [StepReport(1, 0.25, 1e-4, 100, 100, 2.5, 0.5, 2.5, {})]
    assert meter.flush() == []
    now_s = 13.0
    assert submit(meter, 2)[0].step_s == 0.5
    now_s = 60.0
    meter.restart_clock()
    now_s = 61.0
    assert submit(meter, 3)[0].step_s == 1.0, "an evaluation is no part of a step"


def test_on_a_gpu_a_step_is_reported_after_the_next_was_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    marks = [Mark(at_ms) for at_ms in (1000.0, 1250.0, 3250.0, 9000.0, 9100.0)]
    coming = iter(marks)
    monkeypatch.setattr(metrics, "_mark_on_device", lambda: next(coming))
    waits: list[bool] = []
    monkeypatch.setattr(
        torch.Tensor, "to", lambda tensor, _, non_blocking=False: waits.append(not non_blocking) or tensor
    )
    meter = StepMeter(GPU)
    assert submit(meter, 1, 1.0) == []
    assert waits == [False]
    assert not any(mark.reached for mark in marks), "the GPU never waits for the host"
    (first,) = submit(meter, 2, 2.0)
    assert (first.step, first.loss, first.step_s) == (1, 1.0, 0.25)
    assert [mark.reached for mark in marks] == [False, True, False, False, False]
    (second,) = meter.flush()
    assert (second.step, second.loss, second.step_s) == (2, 2.0, 2.0)
    meter.restart_clock()
    assert submit(meter, 3) == []
    (third,) = meter.flush()
    assert third.step_s == 0.1
    assert meter.flush() == []


@pytest.mark.parametrize(("loss", "finite"), [(1.0, True), (math.nan, False), (math.inf, False)])
def test_a_loss_that_is_no_number_is_told(loss: float, finite: bool) -> None:
    (report,) = submit(StepMeter(CPU), 1, loss)
    assert report.finite == finite
