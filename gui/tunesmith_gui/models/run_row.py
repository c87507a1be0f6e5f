"""One run as lists, cards and dialogs know it, and what its folder holds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tunesmith_core.runs import FIRST_SAVED_STEP, RunState


@dataclass(frozen=True, slots=True)
class RunRow:
    """What the table knows of a run. Losses in nats per token, times in seconds since 1970; None where unknown.

    A run that learns from rewards has held-out rewards in place of losses. `eval_loss` and `eval_reward` are those of
    what the run has saved, see `RunStatus.final_eval_loss`.
    """

    id: str
    path: Path
    name: str
    state: RunState
    model: str = ""
    data: str = ""
    eval_loss: float | None = None
    best_eval_loss: float | None = None
    eval_reward: float | None = None
    best_reward: float | None = None
    is_rewarded: bool = False
    duration_s: float | None = None
    created_at: float = 0.0
    size_bytes: int = 0
    sparkline: tuple[float, ...] = ()
    step: int = 0
    total_steps: int = 0
    last_checkpoint_step: int = 0
    obstacle: str = ""

    @property
    def haystack(self) -> str:
        """The words that the filter box searches."""
        return f"{self.name}\n{self.model}\n{self.data}\n{self.id}".casefold()

    @property
    def can_resume(self) -> bool:
        """Whether the run has ended early with a checkpoint to go on from, or with nothing to lose yet."""
        ended_early = self.state in (RunState.STOPPED, RunState.FAILED, RunState.INTERRUPTED)
        begun = self.state is not RunState.INTERRUPTED or self.step > FIRST_SAVED_STEP
        return ended_early and (self.last_checkpoint_step > 0 or not begun)

    @property
    def can_export(self) -> bool:
        """Whether the run has ended with something trained."""
        return not self.state.live and (self.last_checkpoint_step > 0 or self.state is RunState.FINISHED)


def when(t: float, now: float | None = None) -> str:
    """A time in words: 14:05 today, 11-20 14:05 this year, else the date."""
    if not t:
        return ""
    then, today = time.localtime(t), time.localtime(now)
    if then[:3] == today[:3]:
        return time.strftime("%H:%M", then)
    return time.strftime("%m-%d %H:%M" if then[0] == today[0] else "%Y-%m-%d", then)


def distinct_names(rows: Sequence[RunRow]) -> list[str]:
    """The names of runs that stand together; of equal ones each with when it began."""
    names = [row.name for row in rows]
    return [f"{row.name}, {when(row.created_at)}" if names.count(row.name) > 1 else row.name for row in rows]


class RunContents(NamedTuple):
    """What a deletion takes; of a folder that is a link, nothing but the link."""

    num_checkpoints: int
    num_adapters: int
    size_bytes: int
    num_links: int = 0
    num_models: int = 0


def contents_of(rows: Sequence[RunRow]) -> RunContents:
    """Look into the folders of runs; call it on a worker thread."""
    whole = [row for row in rows if not row.path.is_symlink()]
    num_checkpoints = sum(1 for row in whole for _ in (row.path / "checkpoints").glob("step-*"))
    num_adapters = sum((row.path / "adapter").is_dir() for row in whole)
    size_bytes = sum(row.size_bytes for row in whole)
    num_models = sum((row.path / "model").is_dir() for row in whole)
    return RunContents(num_checkpoints, num_adapters, size_bytes, len(rows) - len(whole), num_models)
