"""Votes on two answers: rows with an answer A, an answer B, and a column that says which of them is better."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

WINNER = "winner"
"""Role of the column that says which answer is better; "chosen" is then answer A, and "rejected" answer B."""

WINNER_NAMES = ("winner", "preference", "preferred", "better", "vote", "verdict", "胜者", "更好")
"""Of the column in published votes and in what people collect; a column counts only with verdicts in it."""

_ANSWERS = ("answer", "response", "output", "completion", "conversation", "reply", "回答", "回复")
_MARKS = (("a", "b"), ("1", "2"))
PAIRS = tuple(
    tuple(f"{word}{between}{mark}" for mark in marks)
    for word in _ANSWERS
    for marks in _MARKS
    for between in ("_", " ", "")
)
"""Names of the two columns of answers."""

A_WINS, B_WINS, TIE = "a", "b", "tie"

_BETWEEN = re.compile(r"[\s_-]+")
_SAID = re.compile(r"(?:(?:model|answer|response|assistant|output|回答|回复) ?)?(a|b|1|2)")
_SIDES = {"left": A_WINS, "first": A_WINS, "right": B_WINS, "second": B_WINS}
_TIES = frozenset(
    (
        *("tie", "tie (bothbad)", "tie (both bad)", "draw", "both", "both good", "both bad", "bothbad", "neither"),
        *("none", "equal", "same", "平局", "平手", "都好", "都不好", "一样"),
    )
)
FEWEST_VERDICTS = 0.8
"""Share of the values of a column that must be verdicts so that it is taken for one of them."""


def verdict(value: object) -> str | None:
    """Return A_WINS, B_WINS or TIE; None for what says nothing of these."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    word = _BETWEEN.sub(" ", str(value)).strip().lower().removesuffix(".0")
    if word in _TIES:
        return TIE
    said = _SAID.fullmatch(word)
    return {"a": A_WINS, "1": A_WINS, "b": B_WINS, "2": B_WINS}[said.group(1)] if said else _SIDES.get(word)


def vote_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the columns of votes, role to column: "chosen" for answer A, "rejected" for B, "winner"; {} for none."""
    present = {name.lower(): name for row in rows for name in row}
    pair = next((pair for pair in PAIRS if all(name in present for name in pair)), None)
    if pair is None:
        return {}
    named = (present[name] for name in WINNER_NAMES if name in present)
    winner = next((column for column in named if _are_verdicts(rows, column)), None)
    return {"chosen": present[pair[0]], "rejected": present[pair[1]], WINNER: winner} if winner else {}


def _are_verdicts(rows: Iterable[Mapping[str, Any]], column: str) -> bool:
    """Return whether a column tells which answer is better; numbers that begin with 0 may mean the one or the other."""
    values = [value for row in rows if (value := row.get(column)) not in (None, "")]
    said = [each for each in map(verdict, values) if each]
    has_zero = any(str(value).strip() in ("0", "0.0") for value in values)
    return not has_zero and len(said) >= FEWEST_VERDICTS * len(values) and any(each != TIE for each in said)
