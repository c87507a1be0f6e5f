"""Steps, rows and learning rates against transformers."""

from __future__ import annotations

import pytest
import torch
from transformers import get_scheduler

from tunesmith_core.spec_training import ScheduleSpec
from tunesmith_engine.train.schedule import StepPlan

NAMES_IN_TRANSFORMERS = {"linear": "linear", "cosine": "cosine", "constant": "constant_with_warmup"}


@pytest.mark.parametrize("name", ["linear", "cosine", "constant"])
@pytest.mark.parametrize(("warmup", "total"), [(0, 10), (5, 60), (1, 1), (9, 10), (10, 10), (20, 10)])
def test_learning_rate_is_that_of_transformers(name: str, warmup: int, total: int) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = get_scheduler(NAMES_IN_TRANSFORMERS[name], optimizer, num_warmup_steps=warmup, num_training_steps=total)
    plan = StepPlan(ScheduleSpec(scheduler=name, warmup_steps=warmup, max_steps=total), 8)
    for step in range(total):
        assert plan.learning_rate_factor(step) == theirs.get_last_lr()[0], step
        optimizer.step()
        theirs.step()


def test_no_step_of_a_short_run_is_wasted_on_a_warm_up_that_nobody_set() -> None:
    short = StepPlan(ScheduleSpec(max_steps=12), 8)
    assert [short.learning_rate_factor(step) for step in (0, 1)] == [1.0, 11 / 12]
    usual, by_hand = (StepPlan(ScheduleSpec(max_steps=60, warmup_steps=warmup), 8) for warmup in (None, 5))
    rates = [[plan.learning_rate_factor(step) for step in range(60)] for plan in (usual, by_hand)]
    assert rates[0] == rates[1]


@pytest.mark.parametrize(
    ("num_rows", "epochs", "total", "per_epoch"), [(16, 3.0, 12, 4), (17, 1.0, 5, 5), (1, 1.0, 1, 1), (16, 0.3, 2, 4)]
)
def test_steps_follow_from_rows_and_epochs(num_rows: int, epochs: float, total: int, per_epoch: int) -> None:
    schedule = ScheduleSpec(epochs=epochs, micro_batch_size=2, gradient_accumulation_steps=2)
    plan = StepPlan(schedule, num_rows)
    assert (plan.total_steps, plan.steps_per_epoch) == (total, per_epoch)


def test_every_epoch_takes_each_row_once_in_another_order() -> None:
    plan = StepPlan(ScheduleSpec(micro_batch_size=2, gradient_accumulation_steps=2, seed=3), 10)
    epochs = [[row for step in range(3 * e, 3 * e + 3) for row in plan.rows(step)] for e in range(2)]
    assert [sorted(rows) for rows in epochs] == [list(range(10))] * 2
    assert epochs[0] != epochs[1]
    assert len(plan.rows(2)) == 2
    assert plan.epoch(3) == 1.0


def test_rows_of_a_step_need_no_memory_of_earlier_steps() -> None:
    schedule = ScheduleSpec(micro_batch_size=2, gradient_accumulation_steps=1)
    walked, jumped = StepPlan(schedule, 9), StepPlan(schedule, 9)
    assert [walked.rows(step) for step in range(20)][17] == jumped.rows(17)
