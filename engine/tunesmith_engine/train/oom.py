"""The out-of-memory ladder: smaller micro-batches, then activation checkpointing, then the end.

The effective batch stays the same on every rung, so the run learns the same thing, only slower.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

import torch

from tunesmith_core.errors import RunFailure


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
        micro_batch_size: rows that go through the model together now.
        activation_checkpointing: whether activations are computed twice now.
    """

    def __init__(
        self,
        micro_batch_size: int,
        activation_checkpointing: bool,
        switch_on_checkpointing: Callable[[], None],
        warn: Callable[[str, str], None],
    ) -> None:
        self.micro_batch_size = micro_batch_size
        self.activation_checkpointing = activation_checkpointing
        self._switch_on_checkpointing = switch_on_checkpointing
        self._warn = warn
        if activation_checkpointing:
            switch_on_checkpointing()

    def restore(self, micro_batch_size: int, activation_checkpointing: bool) -> None:
        """Go back to the rung on which an earlier part of the run ended."""
        self.micro_batch_size = min(self.micro_batch_size, micro_batch_size)
        if activation_checkpointing and not self.activation_checkpointing:
            self._use_checkpointing()

    def step_down(self, reason: str) -> None:
        """Take the next rung. Call it outside the `except` block: the traceback holds the tensors that must go.

        Raises:
            RunFailure: `cuda-oom` when no rung is left.
        """
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if self.micro_batch_size > 1:
            self.micro_batch_size //= 2
            self._warn("cuda-oom", f"{reason} Going on with micro-batches of {self.micro_batch_size}.")
        elif not self.activation_checkpointing:
            self._use_checkpointing()
            self._warn("cuda-oom", f"{reason} Going on with activation checkpointing.")
        else:
            raise RunFailure("cuda-oom", f"{reason} One row with activation checkpointing does not fit either.")

    def _use_checkpointing(self) -> None:
        self.activation_checkpointing = True
        self._switch_on_checkpointing()
