"""From data files to examples: read, render, tokenise, cut to the context length, split off the evaluation rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunesmith_core.datafmt import Conversation
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.operations.limits import Portions
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_engine.data.cuts import Cuts
from tunesmith_engine.data.example import Example
from tunesmith_engine.data.order import split_rows
from tunesmith_engine.data.read import Source
from tunesmith_engine.data.render import Rendered, Renderer
from tunesmith_engine.data.rows_file import RowsWriter

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class DataStats:
    """What became of the rows; the counts cover training and evaluation files.

    Attributes:
        num_train_rows, num_eval_rows: examples of each set.
        num_skipped_rows: rows left out, the sum of the next three.
        num_bad_rows: could not be read or rendered.
        num_overlong_rows: longer than the context length, where such rows are skipped.
        num_untrained_rows: without any token that counts for the loss.
        num_truncated_rows: cut to the context length.
        num_tokens, num_trained_tokens: of the training examples.
        longest_tokens: length of the longest example.
        row_format: how the rows of the first file were read.
    """

    num_train_rows: int = 0
    num_eval_rows: int = 0
    num_skipped_rows: int = 0
    num_bad_rows: int = 0
    num_overlong_rows: int = 0
    num_untrained_rows: int = 0
    num_truncated_rows: int = 0
    num_tokens: int = 0
    num_trained_tokens: int = 0
    longest_tokens: int = 0
    row_format: str = ""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What became of the rows of a run, which stand in a file in the order in which they were read.

    Attributes:
        train, eval: numbers of the rows that are trained and held out, from 0, ascending.
        notes: what a person should know about how rows became tokens: codes and sentences.
        pairs: what became of prompts and completions: "chat" or "text".
    """

    train: list[int]
    eval: list[int]
    stats: DataStats
    notes: dict[str, str] = field(default_factory=dict)
    pairs: str = "text"

    def to_dict(self) -> dict[str, Any]:  # Any: JSON values
        """Return all but the numbers of the training rows as JSON values."""
        return {"eval": self.eval, "stats": asdict(self.stats), "notes": self.notes, "pairs": self.pairs}


@dataclass(frozen=True, slots=True)
class PreparedData:
    """Examples ready for training, in the order of the files.

    Attributes:
        notes: what a person should know about how rows became tokens: codes and sentences.
        pairs: what became of prompts and completions: "chat" or "text".
        prompts: the tokens of the sample prompts that could be rendered.
        questions: what is asked in some of the held-out examples, by their places among them.
    """

    train: list[Example]
    eval: list[Example]
    stats: DataStats
    notes: dict[str, str] = field(default_factory=dict)
    pairs: str = "text"
    prompts: dict[str, list[int]] = field(default_factory=dict)
    questions: dict[int, str] = field(default_factory=dict)

    @staticmethod
    def from_rows(rows: list[Example], values: dict[str, Any]) -> PreparedData:  # Any: JSON values
        """Return the data of all rows and `Prepared.to_dict`, with "prompts" and "questions" beside it."""
        held_out = set(values["eval"])
        return PreparedData(
            [row for number, row in enumerate(rows) if number not in held_out],
            [rows[number] for number in values["eval"]],
            DataStats(**values["stats"]),
            values["notes"],
            values["pairs"],
            values["prompts"],
            {int(place): text for place, text in values.get("questions", {}).items()},
        )

    def tokens_hash(self) -> str:
        """Return a digest of the training examples: tokens, and which of them count."""
        return _digest(self.train)

    def held_out_hash(self) -> str:
        """Return a digest of the held-out examples."""
        return _digest(self.eval)


def _digest(examples: list[Example]) -> str:
    digest = hashlib.sha256()
    for example in examples:
        digest.update(len(example.input_ids).to_bytes(8, "little"))
        digest.update(example.input_ids.tobytes() + example.labels.tobytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class _FileRows:
    """How many rows of a file are written, and what was left out."""

    num_rows: int
    row_format: str
    num_bad_rows: int
    num_overlong_rows: int
    num_untrained_rows: int


def prepare(spec: RunSpec, tokenizer: PreTrainedTokenizerBase, rows: RowsWriter, portions: Portions) -> Prepared:
    """Write the examples of a run into a file and return which of them are trained and held out.

    Args:
        spec: data, evaluation and the seed of the split.
        tokenizer: the base model's own.
        rows: where they are written.
        portions: told which row is being handled.

    Raises:
        UserError: `dataset-empty`, `dataset-parse-error`, `dataset-column-missing`, `dataset-chat-template-missing`,
            `chat-template-unclear`, `no-trained-tokens`, `foreign-limit`, each naming file and line where one is at
            fault.
    """
    renderer = Renderer(tokenizer, spec.data, portions)
    cuts = Cuts(spec.data.context_length)
    files = [_write_examples(spec, source, renderer, cuts, rows) for source in spec.all_sources()]
    if spec.evaluation.path:
        num_train = sum(file.num_rows for file in files[:-1])
        train, held_out = list(range(num_train)), list(range(num_train, len(rows)))
    else:
        train, held_out = split_rows(len(rows), spec.evaluation.percent, spec.schedule.seed)
    num_bad, num_overlong, num_untrained = (
        sum(getattr(file, name) for file in files)
        for name in ("num_bad_rows", "num_overlong_rows", "num_untrained_rows")
    )
    stats = DataStats(
        num_train_rows=len(train),
        num_eval_rows=len(held_out),
        num_skipped_rows=num_bad + num_overlong + num_untrained,
        num_bad_rows=num_bad,
        num_overlong_rows=num_overlong,
        num_untrained_rows=num_untrained,
        num_truncated_rows=cuts.num_cut,
        num_tokens=sum(rows.num_tokens[row] for row in train),
        num_trained_tokens=sum(rows.num_trained_tokens[row] for row in train),
        longest_tokens=max(rows.num_tokens),
        row_format=files[0].row_format,
    )
    notes = renderer.notes | cuts.notes()
    return Prepared(train, held_out, stats, notes, "chat" if renderer.makes_chats else "text")


def _write_examples(
    spec: RunSpec, file_spec: SourceSpec, renderer: Renderer, cuts: Cuts, rows: RowsWriter
) -> _FileRows:
    source = Source(file_spec, spec.data.skip_bad_rows, portions=renderer.portions)
    num_before, num_overlong, num_untrained = len(rows), 0, 0
    for tokenised in renderer.tokenise(rendered for _, rendered in rendered_rows(source, renderer)):
        example = tokenised.example
        if len(example.input_ids) > cuts.limit and spec.data.overlong == "skip":
            num_overlong += 1
            continue
        example = cuts.cut(example)
        if example.num_trained_tokens:
            rows.add(example, tokenised.question)
        else:
            num_untrained += 1
    renderer.notes |= source.notes
    num_rows, num_bad = len(rows) - num_before, source.num_skipped_rows
    file = _FileRows(num_rows, source.row_format, num_bad, num_overlong, num_untrained)
    if not file.num_rows:
        _raise_nothing_left(source.path, file, cuts.limit)
    return file


def _raise_nothing_left(path: Path, file: _FileRows, limit: int) -> None:
    if file.num_untrained_rows:
        raise TunesmithError(
            "no-trained-tokens",
            "{path}: none of the {num_rows} rows has a token to learn within {limit} tokens.",
            path=path,
            num_rows=file.num_untrained_rows,
            limit=limit,
        )
    raise TunesmithError(
        "dataset-empty",
        "{path}: all {num_rows} rows are longer than the context length of {limit} tokens.",
        hint="Raise the context length, or have longer rows cut.",
        path=path,
        num_rows=file.num_overlong_rows,
        limit=limit,
    )


def rendered_rows(source: Source, renderer: Renderer) -> Iterator[tuple[int, Rendered]]:
    """Yield (line or row number, rendered text) of every good row; rows that the template refuses are bad rows."""
    has_good = False
    for number, conversation in source.conversations():
        rendered = _rendered(source, renderer, number, conversation)
        if isinstance(rendered, UserError):
            source.bad_row(number, rendered)
        else:
            has_good = True
            yield number, rendered
    if not has_good and source.first_error:
        raise source.first_error


def _rendered(source: Source, renderer: Renderer, number: int, conversation: Conversation) -> Rendered | UserError:
    try:
        return renderer.render(conversation, source.place(number))
    except UserError as error:
        if error.code != "dataset-parse-error":
            raise
        return error
