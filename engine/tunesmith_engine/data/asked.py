"""Which held-out rows a model is asked before and after its training, and what it should answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tunesmith_engine.data.example import IGNORED_LABEL, Example

MOST_CANDIDATES = 64
LEAST, MOST = 3, 8
"""So many rows are asked, where there are so many."""

ALL_ANSWERS_TOKENS = 512
"""With long answers fewer rows are asked: about so many tokens together."""

MOST_PROMPT_TOKENS = 1024
MOST_ANSWER_TOKENS = 256
TEXT_PROMPT_TOKENS = 32
"""A row that is learned whole asks nothing: its beginning is given, and the model continues it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One question to the model.

    Attributes:
        question: for a person to read, "" where the beginning of a text is continued.
        prompt: its tokens with all that comes before the answer.
        expected: tokens of the answer in the data.
    """

    question: str
    prompt: tuple[int, ...]
    expected: tuple[int, ...]

    @property
    def max_tokens(self) -> int:
        """How long an answer may be: as the expected one, and somewhat longer."""
        return min(MOST_ANSWER_TOKENS, len(self.expected) * 5 // 4 + 16)


def candidates(num_rows: int) -> list[int]:
    """Return the places of held-out rows that may be asked, spread evenly over all."""
    num = min(num_rows, MOST_CANDIDATES)
    return [place * num_rows // num for place in range(num)]


def question_in(example: Example, question: str = "") -> Asked | None:
    """Return a row as a question: its last answer, and what comes before it; None where either is missing."""
    trained = np.flatnonzero(example.labels != IGNORED_LABEL)
    if not len(trained):
        return None
    end = int(trained[-1]) + 1
    gaps = np.flatnonzero(example.labels[:end] == IGNORED_LABEL)
    start = int(gaps[-1]) + 1 if len(gaps) else min(end // 2, TEXT_PROMPT_TOKENS)
    if not start or start == end:
        return None
    tokens = example.input_ids[:end].tolist()
    return Asked(question if len(gaps) else "", tuple(tokens[:start]), tuple(tokens[start:]))


def choose(examples: Sequence[Example], questions: Mapping[int, str]) -> list[Asked]:
    """Return three to eight questions, from short to long answers; fewer where there are fewer.

    The same rows give the same questions.

    Args:
        examples: the held-out rows.
        questions: what is asked in some of them, by their places.
    """
    found: dict[tuple[int, ...], Asked] = {}
    for place, text in questions.items():
        if examples[place].is_bad:
            # What it says is no answer to expect.
            continue
        asked = question_in(examples[place], text)
        if asked and len(asked.prompt) <= MOST_PROMPT_TOKENS:
            found.setdefault(asked.prompt, asked)
    ordered = sorted(found.values(), key=lambda asked: (len(asked.expected), asked.prompt))
    if not ordered:
        return []
    mean_tokens = sum(asked.max_tokens for asked in ordered) / len(ordered)
    num = min(len(ordered), max(LEAST, min(MOST, int(ALL_ANSWERS_TOKENS / mean_tokens))))
    return [ordered[place * (len(ordered) - 1) // max(1, num - 1)] for place in range(num)]
