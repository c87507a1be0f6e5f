"""Answers that are all alike, and labels of which some are rare."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np

from tunesmith_core.messages import Message
from tunesmith_engine.desk.rules import NOTE, WARNING

LEAST_ROWS = 20
"""With fewer answers there is nothing to say of them."""

MOST_LABELS, LEAST_PER_LABEL = 50, 5
"""Answers are labels when there are at most so many different ones, each so often on average."""

SAME_SHARE = 0.3
"""An answer that so many rows share teaches the model to always say it."""

RARE_SHARE = 0.1
"""A label with so few rows for each row of the most frequent one is hardly learned."""


@dataclass(frozen=True, slots=True)
class AnswerProblem:
    """What is wrong with the answers as a whole.

    Attributes:
        rule: a key of RULES.
        severity: of this case.
        message: what is wrong.
        hash: of the answer that the shown rows have.
        num_rows: rows with that answer.
    """

    rule: str
    severity: str
    message: str
    hash: int
    num_rows: int


def answer_problem(hashes: array[int]) -> AnswerProblem | None:
    """Return what is wrong with the answers of the training rows, None for nothing.

    Args:
        hashes: of the answers, 0 for a row without one.
    """
    values = np.frombuffer(hashes, np.int64)
    values = values[values != 0]
    if len(values) < LEAST_ROWS:
        return None
    different, counts = np.unique(values, return_counts=True)
    most, least = int(counts.argmax()), int(counts.argmin())
    num_most, num_least, num_all = int(counts[most]), int(counts[least]), len(values)
    if len(different) == 1:
        message = Message("All {number:,} rows have the same answer.", number=num_all)
        return AnswerProblem("same-answers", WARNING, message, int(different[0]), num_all)
    if len(different) <= MOST_LABELS and num_all >= LEAST_PER_LABEL * len(different):
        if num_least >= RARE_SHARE * num_most:
            return None
        message = Message(
            "There are {number} different answers. Rows with the rarest: {least:,}. "
            "Rows with the most frequent: {most:,}.",
            number=len(different),
            least=num_least,
            most=num_most,
        )
        return AnswerProblem("label-imbalance", NOTE, message, int(different[least]), num_least)
    if num_most >= SAME_SHARE * num_all:
        message = Message("{most:,} of {number:,} rows have the same answer.", most=num_most, number=num_all)
        return AnswerProblem("same-answers", WARNING, message, int(different[most]), num_most)
    return None
