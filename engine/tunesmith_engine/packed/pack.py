"""Rows behind each other instead of padded: which rows share a micro-batch, and that micro-batch on its device.

Only rows of one optimizer step are packed together, so packing changes neither which rows make up a step nor its loss,
the sum of the token losses over the trained tokens of the step.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tunesmith_core.errors import TunesmithError
from tunesmith_engine.data.example import IGNORED_LABEL, Example
from tunesmith_engine.packed.batch import Documents, PackedBatch, SharedBeginnings, SoftTokens

INT32_LIMIT = 2**31


def pack(examples: Sequence[Example], capacity_tokens: int) -> list[list[Example]]:
    """Put the rows of a step into few micro-batches: best-fit decreasing (Johnson et al., 1974). A pair stays together.

    Args:
        examples: rows, each of at most capacity_tokens tokens to compute.
        capacity_tokens: most tokens of a micro-batch.

    Returns:
        The micro-batches in the order in which they were begun. Every row is in exactly one, and the same rows in the
        same order give the same answer.

    Raises:
        BugError: a row is empty or longer than the capacity.
    """
    bins: list[list[Example]] = []
    # (free tokens, number of the bin), ascending: the first entry that is large enough is the best fit.
    open_bins: list[tuple[int, int]] = []
    sized = sorted(((example.num_computed_tokens, example) for example in examples), key=lambda row: -row[0])
    for length, example in sized:
        if not 0 < length <= capacity_tokens:
            raise TunesmithError(
                "bug",
                "A row of {length} tokens can't go into a micro-batch of {capacity_tokens}.",
                length=length,
                capacity_tokens=capacity_tokens,
            )
        place = bisect.bisect_left(open_bins, (length, -1))
        if place == len(open_bins):
            free, number = capacity_tokens, len(bins)
            bins.append([])
        else:
            free, number = open_bins.pop(place)
        bins[number].append(example)
        if free > length:
            bisect.insort(open_bins, (free - length, number))
    return bins


def make_packed_batch(
    examples: Sequence[Example],
    device: torch.device,
    num_tokens: int | None = None,
    num_documents: int | None = None,
    num_trained: int | None = None,
    max_length: int | None = None,
) -> PackedBatch:
    """Build a micro-batch; the copy to a GPU does not wait. Both answers of a pair are documents, one behind the other.

    What both begin with is computed once, see `SharedBeginnings`.

    The last token of a row predicts nothing, so no row learns from the next one. A captured graph wants fixed sizes:
    missing tokens become documents of their own, none longer than the longest row; missing documents are empty; missing
    trained places repeat the last one with target -100.

    Args:
        examples: the rows, at least one, none empty.
        device: where the batch shall be.
        num_tokens, num_documents, num_trained: fixed sizes; None takes what the rows need.
        max_length: bound of the lengths to declare; None takes the longest row.

    Raises:
        BugError: a fixed size is too small, or the bounds of the documents are not sound.
    """
    sequences = [sequence for example in examples for sequence in example.sequences]
    lengths = [len(sequence.input_ids) for sequence in sequences]
    num_real, longest = sum(lengths), max_length or max(lengths)
    missing = (num_real if num_tokens is None else num_tokens) - num_real
    # No longer than a row: some models take another rotary table for longer texts.
    filler = max(lengths)
    lengths += [filler] * (missing // filler) + [missing % filler] * (missing % filler > 0)
    bounds = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    check_bounds(bounds, num_real + missing, longest)
    input_ids = np.zeros(num_real + missing, np.int64)
    next_labels = np.full(num_real + missing, IGNORED_LABEL, np.int64)
    input_ids[:num_real] = np.concatenate([sequence.input_ids for sequence in sequences])
    next_labels[: num_real - 1] = np.concatenate([sequence.labels for sequence in sequences])[1:]
    next_labels[bounds[1:] - 1] = IGNORED_LABEL
    positions = np.arange(num_real + missing, dtype=np.int64) - np.repeat(bounds[:-1], lengths)
    shared = _shared_beginnings(examples, num_real + missing)
    if shared:
        input_ids, next_labels, positions = (part[shared[1]] for part in (input_ids, next_labels, positions))
    trained_rows = np.flatnonzero(next_labels != IGNORED_LABEL).astype(np.int64)
    targets = next_labels[trained_rows]
    last_row = trained_rows[-1] if len(trained_rows) else 0
    parts = (
        input_ids,
        positions,
        _filled(bounds.astype(np.int32), num_documents and num_documents + 1, bounds[-1], "documents"),
        _filled(trained_rows, num_trained, last_row, "trained places"),
        _filled(targets, num_trained, IGNORED_LABEL, "trained places"),
    )
    ids, places, device_bounds, rows, next_tokens = (to_device(part, device) for part in parts)
    beginnings = SharedBeginnings(*(to_device(part, device) for part in shared)) if shared else None
    documents = Documents(device_bounds, tuple(lengths), longest, beginnings)
    return PackedBatch(ids, places, documents, rows, next_tokens, soft_tokens(examples, device, num_trained))


def soft_tokens(
    examples: Sequence[Example], device: torch.device, num_trained: int | None = None
) -> SoftTokens | None:
    """Return the soft targets of rows, those of one row behind those of the one before; None where they have none.

    Args:
        examples: the rows, all with soft targets or all without.
        device: where they shall be.
        num_trained: a fixed number of places; None takes what the rows need.
    """
    known = [example.soft for example in examples if example.soft is not None]
    if not known:
        return None
    counts = np.concatenate([each.counts for each in known])
    is_given = np.arange(max(each.most for each in known)) < counts[:, None]
    shares = np.zeros(is_given.shape, np.float32)
    shares[is_given] = np.concatenate([each.shares for each in known])
    given = np.concatenate([each.ids for each in known])
    ids = np.repeat(given[np.cumsum(counts) - counts].astype(np.int64)[:, None], is_given.shape[1], axis=1)
    ids[is_given] = given
    missing = (len(counts) if num_trained is None else num_trained) - len(counts)
    padded = (np.concatenate([part, np.zeros((missing, part.shape[1]), part.dtype)]) for part in (ids, shares))
    return SoftTokens(*(to_device(part, device) for part in padded))


def _shared_beginnings(examples: Sequence[Example], num_tokens: int) -> tuple[NDArray[np.int64], ...] | None:
    """Return what pairs share, see `SharedBeginnings` for the parts and their order; None if they share nothing.

    Args:
        examples: rows behind each other.
        num_tokens: their tokens and those that fill up behind them.
    """
    again, sources, start = [], [], 0
    for example in examples:
        places = np.arange(example.num_shared_tokens)
        sources.append(start + places)
        again.append(start + len(example.input_ids) + places)
        start += example.num_tokens
    repeated = np.concatenate(again)
    if not len(repeated):
        return None
    is_first = np.ones(num_tokens, np.bool_)
    is_first[repeated] = False
    rows = np.cumsum(is_first) - 1
    rows[repeated] = rows[np.concatenate(sources)]
    return rows, np.flatnonzero(is_first), repeated, rows[repeated]


def check_bounds(bounds: NDArray[np.int64], num_tokens: int, max_length: int) -> None:
    """Check the bounds of documents before a kernel trusts them.

    Args:
        bounds: start of each document and the end of the last, [num_documents + 1].
        num_tokens: tokens that the documents must cover.
        max_length: declared bound of their lengths.

    Raises:
        BugError: the bounds would lead a kernel past its documents.
    """
    lengths = np.diff(bounds)
    if num_tokens >= INT32_LIMIT:
        raise TunesmithError(
            "bug", "{num_tokens} tokens in one micro-batch are too many for 32-bit bounds.", num_tokens=num_tokens
        )
    if not len(lengths) or bounds[0] != 0 or bounds[-1] != num_tokens:
        raise TunesmithError(
            "bug", "The documents of a micro-batch don't cover its {num_tokens} tokens.", num_tokens=num_tokens
        )
    if lengths.min() <= 0 or lengths.max() > max_length:
        raise TunesmithError(
            "bug",
            "A document of a micro-batch has no token, or more than the declared {max_length}.",
            max_length=max_length,
        )


def _filled(values: NDArray[Any], size: int | None, filler: int, what: str) -> NDArray[Any]:
    """Return values with as many fillers behind them as a fixed size wants."""
    missing = (len(values) if size is None else size) - len(values)
    if missing < 0:
        raise TunesmithError("bug", "A micro-batch has more {what} than the fixed size has room for.", what=what)
    return np.concatenate((values, np.full(missing, filler, values.dtype)))


def to_device(values: NDArray[Any], device: torch.device) -> torch.Tensor:
    """Return values as a tensor; the copy to a GPU does not wait."""
    tensor = torch.from_numpy(values)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor
