"""Votes on two answers: which columns hold them, which answer is better, and what is said where nobody can tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tunesmith_core import datafmt
from tunesmith_core.datafmt.guessing import guess_columns
from tunesmith_core.datafmt.sniffing import trained_columns
from tunesmith_core.datafmt.verdicts import verdict, vote_columns
from tunesmith_core.errors import UserError
from tunesmith_core.spec_sections import SourceSpec

MAPPING = {"chosen": "answer_a", "rejected": "answer_b", "prompt": "question", "winner": "winner"}


def votes(*winners: object) -> list[dict[str, Any]]:
    return [
        {"question": f"Question {n}?", "answer_a": f"First {n}.", "answer_b": f"Second {n}.", "winner": winner}
        for n, winner in enumerate(winners)
    ]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *((value, "a") for value in ("A", "model_a", "Response A", "left", 1, 1.0, "1", "first", " answer-a ")),
        *((value, "b") for value in ("b", "model_b", "right", 2, "assistant_2", "回答B")),
        *((value, "tie") for value in ("tie", "tie (bothbad)", "Both bad", "neither", "平局")),
        *((value, None) for value in ("maybe", "", None, True, 3, "abc", ["a"])),
    ],
)
def test_what_a_winner_says(value: object, expected: str | None) -> None:
    assert verdict(value) == expected


def test_votes_are_pairs_whose_better_answer_the_winner_names() -> None:
    rows = votes("model_a", "b", "tie", "A")
    layout = datafmt.resolve_layout(rows)
    assert (layout.format, layout.columns) == ("preference", MAPPING)
    assert [datafmt.is_wanted(row, layout) for row in rows] == [True, True, False, True]
    pairs = [datafmt.to_preference(row, layout, "a.csv") for row in rows[:2]]
    chosen = ["First 0.", "Second 1."]
    assert [pair.chosen.completion for pair in pairs] == chosen
    assert [pair.rejected.completion for pair in pairs] == ["Second 0.", "First 1."]
    assert [datafmt.to_messages(row, layout, "a.csv").completion for row in rows[:2]] == chosen
    assert 'the column "winner" says which of "answer_a" and "answer_b" is better' in datafmt.recognition(layout)
    assert trained_columns(rows, Path("a.csv")) == {"question", "answer_a", "answer_b"}
    assert guess_columns("preference", rows) == MAPPING


def test_a_vote_that_says_nothing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "votes.jsonl"
    path.write_text("\n".join(map(json.dumps, votes("a", "b", "b", "a", "maybe", "tie"))), encoding="utf-8")
    source = SourceSpec(path=str(path))
    assert datafmt.check_head(source, skip_bad_rows=True, in_pairs=True) == (5, 1)
    with pytest.raises(UserError, match='line 5, column "winner": \'maybe\' does not say which answer is better'):
        datafmt.check_head(source, in_pairs=True)
    layout = datafmt.resolve_layout(votes("a"))
    with pytest.raises(UserError, match="nothing does not say"):
        datafmt.to_messages(votes("")[0], layout, "a")


@pytest.mark.parametrize("winners", [(0, 1, 1), ("yes", "no"), ("tie", "tie"), ("", "")])
def test_other_columns_are_not_taken_for_votes(winners: tuple[object, ...]) -> None:
    """Numbers from 0 may mean the one answer or the other."""
    assert vote_columns(votes(*winners)) == {}


def test_pairs_of_the_usual_names_are_no_votes() -> None:
    row = {"prompt": "Q", "chosen": "a", "rejected": "b", "winner": "a"}
    assert "winner" not in datafmt.resolve_layout([row]).columns
