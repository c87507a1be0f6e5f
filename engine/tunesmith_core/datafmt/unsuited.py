"""What to say where an objective reads rows in one way only, as texts with labels or as steps, and they are not so."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tunesmith_core import json_values
from tunesmith_core.datafmt.formats import LABELED, ROLES, STEPS, listed
from tunesmith_core.datafmt.guessing import guess_columns
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message

UNSUITED = "dataset-unsuited"
"""Code of data in which no columns are what the objective learns from, so that asking for them would lead nowhere."""

Rows = Sequence[Mapping[str, Any]]  # Any: JSON values


@dataclass(frozen=True, slots=True)
class _Words:
    """Sentences and their hints: where columns have to be named, and where none would do."""

    asks: Message
    asks_hint: Message
    unsuited: Message
    unsuited_hint: Message


IN_ONE_WAY = {
    LABELED: _Words(
        Message(
            "{source}: the names of the columns don't tell which one is the text and which the label. The columns are "
            "{found}."
        ),
        Message("Say which column is the text and which the label."),
        Message(
            "{source}: this objective learns from texts with labels, and no two columns look like a text and its "
            "label. The columns are {found}."
        ),
        Message("Choose data with a text and its label in each row, or teach in another way."),
    ),
    STEPS: _Words(
        Message(
            "{source}: the names of the columns don't tell which one is the problem, which holds the steps and which "
            "their labels. The columns are {found}."
        ),
        Message("Say which column is the problem, which holds the steps and which their labels."),
        Message(
            "{source}: this objective learns from solutions in steps with labels, and no two columns hold steps and "
            "their labels. The columns are {found}."
        ),
        Message(
            "Choose data with a problem, the steps of a solution and their labels in each row, or teach in another way."
        ),
    ),
}
"""Formats of rows that an objective of its own learns from."""


def columns_problem(format_name: str, rows: Rows, given: Mapping[str, str], source: str) -> TunesmithError:
    """Return that columns have to be named, with a guess as `resolve_layout` makes it, or that no columns would do.

    Args:
        format_name: one of IN_ONE_WAY.
        rows: the first rows of the file.
        given: the columns that a person has named, by role.
        source: named in the error.
    """
    others = [{name: value for name, value in row.items() if name not in given.values()} for row in rows]
    # What was named may be the mistake.
    guesses = ({**guess_columns(format_name, others), **given}, guess_columns(format_name, rows))
    guess = next((each for each in guesses if may_be(format_name, each, rows)), None)
    words = IN_ONE_WAY[format_name]
    values = {"source": source, "found": listed(dict.fromkeys(name for row in rows for name in row))}
    if guess is None:
        return TunesmithError(UNSUITED, words.unsuited.template, hint=words.unsuited_hint, **values)
    guessed = json.dumps(guess, ensure_ascii=False)
    return TunesmithError("dataset-column-missing", words.asks.template, hint=words.asks_hint, **values, guess=guessed)


def may_be(format_name: str, columns: Mapping[str, str], rows: Rows) -> bool:
    """Return whether columns, by role, are all that is needed, and a wrong value is a fault of its row."""
    if not all(role.name in columns for role in ROLES[format_name] if role.required):
        return False
    values = (row.get(columns[role]) for row in rows for role in ("steps", "step_labels") if role in columns)
    return format_name != STEPS or any(isinstance(json_values.parsed(value), list) for value in values)
