"""What blind votes tell, against figures that were computed elsewhere."""

from __future__ import annotations

import pytest

from tunesmith_core.vote_counts import Count, interval, sign_test

CASES = [
    # R 4.3: binom.test(num, total)
    (14, 20, 0.4572108, 0.8810684, 0.1153183),
    (15, 20, 0.5089541, 0.9134285, 0.0413895),
    (0, 6, 0.0, 0.4592581, 0.03125),
    (5, 5, 0.4781762, 1.0, 0.0625),
    (600, 1200, 0.4713232, 0.5286768, 1.0),
    (1, 1, 0.025, 1.0, 1.0),
    (0, 0, 0.0, 1.0, 1.0),
]


@pytest.mark.parametrize(("num", "total", "low", "high", "p"), CASES)
def test_interval_and_test_are_the_exact_ones(num: int, total: int, low: float, high: float, p: float) -> None:
    assert interval(num, total) == pytest.approx((low, high), abs=1e-6)
    assert sign_test(num, total) == pytest.approx(p, abs=1e-6)
    assert sign_test(total - num, total) == sign_test(num, total)


def test_the_interval_leaves_out_one_half_exactly_when_the_test_finds_a_difference() -> None:
    for total in range(1, 40):
        for num in range(total + 1):
            low, high = interval(num, total)
            assert (not low <= 0.5 <= high) == (sign_test(num, total) < 0.05), (num, total)


def test_few_votes_say_so() -> None:
    count = Count(60, better=14, worse=6, same=2, bad=1)
    assert count.words == [
        "The trained model was better in 14 of 20 votes (95% interval 46% to 88%).",
        "Too few votes to tell which one is better.",
        "Sign test: p = 0.12.",
        "Not counted: 2 the same, 1 both bad.",
    ]
    assert count.title == "Votes on step 60 and the model before this run"
    assert (count.num_decided, count.num_votes) == (20, 23)


def test_many_votes_tell_a_difference_or_none() -> None:
    assert Count(60, better=15, worse=5).meaning == "That is more than chance: step 60 gives better answers."
    assert Count(60, 20, better=1, worse=19).words == [
        "Step 60 was better in 1 of 20 votes (95% interval 0% to 25%).",
        "That is more than chance: step 20 gives better answers.",
        "Sign test: p < 0.001.",
    ]
    assert Count(60, worse=9).meaning == "That is more than chance: the model before this run gives better answers."
    assert Count(60, better=30, worse=26).meaning == "The votes show no clear difference."


def test_ties_alone_decide_nothing() -> None:
    assert Count(60, same=3).words == [
        "No vote found one of them better.",
        "Too few votes to tell which one is better.",
        "Not counted: 3 the same, 0 both bad.",
    ]
