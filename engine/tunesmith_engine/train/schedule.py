"""How many steps a run has, which rows each step takes and how high its learning rate is.

All three are functions of the step number alone, so a resumed run needs to remember nothing but the step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tunesmith_core.spec_sections import ScheduleSpec
from tunesmith_engine.data import epoch_order


@dataclass(slots=True)
class StepPlan:
    """The course of a run over its rows.

    As in transformers' Trainer, an epoch ends with a smaller step when the rows don't divide evenly.
    """

    schedule: ScheduleSpec
    num_rows: int
    _order: dict[int, list[int]] = field(default_factory=dict)

    @property
    def rows_per_step(self) -> int:
        """Effective batch size in rows."""
        return self.schedule.micro_batch_size * self.schedule.gradient_accumulation_steps

    @property
    def steps_per_epoch(self) -> int:
        """Steps of one pass over the rows."""
        return math.ceil(self.num_rows / self.rows_per_step)

    @property
    def total_steps(self) -> int:
        """Steps of the whole run."""
        return self.schedule.max_steps or math.ceil(self.schedule.epochs * self.steps_per_epoch)

    def epoch(self, step: int) -> float:
        """Return how many passes over the rows are done after so many steps."""
        return step / self.steps_per_epoch

    def rows(self, step: int) -> list[int]:
        """Return the row numbers of a step, counted from 0."""
        epoch, within = divmod(step, self.steps_per_epoch)
        if epoch not in self._order:
            self._order = {epoch: epoch_order(self.num_rows, self.schedule.seed, epoch, self.schedule.shuffle)}
        start = within * self.rows_per_step
        return self._order[epoch][start : start + self.rows_per_step]

    def learning_rate_factor(self, step: int) -> float:
        """Return the share of the top learning rate for a step, counted from 0, as transformers defines it."""
        warmup, total = self.schedule.warmup_steps, self.total_steps
        if step < warmup:
            return step / warmup
        if self.schedule.scheduler == "constant":
            return 1.0
        length = max(1, total - warmup)
        if self.schedule.scheduler == "cosine":
            return max(0.0, 0.5 * (1.0 + math.cos(math.pi * ((step - warmup) / length))))
        return max(0.0, (total - step) / length)
