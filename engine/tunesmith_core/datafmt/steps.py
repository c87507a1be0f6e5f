"""Solutions in steps, each with a word on whether it is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

from tunesmith_core import json_values
from tunesmith_core.messages import Message

STEP_LABELS = {"true": True, "false": False, "1": True, "0": False, "+": True, "-": False}
"""How data sets say that a step is right or wrong."""


def steps_problem(steps: object, labels: object) -> tuple[str, Message] | None:
    """Return the role of the column that is wrong, and what is wrong with it; None where nothing is.

    Args:
        steps: what should be a list of texts.
        labels: what should be a list of as many truth values, or words for them.
    """
    if not isinstance(steps, list) or not all(isinstance(each, str) and each.strip() for each in steps):
        return "steps", Message("must be a list of texts, the steps of a solution")
    if not steps:
        return "steps", Message("is empty")
    if not isinstance(labels, list) or not all(_is_label(each) for each in labels):
        return "step_labels", Message("must be a list of true or false, for right and wrong steps")
    if len(labels) != len(steps):
        words = Message(
            "must have one label for each step. Labels: {num}, steps: {num_steps}",
            num=len(labels),
            num_steps=len(steps),
        )
        return "step_labels", words
    return None


def step_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the columns that hold steps with a label for each, role to column; {} where no row has such lists."""
    for row in rows:
        lists = {name: found for name, value in row.items() if isinstance(found := json_values.parsed(value), list)}
        for steps, labels in permutations(lists, 2):
            if steps_problem(lists[steps], lists[labels]) is None:
                return {"steps": steps, "step_labels": labels}
    return {}


def are_right(labels: list[object]) -> tuple[bool, ...]:
    """Return for labels in which no problem was found which steps are right."""
    return tuple(STEP_LABELS[str(each).lower()] for each in labels)


def _is_label(value: object) -> bool:
    return isinstance(value, bool | int | str) and str(value).lower() in STEP_LABELS
