"""Whether answers match a pattern that the person gives: a check for data with a form of its own."""

from __future__ import annotations

from collections.abc import Sequence

from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_core.operations.kinds.match import MATCH, MatchSpec
from tunesmith_core.operations.runner import conduct


def matches(pattern: str, texts: Sequence[str]) -> list[float]:
    """Return 1 for each text in which a regular expression is found, 0 for the others.

    Raises:
        UserError: `usage` for a pattern that can't be read, or that needs too much time or memory for a text.
    """
    outcome = conduct(MATCH, MatchSpec(pattern, list(texts)))
    if outcome.error and outcome.error.code == "foreign-limit":
        raise TunesmithError(
            "usage",
            "The pattern {pattern} takes too much time or memory for one answer.",
            hint="Write it without a repetition inside a repetition, such as (a+)+.",
            pattern=pattern,
        ) from outcome.error
    return [float(found) for found in outcome.get()]


def reason(pattern: str, expected: Sequence[str]) -> Message:
    """Return which pattern it is and how many expected answers match it, which says whether it is the right one.

    Raises:
        UserError: `usage` as `matches`, and where there is no expected answer.
    """
    if not expected:
        raise TunesmithError("usage", "No row has an answer that could match {pattern}.", pattern=pattern)
    count = int(sum(matches(pattern, expected)))
    return Message(
        "{count} of {total} expected answers match {pattern}", count=count, total=len(expected), pattern=pattern
    )
