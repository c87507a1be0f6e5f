"""What a rule finds in a text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tunesmith_engine.desk.sieve import Group, Mark


@dataclass(frozen=True, slots=True)
class Finding:
    """A part of a text that a rule is about.

    Attributes:
        start: its first letter.
        end: the one behind its last letter.
        what: what it is, for the middle of a sentence.
        instead: what a repair puts there.
    """

    start: int
    end: int
    what: str
    instead: str


@dataclass(frozen=True, slots=True)
class TextRule:
    """A rule about texts.

    Attributes:
        name: a key of RULES.
        marks: one of them, or of those in groups, stands in each text of which the rule says something.
        find: yields what it finds, in order.
        groups: more marks.
    """

    name: str
    marks: tuple[Mark, ...]
    find: Callable[[str], Iterator[Finding]]
    groups: tuple[Group, ...] = ()

    def repaired(self, text: str) -> str:
        """Return a text with something else in place of what the rule finds."""
        parts: list[str] = []
        place = 0
        for finding in self.find(text):
            parts += text[place : finding.start], finding.instead
            place = finding.end
        return "".join(parts) + text[place:]
