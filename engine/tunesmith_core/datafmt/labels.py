"""Answers that people called good or bad: which column says so, and what its values mean. Nothing of it is guessed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from tunesmith_core.datafmt.conversion import to_messages, to_preference
from tunesmith_core.datafmt.encoding import MAX_NAME
from tunesmith_core.datafmt.formats import PREFERENCE, ROLES, Chat, Conversation, Layout, Place, Unreadable, listed
from tunesmith_core.datafmt.guessing import guess_columns
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message as Sentence
from tunesmith_core.spec_sections import CHOICE_WORDS

LABEL = "label"
"""Role of the column."""

USUAL_NAMES = (
    *("label", "kto_tag", "is_good", "good", "desirable", "is_desirable", "feedback", "thumbs", "thumbs_up", "liked"),
    *("vote", "accepted", "标签", "评价", "反馈"),
)
"""Of the column in published data and logs of chats."""

GOOD = frozenset(
    (
        *("true", "yes", "y", "good", "thumbs up", "thumb up", "thumbsup", "up", "upvote", "upvoted", "like", "liked"),
        *("positive", "desirable", "desired", "chosen", "preferred", "accept", "accepted", "correct", "right", "👍"),
        *("好", "是", "对", "赞", "正确", "满意", "点赞", "喜欢"),
    )
)
BAD = frozenset(
    (
        *("false", "no", "n", "bad", "thumbs down", "thumb down", "thumbsdown", "down", "downvote", "downvoted"),
        *("dislike", "disliked", "negative", "undesirable", "undesired", "rejected", "reject", "incorrect", "wrong"),
        *("👎", "坏", "差", "不好", "否", "错", "踩", "错误", "不满意", "点踩", "不喜欢"),
    )
)
"""Words for an answer, in small letters and with spaces between them."""

BETWEEN_WORDS = re.compile(r"[\s_-]+")
SHADES = re.compile("[\ufe0f\U0001f3fb-\U0001f3ff]")
"""Of a thumb: its color, and that it is a picture."""

SCALE = "dataset-labels"
"""Code of labels that no row can be read by; a row of them is not merely left out."""

LABELS_HINT = Sentence("Write true or false, good or bad, 1 or 0, 👍 or 👎.")


def with_labels(
    layout: Layout, rows: Iterable[Mapping[str, Any]], given: Mapping[str, str], path: str
) -> Layout:
    """Return a layout that says which column tells good answers from bad ones; pairs have one of each and need none.

    Args:
        layout: of the rows.
        rows: the first rows of the file.
        given: the columns that a person has named, by role.
        path: of the file, named in errors.

    Raises:
        UserError: `dataset-column-missing` where no column says so, or the rows hold no answers to questions;
            `dataset-labels` where the labels are a scale of numbers.
    """
    rows = list(rows)
    if layout.format == PREFERENCE:
        return replace(layout, bad_number=0)
    if not has_label(layout.format):
        raise TunesmithError(
            "dataset-column-missing",
            "{path}: this objective learns from answers that are labeled good or bad, and the rows were not recognized "
            "as such. They are read as: {format}.",
            hint="Say which columns hold the prompt, the response and the label, or teach by example (SFT).",
            path=path,
            format=Sentence(CHOICE_WORDS[layout.format]),
        )
    names: list[str] = list(dict.fromkeys(name for row in rows for name in row))
    present = {name.lower(): name for name in reversed(names)}
    used = {name for role, name in layout.columns.items() if role != LABEL}
    usual = (present[name] for name in USUAL_NAMES if name in present and present[name] not in used)
    column = given.get(LABEL) or next(usual, None)
    if column is None:
        raise _without_label(layout, rows, path)
    numbers = {number for row in rows if (number := _number(row.get(column))) is not None}
    if not numbers <= {-1.0, 0.0, 1.0} or {-1.0, 0.0} <= numbers:
        raise _scale(path, column, f"{min(numbers):g}", f"{max(numbers):g}")
    return replace(layout, columns={**layout.columns, LABEL: column}, bad_number=-1 if -1.0 in numbers else 0)


def has_label(format_name: str) -> bool:
    """Return whether rows of a format hold an answer that a label can be about; pairs need none."""
    return any(role.name == LABEL for role in ROLES.get(format_name, ()))


def to_labeled(row: Mapping[str, Any], layout: Layout, place: Place) -> Iterator[tuple[Conversation, bool]]:
    """Yield each answer of a row with its question, and whether it is a good one; of a pair both.

    Raises:
        UserError: as `to_preference` and `to_messages`, `dataset-parse-error` also where the label is missing or can't
            be read, `dataset-labels` where it is a number of a scale.
    """
    if layout.format == PREFERENCE:
        pair = to_preference(row, layout, place)
        yield pair.chosen, True
        yield pair.rejected, False
        return
    conversation, is_good = to_messages(row, layout, place), _is_good(row, layout, place)
    if isinstance(conversation, Chat):
        # What is labeled is the last answer; those before it are context.
        answers = [number for number, each in enumerate(conversation.messages) if each["role"] == "assistant"]
        conversation = replace(conversation, first_trained=answers[-1])
    yield conversation, is_good


def meaning(value: object, bad_number: int = 0) -> bool | None:
    """Return whether a label says good, None where it says neither.

    Args:
        value: of the row.
        bad_number: which of 0 and -1 says bad.
    """
    if isinstance(value, bool):
        return value
    number = _number(value)
    if number is not None:
        return {1.0: True, float(bad_number): False}.get(number)
    if not isinstance(value, str):
        return None
    word = BETWEEN_WORDS.sub(" ", SHADES.sub("", value).strip().lower())
    return True if word in GOOD else False if word in BAD else None


def one_sided(num_good: int, num_bad: int) -> TunesmithError | None:
    """Return what to say where all answers are good or all are bad, so that nothing tells them apart."""
    if num_good and num_bad:
        return None
    if num_good:
        return TunesmithError(
            SCALE,
            "Every answer is labeled good ({num:,}). This objective needs bad answers too.",
            hint="Add answers labeled bad, or teach by example (SFT), which learns from good answers.",
            num=num_good,
        )
    return TunesmithError(
        SCALE,
        "Every answer is labeled bad ({num:,}). This objective needs good answers too.",
        hint="Add answers labeled good.",
        num=num_bad,
    )


def unbalanced(num_good: int, num_bad: int, good_weight: float, bad_weight: float) -> Sentence | None:
    """Return what to know where one side counts for more than three times as much as the other."""
    good, bad = num_good * good_weight, num_bad * bad_weight
    if max(good, bad) <= MOST_RATIO * min(good, bad):
        return None
    return Sentence(
        "{num_good:,} answers are labeled good and {num_bad:,} bad. With its weight, one side counts for more than "
        "three times as much as the other. Raise the weight of the other side.",
        num_good=num_good,
        num_bad=num_bad,
    )


MOST_RATIO = 3.0
"""Ethayarajh et al. 2024, section 4.2, advise between 1 and 1.5; a person is told where it is far from that."""


def _is_good(row: Mapping[str, Any], layout: Layout, place: Place) -> bool:
    column = layout.columns[LABEL]
    value = row.get(column)
    said = meaning(value, layout.bad_number or 0)
    if said is not None:
        return said
    placed = place if isinstance(place, str) else place()
    if value is None or (isinstance(value, str) and not value.strip()):
        raise TunesmithError(
            "dataset-parse-error",
            '{place}, column "{column}": the label is missing.',
            hint=LABELS_HINT,
            place=placed,
            column=column,
        )
    if _number(value) is not None:
        raise TunesmithError(
            SCALE,
            '{place}, column "{column}": {value} is not a label, but looks like a number of a scale.',
            hint=LABELS_HINT,
            place=placed,
            column=column,
            value=str(value)[:MAX_NAME],
        )
    shown = value.what if isinstance(value, Unreadable) else repr(value)[:MAX_NAME]
    raise TunesmithError(
        "dataset-parse-error",
        '{place}, column "{column}": {value} is not a label.',
        hint=LABELS_HINT,
        place=placed,
        column=column,
        value=shown,
    )


def _number(value: object) -> float | None:
    """Return the number that a value is or writes down; truth values are none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return float(value) if re.fullmatch(r"\s*[+-]?\d{1,9}(\.\d{1,9})?\s*", value, re.ASCII) else None
    return float(value) if isinstance(value, int | float) else None


def _scale(path: str, column: str, low: str, high: str) -> TunesmithError:
    return TunesmithError(
        SCALE,
        '{path}: the column "{column}" holds numbers from {low} to {high}, which don\'t say good or bad.',
        hint="Add a column with labels, such as good for 4 or more and bad for 2 or less.",
        path=path,
        column=column,
        low=low,
        high=high,
    )


def _without_label(layout: Layout, rows: list[Mapping[str, Any]], path: str) -> TunesmithError:
    names = dict.fromkeys(name for row in rows for name in row)
    spare = [name for name in names if name not in layout.columns.values()]
    fitting = [name for name in spare if all(meaning(row.get(name)) is not None for row in rows)]
    guess = {**layout.columns, LABEL: fitting[0]} if fitting else guess_columns(layout.format, rows)
    return TunesmithError(
        "dataset-column-missing",
        "{path}: this objective learns from answers that are labeled good or bad, and no column is recognized as the "
        "label. The columns are {found}.",
        hint="Say which column says whether an answer is good or bad.",
        path=path,
        found=listed(names),
        guess=json.dumps(guess, ensure_ascii=False),
    )
