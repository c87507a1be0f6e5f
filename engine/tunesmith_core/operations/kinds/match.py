"""Whether answers match a pattern. A repetition inside a repetition can take years, so it runs in a limited process."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import phrase
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kind import Kind, Place
from tunesmith_core.operations.limits import Limits


@dataclass(frozen=True, slots=True)
class MatchSpec:
    """A regular expression of Python, and the texts in which it is looked for."""

    pattern: str
    texts: list[str]


def compiled(pattern: str) -> re.Pattern[str]:
    """Return a regular expression. Raises UserError `usage` for one that can't be read."""
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise TunesmithError(
            "usage",
            "{pattern} is not a regular expression: {problem}.",
            hint="Put a backslash before a character that has a meaning in patterns, such as ( or *.",
            pattern=pattern,
            problem=phrase(error),
        ) from error


def match(host: Host, spec: MatchSpec) -> list[bool]:
    """Return of each text whether the pattern is found in it. Raises UserError `usage` for one that can't be read."""
    with host.portions as portions:
        portions.limit_memory(portions.limits.memory_bytes)
        portions.begin("pattern")
        pattern = compiled(spec.pattern)
        found = []
        for text in spec.texts:
            portions.begin("pattern")
            found.append(pattern.search(text) is not None)
        return found


MATCH = Kind(
    name="match",
    title="Matching answers",
    spec=MatchSpec,
    function="tunesmith_core.operations.kinds.match:match",
    place=Place.SAME,
    limits=Limits(),
)
