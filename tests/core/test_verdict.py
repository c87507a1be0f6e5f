"""The sentence about a run: right on measurements whose meaning is known."""

from __future__ import annotations

from typing import Any

import pytest

from tunesmith_core.answered import Answered
from tunesmith_core.evaluations import FEWEST_ROWS, MOST_CHANCE
from tunesmith_core.next_steps import NextStep
from tunesmith_core.outcome import DISAPPOINTING, Outcome, Verdict
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_changes import with_changes
from tunesmith_core.verdict import Measured, judge

SETUP = {"num_train_rows": 1000, "num_distinct_rows": 990, "num_eval_rows": 50, "steps_per_epoch": 10}


def falling(first: float, last: float, num: int = 20) -> dict[int, float]:
    """Return training losses that soon fall from one value to another and stay there."""
    return {step: first if step <= num / 5 else last for step in range(1, num + 1)}


def interval(low: float, mean: float, high: float) -> dict[str, Any]:
    return {"mean": mean, "low": low, "high": high, "rows": 40}


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
    verdict = judge(Measured(losses))
    assert (verdict.outcome, verdict.best_step) == (outcome, best_step)
    assert words in verdict.sentence
    assert verdict.advice.endswith(".")
    assert verdict.evidence == ""


def test_the_order_of_measuring_does_not_matter() -> None:
    one, other = ({20: 1.4, 0: 2.0, 10: 1.0}, {0: 2.0, 10: 1.0, 20: 1.4})
    assert judge(Measured(one)) == judge(Measured(other))


def test_what_overfits_is_told_where_to_end() -> None:
    verdict = judge(Measured({0: 2.0, 10: 1.0, 20: 1.4}))
    assert verdict.advice == "Train until step 10 only, or on more rows."
    assert verdict.next_steps[0] == NextStep("until-step", 10)


@pytest.mark.parametrize("losses", [{0: 2.0, 20: 1.0}, {0: 2.0, 20: 3.0}, {0: 2.0, 10: 1.0, 20: 1.5}])
def test_two_rows_are_too_few_to_tell_anything(losses: dict[int, float]) -> None:
    verdict = judge(Measured(losses, falling(2.0, 1.0), SETUP | {"num_eval_rows": 2}))
    assert verdict.sentence.startswith("Too few held-out rows to tell whether the model improved: over 2 of them")
    assert verdict.advice == "Hold out more rows, at least 6, and train again."
    assert verdict.outcome not in DISAPPOINTING


def test_so_few_rows_show_nothing_even_where_all_became_better() -> None:
    """The chance that all signs agree, on either side."""
    assert 2 / 2 ** (FEWEST_ROWS - 1) > MOST_CHANCE >= 2 / 2**FEWEST_ROWS


def told(verdict: Verdict) -> tuple[Outcome, str]:
    return verdict.outcome, verdict.next_steps[0].name if verdict.next_steps else ""


GOOD = {0: 2.0, 20: 1.0}
NOISY = dict(enumerate([0.914, 1.3, 0.7, 1.4, 1.731, 0.776], 1))
"""Losses of six steps on a few rows each."""


@pytest.mark.parametrize(
    ("changes", "outcome", "first_step"),
    [
        ({}, Outcome.MUCH, ""),
        ({"num_distinct_rows": 499}, Outcome.REPEATED, "look-at-rows"),
        ({"num_distinct_rows": 500}, Outcome.MUCH, ""),
        ({"num_train_rows": 1, "num_distinct_rows": 1}, Outcome.MUCH, ""),
        ({"num_leaked_rows": 4}, Outcome.MUCH, ""),
        ({"num_leaked_rows": 5}, Outcome.LEAKED, "look-at-rows"),
        ({"num_eval_rows": 2}, Outcome.TOO_FEW, "hold-out"),
        ({"num_eval_rows": FEWEST_ROWS - 1}, Outcome.TOO_FEW, "hold-out"),
        ({"num_eval_rows": FEWEST_ROWS}, Outcome.MUCH, ""),
        ({"num_leaked_rows": 1, "num_eval_rows": 1}, Outcome.LEAKED, "look-at-rows"),
    ],
)
def test_rows_that_occur_twice_come_first(changes: dict[str, int], outcome: Outcome, first_step: str) -> None:
    verdict = judge(Measured(GOOD, falling(2.0, 1.0), SETUP | changes))
    assert told(verdict) == (outcome, first_step)


@pytest.mark.parametrize(
    ("held_out", "training", "outcome"),
    [
        ({0: 2.0, 20: 5.0}, falling(2.0, 4.0), Outcome.DIVERGED),
        ({0: 2.0, 20: 5.0}, falling(5.0, 4.0), Outcome.DIVERGED),
        ({}, falling(2.0, 4.0), Outcome.DIVERGED),
        ({0: 2.0, 20: 1.0}, falling(2.0, 2.15), Outcome.MUCH),
        ({0: 2.0, 20: 1.0}, falling(0.01, 0.05), Outcome.OVERFITTED),
        ({0: 2.0, 20: 2.3}, falling(2.0, 1.0), Outcome.WORSE),
        ({0: 2.0, 20: 2.3}, {1: 2.0, 2: 9.0}, Outcome.WORSE),
        ({0: 2.0, 20: 1.0}, falling(2.0, 4.0), Outcome.MUCH),
        ({0: 1.84, 6: 2.02}, NOISY, Outcome.WORSE),
        ({}, NOISY, Outcome.UNMEASURED),
        ({}, dict(enumerate([1.0, 1.1, 0.9, 1.0, 1.1, 2.5, 3.0])), Outcome.DIVERGED),
        ({0: 2.0, 20: 2.3}, {step: float("nan") for step in range(9)}, Outcome.WORSE),
    ],
)
def test_a_training_loss_that_rises_diverged(
    held_out: dict[int, float], training: dict[int, float], outcome: Outcome
) -> None:
    assert judge(Measured(held_out, training, SETUP)).outcome is outcome


@pytest.mark.parametrize(
    ("gain", "dependence", "outcome"),
    [
        (interval(0.9, 1.0, 1.1), interval(-0.01, 0.0, 0.01), Outcome.INDEPENDENT),
        (interval(0.9, 1.0, 1.1), interval(0.001, 0.005, 0.01), Outcome.MUCH),
        (interval(0.9, 1.0, 1.1), interval(-0.2, 0.1, 0.4), Outcome.MUCH),
        (interval(0.9, 1.0, 1.1), None, Outcome.MUCH),
        (interval(-0.1, 1.0, 2.1), None, Outcome.NOTHING),
        (None, interval(-0.01, 0.0, 0.01), Outcome.MUCH),
    ],
)
def test_what_is_certain_and_depends_on_the_question(
    gain: dict[str, Any] | None, dependence: dict[str, Any] | None, outcome: Outcome
) -> None:
    verdict = judge(Measured(GOOD, falling(2.0, 1.0), SETUP, {"improvement": gain, "dependence": dependence}))
    assert verdict.outcome is outcome
    if gain:
        low, high = f"{gain['low']:.2f}", f"{gain['high']:.2f}"
        assert verdict.evidence == f"Over 40 held-out rows the loss fell by 1.00 (95% interval: {low} to {high})."


def test_rows_known_by_heart_are_told_with_their_epochs() -> None:
    setup = SETUP | {"num_train_rows": 50, "num_distinct_rows": 50, "steps_per_epoch": 2}
    verdict = judge(Measured({0: 3.0, 20: 1.2}, falling(3.0, 0.02), setup))
    assert told(verdict) == (Outcome.OVERFITTED, "fewer-epochs")
    assert "after 10 times over 50 rows the training loss is 0.020, but the held-out loss is 1.200" in verdict.sentence
    few = judge(Measured({0: 3.0, 20: 1.2}, falling(3.0, 0.02), SETUP))
    assert "so the rows are known by heart, but the held-out loss is 1.200" in few.sentence
    assert judge(Measured({0: 3.0, 20: 0.4}, falling(3.0, 0.02), setup)).outcome is Outcome.MUCH
    assert judge(Measured({0: 3.0, 20: 0.5}, falling(3.0, 0.099), setup)).outcome is Outcome.OVERFITTED
    assert judge(Measured({0: 3.0, 20: 0.49}, falling(3.0, 0.099), setup)).outcome is Outcome.MUCH


def test_many_epochs_over_few_rows_without_a_measurement() -> None:
    for rows, steps_per_epoch, words in ((50, 2, "saw 50 rows 10 times"), (50, 10, "Nobody"), (500, 2, "Nobody")):
        setup = {"num_train_rows": rows, "steps_per_epoch": steps_per_epoch}
        verdict = judge(Measured({}, falling(3.0, 1.0), setup))
        assert told(verdict) == (Outcome.UNMEASURED, "hold-out")
        assert words in verdict.sentence


def test_a_loss_that_still_falls_needs_more_steps() -> None:
    steep = {step: 3.0 - step / 20 for step in range(1, 21)}
    for last, outcome in ((1.99, Outcome.NOTHING), (1.9, Outcome.LITTLE)):
        still = judge(Measured({0: 2.0, 20: last}, steep, SETUP))
        assert told(still) == (outcome, "more-steps")
        assert "still falling" in still.advice
        assert "still falling" not in judge(Measured({0: 2.0, 20: last}, falling(2.0, 1.9), SETUP)).advice


MEMORIZING = {step: max(2.2, 5.4 - step / 100) for step in range(1, 401)}
"""Training losses that fall far below what is held out, and still do at the end."""


@pytest.mark.parametrize(
    ("held_out", "outcome"),
    [
        ({0: 6.042, 160: 5.818, 200: 5.801, 400: 5.784}, Outcome.LITTLE),
        ({0: 6.042, 200: 6.03, 400: 6.02}, Outcome.NOTHING),
        ({0: 6.042, 400: 6.02}, Outcome.NOTHING),
    ],
)
def test_more_steps_are_not_advised_to_a_model_that_memorizes_its_rows(
    held_out: dict[int, float], outcome: Outcome
) -> None:
    verdict = judge(Measured(held_out, MEMORIZING, SETUP))
    assert verdict.outcome is outcome
    assert "memorizing its rows: the training loss is 2.2" in verdict.advice
    assert f"stopped improving at {held_out[400]:.3f}" in verdict.advice
    assert [step.name for step in verdict.next_steps] == ["fewer-epochs", "look-at-rows"]


@pytest.mark.parametrize("marks", [3, 6])
def test_wrong_answers_of_a_model_that_memorizes_need_other_rows(marks: int) -> None:
    measured = Measured({0: 6.0, 200: 4.01, 400: 4.0}, MEMORIZING, SETUP, answers=answered(*[(False, False)] * marks))
    verdict = judge(measured)
    assert verdict.outcome is Outcome.STILL_WRONG
    assert "more-steps" not in [step.name for step in verdict.next_steps]


@pytest.mark.parametrize(
    ("held_out", "training"),
    [
        ({0: 6.042, 200: 5.9, 400: 5.7}, MEMORIZING),
        ({0: 6.042, 200: 5.801, 400: 5.784}, {step: 5.4 - step / 250 for step in range(1, 401)}),
        ({0: 6.042, 200: 5.801, 400: 5.784}, dict.fromkeys(range(1, 401), 2.2)),
        ({0: 6.042, 200: 5.801, 400: 5.784}, {}),
    ],
    ids=["still improves", "is not far below", "was far below from the start", "is unknown"],
)
def test_a_gap_alone_is_not_memorizing(held_out: dict[int, float], training: dict[int, float]) -> None:
    verdict = judge(Measured(held_out, training, SETUP))
    assert verdict.outcome is Outcome.LITTLE
    assert verdict.next_steps == (NextStep("more-steps"),)


@pytest.mark.parametrize(
    ("step", "changes", "label"),
    [
        (NextStep("until-step", 40), {"schedule.max_steps": 40}, "Train until step 40"),
        (NextStep("lower-rate"), {"optimizer.learning_rate": 4e-5}, "Train at a lower rate"),
        (NextStep("higher-rate"), {"optimizer.learning_rate": 1e-3}, "Train at a higher rate"),
        (NextStep("more-steps"), {"schedule.max_steps": 90}, "Train for more steps"),
        (NextStep("fewer-epochs"), {"schedule.max_steps": 10}, "Train for fewer steps"),
        (NextStep("hold-out"), {"evaluation.percent": 10.0}, "Hold out more rows"),
        (NextStep("look-at-rows"), {}, "Look at the rows"),
    ],
)
def test_a_next_step_changes_settings(step: NextStep, changes: dict[str, Any], label: str) -> None:
    spec = RunSpec.from_dict({"version": 1, "name": "r", "model": {"path": "/m"}, "data": {"path": "/d"}})
    assert spec.optimizer.learning_rate == 2e-4
    assert step.changes(spec, 30, 400) == changes
    assert step.label == label
    with_changes(spec, changes)


def test_more_is_held_out_beside_a_file_of_few_rows() -> None:
    """A share has no effect while the file is named, so the same outcome would come again."""
    spec = RunSpec()
    spec.evaluation.path = "/held.jsonl"
    changed = with_changes(spec, NextStep("hold-out").changes(spec, 30, 400))
    assert (changed.evaluation.path, changed.evaluation.percent) == ("", 10.0)


def answered(*marks: tuple[bool, bool]) -> list[Answered]:
    """Return answers before training and after step 20, right or wrong."""
    return [
        Answered(f"{place}?", "yes", {0: "no", 20: "yes"}, {0: before, 20: after})
        for place, (before, after) in enumerate(marks)
    ]


@pytest.mark.parametrize(
    ("marks", "outcome", "words"),
    [
        ([(False, False)] * 3, Outcome.STILL_WRONG, "3 held-out questions: 0 before, 0 after"),
        ([(True, False)] * 6, Outcome.STILL_WRONG, "6 held-out questions: 6 before, 0 after"),
        ([(False, False)] * 2, Outcome.MUCH, "2 held-out questions: 0 before, 0 after"),
        ([(False, True), *[(False, False)] * 5], Outcome.MUCH, "6 held-out questions: 0 before, 1 after"),
    ],
)
def test_a_fallen_loss_is_no_success_while_no_answer_is_right(
    marks: list[tuple[bool, bool]], outcome: Outcome, words: str
) -> None:
    verdict = judge(Measured(GOOD, answers=answered(*marks)))
    assert (verdict.outcome, verdict.outcome in DISAPPOINTING) == (outcome, outcome is Outcome.STILL_WRONG)
    assert words in verdict.evidence


def test_wrong_answers_want_more_steps_while_the_loss_still_falls() -> None:
    still = {step: 2.0 - step / 20 for step in range(1, 21)}
    verdict = judge(Measured(GOOD, still, SETUP, answers=answered(*[(False, False)] * 3)))
    assert (verdict.outcome, verdict.next_steps[0].name) == (Outcome.STILL_WRONG, "more-steps")
    assert "still falling" in verdict.advice


def test_answers_whose_wording_is_free_say_nothing() -> None:
    free = [Answered("What is new?", "Much", {0: "Nothing", 20: "This and that"}) for _ in range(6)]
    verdict = judge(Measured(GOOD, answers=free))
    assert (verdict.outcome, verdict.evidence) == (Outcome.MUCH, "")


@pytest.mark.parametrize(
    ("losses", "agreement", "words"),
    [
        ({0: -3.7e-8, 1: 2.9e-8, 4: 1.8e-5}, (1.0, 1.0), "There was nothing to learn"),
        ({0: 0.4001, 2: 0.4002, 4: 0.4003}, None, "No improvement: the held-out loss was 0.400 and is 0.400."),
        ({0: -3.7e-8, 4: 1.8e-5}, None, "No improvement: the held-out loss was 0.000 and is 0.000."),
        ({0: 0.0012, 2: 0.0011, 4: 0.0019}, None, "The model got worse: the held-out loss rose from 0.001 to 0.002."),
    ],
)
def test_a_change_that_is_not_seen_in_its_figures_is_none(
    losses: dict[int, float], agreement: tuple[float, float] | None, words: str
) -> None:
    teacher = {step: {"agreement": share} for step, share in zip((0, 4), agreement or (), strict=False)}
    verdict = judge(Measured(losses, setup=SETUP, teacher=teacher))
    assert verdict.sentence.startswith(words)
    assert "-0.000" not in verdict.sentence


def test_who_learned_from_a_bigger_model_is_not_sent_to_the_rows() -> None:
    verdict = judge(Measured({0: 0.2, 4: 0.3}, setup=SETUP, teacher={0: {"agreement": 0.8}, 4: {"agreement": 0.7}}))
    assert verdict.outcome is Outcome.WORSE
    assert [step.name for step in verdict.next_steps] == ["lower-rate"]
    assert "bigger one" in verdict.advice
