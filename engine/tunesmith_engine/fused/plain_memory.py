"""What modules that run as written take of memory beside their input and output: measured, for nobody else knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tunesmith_engine.data.example import Example
from tunesmith_engine.fused.plain_documents import PlainDocuments
from tunesmith_engine.packed.batch import PackedBatch
from tunesmith_engine.packed.pack import make_packed_batch

LONGEST = 512
"""Tokens of the longest text that is tried."""

SHARES = (4, 2, 1)
"""The others are so many times shorter."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Bytes by tokens.

    Attributes:
        fixed: whatever the tokens, such as weights that are unpacked.
        per_token: of each.
        per_pair: of each token times the tokens of its text, such as shares of attention.
    """

    fixed: float
    per_token: float
    per_pair: float

    @staticmethod
    def through(lengths: Sequence[int], sizes: Sequence[float]) -> Growth:
        """Return the growth that has given sizes for texts of three lengths; nothing shrinks with more tokens."""
        first, middle, last = lengths
        steps = [(sizes[1] - sizes[0]) / (middle - first), (sizes[2] - sizes[1]) / (last - middle)]
        per_pair = max(0.0, (steps[1] - steps[0]) / (last - first))
        per_token = max(0.0, steps[1] - per_pair * (last + middle))
        return Growth(max(0.0, sizes[2] - per_token * last - per_pair * last**2), per_token, per_pair)

    def num_bytes(self, num_tokens: int, longest: int) -> int:
        """Return the bytes of so many tokens, in texts of at most `longest`."""
        return round(self.fixed + num_tokens * (self.per_token + self.per_pair * longest))


def growth_of(part: PlainDocuments, longest: int, device: torch.device, dtype: torch.dtype) -> Growth:
    """Try a module on texts no longer than a run's, forward and backward; no gradient of a weight is touched."""
    lengths = [max(SHARES[0], min(longest, LONGEST)) // share for share in SHARES]
    return Growth.through(lengths, [_peak_bytes(part, length, device, dtype) for length in lengths])


def _peak_bytes(part: PlainDocuments, length: int, device: torch.device, dtype: torch.dtype) -> int:
    ids = np.arange(length, dtype=np.int32) % 64
    batch = make_packed_batch([Example(ids, ids)], device)
    x = torch.zeros(length, part.num_inputs, device=device, dtype=dtype)
    if device.type != "cuda":
        return _saved_bytes(part, batch, x)
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    part.try_once(batch, x)
    return torch.cuda.max_memory_allocated(device) - before


def _saved_bytes(part: PlainDocuments, batch: PackedBatch, x: torch.Tensor) -> int:
    """Return what autograd keeps of a forward pass; a processor's memory has no peak to read."""
    weights = {weight.untyped_storage().data_ptr() for weight in part.modules[0].parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        part.try_once(batch, x)
    return sum(kept.values())
