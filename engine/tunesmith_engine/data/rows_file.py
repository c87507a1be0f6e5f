"""Training rows between two processes: token ids and labels, written row by row, read in one go; questions beside.
"""

from __future__ import annotations

import hashlib
import json
import time
from array import array
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tunesmith_engine.data.begun import Begun
from tunesmith_engine.data.example import Example, SoftTargets

NAME = "rows.int32"
LENGTHS = "lengths.int64"
"""A negative length is that of a worse answer, which belongs to the row before it."""
QUESTIONS = "questions.jsonl"
BAD_ROWS = "bad.int64"
"""Numbers of the rows whose answer people called a bad one."""
COLUMNS = "columns.jsonl"
"""Other columns of each row where they are kept, see `Kept`; else it is empty."""
SOFT_COUNTS, SOFT_IDS, SOFT_SHARES = "soft-counts.int32", "soft-ids.int32", "soft-shares.float32"
"""The soft targets of all rows behind each other, see `SoftTargets`; empty where a run has none."""
FILES = (NAME, LENGTHS, QUESTIONS, BAD_ROWS, COLUMNS, SOFT_COUNTS, SOFT_IDS, SOFT_SHARES)

MAX_QUESTION_CHARACTERS = 2000
"""What a person sees of a question."""


TELL_EVERY_ROWS, TELL_EVERY_S = 256, 1.0


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of a row beside its tokens.

    Attributes:
        columns: other columns than those of prompt and answer.
        has_answer: False where something stands for the answer.
    """

    columns: dict[str, Any] = field(default_factory=dict)  # Any: JSON values
    has_answer: bool = True


class RowsWriter:
    """Writes rows into a folder; a context manager. Memory grows by a few bytes a row only.

    Args:
        folder: where they are written.
        tell: told from time to time how many there are.
        begun: what is done of them already.

    Attributes:
        begun: as given.
        num_tokens: of each row so far.
        num_trained_tokens: of each row so far.
        longest_tokens: of what passes through the model in one piece.
        contents: a hash of the tokens of each row so far.
        groups: what each row so far belongs to; rows of a group are all trained or all held out.
        documents: from which each row so far came.
        bad_rows: numbers of those so far whose answer people called a bad one.
    """

    def __init__(
        self, folder: Path, tell: Callable[[int], object] = lambda _num_rows: None, begun: Begun | None = None
    ) -> None:
        self.begun = begun or Begun()
        self._tell, self._told_s = tell, time.monotonic()
        self.num_tokens, self.num_trained_tokens, self.contents = array("q"), array("q"), array("q")
        self.groups, self.bad_rows = array("q"), array("q")
        self.documents: list[str] = []
        self.longest_tokens = 0
        self._lengths = array("q")
        self._lengths_path, self._bad_path = folder / LENGTHS, folder / BAD_ROWS
        self._file = (folder / NAME).open("wb")
        self._questions = (folder / QUESTIONS).open("w", encoding="utf-8", errors="replace", newline="\n")
        self._columns = (folder / COLUMNS).open("w", encoding="utf-8", errors="replace", newline="\n")
        self._soft = [(folder / name).open("wb") for name in (SOFT_COUNTS, SOFT_IDS, SOFT_SHARES)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._questions.close()
        self._columns.close()
        for file in self._soft:
            file.close()
        self._lengths_path.write_bytes(_little_endian(np.array(self._lengths, dtype=np.int64)))
        self._bad_path.write_bytes(_little_endian(np.array(self.bad_rows, dtype=np.int64)))

    def __len__(self) -> int:
        return len(self.num_tokens)

    def add(
        self, example: Example, question: str = "", group: int = 0, document: str = "", kept: Kept | None = None
    ) -> None:
        """Write a row: its ids, then its labels; and what a person asks in it, "" for a text that asks nothing."""
        self.documents.append(document)
        if kept is not None:
            self._columns.write(json.dumps(asdict(kept), default=str) + "\n")
        if example.is_bad:
            self.bad_rows.append(len(self))
        if soft := example.soft:
            for file, values in zip(self._soft, (soft.counts, soft.ids, soft.shares), strict=True):
                file.write(_little_endian(values))
        self.groups.append(group)
        self.num_tokens.append(example.num_tokens)
        self.num_trained_tokens.append(example.num_trained_tokens)
        content = hashlib.blake2b(digest_size=8)
        for sequence in example.sequences:
            length, tokens = len(sequence.input_ids), _little_endian(sequence.input_ids)
            self._lengths.append(length if sequence is example else -length)
            self.longest_tokens = max(self.longest_tokens, length)
            content.update(tokens)
            self._file.write(tokens)
            self._file.write(_little_endian(sequence.labels))
        self.contents.append(int.from_bytes(content.digest(), "little", signed=True))
        self._questions.write(json.dumps(question[:MAX_QUESTION_CHARACTERS]) + "\n")
        if len(self) % TELL_EVERY_ROWS == 0 and time.monotonic() - self._told_s >= TELL_EVERY_S:
            self._told_s = time.monotonic()
            self._tell(len(self))


def _little_endian(values: np.ndarray) -> bytes:
    return np.asarray(values, values.dtype.newbyteorder("<")).tobytes()


def read_rows(folder: Path) -> list[Example]:
    """Return the rows of a folder in the order in which they were written."""
    values = np.asarray(np.fromfile(folder / NAME, dtype="<i4"), np.int32)
    lengths = np.fromfile(folder / LENGTHS, dtype="<i8")
    ends = np.cumsum(2 * np.abs(lengths)).tolist()
    rows: list[Example] = []
    for length, end in zip(lengths.tolist(), ends, strict=True):
        middle = end - abs(length)
        example = Example(values[middle - abs(length) : middle], values[middle:end])
        if length < 0:
            rows[-1] = replace(rows[-1], rejected=example)
        else:
            rows.append(example)
    for number in np.fromfile(folder / BAD_ROWS, dtype="<i8").tolist():
        rows[number] = replace(rows[number], is_bad=True)
    counts = np.asarray(np.fromfile(folder / SOFT_COUNTS, dtype="<i4"), np.int32)
    return _with_soft_targets(folder, rows, counts) if len(counts) else rows


def _with_soft_targets(folder: Path, rows: list[Example], counts: NDArray[np.int32]) -> list[Example]:
    ids = np.asarray(np.fromfile(folder / SOFT_IDS, dtype="<i4"), np.int32)
    shares = np.asarray(np.fromfile(folder / SOFT_SHARES, dtype="<f4"), np.float32)
    rest, found = SoftTargets(counts, ids, shares, int(counts.max())), []
    for row in rows:
        soft = rest.first(row.num_trained_tokens)
        found.append(replace(row, soft=soft))
        counts, num = rest.counts[len(soft.counts) :], len(soft.ids)
        rest = SoftTargets(counts, rest.ids[num:], rest.shares[num:], rest.most)
    return found


def read_kept(folder: Path) -> list[Kept]:
    """Return what is kept of the rows of a folder beside their tokens, none where that is nothing."""
    with (folder / COLUMNS).open(encoding="utf-8") as file:
        return [Kept(**json.loads(line)) for line in file]


def read_questions(folder: Path, numbers: Collection[int]) -> dict[int, str]:
    """Return the questions of some rows of a folder by their numbers."""
    wanted, last = set(numbers), max(numbers, default=-1)
    with (folder / QUESTIONS).open(encoding="utf-8") as file:
        found = {}
        for number, line in enumerate(file):
            if number in wanted:
                found[number] = str(json.loads(line))
            if number >= last:
                break
    return found
