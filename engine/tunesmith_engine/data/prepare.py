"""From data files to examples: read, render, tokenise, cut to the context length, split off the evaluation rows."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tunesmith_core.actions import RAISE_CONTEXT
from tunesmith_core.datafmt import Conversation, Preference, StoredAnswer
from tunesmith_core.datafmt.formats import PROMPT_ONLY
from tunesmith_core.datafmt.labels import one_sided, unbalanced
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.messages import Message
from tunesmith_core.objectives import FROM_PAIRS, FROM_STEPS, LABELS
from tunesmith_core.operations.limits import Portions
from tunesmith_core.position_limits import stated_context
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data.cuts import Cuts, fewest, needed_tokens
from tunesmith_engine.data.example import Example
from tunesmith_engine.data.groups import alike_rows, split_groups, uneven_documents
from tunesmith_engine.data.held_documents import Parts, documents_of
from tunesmith_engine.data.order import split_rows
from tunesmith_engine.data.read import Source, bad_rows_note, notes_of
from tunesmith_engine.data.render import Renderer
from tunesmith_engine.data.rows_file import Kept, RowsWriter
from tunesmith_engine.data.stored import StoredTargets, stored_targets
from tunesmith_engine.data.tokenising import Rendered
from tunesmith_engine.data.weighing import SourceShare, mixture_notes, shares_of, sources_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


LEAST_TRAINED = 0.01
"""Share of the tokens that count; with less, the answers are probably cut off or in another column."""

OVERLONG_HINT = Message("Raise the context length, or have longer rows cut. Longer texts can also be split.")
"""What helps where every row is longer than the context length and skipped."""


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
        num_open_rows: of these, cut in the middle of what is learned, so that its end is not.
        num_tokens, num_trained_tokens: of the training examples.
        longest_tokens: length of the longest example, of a pair of its longer answer.
        row_format: how the rows of the first file were read.
    """

    num_train_rows: int = 0
    num_eval_rows: int = 0
    num_skipped_rows: int = 0
    num_bad_rows: int = 0
    num_overlong_rows: int = 0
    num_untrained_rows: int = 0
    num_truncated_rows: int = 0
    num_open_rows: int = 0
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
        sources: what each data file gives to an epoch.
        system_prompt: that most rows begin with, "" where there is none.
        earlier: the same as long as copies of a row could be on both sides; None where the same rows were held out.
        classes: names of the classes of labels, in the order of their numbers.
        documents: see `documents_of`.
    """

    train: list[int]
    eval: list[int]
    stats: DataStats
    notes: dict[str, str] = field(default_factory=dict)
    pairs: str = "text"
    sources: list[SourceShare] = field(default_factory=list)
    system_prompt: str = ""
    earlier: Prepared | None = None
    classes: list[str] = field(default_factory=list)
    documents: Parts = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:  # Any: JSON values
        """Return all but the numbers of the training rows as JSON values."""
        return {
            "eval": self.eval,
            "stats": asdict(self.stats),
            "notes": self.notes,
            "pairs": self.pairs,
            "sources": [asdict(source) for source in self.sources],
            "system_prompt": self.system_prompt,
            "earlier": self.earlier.to_dict() if self.earlier else None,
            "classes": self.classes,
            "documents": self.documents,
        }


@dataclass(frozen=True, slots=True)
class PreparedData:
    """Examples ready for training, in the order of the files.

    Attributes:
        notes: what a person should know about how rows became tokens: codes and sentences.
        pairs: what became of prompts and completions: "chat" or "text".
        prompts: the tokens of the sample prompts that could be rendered.
        questions: what is asked in some of the held-out examples, by their places among them.
        sources: what each data file gives to an epoch; none where every example is taken once.
        system_prompt: that most rows begin with, "" where there is none.
        earlier: the same rows as an earlier version split them, see `Prepared`.
        classes: see `Prepared`.
        asked: what is asked in every training and in every held-out example, where the model answers them all; else
            nothing.
        kept: what is kept of the same beside their tokens, where the model answers them all; else nothing.
        documents: see `documents_of`.
    """

    train: list[Example]
    eval: list[Example]
    stats: DataStats
    notes: dict[str, str] = field(default_factory=dict)
    pairs: str = "text"
    prompts: dict[str, list[int]] = field(default_factory=dict)
    questions: dict[int, str] = field(default_factory=dict)
    sources: list[SourceShare] = field(default_factory=list)
    system_prompt: str = ""
    earlier: PreparedData | None = None
    classes: list[str] = field(default_factory=list)
    asked: tuple[list[str], list[str]] = ([], [])
    kept: tuple[list[Kept], list[Kept]] = ([], [])
    documents: Parts = field(default_factory=list)

    @property
    def held_out_parts(self) -> Parts:
        """From where the held-out rows come, one behind the other: documents, or else data files."""
        return self.documents or [(each.path, each.num_eval_rows) for each in self.sources if each.num_eval_rows]

    @staticmethod
    def from_rows(
        rows: list[Example],
        values: dict[str, Any],
        asked: Mapping[int, str] = MappingProxyType({}),
        kept: Sequence[Kept] = (),
    ) -> PreparedData:  # Any: JSON values
        """Return the data of all rows and `Prepared.to_dict`, with "prompts" and "questions" beside it.

        Args:
            rows: of the run.
            values: as above.
            asked: what is asked in each row, where that is wanted of all.
            kept: what is kept of each row, where something is.
        """
        held_out, earlier = set(values["eval"]), values.get("earlier")
        in_training = [text for number, text in asked.items() if number not in held_out]
        return PreparedData(
            [row for number, row in enumerate(rows) if number not in held_out],
            [rows[number] for number in values["eval"]],
            DataStats(**values["stats"]),
            values["notes"],
            values["pairs"],
            values["prompts"],
            {int(place): text for place, text in values.get("questions", {}).items()},
            [SourceShare(**source) for source in values["sources"]],
            values["system_prompt"],
            PreparedData.from_rows(rows, values | earlier, asked, kept) if earlier else None,
            values.get("classes", []),
            (in_training, [asked[number] for number in values["eval"] if number in asked]),
            (
                [each for number, each in enumerate(kept) if number not in held_out],
                [kept[number] for number in values["eval"]] if kept else [],
            ),
            [(name, num) for name, num in values.get("documents", [])],
        )

    def as_in(self, fingerprint: Mapping[str, Any]) -> PreparedData:  # Any: JSON values
        """Return the rows split as a checkpoint has them: an earlier version may have begun its run."""
        if self.earlier and self.earlier.hashes().items() <= fingerprint.items():
            return self.earlier
        return self

    def hashes(self) -> dict[str, str]:
        """Return the digests by which a checkpoint knows the rows."""
        return {"tokens": self.tokens_hash(), "held_out": self.held_out_hash()}

    def tokens_hash(self) -> str:
        """Return a digest of the training examples: tokens, and which of them count."""
        return _digest(self.train)

    def held_out_hash(self) -> str:
        """Return a digest of the held-out examples."""
        return _digest(self.eval)


def _digest(examples: list[Example]) -> str:
    digest = hashlib.sha256()
    for example in examples:
        for sequence in example.sequences:
            digest.update(len(sequence.input_ids).to_bytes(8, "little"))
            digest.update(sequence.input_ids.tobytes() + sequence.labels.tobytes())
        if example.is_bad:
            digest.update(b"bad")
        if soft := example.soft:
            digest.update(soft.counts.tobytes() + soft.ids.tobytes() + soft.shares.tobytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class FileRows:
    """How many rows of a file are written, and what was left out.

    Attributes:
        learned_from: of the rows that were left out, the fewest tokens with which one has something to learn; 0 where
            none has anything to learn at any length.
    """

    num_rows: int
    row_format: str
    num_bad_rows: int
    num_overlong_rows: int
    num_untrained_rows: int = 0
    learned_from: int = 0


def prepare(spec: RunSpec, tokenizer: PreTrainedTokenizerBase, rows: RowsWriter, portions: Portions) -> Prepared:
    """Write the examples of a run into a file and return which of them are trained and held out.

    Args:
        spec: data, evaluation and the seed of the split.
        tokenizer: the base model's own.
        rows: where they are written.
        portions: told which row is being handled.

    Raises:
        UserError: `dataset-empty`, `dataset-parse-error`, `dataset-column-missing`, `dataset-chat-template-missing`,
            `chat-template-unclear`, `no-trained-tokens`, `dataset-groups`, `dataset-weight`, `foreign-limit`, each
            naming file and line where one is at fault.
    """
    renderer = Renderer(tokenizer, spec.data, portions)
    cuts = Cuts(spec.data.context_length, spec.data.overlong == "split", stated_context(spec))
    sources = sources_of(spec, renderer.portions)
    if stored := stored_targets(spec, tokenizer):
        files = [_write_examples(spec, source, renderer, cuts, rows, stored) for source in sources]
        notes = stored.notes()
    else:
        write = _write_pairs if spec.objective.kind in FROM_PAIRS else _write_examples
        files = [write(spec, source, renderer, cuts, rows) for source in sources]
        notes = _notes_of_labels(spec, rows)
    earlier = None
    if spec.evaluation.path:
        num_train = sum(file.num_rows for file in files[:-1])
        train, held_out = list(range(num_train)), list(range(num_train, len(rows)))
    elif spec.evaluation.groups_by:
        train, held_out, more_notes = split_groups(spec, rows)
        notes |= more_notes
    else:
        wanted = (len(rows), spec.evaluation.percent, spec.schedule.seed)
        train, held_out = split_rows(*wanted, alike_rows(rows.groups, rows.contents))
        if any(source.has_documents for source in sources):
            notes |= uneven_documents(*wanted, held_out)
        # An earlier version had neither weights nor texts in parts.
        is_new = cuts.num_split or any(source.weight or source.replay for source in spec.data.sources)
        earlier = None if is_new else split_rows(*wanted)
    notes |= renderer.notes | notes_of(sources) | bad_rows_note(spec, sources) | cuts.notes()
    pairs = "chat" if renderer.makes_chats else "text"

    def split(train: list[int], held_out: list[int], earlier: Prepared | None = None) -> Prepared:
        shares = shares_of(spec, [file.num_rows for file in files], held_out)
        stats = stats_of(files, cuts, rows, train)
        more = mixture_notes(spec, shares)
        if spec.objective.kind not in FROM_STEPS:
            more |= few_trained(stats.num_trained_tokens, stats.num_tokens)
        system_prompt = renderer.system_prompt.text
        documents = documents_of(rows.documents, held_out, [source.path for source in spec.all_sources()])
        return Prepared(
            train, held_out, stats, notes | more, pairs, shares, system_prompt, earlier, documents=documents
        )

    return split(train, held_out, split(*earlier) if earlier and earlier[1] != held_out else None)


def stats_of(files: list[FileRows], cuts: Cuts, rows: RowsWriter, train: list[int]) -> DataStats:
    num_bad, num_overlong, num_untrained = (
        sum(getattr(file, name) for file in files)
        for name in ("num_bad_rows", "num_overlong_rows", "num_untrained_rows")
    )
    return DataStats(
        num_train_rows=len(train),
        num_eval_rows=len(rows) - len(train),
        num_skipped_rows=num_bad + num_overlong + num_untrained,
        num_bad_rows=num_bad,
        num_overlong_rows=num_overlong,
        num_untrained_rows=num_untrained,
        num_truncated_rows=cuts.num_cut,
        num_open_rows=cuts.num_open,
        num_tokens=sum(rows.num_tokens[row] for row in train),
        num_trained_tokens=sum(rows.num_trained_tokens[row] for row in train),
        longest_tokens=rows.longest_tokens,
        row_format=files[0].row_format,
    )


def _notes_of_labels(spec: RunSpec, rows: RowsWriter) -> dict[str, str]:
    """Return what a person should know of labels. Raises UserError `dataset-labels` where all are the same."""
    if spec.objective.kind not in LABELS:
        return {}
    num_bad = len(rows.bad_rows)
    num_good = len(rows) - num_bad
    if problem := one_sided(num_good, num_bad):
        raise problem
    words = unbalanced(num_good, num_bad, spec.objective.good_weight, spec.objective.bad_weight)
    return {"dataset-labels-unbalanced": words} if words else {}


def few_trained(num_trained: int, num_tokens: int) -> dict[str, str]:
    """Return what a person should know when hardly any token counts for the loss, a code and a sentence."""
    if num_trained >= num_tokens * LEAST_TRAINED:
        return {}
    words = Message(
        "Only {num_trained:,} of {num_tokens:,} tokens are trained, less than 1%. The rest is read, not learned.",
        num_trained=num_trained,
        num_tokens=num_tokens,
    )
    return {"few-trained-tokens": words}


def _write_pairs(
    spec: RunSpec, source: Source, renderer: Renderer, cuts: Cuts, rows: RowsWriter
) -> FileRows:
    """Write the rows of a file of preference pairs, each as its better answer with the worse one behind it."""
    num_before, num_overlong = len(rows), 0
    untrained: list[int] = []
    groups: deque[int | None] = deque()

    def texts() -> Iterator[Rendered]:
        for place, (_, rendered) in enumerate(rendered_rows(source, renderer)):
            if place % 2 == 0:
                groups.append(source.group)
            yield rendered

    answers = rows.begun.examples(texts(), renderer)
    # Both answers of a pair follow each other.
    for chosen, rejected in zip(answers, answers, strict=True):
        own = groups.popleft()
        both = chosen.example, rejected.example
        if spec.data.overlong == "skip" and cuts.skips(both):
            num_overlong += 1
            continue
        if cuts.learns(both):
            better, worse = map(cuts.cut, both)
            rows.add(replace(better, rejected=worse), chosen.question, len(rows) if own is None else own)
        else:
            untrained.append(needed_tokens(both))
    num_rows, num_bad = len(rows) - num_before, source.num_skipped_rows
    file = FileRows(num_rows, source.row_format, num_bad, num_overlong, len(untrained), fewest(untrained))
    if not file.num_rows:
        raise nothing_left(source.path, file, cuts)
    return file


@dataclass(frozen=True, slots=True)
class _Read:
    """What is known of a row while it is made into tokens.

    Attributes:
        number, place: where it is, the place only where it may be named.
        stored: what it keeps of the bigger model that wrote it.
    """

    number: int
    place: str
    group: int | None
    is_bad: bool
    document: str
    kept: Kept | None
    stored: StoredAnswer | None


def _as_read(source: Source, number: int) -> _Read:
    kept = Kept(source.columns, source.row_format != PROMPT_ONLY) if source.keeps_columns else None
    place = source.place(number) if source.stored else ""
    return _Read(number, place, source.group, source.is_bad, source.document, kept, source.stored)


def _write_examples(
    spec: RunSpec,
    source: Source,
    renderer: Renderer,
    cuts: Cuts,
    rows: RowsWriter,
    targets: StoredTargets | None = None,
) -> FileRows:
    num_before, num_overlong = len(rows), 0
    untrained: list[int] = []
    waiting: deque[_Read] = deque()

    def texts() -> Iterator[Rendered]:
        for number, rendered in rendered_rows(source, renderer):
            waiting.append(_as_read(source, number))
            yield rendered

    # Many are rendered before the first is made into tokens. The first problem ends that.
    with closing(rows.begun.examples(texts(), renderer)) as examples:
        for tokenised in examples:
            # The parts of a text stay together, as the pieces of a document and the rows of a group do.
            row = waiting.popleft()
            group, soft = len(rows) if row.group is None else row.group, None
            if targets and row.stored:
                try:
                    soft = targets.of(tokenised.example, row.stored, row.place)
                except UserError as error:
                    source.bad_row(row.number, error)
                    continue
            if spec.data.overlong == "skip" and cuts.skips([tokenised.example]):
                num_overlong += 1
                continue
            for part in cuts.parts(tokenised):
                if cuts.learns([part.example]):
                    example = cuts.cut(part.example, is_text=tokenised.is_text)
                    left = soft and soft.first(example.num_trained_tokens)
                    example = replace(example, is_bad=row.is_bad, soft=left)
                    rows.add(example, tokenised.question, group, row.document, row.kept)
                else:
                    untrained.append(needed_tokens([part.example]))
    num_rows, num_bad = len(rows) - num_before, source.num_skipped_rows
    file = FileRows(num_rows, source.row_format, num_bad, num_overlong, len(untrained), fewest(untrained))
    if targets and source.first_error and not (num_rows or num_overlong or untrained):
        raise source.first_error
    if not file.num_rows:
        raise nothing_left(source.path, file, cuts)
    return file


def nothing_left(path: Path | str, file: FileRows, cuts: Cuts) -> TunesmithError:
    """Return why a run can't learn from a file none of whose rows is left, and what to do."""
    if file.num_untrained_rows:
        helps = cuts.is_reachable(file.learned_from)
        return TunesmithError(
            "no-trained-tokens",
            "{path}: no row has a token to learn within {limit} tokens. Rows: {num_rows:,}.",
            hint=cuts.to_learn(file.learned_from),
            path=path,
            num_rows=file.num_untrained_rows,
            limit=cuts.limit,
            actions=(RAISE_CONTEXT,) if helps else (),
        )
    return TunesmithError(
        "dataset-empty",
        "{path}: every row is longer than the context length of {limit} tokens. Rows: {num_rows:,}.",
        hint=OVERLONG_HINT,
        actions=(RAISE_CONTEXT,),
        path=path,
        num_rows=file.num_overlong_rows,
        limit=cuts.limit,
    )


def rendered_rows(source: Source, renderer: Renderer) -> Iterator[tuple[int, Rendered]]:
    """Yield (line or row number, rendered text) of every good row; rows that the template refuses are bad rows.

    A pair gives two texts with one number, the better answer before the worse one.
    """
    has_good = False
    for number, conversation in source.conversations():
        found: list[Rendered] = []
        for part in answers_of(conversation):
            rendered = rendered_row(source, renderer, number, part)
            if isinstance(rendered, UserError):
                source.bad_row(number, rendered)
                break
            found.append(rendered)
        else:
            has_good = True
            yield from ((number, each) for each in found)
    if not has_good and source.first_error:
        raise source.first_error


def answers_of(conversation: Conversation | Preference) -> tuple[Conversation, ...]:
    """Return a conversation, or both of a pair, the better one first."""
    return (conversation.chosen, conversation.rejected) if isinstance(conversation, Preference) else (conversation,)


def rendered_row(
    source: Source, renderer: Renderer, number: int, conversation: Conversation
) -> Rendered | UserError:
    """Return the text of a row, or why the template refuses it. Raises UserError where it refuses every one."""
    try:
        return renderer.render(conversation, source.place(number))
    except UserError as error:
        if error.code != "dataset-parse-error":
            raise
        return error
