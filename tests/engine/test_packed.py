"""Packing: few micro-batches, every row once, and the same bookkeeping as of each row alone."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from tunesmith_core.errors import BugError
from tunesmith_engine.data import IGNORED_LABEL, Example
from tunesmith_engine.packed.pack import check_bounds, make_packed_batch, pack

CPU = torch.device("cpu")


def row(length: int, first: int = 1, trained: slice = slice(0, None)) -> Example:
    """A row whose tokens count up from `first`; the tokens of a slice count for the loss."""
    input_ids = np.arange(first, first + length, dtype=np.int32)
    labels = np.full(length, IGNORED_LABEL, np.int32)
    labels[trained] = input_ids[trained]
    return Example(input_ids, labels)


def random_rows(seed: int, num_rows: int, longest: int) -> list[Example]:
    """Rows of random lengths, tokens and trained parts."""
    numbers = random.Random(seed)
    rows = []
    for _ in range(num_rows):
        length = numbers.randint(1, longest)
        start = numbers.randint(0, length)
        rows.append(row(length, numbers.randint(1, 1000), slice(start, numbers.randint(start, length))))
    return rows


@pytest.mark.parametrize("seed", range(20))
def test_every_row_is_packed_once_within_the_capacity(seed: int) -> None:
    rows = random_rows(seed, 40, 100)
    capacity = random.Random(seed).randint(100, 400)
    bins = pack(rows, capacity)
    assert sorted(id(example) for found in bins for example in found) == sorted(id(example) for example in rows)
    sizes = [sum(len(example.input_ids) for example in found) for found in bins]
    assert max(sizes) <= capacity
    # Best fit opens no bin while two could be one.
    assert sum(sorted(sizes)[:2]) > capacity or len(bins) == 1
    again = pack(rows, capacity)
    assert [[id(example) for example in found] for found in again] == [[id(e) for e in found] for found in bins]


def test_best_fit_takes_the_fullest_bin_that_has_room() -> None:
    bins = pack([row(length) for length in (30, 60, 70, 40)], 100)
    assert [[len(example.input_ids) for example in found] for found in bins] == [[70, 30], [60, 40]]


def test_rows_of_one_token_fill_a_bin() -> None:
    rows = [row(1) for _ in range(9000)]
    assert [len(found) for found in pack(rows, 8192)] == [8192, 808]
    assert pack([], 100) == []


@pytest.mark.parametrize("length", [0, 101])
def test_a_row_that_never_fits_is_refused(length: int) -> None:
    with pytest.raises(BugError, match="can't go into a micro-batch of 100"):
        pack([row(length)], 100)


@pytest.mark.parametrize("seed", range(20))
def test_packed_rows_are_what_each_row_is_alone(seed: int) -> None:
    rows = random_rows(seed, 12, 30)
    batch = make_packed_batch(rows, CPU)
    bounds = batch.documents.bounds
    assert (bounds.dtype, batch.input_ids.dtype, batch.targets.dtype) == (torch.int32, torch.int64, torch.int64)
    assert batch.documents.lengths == tuple(len(example.input_ids) for example in rows)
    assert batch.documents.max_length == max(batch.documents.lengths)
    assert bounds.tolist() == [0, *np.cumsum(batch.documents.lengths).tolist()]
    found = dict(zip(batch.trained_rows.tolist(), batch.targets.tolist(), strict=True))
    assert len(found) == len(batch.trained_rows)
    assert batch.trained_rows.tolist() == sorted(found)
    for example, start in zip(rows, bounds.tolist()[:-1], strict=True):
        alone = make_packed_batch([example], CPU)
        end = start + alone.num_tokens
        assert batch.input_ids[start:end].tolist() == alone.input_ids.tolist() == example.input_ids.tolist()
        assert batch.positions[start:end].tolist() == alone.positions.tolist() == list(range(alone.num_tokens))
        expected = {t: int(example.labels[t + 1]) for t in range(end - start - 1) if example.labels[t + 1] >= 0}
        assert dict(zip(alone.trained_rows.tolist(), alone.targets.tolist(), strict=True)) == expected
        assert {t - start: found[t] for t in found if start <= t < end} == expected
    assert len(found) == sum(example.num_trained_tokens for example in rows)


def test_the_order_of_rows_only_moves_them() -> None:
    rows = random_rows(5, 8, 20)
    forwards, backwards = make_packed_batch(rows, CPU), make_packed_batch(rows[::-1], CPU)
    assert sorted(forwards.targets.tolist()) == sorted(backwards.targets.tolist())
    assert forwards.documents.lengths == backwards.documents.lengths[::-1]


def test_the_last_token_of_a_row_predicts_nothing() -> None:
    batch = make_packed_batch([row(3), row(1, 50), row(2, 90)], CPU)
    assert batch.trained_rows.tolist() == [0, 1, 4]
    assert batch.targets.tolist() == [2, 3, 91]
    assert make_packed_batch([row(1)], CPU).trained_rows.shape == (0,)


def test_equally_long_rows_say_so() -> None:
    assert make_packed_batch([row(7), row(7)], CPU).documents.equal_length == 7
    assert make_packed_batch([row(7), row(6)], CPU).documents.equal_length is None


def test_fixed_sizes_are_filled_up_with_what_teaches_nothing() -> None:
    rows = [row(5), row(3, 20)]
    batch = make_packed_batch(rows, CPU, num_tokens=20, num_documents=7, num_trained=9, max_length=8)
    # No filler is longer than a row, which could call for another rotary table.
    assert batch.documents.lengths == (5, 3, 5, 5, 2)
    assert batch.documents.max_length == 8
    assert batch.documents.bounds.tolist() == [0, 5, 8, 13, 18, 20, 20, 20]
    assert batch.positions.tolist() == [*range(5), *range(3), *range(5), *range(5), *range(2)]
    assert batch.input_ids[8:].tolist() == [0] * 12
    assert batch.trained_rows.tolist() == [0, 1, 2, 3, 5, 6, 6, 6, 6]
    assert batch.targets.tolist() == [2, 3, 4, 5, 21, 22, IGNORED_LABEL, IGNORED_LABEL, IGNORED_LABEL]
    nothing = make_packed_batch([row(1)], CPU, num_trained=2)
    assert (nothing.trained_rows.tolist(), nothing.targets.tolist()) == ([0, 0], [IGNORED_LABEL] * 2)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"num_tokens": 7}, "don't cover"),
        ({"num_documents": 1}, "more documents"),
        ({"num_trained": 5}, "more trained places"),
        ({"max_length": 4}, "more than the declared 4"),
    ],
)
def test_fixed_sizes_that_are_too_small_are_refused(sizes: dict[str, int], words: str) -> None:
    with pytest.raises(BugError, match=words):
        make_packed_batch([row(5), row(3)], CPU, **sizes)


@pytest.mark.parametrize(
    ("bounds", "num_tokens", "words"),
    [
        ([0, 4, 4, 8], 8, "no token"),
        ([0, 6, 4, 8], 8, "no token"),
        ([1, 4, 8], 8, "don't cover"),
        ([0, 4, 7], 8, "don't cover"),
        ([0], 0, "don't cover"),
        ([0, 2**31], 2**31, "32-bit"),
    ],
)
def test_unsound_bounds_are_refused(bounds: list[int], num_tokens: int, words: str) -> None:
    with pytest.raises(BugError, match=words):
        check_bounds(np.array(bounds), num_tokens, 2**32)


def test_more_than_8000_documents_are_one_batch() -> None:
    rows = [row(1 + number % 2, number) for number in range(1, 8402)]
    batch = make_packed_batch(rows, CPU)
    assert len(batch.documents.lengths) == 8401
    assert batch.trained_rows.tolist() == [
        start for start, n in zip(batch.documents.bounds.tolist(), batch.documents.lengths, strict=False) if n == 2
    ]
