"""The lines of a run's log: bounded, with levels, filtered by level and words."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MAX_LINES = 5000

LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line; `t` is in seconds since 1970."""

    t: float
    level: str
    text: str

    @property
    def rank(self) -> int:
        """How serious it is: place of its level in LEVELS, an unknown level counts as info."""
        return LEVELS.index(self.level) if self.level in LEVELS else 1

    def format(self) -> str:
        """The line as it is shown and copied, with the local time of day."""
        mark = {"warning": "WARN  ", "error": "ERROR "}.get(self.level, "")
        return f"{time.strftime('%H:%M:%S', time.localtime(self.t))}  {mark}{self.text}"


class LogLines:
    """The newest lines of a log, at most MAX_LINES; `num_added` counts all that ever came."""

    def __init__(self, max_lines: int = MAX_LINES) -> None:
        self._lines: deque[LogLine] = deque(maxlen=max_lines)
        self.num_added = 0

    def __len__(self) -> int:
        return len(self._lines)

    def extend(self, lines: Iterable[LogLine]) -> None:
        """Append lines; the oldest fall out when there are too many."""
        for line in lines:
            self._lines.append(line)
            self.num_added += 1

    def since(self, num_seen: int) -> list[LogLine]:
        """The lines that came after the first `num_seen` ones and are still held."""
        missing = min(max(self.num_added - num_seen, 0), len(self._lines))
        return list(self._lines)[len(self._lines) - missing :]

    def matching(self, min_level: str = "debug", words: str = "") -> Iterator[LogLine]:
        """The lines of at least a level that hold the words, upper and lower case alike."""
        return filter_lines(self._lines, min_level, words)


def filter_lines(lines: Iterable[LogLine], min_level: str, words: str) -> Iterator[LogLine]:
    """The lines of at least a level that hold the words, upper and lower case alike."""
    least, needle = LEVELS.index(min_level), words.casefold()
    return (line for line in lines if line.rank >= least and needle in line.text.casefold())
