"""What a check has found so far: counts, and the first places of each rule."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from tunesmith_core.datafmt import Row
from tunesmith_core.datafmt.conversion import SAME_ANSWERS
from tunesmith_core.datafmt.formats import Unreadable
from tunesmith_core.datafmt.message_lists import turn_names
from tunesmith_core.datafmt.unsuited import UNSUITED
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_engine.desk.places import Keys
from tunesmith_engine.desk.rules import ERROR, RULES, SEVERITIES

MOST_SHOWN = 100
"""Rows of each rule that are told; the others are counted."""

MOST_ROW_CHARACTERS, MOST_CHARACTERS = 20_000, 4_000_000
"""Of the rows that stand in an answer, each and together; longer ones are named but not shown."""

RULE_OF_PROBLEM = {
    "is empty": "empty-answer",
    "message {number}: the answer is empty": "empty-answer",
    "has no assistant answer": "empty-answer",
    "contains no messages": "empty-answer",
    SAME_ANSWERS.template: "equal-pair",
    "message {number} has {shown}": "unknown-role",
    "{answer} is none of the options {labels}": "wrong-choice",
    "{answer} may be counted from 0 or from 1. Write letters, such as {letter}": "wrong-choice",
}
"""Which rule a row breaks that can't be read as a conversation, by what is said of it; another one is laid out
differently."""


EQUAL_PAIR = Message("the chosen and the rejected answer are equal.")


@dataclass(slots=True)
class Found:
    """A row of which a rule says something.

    Attributes:
        path: its file, of an archive with its place there.
        line: of the row in the file, 0 for the whole file.
        message: what is wrong.
        column: letter of the line where it is wrong, from 1; None when unknown.
        keys: the way to the value that is wrong; None when it is not one value.
        offset: letter of the value, from 0; None for the value as a whole.
        row: as JSON values; None when it can't be read.
        is_readable: whether it can be read.
        spans: the parts of the value that are wrong, each by its first letter and the one behind its last.
    """

    path: str
    line: int
    message: str
    column: int | None = None
    keys: Keys | None = None
    offset: int | None = None
    row: Row | None = None
    is_readable: bool = True
    spans: tuple[tuple[int, int], ...] = ()


class Problems:
    """Counts what rules find, and keeps the first rows of each."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = defaultdict(int)
        self.severities: dict[str, str] = {}
        self.found: dict[str, list[Found]] = defaultdict(list)
        self._num_characters = 0

    def add(self, rule: str, found: Found, severity: str = "") -> None:
        """Count a row, and keep it when it is among the first ones; its severity is the rule's when none is given."""
        severity = severity or RULES[rule].severity
        self.severities[rule] = min(self.severities.get(rule, severity), severity, key=SEVERITIES.index)
        self.counts[rule] += 1
        if len(self.found[rule]) < MOST_SHOWN:
            self.found[rule].append(found)

    def add_error(self, path: str, line: int, error: TunesmithError, row: Row | None = None) -> str:
        """Count a row that can't be read or trained on; return the rule that it breaks."""
        problem = error.message.values.get("problem", error.message)
        place = error.message.values.get("place")
        values = place.values if isinstance(place, Message) else {}
        line, column = values.get("line", line), values.get("column")
        rule = rule_of_error(error, is_read=row is not None)
        if rule == "bad-json" and not line:
            rule = "bad-file"
        keys = _keys_of(error, problem, row) if row is not None else None
        words = sentence(error, problem)
        self.add(rule, Found(path, line, words, column, keys, row=row, is_readable=row is not None), ERROR)
        return rule

    def count_more(self, rule: str, number: int) -> None:
        """Count rows beyond those that are shown."""
        if number:
            self.counts[rule] += number

    def shown_row(self, row: Row | None) -> Row | None:
        """Return a row for the answer, None once that would be too long."""
        if row is None:
            return None
        text = json.dumps(row, ensure_ascii=False, default=_worded)
        if len(text) > MOST_ROW_CHARACTERS or self._num_characters + len(text) > MOST_CHARACTERS:
            return None
        self._num_characters += len(text)
        # JSON knows no NaN.
        values: Any = json.loads(text, parse_constant=str)  # Any: JSON values
        return dict(values)


def _keys_of(error: TunesmithError, problem: object, row: Row) -> Keys:
    """Return the way to the value of a row that an error is about; () for the row as a whole."""
    column = error.message.values.get("columns")
    if error.code == "dataset-column-missing" or column not in row:
        return ()
    number = problem.values.get("number") if isinstance(problem, Message) else None
    messages = row[column]
    if not isinstance(number, int) or not isinstance(messages, list):
        return (column,)
    if turns := turn_names(messages):
        place, half = divmod(number - 1, 2)
        # A system message of its own moves the others: then only the column is sure.
        is_plain = not any(message.get("system") for message in messages)
        return (column, place, turns[half]) if is_plain and turns[half] in messages[place] else (column,)
    is_role = isinstance(problem, Message) and "shown" in problem.values
    message, names = messages[number - 1], ("role", "from") if is_role else ("content", "value")
    name = next((name for name in names if isinstance(message, dict) and name in message), None)
    return (column, number - 1) if name is None else (column, number - 1, name)


def rule_of_error(error: TunesmithError, *, is_read: bool) -> str:
    """Return the rule that a row breaks, by the error that it raised.

    Args:
        error: the error.
        is_read: whether the row could be read, and is no conversation.
    """
    template = _innermost(error.message.values.get("problem", error.message))
    if error.code in ("dataset-column-missing", UNSUITED):
        return "missing-column"
    if error.code == "dataset-encoding" or template.startswith("byte 0x"):
        return "encoding"
    return RULE_OF_PROBLEM.get(template, "mixed-schema") if is_read else "bad-json"


def _innermost(problem: object) -> str:
    """Return the template of what is wrong, without the sentence around it."""
    if not isinstance(problem, Message):
        return ""
    reasons = (problem.values.get(name) for name in ("msg", "reason"))
    return next((reason.template for reason in reasons if isinstance(reason, Message)), problem.template)


def sentence(error: TunesmithError, problem: object) -> str:
    """Return what is wrong with a row, without its place, which stands beside it."""
    values = error.message.values
    if error.message.template == SAME_ANSWERS.template:
        return EQUAL_PAIR
    if error.code == "dataset-column-missing" and "column" in values:
        names = {name: values[name] for name in ("column", "columns")}
        return Message("the row has no column {column}. Its columns are: {columns}.", **names)
    if not isinstance(problem, Message) or problem is error.message:
        return error.message
    if "columns" in values:
        return Message('column "{columns}": {problem}.', columns=values["columns"], problem=problem)
    return problem


def _worded(value: object) -> str:
    return value.what if isinstance(value, Unreadable) else str(value)
