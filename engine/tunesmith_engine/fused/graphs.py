"""Whole steps captured in CUDA graphs: where a GPU is faster than the host can launch, the launches are replayed.

A graph serves batches of one size. Rows of varied lengths seldom add up to the same number twice, so their batches are
filled up to a few sizes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from tunesmith_engine.packed.batch import Documents, PackedBatch, SoftTokens
from tunesmith_engine.shapes import ModelShape, SparseShape

HOST_S_PER_LAYER = 2e-3
"""What the host needs to launch a layer forward and backward. Beside an H200 (2026-11-21) 28 layers of Qwen3-0.6B
took 68 ms where the GPU needed 23; since then launches have become cheaper. A GPU that needs longer is kept busy
without a graph."""

HOST_S_PER_MIXTURE = 7e-3
"""The same of a layer with experts: 8 layers of Qwen3 30B A3B took 61 to 115 ms beside two H200s (2026-11-28), of which
the GPU needed 50."""

MOST_TOKENS = 16384
"""Gaps between the kernels of larger batches are nothing beside the kernels. At 8,192 tokens of Llama-3.1-8B in NF4 an
H200 took 465 ms by a graph and 473 to 487 ms without (2026-11-21)."""

MOST_GRAPHS = 16
LEAST_TOKENS = 256
LEAST_DOCUMENTS = 32
LEAST_LENGTH = 512
TOKEN_STEPS = 8
TRAINED_STEPS = 4
"""Sizes in an octave."""
Key = tuple[int, int, int, int, int | None, int]
Step = Callable[[PackedBatch, torch.Tensor], torch.Tensor]


def fixed_sizes(lengths: Sequence[int], num_trained: int, capacity_tokens: int) -> dict[str, int]:
    """Return to which sizes a batch is filled up so that few graphs serve many batches.

    Tokens are rounded up to eighths of an octave, which adds 5 % on average; trained places, which only the head
    sees, to quarters. Documents and the bound of their lengths decide how many empty blocks attention's kernels start,
    so steps of a factor of 4 do. Rows of one length keep their number and length, for which attention is faster.

    Args:
        lengths: tokens of each row.
        num_trained: trained places of all rows.
        capacity_tokens: no batch gets more tokens.

    Returns:
        Arguments of `make_packed_batch`.
    """
    num_trained = _rounded_up(num_trained, TRAINED_STEPS)
    if len(set(lengths)) == 1:
        return {"num_trained": num_trained}
    num_tokens = min(_rounded_up(sum(lengths), TOKEN_STEPS), capacity_tokens)
    max_length = min(_quadrupled(LEAST_LENGTH, max(lengths)), num_tokens)
    num_fillers = -(-(num_tokens - sum(lengths)) // max(lengths))
    return {
        "num_tokens": num_tokens,
        "num_documents": _quadrupled(LEAST_DOCUMENTS, len(lengths) + num_fillers),
        "num_trained": num_trained,
        "max_length": max_length,
    }


def launching_s(shape: ModelShape) -> float:
    """Return the seconds in which the host launches all layers, forward and backward."""
    each = (HOST_S_PER_MIXTURE if isinstance(layer.mlp, SparseShape) else HOST_S_PER_LAYER for layer in shape.layers)
    return sum(each)


def most_tokens(gpu_s_per_token: float, host_s: float) -> int:
    """Return the tokens of the largest batch whose step the GPU computes faster than the host launches it.

    Args:
        gpu_s_per_token: predicted, of all layers forward and backward.
        host_s: see `launching_s`.
    """
    return int(host_s / gpu_s_per_token)


def _rounded_up(number: int, steps_per_octave: int) -> int:
    number = max(number, LEAST_TOKENS)
    step = (1 << (number - 1).bit_length() - 1) // steps_per_octave
    return -(-number // step) * step


def _quadrupled(least: int, number: int) -> int:
    while least < number:
        least *= 4
    return least


@dataclass(slots=True)
class Captured:
    """A graph with the memory from which it reads and into which it writes."""

    graph: torch.cuda.CUDAGraph
    batch: PackedBatch
    scale: torch.Tensor
    loss: torch.Tensor


class StepGraphs:
    """Runs steps; from the second time on that a batch of the same sizes comes, by a graph.

    The first time warms up what is built lazily: compiled kernels, workspaces of libraries.

    Args:
        step: does a step eagerly.
        may_hold: whether a graph of a batch serves others of the same sizes.
        most_tokens: of a batch that is filled up to be captured.
        settle: ends what half a step has begun on other streams; a capture can't end without.
    """

    def __init__(
        self, step: Step, may_hold: Callable[[PackedBatch], bool], most_tokens: int, settle: Callable[[], None]
    ) -> None:
        self._step, self._may_hold, self._settle = step, may_hold, settle
        self.most_tokens = most_tokens
        self._seen: set[Key] = set()
        self._refused: set[Key] = set()
        self._captured: dict[Key, Captured] = {}
        self._pool: tuple[int, int] | None = None

    def run(self, batch: PackedBatch, scale: torch.Tensor) -> torch.Tensor:
        """Do the step for a batch; the loss belongs to the caller."""
        key = _key(batch)
        captured = self._captured.get(key) or self._new(key, batch, scale)
        if captured is None:
            return self._step(batch, scale)
        for ours, given in zip(_tensors(captured.batch), _tensors(batch), strict=True):
            ours.copy_(given, non_blocking=True)
        captured.scale.copy_(scale, non_blocking=True)
        captured.graph.replay()
        return captured.loss.clone()

    def _new(self, key: Key, batch: PackedBatch, scale: torch.Tensor) -> Captured | None:
        """Capture a step whose size came back, if that pays and has room."""
        if key not in self._seen or key in self._refused:
            self._seen.add(key)
            return None
        if len(self._captured) >= MOST_GRAPHS or not self._may_capture(batch):
            return None
        with contextlib.suppress(torch.OutOfMemoryError):
            self._captured[key] = self._capture(batch, scale)
            return self._captured[key]
        # A graph's own pool finds no room. Nothing has been computed yet, and what the error held is free by now.
        self._refused.add(key)
        torch.cuda.empty_cache()
        return None

    def _may_capture(self, batch: PackedBatch) -> bool:
        """Return whether a batch of a size that came back is captured.

        Rows of one length come back by themselves, and even a busy GPU gains: fewer gaps between its kernels.
        """
        comes_back = batch.documents.equal_length is not None and batch.num_tokens <= MOST_TOKENS
        return (comes_back or batch.num_tokens <= self.most_tokens) and self._may_hold(batch)

    def _capture(self, batch: PackedBatch, scale: torch.Tensor) -> Captured:
        documents = batch.documents
        ids, positions, bounds, rows, targets, *soft = (tensor.clone() for tensor in _tensors(batch))
        fixed_documents = Documents(bounds, documents.lengths, documents.max_length)
        fixed = PackedBatch(ids, positions, fixed_documents, rows, targets, SoftTokens(*soft) if soft else None)
        own_scale = scale.clone()
        graph = torch.cuda.CUDAGraph()
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        # What the step before allocated would lie idle beside the graph's own pool.
        torch.cuda.empty_cache()
        with torch.cuda.graph(graph, pool=self._pool):
            try:
                loss = self._step(fixed, own_scale)
            except torch.OutOfMemoryError:
                self._settle()
                raise
        return Captured(graph, fixed, own_scale, loss)


def _key(batch: PackedBatch) -> Key:
    documents = batch.documents
    num_bounds, num_trained = documents.bounds.shape[0], batch.trained_rows.shape[0]
    num_soft = batch.soft.ids.shape[1] if batch.soft else 0
    return batch.num_tokens, num_bounds, num_trained, documents.max_length, documents.equal_length, num_soft


def _tensors(batch: PackedBatch) -> tuple[torch.Tensor, ...]:
    soft = (batch.soft.ids, batch.soft.shares) if batch.soft else ()
    return batch.input_ids, batch.positions, batch.documents.bounds, batch.trained_rows, batch.targets, *soft
