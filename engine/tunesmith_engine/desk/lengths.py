"""How many tokens rows have: all that may be too long, and a sample of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from tunesmith_core.datafmt import Conversation, Layout, Row, to_messages, to_preference
from tunesmith_core.datafmt.formats import PREFERENCE
from tunesmith_core.datafmt.sniffing import TEMPLATE_TOKENS
from tunesmith_core.errors import UserError
from tunesmith_core.messages import Message
from tunesmith_core.objectives import FROM_LABELS, FROM_PAIRS
from tunesmith_core.operations.limits import Portions
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data.cuts import Cuts
from tunesmith_engine.data.prepare import answers_of
from tunesmith_engine.data.render import Renderer
from tunesmith_engine.data.tokenising import BATCH_ROWS, Rendered, Tokenised

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MOST_SAMPLES, MOST_LONG = 2_000, 20_000
"""Rows whose tokens are counted: of the sample, and of those that may be too long; tokenizing takes longest of all."""

NUM_BINS = 32


@dataclass(slots=True)
class TooLong:
    """A row that is longer than the context length, of a pair by its longer answer."""

    row: int
    num_tokens: int


@dataclass(slots=True)
class Lengths:
    """Token counts of rows.

    Attributes:
        run: whose data is looked at.
        most: tokens for which the model is made, 0 when unknown.
        too_long: rows longer than the context length of which a run learns something.
        unlearned: of such rows those of which it learns nothing.
        refused: rows that the chat template refuses, with what it says.
        problem: why a run stops at a row, None when it doesn't.
        problem_row: the row.
        num_unmeasured: rows that may be too long, behind as many as are measured.
    """

    tokenizer: PreTrainedTokenizerBase
    run: RunSpec
    portions: Portions
    most: int = 0
    too_long: list[TooLong] = field(default_factory=list)
    unlearned: list[TooLong] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)
    problem: UserError | None = None
    problem_row: int = 0
    num_unmeasured: int = 0
    _renderer: Renderer = field(init=False)
    _sample: dict[int, int] = field(default_factory=dict)
    _stride: int = 1
    _num_long: int = 0
    _longest: int = 0
    _waiting: list[tuple[int, list[Rendered]]] = field(default_factory=list)
    _cuts: Cuts = field(init=False)

    def __post_init__(self) -> None:
        data = self.run.data
        self._renderer = Renderer(self.tokenizer, data, self.portions)
        self._cuts = Cuts(data.context_length, data.overlong == "split", self.most)

    @property
    def num_left_out(self) -> int:
        """How many of the rows a run leaves out."""
        return len(self.unlearned) + (len(self.too_long) if self.run.data.overlong == "skip" else 0)

    def wants(self, row: int, num_bytes: int) -> bool:
        """Return whether the tokens of a row are to be counted."""
        data = self.run.data
        may_be_long = num_bytes + TEMPLATE_TOKENS + len(data.system_prompt) > data.context_length
        if may_be_long and self._num_long >= MOST_LONG:
            self.num_unmeasured += 1
            may_be_long = False
        self._num_long += may_be_long
        return self.problem is None and (may_be_long or row % self._stride == 0)

    def add(self, number: int, row: Row, layout: Layout, place: str) -> None:
        """Take a row, which can be read as a conversation."""
        try:
            answers = self._answers(row, layout, place)
            self._waiting.append((number, [self._renderer.render(each, place) for each in answers]))
        except UserError as error:
            if error.code == "dataset-parse-error":
                self.refused.append((number, error.message.values.get("problem", error.message)))
            else:
                self.problem, self.problem_row = error, number
        if len(self._waiting) >= BATCH_ROWS:
            self.count()

    def count(self) -> None:
        """Count the tokens of the rows that wait."""
        tokenised = iter(self._renderer.tokenise(each for _, answers in self._waiting for each in answers))
        for number, rendered in self._waiting:
            answers = list(islice(tokenised, len(rendered)))
            length = max(len(each.example.input_ids) for each in answers)
            self._longest = max(self._longest, length)
            if length > self._cuts.limit:
                (self.too_long if self._learns(answers) else self.unlearned).append(TooLong(number, length))
            if number % self._stride == 0:
                self._sample[number] = length
        self._waiting.clear()
        while len(self._sample) > MOST_SAMPLES:
            self._stride *= 2
            self._sample = {row: length for row, length in self._sample.items() if row % self._stride == 0}

    def _answers(self, row: Row, layout: Layout, place: str) -> Sequence[Conversation]:
        if self.run.objective.kind in FROM_PAIRS and layout.format == PREFERENCE:
            return answers_of(to_preference(row, layout, place))
        return [to_messages(row, layout, place)]

    def _learns(self, answers: list[Tokenised]) -> bool:
        """Return whether a run learns something of a longer row, as a run finds it; skipped rows are told as such."""
        if self.run.data.overlong == "skip" or self.run.objective.kind in FROM_LABELS:
            return True
        parts = [[part.example] for part in self._cuts.parts(answers[0])]
        if len(answers) > 1:
            parts = [[each.example for each in answers]]
        # All of them, because each is counted.
        learned = [self._cuts.learns(each) for each in parts]
        return any(learned)

    def note(self, num_rows: int) -> str | None:
        """Return what a run says of the rows that it leaves out, of so many; None where there are none."""
        self._cuts.num_judged = num_rows
        return self._cuts.notes().get("dataset-rows-unlearned")

    def histogram(self) -> dict[str, Any]:  # Any: JSON values
        """Return how many rows of the sample have how many tokens."""
        top = max(self._longest, 1)
        counts, edges = np.histogram(list(self._sample.values()), NUM_BINS, (0, top))
        return {
            "edges": [round(float(edge), 1) for edge in edges],
            "counts": counts.tolist(),
            "num_rows": len(self._sample),
            "longest_tokens": self._longest,
            "context_length": self._cuts.limit,
        }


def too_long_message(num_tokens: int, limit: int) -> Message:
    """Say how much longer a row is than it may be."""
    return Message("{tokens:,} tokens, more than the context length of {limit:,}.", tokens=num_tokens, limit=limit)


def unlearned_message(num_tokens: int, limit: int) -> Message:
    """Say of a row that all it teaches is beyond the context length."""
    return Message("{tokens:,} tokens, and nothing to learn in the first {limit:,}.", tokens=num_tokens, limit=limit)
