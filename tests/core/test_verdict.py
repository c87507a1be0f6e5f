"""The sentence about a run: right on curves whose meaning is known."""

from __future__ import annotations

import pytest

from tunesmith_core.verdict import Outcome, judge


@pytest.mark.parametrize(
    ("losses", "outcome", "best_step", "words"),
    [
        ({}, Outcome.UNMEASURED, None, "no held-out rows were measured"),
        ({0: 2.0}, Outcome.UNMEASURED, None, "no held-out rows were measured"),
        ({10: 2.0, 20: 1.0}, Outcome.UNMEASURED, None, "no held-out rows were measured"),
        ({0: 2.0, 10: 1.5, 20: 1.0}, Outcome.MUCH, 20, "a lot: the held-out loss fell from 2.000 to 1.000"),
        ({0: 2.0, 10: 1.9, 20: 1.85}, Outcome.LITTLE, 20, "a little: the held-out loss fell from 2.000 to 1.850"),
        ({0: 2.0, 10: 1.99, 20: 1.985}, Outcome.NOTHING, 20, "the held-out loss was 2.000 and is 1.98"),
        ({0: 2.0, 10: 2.01}, Outcome.NOTHING, 0, "No improvement"),
        ({0: 0.0, 10: 0.0}, Outcome.NOTHING, 0, "No improvement"),
        ({0: 2.0, 10: 2.1}, Outcome.WORSE, 0, "got worse: the held-out loss rose from 2.000 to 2.100"),
        ({0: 2.0, 10: 1.2, 20: 1.0, 30: 1.4}, Outcome.OVERFITTED, 20, "since step 20"),
        ({0: 2.0, 10: 1.2, 20: 1.0, 30: 2.4}, Outcome.OVERFITTED, 20, "fell from 2.000 to 1.000 there and has risen"),
        ({0: 2.0, 10: 1.0, 20: 1.01}, Outcome.MUCH, 10, "a lot"),
    ],
)
def test_a_curve_is_judged(losses: dict[int, float], outcome: Outcome, best_step: int | None, words: str) -> None:
    verdict = judge(losses)
    assert (verdict.outcome, verdict.best_step) == (outcome, best_step)
    assert words in verdict.sentence
    assert verdict.advice.endswith(".")


def test_the_order_of_measuring_does_not_matter() -> None:
    assert judge({20: 1.4, 0: 2.0, 10: 1.0}) == judge({0: 2.0, 10: 1.0, 20: 1.4})


def test_what_overfits_is_told_where_to_end() -> None:
    assert judge({0: 2.0, 10: 1.0, 20: 1.4}).advice == "Train until step 10 only, or on more rows."
