"""Finds the causes that a log speaks of, the surest first.

The weight of a signature says how near to the root its cause is; the place where it was found says how much the log
means it: the message of the final exception more than one that it was chained to, more than a plain line, more than
a warning.
"""

from __future__ import annotations

from dataclasses import dataclass

from tunesmith_core.explain.catalogue import Signature, pattern, signatures
from tunesmith_core.explain.reading import Log, Role

MIN_SCORE = 40
NEAR_LINES_BEFORE = 40
NEAR_LINES_AFTER = 15
"""Around a find; about the length of a traceback with its message."""

_BONUS = {Role.FINAL: 20, Role.CHAIN: 19, Role.EXCEPTION: 12, Role.PLAIN: 6, Role.WARNING: 0, Role.FRAME: 0}

_ENDED_WELL = (
    r"train_runtime|training (?:was )?(?:completed|complete|finished)|finished training|model saved in"
    r"|successfully (?:saved|finished|trained)|训练完成"
)
"""What trainers print after the last step."""


@dataclass(frozen=True, slots=True)
class Find:
    """A signature that was found.

    Attributes:
        score: of weight and place.
        line: number of the line that gave it away, from 0.
    """

    signature: Signature
    score: int
    line: int


def finds(log: Log) -> list[Find]:
    """Return what was found, the surest first, of equals the later in the log."""
    found = [find for signature in signatures() if (find := _find(signature, log)) is not None]
    firm = [find for find in found if not find.signature.soft]
    if not firm and (log.ends_with_exception or pattern(_ENDED_WELL).search(log.text)):
        return []
    found.sort(key=lambda find: (find.score, find.line), reverse=True)
    return [find for find in found if find.score >= MIN_SCORE]


def _find(signature: Signature, log: Log) -> Find | None:
    if not any(key in log.squeezed for key in signature.key):
        return None
    if signature.needed and not pattern(signature.needed).search(log.text):
        return None
    best: Find | None = None
    for match in pattern(signature.match).finditer(log.text):
        first, last = log.line_at(match.start()), log.line_at(max(match.start(), match.end() - 1))
        line = max(range(first, min(last, first + 5) + 1), key=lambda line: log.roles[line])
        role = log.roles[line]
        if signature.place == "exception" and role < Role.EXCEPTION:
            continue
        if signature.place != "frame" and role is Role.FRAME:
            continue
        find = Find(signature, signature.weight + _BONUS[role], line)
        if (best is None or find.score >= best.score) and not _is_forbidden(signature, log, line):
            best = find
    return best


def _is_forbidden(signature: Signature, log: Log, line: int) -> bool:
    """Whether what speaks against a signature stands near: its own traceback, not another part of a long log."""
    if not signature.forbidden:
        return False
    start = log.starts[max(0, line - NEAR_LINES_BEFORE)]
    following = line + NEAR_LINES_AFTER
    end = log.starts[following] if following < len(log.starts) else len(log.text)
    return pattern(signature.forbidden).search(log.text, start, end) is not None
