"""A model beside its base model, row by row: the interval, the answers under other questions, and the time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.engine.fused.test_model import CPU
from tunesmith_core.evaluations import FEWEST_ROWS
from tunesmith_engine.data import IGNORED_LABEL, Example
from tunesmith_engine.train.comparison import MOST_ROWS, compare, interval
from tunesmith_engine.train.loss import Totals


def row(prompt: int, answer: int, num_prompt: int = 3, num_answer: int = 2) -> Example:
    """Make a row whose prompt and answer are one token each, repeated."""
    ids = np.array([prompt] * num_prompt + [answer] * num_answer, dtype=np.int32)
    return Example(ids, np.where(np.arange(len(ids)) >= num_prompt, ids, IGNORED_LABEL).astype(np.int32))


class Path:
    """A model that expects the answer 100 + prompt, and a base model that expects nothing."""

    objective = None

    def __init__(self) -> None:
        self.num_measured = 0
        self.lengths: list[int] = []

    def losses(self, portion: list[Example], totals: Totals, with_adapter: bool) -> torch.Tensor:
        [example] = portion
        self.num_measured += 1
        self.lengths.append(len(example.input_ids))
        prompt, answer = int(example.input_ids[0]), int(example.input_ids[-1])
        per_token = 1.0 if with_adapter and answer == 100 + prompt else 4.0 if with_adapter else 3.0
        return torch.tensor([per_token * example.num_trained_tokens / totals.num_trained_tokens])


def measured(rows: list[Example], path: Path | None = None, most: int = 10**9) -> dict[str, Any] | None:
    path = path or Path()
    return compare(torch.nn.Linear(1, 1), path, rows, CPU, lambda: path.num_measured >= most)  # type: ignore[arg-type]


def test_gain_and_dependence_are_per_token() -> None:
    found = measured([row(prompt, 100 + prompt, num_answer=1 + prompt % 3) for prompt in range(20)])
    assert found is not None
    assert found["improvement"] == {"mean": 2.0, "low": 2.0, "high": 2.0, "rows": 20}
    assert found["dependence"]["mean"] == pytest.approx(3.0)


def test_rows_that_ask_the_same_tell_nothing_of_dependence() -> None:
    for rows in ([row(1, 101)] * 9, [row(prompt, 50) for prompt in range(9)], [row(0, 7, num_prompt=0)] * 9):
        found = measured(rows)
        assert found is not None
        assert found["dependence"] is None


def test_rows_without_a_question_are_asked_no_other() -> None:
    asking = [row(prompt, 100 + prompt) for prompt in range(6)]
    found = measured([*asking, *(row(0, 50 + number, num_prompt=0) for number in range(7))])
    assert found is not None
    assert (found["improvement"]["rows"], found["dependence"]["rows"]) == (13, 6)


def test_no_swapped_row_is_longer_than_the_rows_are() -> None:
    path = Path()
    longest = [row(prompt, 100 + prompt, *((3, 20) if prompt % 2 else (20, 3))) for prompt in range(12)]
    found = measured([*longest, row(12, 112, 4, 20)], path)
    assert found is not None
    assert found["dependence"]["rows"] == 13, "every row has another of its kind"
    assert max(path.lengths) == 24, "as long as the longest row, and no longer"


def test_few_rows_and_little_time() -> None:
    assert measured([]) is None
    assert measured([row(prompt, 100 + prompt) for prompt in range(FEWEST_ROWS - 1)]) is None
    many = [row(prompt, 100 + prompt) for prompt in range(MOST_ROWS * 2)]
    found = measured(many)
    assert found is not None
    assert found["improvement"]["rows"] == MOST_ROWS
    found = measured(many, most=30)
    assert found is not None
    assert found["improvement"]["rows"] == 10, "three losses a row"
    untrained = Example(np.zeros(3, np.int32), np.full(3, IGNORED_LABEL, np.int32))
    assert measured([untrained] * 9) is None


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    draw = np.random.default_rng(1)
    hits = 0
    for _ in range(200):
        values = draw.normal(0.4, 1.0, size=60)
        found = interval(values, np.ones(60))
        assert found is not None
        hits += found["low"] <= 0.4 <= found["high"]
    assert 180 <= hits <= 199
    assert interval(np.array([1.0, np.nan] * 5), np.ones(10)) is None


def test_the_order_of_the_rows_changes_no_bound() -> None:
    rng = np.random.default_rng(1)
    sums, weights = rng.normal(0.5, 1.0, 12), rng.integers(1, 9, 12).astype(np.float64)
    order = rng.permutation(12)
    assert interval(sums, weights) == pytest.approx(interval(sums[order], weights[order]))
