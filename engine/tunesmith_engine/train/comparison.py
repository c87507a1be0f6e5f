"""A trained model beside its base model, row by row: by how much it improved, and how certain that is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tunesmith_core.evaluations import FEWEST_ROWS
from tunesmith_engine.data import IGNORED_LABEL, Example
from tunesmith_engine.data.asked import Asked, question_in
from tunesmith_engine.distillation.path import DistillationPath
from tunesmith_engine.model.inference import untouched_training
from tunesmith_engine.train.loss import Totals
from tunesmith_engine.train.loss_paths import LossPath, totals_of
from tunesmith_engine.train.rating_path import RatingPath

MOST_ROWS = 128
NUM_RESAMPLES = 2000
Floats = NDArray[np.float64]


def _in_order(examples: Sequence[Example]) -> list[Example]:
    """Return the rows that are compared, in any order but the file's: with little time, only the first are measured."""
    places = np.random.default_rng(0).permutation(len(examples))[:MOST_ROWS]
    return [examples[place] for place in places.tolist()]


def _loss(path: LossPath, row: Example, with_adapter: bool, kl: torch.Tensor | None = None) -> float:
    totals = Totals(1, 1)
    if path.objective is not None or isinstance(path, RatingPath):
        totals = replace(Totals.of([row]), kl=kl)
    return float(path.losses([row], totals, with_adapter)[0])


def losses_of(
    model: Any, path: LossPath, examples: Sequence[Example], device: torch.device, is_over: Callable[[], bool]
) -> list[float]:  # Any: PEFT's model or FullModel
    """Return the losses of rows as the model is, in the order in which `compare` takes them.

    Args:
        model, path, examples, device: as in `compare`.
        is_over: asked before each row; True makes do with the rows so far.
    """
    losses: list[float] = []
    with untouched_training(model, device):
        for row in _in_order(examples):
            if is_over():
                break
            losses.append(_loss(path, row, with_adapter=True) if row.num_trained_tokens else 0.0)
    return losses


def compare(
    model: Any,  # Any: PEFT's model or FullModel
    path: LossPath,
    examples: Sequence[Example],
    device: torch.device,
    is_over: Callable[[], bool],
    before: Sequence[float] | None = None,
) -> dict[str, Any] | None:  # Any: JSON values
    """Return 95 % intervals of differences of the loss per trained token, of pairs per pair, of labels per answer.

    None where too few rows were measured.

    Args:
        model: with its adapter.
        path: computes its loss.
        examples: the held-out rows.
        device: of the model.
        is_over: asked before each row; True makes do with the rows so far.
        before: losses of the base model from `losses_of`, where it can't be asked any more; only their rows are taken.

    Returns:
        "improvement": how far the loss is below the base model's. "dependence": how far the loss of an answer is below
        that of the same answer under another row's prompt; None where rows have no prompts of their own.
    """
    rows = _in_order(examples)
    longest = max((len(row.input_ids) for row in rows), default=0)
    asked = [question_in(row, "asked") for row in rows]
    gains: list[tuple[float, int]] = []
    dependence: list[tuple[float, int]] = []
    rates = isinstance(path, RatingPath)
    of_rows = rates or path.objective is not None
    # Under any question a model may be as near to its teacher.
    has_teacher = isinstance(path, DistillationPath)
    num_known = len(rows) if before is None else len(before)
    with untouched_training(model, device):
        kl = totals_of(path, rows).kl
        for place, row in enumerate(rows[:num_known]):
            if is_over():
                break
            if not (rates or row.num_trained_tokens):
                continue
            after = _loss(path, row, True, kl)
            base = _loss(path, row, with_adapter=False) if before is None else before[place]
            gains.append((base - after, 1 if of_rows else row.num_trained_tokens))
            pair = None if of_rows or has_teacher or row.soft else _swapped(asked, place, longest)
            if pair:
                own, other = pair
                has_one_answer = own.num_trained_tokens == row.num_trained_tokens
                own_loss = after if has_one_answer else _loss(path, own, with_adapter=True)
                dependence.append((_loss(path, other, with_adapter=True) - own_loss, own.num_trained_tokens))
    improvement = interval(*_columns(gains))
    return improvement and {"improvement": improvement, "dependence": interval(*_columns(dependence))}


def compare_rewards(before: Floats, after: Floats) -> dict[str, Any] | None:  # Any: JSON values
    """Return by how much the rewards of answers to the same held-out prompts rose, with its interval; see `compare`."""
    improvement = interval(after - before, np.ones(len(after)))
    return improvement and {"improvement": improvement, "dependence": None}


def _swapped(asked: Sequence[Asked | None], place: int, longest: int) -> tuple[Example, Example] | None:
    """Return the last answer of a row under its own prompt, and under that of the next row which asks otherwise."""
    own = asked[place]
    if own is None or not own.question:
        return None
    for distance in range(1, len(asked)):
        other = asked[(place + distance) % len(asked)]
        differs = other and other.question and other.prompt != own.prompt and other.expected != own.expected
        if other and differs and len(other.prompt) + len(own.expected) <= longest:
            return _joined(own.prompt, own.expected), _joined(other.prompt, own.expected)
    return None


def _joined(prompt: tuple[int, ...], answer: tuple[int, ...]) -> Example:
    return Example(
        np.array([*prompt, *answer], dtype=np.int32),
        np.array([*[IGNORED_LABEL] * len(prompt), *answer], dtype=np.int32),
    )


def _columns(pairs: Sequence[tuple[float, int]]) -> tuple[Floats, Floats]:
    table = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def interval(sums: Floats, weights: Floats) -> dict[str, float] | None:
    """Return a weighted mean with its 95 % bounds from a paired bootstrap over rows; None for fewer than five rows.

    Args:
        sums: of each row, [rows].
        weights: what the sums are divided by, such as the tokens of each row, [rows].
    """
    num = len(sums)
    if num < FEWEST_ROWS or not np.isfinite(sums).all():
        return None
    # The same rows have the same bounds, in whatever order they were measured.
    order = np.lexsort((weights, sums))
    sums, weights = sums[order], weights[order]
    drawn = np.random.default_rng(0).integers(num, size=(NUM_RESAMPLES, num))
    means = sums[drawn].sum(axis=1) / weights[drawn].sum(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return {"mean": float(sums.sum() / weights.sum()), "low": float(low), "high": float(high), "rows": num}
