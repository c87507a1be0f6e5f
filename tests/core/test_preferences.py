"""What is said of a run that learned from preference pairs: right on measurements whose meaning is known."""

from __future__ import annotations

from typing import Any

import pytest

from tunesmith_core.answered import Answered
from tunesmith_core.outcome import Outcome
from tunesmith_core.preferences import METRICS, Preferences, in_brief
from tunesmith_core.verdict import Measured, judge

SETUP = {"num_train_rows": 1000, "num_distinct_rows": 990, "num_eval_rows": 50, "steps_per_epoch": 10}


def numbers(accuracy: float, margin: float, chosen: float = -100.0, level: float = -10.0) -> dict[str, float]:
    """Return METRICS of pairs whose answers have rewards about a level, 0 for the model itself under DPO."""
    rewards = (level + margin / 2, level - margin / 2)
    return dict(zip(METRICS, (*rewards, margin, accuracy, chosen, chosen - 5.0), strict=True))


UNTRAINED = numbers(0.0, 0.0, level=0.0)


def measured(losses: dict[int, float], *pairs: dict[str, float], **more: Any) -> Measured:
    return Measured(losses, setup=SETUP, pairs=dict(zip(losses, pairs, strict=True)), **more)


def test_an_improvement_is_told_in_pairs_and_by_how_much() -> None:
    verdict = judge(measured({0: 2.0, 10: 1.0}, numbers(0.5, -0.1), numbers(0.94, 3.25)))
    assert verdict.outcome is Outcome.MUCH
    assert verdict.sentence == (
        "Improved a lot. On held-out pairs the model now prefers the better answer in 94% (before: 50%)."
    )
    assert verdict.evidence == (
        "The reward margin, by how much it rates the better answer above the worse one, went from -0.10 to 3.25."
    )
    little = judge(measured({0: 2.0, 10: 1.9}, numbers(0.5, 0.1), numbers(0.6, 0.2)))
    assert (little.outcome, little.sentence) == (
        Outcome.LITTLE,
        "Improved a little. On held-out pairs the model now prefers the better answer in 60% (before: 50%).",
    )


def test_what_is_relative_to_the_base_model_has_no_before() -> None:
    verdict = judge(measured({0: 0.693, 10: 0.3}, UNTRAINED, numbers(0.94, 1.5, level=0.2)))
    assert verdict.sentence == (
        "Improved a lot. In 94% of the held-out pairs the model leans more toward the better answer than its "
        "reference does."
    )
    assert "above the worse one, is 1.50." in verdict.evidence
    assert "0%" not in verdict.sentence + verdict.evidence


@pytest.mark.parametrize(
    ("before", "after", "is_learned"),
    [
        (UNTRAINED, numbers(0.5, 0.4, level=0.1), False),
        (UNTRAINED, numbers(0.52, 0.4, level=0.1), True),
        (numbers(0.6, 1.0), numbers(0.6, 1.0), False),
        (numbers(0.6, 1.0), numbers(0.6, 1.5), True),
        (numbers(0.6, 1.0), numbers(0.7, 0.9), True),
        (numbers(0.6, 1.0), numbers(0.5, 0.5), False),
    ],
)
def test_a_loss_that_fell_by_writing_alone_is_no_preference(
    before: dict[str, float], after: dict[str, float], is_learned: bool
) -> None:
    verdict = judge(measured({0: 2.0, 10: 1.0}, before, after))
    assert (verdict.outcome is Outcome.MUCH) is is_learned
    if not is_learned:
        assert verdict.outcome is Outcome.NOTHING
        assert verdict.sentence.startswith(
            "The preferences were not learned, although the held-out loss fell from 2.000 to 1.000."
        )
        assert [step.name for step in verdict.next_steps] == ["look-at-rows", "more-steps", "higher-rate"]


def test_a_loss_that_turned_overfits_but_next_to_nothing_is_no_turn() -> None:
    told = [numbers(0.5, 0.0), numbers(0.9, 2.0), numbers(0.8, 3.0)]
    turned = judge(measured({0: 0.7, 10: 0.3, 20: 0.4}, *told))
    assert (turned.outcome, turned.best_step) == (Outcome.OVERFITTED, 10)
    assert "in 80% (before: 50%)" in turned.evidence
    assert judge(measured({0: 0.7, 10: 0.020, 20: 0.022}, *told)).outcome is Outcome.MUCH
    assert judge(Measured({0: 0.7, 10: 0.020, 20: 0.022})).outcome is Outcome.OVERFITTED


def test_a_loss_that_rose_may_be_of_swapped_pairs() -> None:
    verdict = judge(measured({0: 0.7, 10: 0.9}, numbers(0.5, 0.0), numbers(0.3, -1.0)))
    assert verdict.outcome is Outcome.WORSE
    assert verdict.advice == "Lower the learning rate, and look at the pairs: better and worse may be swapped."


@pytest.mark.parametrize(
    ("before", "after", "is_told"),
    [(-100.0, -149.0, False), (-100.0, -151.0, True), (-0.1, -0.5, False), (-0.1, -0.7, True), (-100.0, -20.0, False)],
)
def test_better_answers_that_became_unlikely_are_a_caution(before: float, after: float, is_told: bool) -> None:
    verdict = judge(measured({0: 0.7, 10: 0.3}, numbers(0.5, 0.0, before), numbers(0.9, 2.0, after)))
    assert verdict.outcome is Outcome.MUCH
    assert ("Caution: the better answers became much less likely, too." in verdict.evidence) is is_told


def test_other_answers_than_the_better_one_may_be_right() -> None:
    wrong = [Answered(f"q{number}", "yes", {0: "no", 10: "no"}, right={0: False, 10: False}) for number in range(5)]
    assert judge(Measured({0: 2.0, 10: 1.0}, answers=wrong)).outcome is Outcome.STILL_WRONG
    verdict = judge(measured({0: 2.0, 10: 1.0}, numbers(0.5, 0.0), numbers(0.9, 2.0), answers=wrong))
    assert verdict.outcome is Outcome.MUCH


def test_without_both_measurements_nothing_is_said_of_pairs() -> None:
    after = numbers(0.9, 2.0)
    assert Preferences.of({}) is None
    assert Preferences.of({10: after}) is None
    assert Preferences.of({0: UNTRAINED, 10: {"reward_margin": 1.0}}) is None
    assert Preferences.of({10: after, 0: UNTRAINED}) == Preferences(UNTRAINED, after)


SCORES = ({"reward_margin": -0.02, "reward_accuracy": 0.48}, {"reward_margin": 2.5, "reward_accuracy": 0.9})


def test_a_reward_model_is_told_by_its_scores() -> None:
    verdict = judge(measured({0: 0.7, 10: 0.3}, *SCORES))
    assert verdict.sentence == (
        "Improved a lot. In 90% of the held-out pairs the better answer scores higher (before: 48%, guessing: 50%)."
    )
    assert verdict.evidence.endswith("went from -0.02 to 2.50.")
    known = judge(measured({0: 0.7, 10: 0.3}, SCORES[1] | {"reward_margin": 0.2}, SCORES[1]))
    assert known.sentence == (
        "Improved a lot. In 90% of the held-out pairs the better answer scores higher, as before. Its score is now "
        "higher by 2.50, before by 0.20 (on average)."
    )
    assert verdict.advice == "Score answers that are not among the rows before you rely on it."
    worse = judge(measured({0: 0.7, 10: 0.6}, SCORES[1], SCORES[0]))
    assert (worse.outcome, worse.next_steps[0].name) == (Outcome.NOTHING, "look-at-rows")
    assert in_brief(SCORES[1]) == "better answer preferred 90%  margin 2.50"


def test_half_of_the_numbers_are_none() -> None:
    assert Preferences.of({0: {"reward_margin": 0.1}, 10: SCORES[1]}) is None
    assert in_brief({"reward_margin": 0.1}) is None


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ((0.33, -0.08), (0.33, -0.05), "scores higher, as before (guessing: 50%). That is worse than guessing."),
        ((0.5, 0.1), (0.4, 0.2), "(before: 50%, guessing: 50%). That is worse than guessing."),
        ((0.6, -0.2), (0.6, 0.2), "scores higher, as before (guessing: 50%)."),
    ],
)
def test_a_reward_model_below_guessing_is_called_so_and_no_figure_stands_twice(
    before: tuple[float, float], after: tuple[float, float], words: str
) -> None:
    series = {step: {"reward_accuracy": each[0], "reward_margin": each[1]} for step, each in ((0, before), (9, after))}
    found = Preferences.of(series)
    assert found is not None
    assert str(found.told_apart).endswith(words)
    assert str(found.margin).endswith(f"went from {before[1]:.2f} to {after[1]:.2f}.")
    raised = Preferences({"reward_accuracy": 0.9, "reward_margin": 0.2}, SCORES[1])
    assert "by 2.50, before by 0.20" in raised.told_apart
    assert raised.margin is None
