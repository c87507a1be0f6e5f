"""Rows of texts with labels: read, tokenised as a pipeline of transformers would, and split so that classes stay whole.

The label of a row stands where the token behind its last one would: the number of a class, or the bits of a number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tunesmith_core.datafmt import Labeled
from tunesmith_core.datafmt.held import number_of
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.messages import LISTED, Message, joined
from tunesmith_core.operations.limits import Portions
from tunesmith_core.position_limits import stated_context
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data.cuts import Cuts
from tunesmith_engine.data.example import IGNORED_LABEL, Example
from tunesmith_engine.data.groups import alike_rows, split_groups
from tunesmith_engine.data.order import split_rows
from tunesmith_engine.data.prepare import FileRows, Prepared, nothing_left, rendered_row, stats_of
from tunesmith_engine.data.read import Source, bad_rows_note, notes_of
from tunesmith_engine.data.render import Renderer
from tunesmith_engine.data.rows_file import RowsWriter
from tunesmith_engine.data.tokenising import Rendered
from tunesmith_engine.data.weighing import mixture_notes, shares_of, sources_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MOST_CLASSES = 1000
"""A column with more different labels rather holds numbers or texts."""

MOST_NAMED = 5
LARGE = 10.0
"""A number beyond it takes long to learn: a head begins near 0."""


@dataclass(slots=True)
class Labels:
    """The labels of the rows so far.

    Attributes:
        names: of the classes, in the order of their numbers.
        places: where the first row of each class stands.
        of_rows: the class of each row, or its number.
    """

    names: list[str]
    are_numbers: bool = False
    is_closed: bool = False
    places: dict[str, str] = field(default_factory=dict)
    of_rows: list[float] = field(default_factory=list)

    def take(self, label: str, place: str) -> int:
        """Return what stands for a label in a row.

        Raises:
            UserError: `dataset-classes` where no such class exists or it is not a number; `place` names the row.
        """
        if self.are_numbers:
            number = number_of(label)
            if number is None:
                raise TunesmithError(
                    "dataset-classes", '{place}: the label "{label}" is not a number.', place=place, label=label[:60]
                )
            self.of_rows.append(number)
            return int(np.array(number, dtype=np.float32).view(np.int32))
        if label not in self.names:
            if self.is_closed:
                raise TunesmithError(
                    "dataset-classes",
                    '{place}: no training row has the label "{label}", so the model can\'t learn it.',
                    place=place,
                    label=label[:60],
                )
            if len(self.names) == MOST_CLASSES:
                raise TunesmithError(
                    "dataset-classes",
                    "{place}: there are more than {most:,} different labels. Choose the column that holds classes, or "
                    "have numbers predicted (Labels are numbers).",
                    place=place,
                    most=MOST_CLASSES,
                )
            self.names.append(label)
        self.places.setdefault(label, place)
        self.of_rows.append(self.names.index(label))
        return self.names.index(label)


def prepare_labeled(
    spec: RunSpec, tokenizer: PreTrainedTokenizerBase, rows: RowsWriter, portions: Portions
) -> Prepared:
    """Write the rows of a run as `prepare` does, each with its label; see there for arguments and errors.

    Raises:
        UserError: also `dataset-classes` where labels can't be learned, naming file and line.
    """
    renderer = Renderer(tokenizer, spec.data, portions)
    cuts = Cuts(spec.data.context_length, most=stated_context(spec))
    sources = sources_of(spec, renderer.portions)
    labels = Labels(list(spec.objective.classes), spec.objective.regression, bool(spec.objective.classes))
    files = []
    for number, source in enumerate(sources):
        # Held-out rows of a file of their own come last.
        labels.is_closed |= number == len(spec.data.sources)
        files.append(_write(spec, source, renderer, cuts, rows, labels))
    notes: dict[str, str] = {}
    if spec.evaluation.path:
        num_train = sum(file.num_rows for file in files[:-1])
        train, held_out = list(range(num_train)), list(range(num_train, len(rows)))
    elif spec.evaluation.groups_by:
        train, held_out, notes = split_groups(spec, rows)
    else:
        wanted = (len(rows), spec.evaluation.percent, spec.schedule.seed)
        train, held_out = split_rows(*wanted, alike_rows(rows.groups, rows.contents))
        if not labels.are_numbers:
            train, held_out = _with_all_classes(train, held_out, labels)
    notes |= renderer.notes | notes_of(sources) | bad_rows_note(spec, sources) | cuts.notes() | _checked(labels, train)
    shares = shares_of(spec, [file.num_rows for file in files], held_out)
    return Prepared(
        train,
        held_out,
        stats_of(files, cuts, rows, train),
        notes | mixture_notes(spec, shares),
        "chat" if renderer.makes_chats else "text",
        shares,
        renderer.system_prompt.text,
        classes=labels.names,
    )


def _write(
    spec: RunSpec, source: Source, renderer: Renderer, cuts: Cuts, rows: RowsWriter, labels: Labels
) -> FileRows:
    num_before, num_overlong = len(rows), 0
    waiting: list[tuple[int, int | None]] = []

    def texts() -> Iterator[Rendered]:
        for number, conversation in source.conversations():
            assert isinstance(conversation, Labeled), "its rows have labels"
            rendered = rendered_row(source, renderer, number, conversation)
            try:
                if isinstance(rendered, UserError):
                    raise rendered
                target = labels.take(conversation.label, source.place(number))
            except UserError as error:
                source.bad_row(number, error)
                continue
            waiting.append((target, source.group))
            yield rendered

    for place, tokenised in enumerate(renderer.tokenise(texts())):
        target, own = waiting[place]
        ids = tokenised.example.input_ids
        if spec.data.overlong == "skip" and cuts.skips([tokenised.example]):
            num_overlong += 1
            labels.of_rows.pop(len(rows))
            continue
        ids = cuts.cut(Example(ids, np.full(len(ids), IGNORED_LABEL, dtype=np.int32))).input_ids
        learned = np.full(len(ids), IGNORED_LABEL, dtype=np.int32)
        learned[-1] = target
        rows.add(Example(ids, learned), tokenised.question, len(rows) if own is None else own)
    file = FileRows(len(rows) - num_before, source.row_format, source.num_skipped_rows, num_overlong, 0)
    if not file.num_rows:
        raise nothing_left(source.path, file, cuts)
    return file


def _with_all_classes(train: list[int], held_out: list[int], labels: Labels) -> tuple[list[int], list[int]]:
    """Return a split in which every class has a training row: its first held-out one where it had none."""
    trained = {labels.of_rows[row] for row in train}
    back = []
    for row in held_out:
        if labels.of_rows[row] not in trained:
            trained.add(labels.of_rows[row])
            back.append(row)
    return sorted([*train, *back]), [row for row in held_out if row not in back]


def _checked(labels: Labels, train: list[int]) -> dict[str, str]:
    """Return what a person should know about labels, codes and sentences.

    Raises:
        UserError: `dataset-classes` where there is nothing to tell apart.
    """
    trained = [labels.of_rows[row] for row in train]
    if labels.are_numbers:
        if len(set(trained)) == 1:
            raise TunesmithError(
                "dataset-classes",
                "Every training row has the number {number:g}, so there is nothing to learn.",
                number=trained[0],
            )
        largest = max(map(abs, trained))
        words = Message(
            "The largest number is {largest:g}. Numbers between -1 and 1 are learned much faster: divide them.",
            largest=largest,
        )
        return {"dataset-classes": words} if largest > LARGE else {}
    names = [labels.names[int(number)] for number in dict.fromkeys(trained)]
    if len(names) == 1:
        raise TunesmithError(
            "dataset-classes",
            '{place}: this row and all others have the label "{label}". Sorting needs at least two classes.',
            place=labels.places[names[0]],
            label=names[0],
        )
    missing = [name for name in labels.names if name not in names]
    if missing:
        place = labels.places.get(missing[0], "objective.classes")
        raise TunesmithError(
            "dataset-classes",
            '{place}: no training row has the label "{label}", so the model can\'t learn it.',
            place=place,
            label=missing[0],
        )
    rare = [name for name in names if labels.of_rows.count(labels.names.index(name)) == 1]
    if not rare:
        return {}
    told = [Message('"{label}" ({place})', label=name, place=labels.places[name]) for name in rare[:MOST_NAMED]]
    words = Message(
        "Classes with a single row, of which nobody can tell whether they are learned: {classes}.",
        classes=joined(told, LISTED),
    )
    return {"dataset-classes": words}
