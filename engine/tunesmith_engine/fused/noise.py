"""NEFTune's noise on the embedded tokens of packed rows; see `train/neftune.py`."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from tunesmith_engine.fused.masks import Masks
from tunesmith_engine.kernels.noise import add_noise
from tunesmith_engine.packed.batch import PackedBatch


@dataclass(frozen=True, slots=True)
class Noise:
    """Noise between minus and plus alpha / sqrt(L d) on a row of L tokens that are d wide.

    Attributes:
        alpha: with what the model multiplies its embedding with.
        number: of its seed among those that are drawn for each micro-batch.
    """

    alpha: float
    number: int

    def add(self, batch: PackedBatch, masks: Masks, x: torch.Tensor) -> None:
        """Add it to the embedded tokens of a micro-batch, [T, d]."""
        bounds = batch.documents.bounds
        tokens = torch.arange(batch.num_tokens, device=bounds.device, dtype=torch.int32)
        row = torch.searchsorted(bounds, tokens, right=True) - 1
        lengths = (bounds[1:] - bounds[:-1])[row]
        magnitudes = (self.alpha / math.sqrt(x.shape[1])) * lengths.float().rsqrt()
        add_noise(x, masks.seed(self.number), tokens, magnitudes)
