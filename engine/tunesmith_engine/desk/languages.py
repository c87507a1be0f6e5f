"""Which languages rows are in, by a sample of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tunesmith_core.language_names import LANGUAGES

MOST_SAMPLES = 400
LEAST_LETTERS, MOST_CHARACTERS = 20, 400
"""Letters of a text whose language can be told, and what is looked at of it: some 0.2 ms a row."""

LEAST_SHARE = 0.5
"""Of the rows whose language is known; what is found of fewer says nothing of all."""

OTHER_SHARE, LEAST_OTHERS = 0.05, 3
"""Rows of another language that are worth a note."""

NO_LANGUAGE = "zxx"
"""What the library says of numbers and code."""


@dataclass(slots=True)
class LanguageSample:
    """Every n-th row; n doubles when there are too many of them."""

    texts: dict[int, str] = field(default_factory=dict)
    _stride: int = 1
    _num_offered: int = 0
    _num_taken: int = 0

    def wanted(self, first: int, number: int) -> range:
        """Return which of some rows belong to the sample."""
        return range(-(-first // self._stride) * self._stride, first + number, self._stride)

    def add(self, row: int, text: str) -> None:
        """Take a row."""
        text = text[:MOST_CHARACTERS]
        self._num_offered += 1
        if sum(map(str.isalpha, text)) < LEAST_LETTERS:
            return
        self._num_taken += 1
        self.texts[row] = text
        if len(self.texts) > MOST_SAMPLES:
            self._stride *= 2
            self.texts = {row: text for row, text in self.texts.items() if row % self._stride == 0}

    def speaks_for_all(self, languages: dict[int, str]) -> bool:
        """Return whether the language of so many rows is known that it can be told of the whole data."""
        if not languages:
            return False
        return self._num_taken / self._num_offered * len(languages) / len(self.texts) >= LEAST_SHARE

    def languages(self) -> dict[int, str]:
        """Return the language of each row of the sample whose language has a name here.

        The library takes short rows of a frequent language for one of the many rare ones that are like it.
        """
        # Imported here, because older environments lack the library.
        from py3langid import classify

        found = {row: str(classify(text)[0]) for row, text in self.texts.items()}
        return {row: code for row, code in found.items() if code in LANGUAGES}


def other_languages(languages: dict[int, str]) -> list[str]:
    """Return the languages beside the most frequent one that are frequent enough to be told."""
    counts = Counter(languages.values()).most_common()
    least = max(LEAST_OTHERS, OTHER_SHARE * len(languages))
    return [code for code, number in counts[1:] if number >= least]
