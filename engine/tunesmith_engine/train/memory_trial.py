"""A trial of a run's largest micro-batch before its first step: short memory shows at once, not after an hour."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tunesmith_core.messages import Message
from tunesmith_engine.data import Example
from tunesmith_engine.train.loss_paths import LossPath, totals_of
from tunesmith_engine.train.oom import MemoryLadder
from tunesmith_engine.train.optim import Updater


def try_longest(
    path: LossPath,
    updater: Updater,
    ladder: MemoryLadder,
    rows: Sequence[Example],
    num_rows: int,
    device: torch.device,
) -> int:
    """Go forward and backward with the largest micro-batch of the longest rows; no weight and no random state changes.

    Args:
        path: computes gradients.
        updater: holds them; there are none before and after.
        ladder: steps down until the micro-batch fits.
        rows: of the whole run.
        num_rows: of a step.
        device: of the run.

    Returns:
        The peak of what PyTorch allocated on a GPU meanwhile; it is counted from here on.

    Raises:
        RunFailure: `cuda-oom` when no rung is left.
    """

    def go_through() -> None:
        portions = path.portions(longest_rows(rows, num_rows))
        largest = max(portions, key=lambda portion: sum(example.num_tokens for example in portion))
        by_layer = updater.goes_by_layer and len(portions) == 1
        with torch.random.fork_rng([device] if device.type == "cuda" else []), updater.trial(by_layer):
            path.add_gradients(largest, totals_of(path, largest), updater)
        updater.drop_gradients()

    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    ladder.fit(go_through, Message("Before the first step"), updater.drop_gradients)
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0


def longest_rows(rows: Sequence[Example], num_rows: int) -> list[Example]:
    """Return the longest rows, longest first."""
    return sorted(rows, key=lambda example: -example.num_tokens)[:num_rows]
