"""Rendered rows as tokens, some at a time. While the tokenizer works on one batch, the next one is rendered.

A tokenizer computes outside Python's lock and on several cores, so this needs no further processes: rows stay in their
order, and whatever goes wrong with one is told as if they went one after another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tunesmith_core.datafmt import Tokens
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.limits import Portions
from tunesmith_engine.data.example import IGNORED_LABEL, Example
from tunesmith_engine.data.literals import Literals, Span
from tunesmith_engine.model.foreign import reading

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BATCH_ROWS, BATCH_CHARACTERS = 256, 200_000
"""Most rows and text that are rendered before they are tokenised: taking turns with each row was measured to take twice
as long. A longer row is a batch of its own, while which nothing else is done: it may need much memory and time."""

GROUP_ROWS, GROUP_CHARACTERS = 16, 20_000
"""Most rows and text that go through the tokenizer together."""

CHARACTERS_PER_S = 100_000
"""By this a long row may take longer than others; computers of today are ten times faster."""

POLL_S = 0.1
"""On Windows, a wait without an end can't be interrupted by a stop."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """One conversation before tokenisation.

    Attributes:
        text: what the tokenizer gets.
        trained: spans of characters that count for the loss.
        starts_document: whether the tokenizer's own leading tokens come first; a chat template writes its own.
        literals: where special tokens of the data stand that are text.
        row: number of the row in its file.
        question: what a person asks last, "" for a text that asks nothing.
        tokens: of a row that was made into tokens before, which has no text.
        is_text: whether it is learned whole and asks nothing, so that each part of it can be learned alone.
    """

    text: str
    trained: list[Span]
    starts_document: bool
    literals: list[Span] = field(default_factory=list)
    row: int = 0
    question: str = ""
    tokens: Tokens | None = None
    is_text: bool = False


@dataclass(frozen=True, slots=True)
class Tokenised:
    """One conversation as tokens.

    Attributes:
        example: ids and labels, not yet cut to the context length.
        text: what was tokenised.
        ends: for each token the character behind it in `text`; leading tokens have 0.
        question, is_text: see Rendered.
    """

    example: Example
    text: str
    ends: NDArray[np.int64]
    question: str = ""
    is_text: bool = False


Encoded = list[tuple[list[int], list[Span]]]
"""Ids of each row and where each of them stands in its text."""


@dataclass(frozen=True, slots=True)
class _Begun:
    """A batch on which the tokenizer works.

    Attributes:
        groups: its rows, and what the tokenizer makes of them.
        cpu_s: processor time that it may take for all of them.
    """

    batch: list[Rendered]
    groups: list[tuple[list[Rendered], Future[Encoded]]]
    cpu_s: float


class Tokeniser:
    """Makes tokens of rendered rows.

    Args:
        tokenizer: a fast tokenizer.
        leading_ids: what comes before every plain text.
        literals: of the tokenizer.
        portions: told which rows the tokenizer works on.

    Attributes:
        ahead_cpu_s: processor time that the other thread may take while this one works on something else.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, leading_ids: list[int], literals: Literals, portions: Portions
    ) -> None:
        self._tokenizer, self._leading_ids, self._literals, self._portions = tokenizer, leading_ids, literals, portions
        self._texts: dict[int, str] = {}
        self.ahead_cpu_s = 0.0

    def batches(
        self, batches: Iterator[list[Rendered]], *, work_ahead: bool
    ) -> Iterator[tuple[list[Rendered], list[Tokenised]]]:
        """Yield each batch with its tokens.

        Args:
            batches: made as they are asked for.
            work_ahead: False where making them takes this tokenizer, which can't do two things at a time.
        """
        before: _Begun | None = None
        with ThreadPoolExecutor(1, "tokenizer") as pool:
            try:
                for batch, problem in _to_the_first_problem(batches):
                    # The last one is no full one: nothing is rendered while the tokenizer works on it.
                    begun = self._begin(batch, pool) if work_ahead and _is_full(batch) else None
                    if before:
                        yield before.batch, self._finish(before)
                    if problem:
                        raise problem
                    if begun is None:
                        yield batch, self._at_once(batch, pool)
                    before = begun
                if before:
                    yield before.batch, self._finish(before)
            finally:
                self.ahead_cpu_s = 0.0
                pool.shutdown(cancel_futures=True)

    def _begin(self, batch: list[Rendered], pool: ThreadPoolExecutor) -> _Begun:
        cpu_s = _cpu_s(batch)
        self.ahead_cpu_s += cpu_s
        return _Begun(batch, [(group, pool.submit(self._encode, group)) for group in _groups(batch)], cpu_s)

    def _finish(self, begun: _Begun) -> list[Tokenised]:
        tokenised: list[Tokenised] = []
        for group, future in begun.groups:
            tokenised += self._group(group, future, self.ahead_cpu_s)
        self.ahead_cpu_s -= begun.cpu_s
        return tokenised

    def _at_once(self, batch: list[Rendered], pool: ThreadPoolExecutor) -> list[Tokenised]:
        tokenised: list[Tokenised] = []
        for group in _groups(batch):
            tokenised += self._group(group, pool.submit(self._encode, group), _cpu_s(group))
        return tokenised

    def _group(self, group: list[Rendered], future: Future[Encoded], more_cpu_s: float) -> Iterator[Tokenised]:
        self._portions.begin("tokenizer", group[0].row, last_row=group[-1].row, more_cpu_s=more_cpu_s)
        while not wait([future], POLL_S).done:
            pass
        for item, (ids, offsets) in zip(group, future.result(), strict=True):
            yield self.from_tokens(item.tokens, item.is_text) if item.tokens else self._tokenised(item, ids, offsets)

    def _encode(self, group: list[Rendered]) -> Encoded:
        """Call the tokenizer, in one thread only: it refuses to be set up while another one uses it."""
        with reading(Path(self._tokenizer.name_or_path), "the tokenizer can't split the rows into tokens"):
            encoded = self._tokenizer(
                [item.text for item in group],
                add_special_tokens=False,
                return_offsets_mapping=True,
                return_attention_mask=False,
                verbose=False,
            )
        return [
            self._literals.encode(item.text, item.literals) if item.literals else (ids, offsets)
            for item, ids, offsets in zip(group, encoded["input_ids"], encoded["offset_mapping"], strict=True)
        ]

    def from_tokens(self, tokens: Tokens, is_text: bool) -> Tokenised:
        """Return a row that was made into tokens before."""
        for number in set(tokens.input_ids).difference(self._texts):
            self._texts[number] = str(self._tokenizer.decode([number]))
        texts = [self._texts[number] for number in tokens.input_ids]
        example = Example(np.array(tokens.input_ids, dtype=np.int32), np.array(tokens.labels, dtype=np.int32))
        return Tokenised(example, "".join(texts), np.cumsum([len(text) for text in texts]), is_text=is_text)

    def _tokenised(self, item: Rendered, ids: list[int], offsets: list[Span]) -> Tokenised:
        leading = self._leading_ids if item.starts_document else []
        input_ids = np.array(leading + ids, dtype=np.int32)
        starts, ends = np.fromiter(chain.from_iterable(offsets), np.int64, 2 * len(offsets)).reshape(-1, 2).T
        counts = np.zeros(len(ids), dtype=bool)
        if item.trained:
            # A token counts when any of its characters does: when the first stretch that ends behind its start begins
            # before its end.
            trained = np.array([*sorted(item.trained), (len(item.text) + 1,) * 2])
            counts = trained[np.searchsorted(trained[:-1, 1], starts, side="right"), 0] < ends
        # As in TRL, the leading tokens of a text that is learned whole count too.
        whole = bool(item.trained) and item.trained[0][0] == 0
        counts = np.concatenate([np.full(len(leading), whole), counts])
        labels = np.where(counts, input_ids, IGNORED_LABEL).astype(np.int32)
        ends = np.concatenate([np.zeros(len(leading), int), ends])
        return Tokenised(Example(input_ids, labels), item.text, ends, item.question, item.is_text)


def batches_of(rendered: Iterable[Rendered]) -> Iterator[list[Rendered]]:
    """Yield rows in batches; where each ends depends on the rows alone."""
    return _cut(rendered, BATCH_ROWS, BATCH_CHARACTERS)


def _groups(batch: list[Rendered]) -> Iterator[list[Rendered]]:
    """Split a batch so that few rows can be meant when the tokenizer takes too long, and a long row is alone."""
    return _cut(batch, GROUP_ROWS, GROUP_CHARACTERS)


def _cut(rows: Iterable[Rendered], most_rows: int, most_characters: int) -> Iterator[list[Rendered]]:
    part: list[Rendered] = []
    num_characters = 0
    for item in rows:
        if part and num_characters + len(item.text) > most_characters:
            yield part
            part, num_characters = [], 0
        part.append(item)
        num_characters += len(item.text)
        if len(part) == most_rows:
            yield part
            part, num_characters = [], 0
    if part:
        yield part


def _to_the_first_problem(
    batches: Iterator[list[Rendered]],
) -> Iterator[tuple[list[Rendered], TunesmithError | None]]:
    """Yield batches, and at last what is wrong with the next one: what is wrong with one before it comes first."""
    try:
        for batch in batches:
            yield batch, None
    except TunesmithError as error:
        yield [], error


def _is_full(batch: list[Rendered]) -> bool:
    num_characters = sum(len(item.text) for item in batch)
    return num_characters <= BATCH_CHARACTERS and (len(batch) == BATCH_ROWS or num_characters > BATCH_CHARACTERS / 2)


def _cpu_s(rows: list[Rendered]) -> float:
    return sum(len(item.text) for item in rows) / CHARACTERS_PER_S
