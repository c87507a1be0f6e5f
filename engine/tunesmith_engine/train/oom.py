"""The out-of-memory ladder: smaller micro-batches and fewer kept activations, the cheaper first, then the end.

The effective batch stays the same on every rung, so the run learns the same thing, only slower.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TypeVar

import torch

from tunesmith_core.errors import TunesmithError
from tunesmith_core.memory_steps import FEWER_ACTIVATIONS, MEMORY_STEPS, MICRO_BATCH
from tunesmith_core.messages import Message
from tunesmith_engine.train.loss_paths import LossPath

Result = TypeVar("Result")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that GPU or host memory is used up."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and (
        "DefaultCPUAllocator: can't allocate memory" in text or "CUBLAS_STATUS_ALLOC_FAILED" in text
    )


class MemoryLadder:
    """Holds the present rung.

    Attributes:
        micro_batch_size: rows that go through the model together now, or their tokens where rows are packed.
        num_kept_less: how many times the path was told to keep fewer activations.
        path: what shall take less memory; None until it is open, then only its micro-batches can get smaller.
    """

    def __init__(self, micro_batch_size: int, warn: Callable[[str, str], None]) -> None:
        self.micro_batch_size = micro_batch_size
        self.num_kept_less = 0
        self.path: LossPath | None = None
        self._warn = warn

    def restore(self, micro_batch_size: int, num_kept_less: int) -> None:
        """Go back to the rung on which an earlier part of the run ended."""
        self._use(min(micro_batch_size, self.micro_batch_size))
        while self.num_kept_less < num_kept_less and self._keep_less():
            pass

    def fit(self, work: Callable[[], Result], where: str, clean_up: Callable[[], None] | None = None) -> Result:
        """Do the work, stepping down until it fits.

        Args:
            work: what may lack memory; it is begun anew on each rung.
            where: begins the sentence of a warning.
            clean_up: called before each new attempt.

        Raises:
            RunFailure: `cuda-oom` when no rung is left.
        """
        while True:
            try:
                return work()
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                reason = str(error).partition("\n")[0][:200]
            # Outside of the `except` block: the traceback holds the tensors that must go.
            if clean_up:
                clean_up()
            self.step_down(Message("{where}: {reason}", where=where, reason=reason))

    def step_down(self, reason: str) -> None:
        """Take the next rung.

        Raises:
            RunFailure: `cuda-oom` when no rung is left.
        """
        while True:
            _free_caches()
            try:
                words = self._next_rung()
            except (RuntimeError, MemoryError) as error:
                # The buffers of this rung don't fit either.
                if not is_out_of_memory(error):
                    raise
            else:
                break
        if words is None:
            raise TunesmithError(
                "cuda-oom",
                "{reason} Even one example at a time with the fewest activations does not fit.",
                reason=reason,
            )
        self._warn("cuda-oom", Message("{reason} {words}", reason=reason, words=words))

    def _next_rung(self) -> str | None:
        ways = {MICRO_BATCH: self._smaller, FEWER_ACTIVATIONS: self._keep_less}
        steps = [step for step in MEMORY_STEPS if step.by_engine]
        if self.path and self.path.keeps_less_first:
            steps.reverse()
        return next((words for step in steps if (words := ways[step]())), None)

    def _smaller(self) -> str | None:
        while self.micro_batch_size > 1:
            # The memory plan may have divided the rows already: then a smaller number changes nothing at first.
            if self._use(self.micro_batch_size // 2):
                step = MICRO_BATCH.label({"schedule.micro_batch_size": self.micro_batch_size})
                return Message("Continuing with {step}.", step=step)
        return None

    def _use(self, micro_batch_size: int) -> bool:
        """Take so many rows at a time; return whether that is less than before."""
        self.micro_batch_size = micro_batch_size
        return self.path is None or self.path.use_micro_batch_size(micro_batch_size)

    def _keep_less(self) -> str | None:
        words = self.path.keep_less() if self.path else None
        self.num_kept_less += words is not None
        return words


def _free_caches() -> None:
    gc.collect()
    # Does nothing where no GPU is used.
    torch.cuda.empty_cache()
