"""The seeds from which the adapters' dropout masks of a micro-batch are computed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

HIGHEST_SEED = 2**62


class Masks:
    """A seed for each adapter that has dropout, drawn anew for each micro-batch from PyTorch's generator on the CPU.

    Its state is in every checkpoint, so a run that resumes draws what it would have drawn. The seeds stay at one place
    on the device, where a CUDA graph of a step reads them.

    Attributes:
        active: whether numbers are dropped at the moment; only a training step does.
    """

    def __init__(self, device: torch.device) -> None:
        self.active = False
        self._device = device
        self._num_masks = 0
        self._seeds = torch.empty(0, device=device, dtype=torch.int64)

    def reserve(self) -> int:
        """Return the number of a new mask. All are reserved before the first step."""
        self._num_masks += 1
        self._seeds = torch.arange(self._num_masks, device=self._device)
        return self._num_masks - 1

    def seed(self, number: int) -> torch.Tensor:
        """Return the seed of a mask, int64 [1] on the device."""
        return self._seeds[number : number + 1]

    @property
    def exist(self) -> bool:
        """Whether any adapter has dropout."""
        return self._num_masks > 0

    def draw(self) -> None:
        """Draw the seeds of a micro-batch."""
        # One key each: neighboring keys of Philox give unrelated numbers.
        first = int(torch.randint(HIGHEST_SEED, ()))
        torch.arange(first, first + self._num_masks, out=self._seeds)

    @contextmanager
    def dropping(self, wanted: bool) -> Iterator[None]:
        """Drop numbers meanwhile."""
        self.active = wanted and self.exist
        try:
            yield
        finally:
            self.active = False
