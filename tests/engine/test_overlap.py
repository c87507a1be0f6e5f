"""Rows that occur twice: found word for word and nearly, and a shared template is no copy."""

from __future__ import annotations

import numpy as np
import pytest

from tunesmith_engine.data import IGNORED_LABEL, Example
from tunesmith_engine.data.overlap import num_distinct, num_leaked


def row(prompt: str, answer: str) -> Example:
    ids = np.array([ord(letter) for letter in prompt + answer], dtype=np.int32)
    labels = np.where(np.arange(len(ids)) >= len(prompt), ids, IGNORED_LABEL).astype(np.int32)
    return Example(ids, labels)


SYSTEM = "You are a friendly assistant that answers briefly. "
ROWS = [row(f"{SYSTEM}Tell me of {word * 3}?", f"It is {word[::-1] * 4}.") for word in "alpha beta gamma delta".split()]


@pytest.mark.parametrize(
    ("held_out", "leaked"),
    [
        (row(f"{SYSTEM}Tell me of alphaalphaalpha?", "It is ahplaahplaahplaahpla."), 1),
        (row(f"{SYSTEM}Tell me of alphaalphaalpha!", "It is ahplaahplaahplaahpla"), 1),
        (row(f"{SYSTEM}Tell me of omegaomegaomega?", "It is agemoagemoagemoagemo."), 0),
        (row(f"{SYSTEM}What would you say about alp?", "It is ahplaahplaahplaahpla."), 0),
        (row(f"{SYSTEM}Tell me of alphaalphaalpha?", "Nobody can say what this may be, or may not be."), 0),
        (row("a", "b"), 0),
    ],
)
def test_a_copy_has_the_same_question_and_answer(held_out: Example, leaked: int) -> None:
    assert num_leaked(ROWS, [held_out]) == leaked
    assert num_leaked(ROWS, [held_out, ROWS[2]]) == leaked + 1


def test_rows_that_differ_are_counted() -> None:
    assert num_distinct([*ROWS, *ROWS[:2]]) == 4
    assert num_leaked(ROWS, []) == 0
    assert num_leaked([row("a", "b")], [row("c", "d")]) == 0
    first, *worse = ROWS
    pairs = [Example(first.input_ids, first.labels, rejected) for rejected in worse]
    assert num_distinct([*pairs, pairs[0]]) == 3, "of one better answer, the worse ones differ"
