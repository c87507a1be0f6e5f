"""Questions with options to choose from: which there are, and which of them a row calls right."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping
from typing import Any

from tunesmith_core import json_values
from tunesmith_core.datafmt.formats import OPTION_ROLES

LETTERS = string.ascii_uppercase
FEWEST_OPTIONS = 2
LABELLED = re.compile(r"\(?(\w+)[).:]\s*(.*)", re.DOTALL)
"""A label as people write it: "B.", "(B)", "B) Paris"."""

Options = dict[str, Any]
"""Label -> text or number."""


def are_apart(columns: Mapping[str, str]) -> bool:
    """Return whether options have a column each, by role to column; else one column holds them all."""
    return sum(role in columns for role in OPTION_ROLES) >= FEWEST_OPTIONS


def options_of(row: Mapping[str, Any], columns: Mapping[str, str]) -> Options | None:
    """Return the options of a row, without those that are empty; None where a value is none."""
    letters = zip(LETTERS, OPTION_ROLES, strict=False)
    found: Options | None = {letter: row.get(columns[role]) for letter, role in letters if role in columns}
    if "choices" in columns and not are_apart(columns):
        found = _listed(row.get(columns["choices"]))
    if found is None or not all(value is None or isinstance(value, str | int | float) for value in found.values()):
        return None
    return {label: value for label, value in found.items() if value is not None and str(value).strip()}


def may_hold_options(value: object) -> bool:
    """Return whether a column of options holds several, also in a way that can't be read; False for settings."""
    listed = _listed(value)
    if listed is not None:
        return len(listed) >= FEWEST_OPTIONS
    return isinstance(value, str | list) and bool(value)


def _listed(value: Any) -> Options | None:  # Any: JSON values
    """Return the options of a list, of ARC's two lists, or of an object with a key for each."""
    value = json_values.parsed(value)
    if isinstance(value, list):
        return dict(zip(LETTERS, value, strict=False)) if len(value) <= len(LETTERS) else None
    if not isinstance(value, dict):
        return None
    labels, texts = value.get("label"), value.get("text")
    if isinstance(labels, list) and isinstance(texts, list) and len(labels) == len(texts):
        return dict(zip(map(str, labels), texts, strict=True))
    return value if value and all(len(label) == 1 for label in value) else None


def first_number(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str]) -> int | None:
    """Return the number of the first option where answers are numbers: 0 or 1; None where they don't tell.

    0 is in use by those who count from 0 only, and the number of options by those who count from 1.
    """
    found: set[int] = set()
    are_texts = True
    for row in rows:
        options, answer = options_of(row, columns) or {}, row.get(columns["answer"])
        number, is_text = _number(answer), _by_text(options, answer) is not None
        if number is None or not 0 <= number <= len(options) or len(options) < FEWEST_OPTIONS:
            if is_text:
                # Answers are written out here, so that a number is the text of an option too.
                return None
        elif str(number) not in options:
            found |= {0: {0}, len(options): {1}}.get(number, set())
            are_texts &= is_text
    return found.pop() if len(found) == 1 and not are_texts else None


def right_label(options: Options, answer: object, first: int | None) -> str | None:
    """Return the label of the option that an answer names: by its label, its number or its text; None for none.

    Args:
        options: of the row.
        answer: of the row.
        first: see `first_number`; None takes no number for one of an option.
    """
    word = str(answer).strip()
    if word in options:
        return word
    number = _number(answer)
    if number is not None and first is not None:
        place = number - first
        return LETTERS[place] if 0 <= place < len(LETTERS) and LETTERS[place] in options else None
    if label := _by_text(options, answer):
        return label
    labelled = LABELLED.fullmatch(word)
    label, text = labelled.groups() if labelled else (word, "")
    label = label if label in options else label.upper()
    return label if label in options and text in ("", str(options[label]).strip()) else None


def is_number(answer: object) -> bool:
    """Return whether an answer is a whole number."""
    return _number(answer) is not None


def _number(answer: object) -> int | None:
    if isinstance(answer, str):
        return int(answer) if re.fullmatch(r"\s*\d{1,3}\s*", answer, re.ASCII) else None
    is_whole = isinstance(answer, int | float) and not isinstance(answer, bool) and answer == answer // 1
    return int(answer) if is_whole else None  # type: ignore[call-overload]  # a number, as is_whole says


def _by_text(options: Options, answer: object) -> str | None:
    """Return the label of the option that an answer repeats; a number repeats numbers only."""
    wanted = answer.strip() if isinstance(answer, str) else answer
    texts = ((label, value.strip() if isinstance(value, str) else value) for label, value in options.items())
    return next((label for label, value in texts if value == wanted and wanted is not None), None)
