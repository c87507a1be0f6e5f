"""The system prompt that training rows have in common: without it a model is asked otherwise than it learned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

MOST_DIFFERENT = 64
"""So many are told apart. One that most rows begin with is among the first ones, unless rows are sorted by it."""

MOST_CHARACTERS = 32_000


class CommonSystemPrompt:
    """Counts the system prompts of rows."""

    def __init__(self) -> None:
        self._num_rows = 0
        self._counts: Counter[str] = Counter()

    def take(self, messages: Sequence[dict[str, Any]] = ()) -> None:  # Any: JSON values
        """Count a row: its messages, none for one that is no chat."""
        self._num_rows += 1
        if not messages or messages[0]["role"] != "system":
            return
        text = messages[0]["content"]
        if not isinstance(text, str) or len(text) > MOST_CHARACTERS:
            return
        if text in self._counts or len(self._counts) < MOST_DIFFERENT:
            self._counts[text] += 1

    @property
    def text(self) -> str:
        """The one that more than half of the rows begin with, "" where there is none."""
        ((text, count),) = self._counts.most_common(1) or [("", 0)]
        return text if 2 * count > self._num_rows else ""
