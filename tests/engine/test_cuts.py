"""Examples that are longer than the context: what is cut, and what the person is told."""

from __future__ import annotations

import numpy as np
import pytest

from tunesmith_engine.data.cuts import Cuts, needed_tokens
from tunesmith_engine.data.example import IGNORED_LABEL, Example


def example(num_tokens: int, learned: range) -> Example:
    """An example of which the tokens of a range are learned."""
    ids = np.arange(num_tokens, dtype=np.int32)
    labels = np.where(np.isin(ids, list(learned)), ids, IGNORED_LABEL).astype(np.int32)
    return Example(ids, labels)


def test_an_example_of_just_the_limit_is_whole() -> None:
    cuts, whole = Cuts(4), example(4, range(1, 4))
    assert cuts.cut(whole) is whole
    assert (cuts.num_rows, cuts.num_cut, cuts.longest_tokens, cuts.notes()) == (1, 0, 4, {})


def test_a_longer_one_is_cut_to_a_copy_of_its_own() -> None:
    cuts, long = Cuts(4), example(6, range(0))
    cut = cuts.cut(long)
    assert cut.input_ids.tolist() == [0, 1, 2, 3]
    assert cut.labels.tolist() == [IGNORED_LABEL] * 4
    assert cut.input_ids.base is None
    assert cut.labels.base is None, "a view would keep the whole row in memory"
    assert (cuts.num_cut, cuts.num_open, cuts.longest_tokens) == (1, 0, 6)


@pytest.mark.parametrize(
    ("learned", "is_open"),
    [
        (range(3, 5), True),
        (range(6), True),
        (range(2, 4), False),
        (range(4, 6), False),
        (range(5, 6), False),
        (range(1), False),
    ],
)
def test_an_answer_is_open_when_it_goes_on_behind_the_limit(learned: range, is_open: bool) -> None:
    cuts = Cuts(4)
    cuts.cut(example(6, learned))
    assert cuts.num_open == is_open


def test_the_person_is_told_how_many_and_what_would_keep_them() -> None:
    cuts = Cuts(4)
    for row in (example(3, range(3)), example(9, range(2)), example(5, range(1, 4))):
        cuts.cut(row)
    assert cuts.notes() == {
        "dataset-rows-cut": "Rows cut at the context length of 4 tokens: 2 of 3. "
        "To keep every row whole, raise the context length to 9 tokens, or skip longer rows."
    }
    cuts.cut(example(6, range(6)))
    assert "3 of 4. In 1 of them, the end of an answer is lost" in cuts.notes()["dataset-rows-cut"]


def test_of_texts_splitting_is_named_first() -> None:
    cuts = Cuts(4)
    cuts.cut(example(3, range(3)), is_text=True)
    cuts.cut(example(6, range(6)), is_text=True)
    (words,) = cuts.notes().values()
    assert words.startswith("Texts cut at the context length of 4 tokens: 1 of 2. In 1 of them, the end of the text is")
    assert words.index("Longer examples: Split") < words.index("raise the context length to 6 tokens")
    assert "answer" not in words
    cuts.cut(example(7, range(7)))
    (words,) = cuts.notes().values()
    assert words.startswith("Rows cut at the context length of 4 tokens: 2 of 3. In 1 of them, the end of an answer")
    assert "In 1 of them, the end of the text" in words
    assert "Longer texts can be split" in words


def test_one_huge_row_does_not_decide_for_all() -> None:
    cuts = Cuts(4)
    for num_tokens in (3, *range(5, 25), 40, 60):
        cuts.cut(example(num_tokens, range(1, 3)))
    (words,) = cuts.notes().values()
    assert words.endswith("to 60 tokens, or skip longer rows. At 24 tokens, 2 of 23 would be cut.")
    for _ in range(20):
        cuts.cut(example(31, range(1, 3)))
    assert "would be cut" not in cuts.notes()["dataset-rows-cut"], "half of the length at most, and few rows"


@pytest.mark.parametrize(("most", "is_told"), [(0, True), (30, True), (20, False)])
def test_a_lower_length_is_named_where_the_model_is_made_for_twice_as_many(most: int, is_told: bool) -> None:
    cuts = Cuts(4, most=most)
    for num_tokens in (12, 60):
        cuts.cut(example(num_tokens, range(1, 3)), is_text=True)
    (words,) = cuts.notes().values()
    assert ("At 12 tokens, 1 of 2 would be cut." in words) is is_told


def test_the_first_token_is_never_learned() -> None:
    assert [example(4, learned).num_trained_tokens for learned in (range(1), range(2), range(1, 4), range(4))] == [
        0,
        1,
        3,
        3,
    ]


def test_no_context_length_is_advised_for_which_the_model_is_not_made() -> None:
    cuts = Cuts(4, most=8)
    cuts.cut(example(9, range(2)))
    (words,) = cuts.notes().values()
    assert "raise the context length to 8 tokens" in words
    assert "to 9 tokens" not in words
    assert words.endswith("To leave them out, skip longer rows.")
    cuts = Cuts(8, most=8)
    cuts.cut(example(9, range(2)), is_text=True)
    (words,) = cuts.notes().values()
    assert "The model is made for 8 tokens at most" in words
    assert "raise" not in words
    assert words.endswith("have longer texts split (Longer examples: Split).")
    cuts.cut(example(9, range(9)))
    (words,) = cuts.notes().values()
    assert "Longer texts can be split instead" in words
    assert (cuts.longest_tokens, cuts.longest_kept) == (9, 8)


def test_a_row_is_left_out_where_nothing_of_it_is_learned_within_the_limit() -> None:
    cuts = Cuts(4)
    long, short = example(9, range(6, 9)), example(3, range(1, 3))
    assert [cuts.learns([row]) for row in (short, long, example(5, range(3, 5)), example(3, range(1)))] == [
        True, False, True, False,
    ]  # fmt: skip
    cuts.cut(long)
    assert (cuts.num_judged, cuts.num_beyond, cuts.num_empty, cuts.beyond_from) == (4, 1, 1, 7)
    notes = cuts.notes(are_all=False)
    assert notes["dataset-rows-unlearned"] == (
        "Rows left out because their answers begin beyond the context length of 4 tokens: 1 of 4. "
        "Rows left out because they have nothing to learn, whatever the context length: 1 of 4. "
        "Rows that were looked at: 4."
    )
    assert "raise the context length to 9 tokens" in notes["dataset-rows-cut"]
    cuts.most = 6
    assert "comes after 6 others, but the model is made for 6" in cuts.notes()["dataset-rows-unlearned"]


@pytest.mark.parametrize(
    ("others", "needed"),
    [([0, 1, 7, 3, 4, 5], 4), ([0, 1, 2, 3, 4, 7], 6), ([0, 1, 2, 3, 4, 5], 0), ([0, 1, 2, 3, 4], 6)],
)
def test_answers_of_a_pair_have_to_differ_within_the_limit(others: list[int], needed: int) -> None:
    better = example(6, range(3, 6))
    ids = np.array(others, dtype=np.int32)
    worse = Example(ids, np.where(ids > 2, ids, IGNORED_LABEL).astype(np.int32))
    assert needed_tokens([better, worse]) == needed
    assert [Cuts(limit).learns([better, worse]) for limit in (3, 4, 5, 6)] == [
        0 < needed <= limit for limit in (3, 4, 5, 6)
    ]
