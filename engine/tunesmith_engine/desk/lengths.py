"""How many tokens rows have: all that may be too long, and a sample of the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tunesmith_core.datafmt import Layout, Row, to_messages
from tunesmith_core.datafmt.sniffing import TEMPLATE_TOKENS
from tunesmith_core.errors import UserError
from tunesmith_core.messages import Message
from tunesmith_core.operations.limits import Portions
from tunesmith_core.spec_sections import DataSpec
from tunesmith_engine.data.render import Renderer
from tunesmith_engine.data.tokenising import BATCH_ROWS, Rendered

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MOST_SAMPLES, MOST_LONG = 2_000, 20_000
"""Rows whose tokens are counted: of the sample, and of those that may be too long; tokenizing takes longest of all."""

NUM_BINS = 32


@dataclass(slots=True)
class TooLong:
    """A row that is longer than the context length."""

    row: int
    num_tokens: int


@dataclass(slots=True)
class Lengths:
    """Token counts of rows.

    Attributes:
        too_long: rows longer than the context length.
        refused: rows that the chat template refuses, with what it says.
        problem: why a run stops at a row, None when it doesn't.
        problem_row: the row.
        num_unmeasured: rows that may be too long, behind as many as are measured.
    """

    tokenizer: PreTrainedTokenizerBase
    data: DataSpec
    portions: Portions
    too_long: list[TooLong] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)
    problem: UserError | None = None
    problem_row: int = 0
    num_unmeasured: int = 0
    _renderer: Renderer = field(init=False)
    _sample: dict[int, int] = field(default_factory=dict)
    _stride: int = 1
    _num_long: int = 0
    _longest: int = 0
    _waiting: list[tuple[int, Rendered]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._renderer = Renderer(self.tokenizer, self.data, self.portions)

    def wants(self, row: int, num_bytes: int) -> bool:
        """Return whether the tokens of a row are to be counted."""
        may_be_long = num_bytes + TEMPLATE_TOKENS + len(self.data.system_prompt) > self.data.context_length
        if may_be_long and self._num_long >= MOST_LONG:
            self.num_unmeasured += 1
            may_be_long = False
        self._num_long += may_be_long
        return self.problem is None and (may_be_long or row % self._stride == 0)

    def add(self, number: int, row: Row, layout: Layout, place: str) -> None:
        """Take a row, which can be read as a conversation."""
        try:
            self._waiting.append((number, self._renderer.render(to_messages(row, layout, place), place)))
        except UserError as error:
            if error.code == "dataset-parse-error":
                self.refused.append((number, error.message.values.get("problem", error.message)))
            else:
                self.problem, self.problem_row = error, number
        if len(self._waiting) >= BATCH_ROWS:
            self.count()

    def count(self) -> None:
        """Count the tokens of the rows that wait."""
        numbers = [number for number, _ in self._waiting]
        tokenised = self._renderer.tokenise(rendered for _, rendered in self._waiting)
        for number, each in zip(numbers, tokenised, strict=True):
            length = len(each.example.input_ids)
            self._longest = max(self._longest, length)
            if length > self.data.context_length:
                self.too_long.append(TooLong(number, length))
            if number % self._stride == 0:
                self._sample[number] = length
        self._waiting.clear()
        while len(self._sample) > MOST_SAMPLES:
            self._stride *= 2
            self._sample = {row: length for row, length in self._sample.items() if row % self._stride == 0}

    def histogram(self) -> dict[str, Any]:  # Any: JSON values
        """Return how many rows of the sample have how many tokens."""
        top = max(self._longest, 1)
        counts, edges = np.histogram(list(self._sample.values()), NUM_BINS, (0, top))
        return {
            "edges": [round(float(edge), 1) for edge in edges],
            "counts": counts.tolist(),
            "num_rows": len(self._sample),
            "longest_tokens": self._longest,
            "context_length": self.data.context_length,
        }


def too_long_message(num_tokens: int, limit: int) -> Message:
    """Say how much longer a row is than it may be."""
    return Message("{tokens:,} tokens, more than the context length of {limit:,}.", tokens=num_tokens, limit=limit)
