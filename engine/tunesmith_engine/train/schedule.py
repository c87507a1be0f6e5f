"""How many steps a run has, which rows each step takes and how high its learning rate is.

All three are functions of the step number alone, so a resumed run needs to remember nothing but the step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from tunesmith_core.spec_training import ScheduleSpec
from tunesmith_engine.data import PreparedData, epoch_order
from tunesmith_engine.data.weighing import SourceShare, drawn_rows


@dataclass(slots=True)
class StepPlan:
    """The course of a run over its rows.

    As in transformers' Trainer, an epoch ends with a smaller step when the rows don't divide evenly.

    Attributes:
        schedule: of the spec.
        num_rows: examples in an epoch.
        shares: of the data files by weight; empty where an epoch has every row once.
    """

    schedule: ScheduleSpec
    num_rows: int
    shares: Sequence[SourceShare] = ()
    _order: dict[int, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, schedule: ScheduleSpec, data: PreparedData) -> Self:
        """Return the course of a run over its training rows."""
        if all(share.num_epoch_rows == share.num_train_rows for share in data.sources):
            return cls(schedule, len(data.train))
        return cls(schedule, sum(share.num_epoch_rows for share in data.sources), data.sources)

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
            order = epoch_order(self.num_rows, self.schedule.seed, epoch, self.schedule.shuffle)
            if self.shares:
                drawn = drawn_rows(self.shares, self.schedule.seed, epoch)
                order = [drawn[place] for place in order]
            self._order = {epoch: order}
        start = within * self.rows_per_step
        return self._order[epoch][start : start + self.rows_per_step]

    def learning_rate_factor(self, step: int) -> float:
        """Return the share of the top learning rate for a step, counted from 0, as transformers defines it."""
        total = self.total_steps
        warmup = self.schedule.num_warmup_steps(total)
        if step < warmup:
            return step / warmup
        if self.schedule.scheduler == "constant":
            return 1.0
        length = max(1, total - warmup)
        if self.schedule.scheduler == "cosine":
            return max(0.0, 0.5 * (1.0 + math.cos(math.pi * ((step - warmup) / length))))
        return max(0.0, (total - step) / length)
