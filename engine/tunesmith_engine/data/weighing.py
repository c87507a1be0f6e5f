"""What each file of a run gives to an epoch: by weight, with rows repeated or taken in turns, and at most so many rows.

An epoch's rows are a function of the shares, the seed and its number alone, so a resumed run needs no memory of others.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np

from tunesmith_core.datafmt import Conversation, Preference
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message, joined
from tunesmith_core.mixing import epoch_shares, with_replay
from tunesmith_core.objectives import FROM_PAIRS, LABELS, REINFORCEMENT, STORED
from tunesmith_core.operations.limits import Portions
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_engine.data.read import Source

MOST_TOLD = 5
"""Files of a mixture that a note names."""


@dataclass(frozen=True, slots=True)
class SourceShare:
    """What a data file gives to a run.

    Attributes:
        path: the file.
        num_train_rows, num_eval_rows: its rows that can be trained, and that are held out.
        num_epoch_rows: how many examples of an epoch come from it.
    """

    path: str
    num_train_rows: int
    num_eval_rows: int
    num_epoch_rows: int


class CappedSource(Source):
    """A data source of which a random choice of rows is read; they are counted before.

    Args:
        spec: the file, with the most rows.
        skip_bad_rows: whether bad ones are left out.
        portions: told where the reader is.
        group_column: see Source.
        in_pairs, in_labels: see Source.
        draw: a text for which the choice is always the same.
    """

    def __init__(
        self,
        spec: SourceSpec,
        skip_bad_rows: bool,
        portions: Portions,
        group_column: str,
        in_pairs: bool,
        draw: str,
        in_labels: bool = False,
    ) -> None:
        super().__init__(
            spec, skip_bad_rows, portions=portions, group_column=group_column, in_pairs=in_pairs, in_labels=in_labels
        )
        self._draw = draw

    def conversations(self) -> Iterator[tuple[int, Conversation | Preference]]:
        """Yield the chosen rows; see Source."""
        everything = Source(
            self.spec, True, portions=self.portions, in_pairs=self.in_pairs, in_labels=self.in_labels
        )
        everything.has_stored = self.has_stored
        num_rows = sum(1 for _ in everything.conversations())
        num_used = self.spec.num_used(num_rows)
        is_chosen = np.zeros(num_rows, bool)
        is_chosen[random.Random(self._draw).sample(range(num_rows), num_used)] = True
        yield from compress(super().conversations(), is_chosen.tolist())
        if num_used < num_rows:
            values = {"path": self.path, "num_used": num_used, "num_rows": num_rows}
            words = (
                Message("{path}: {num_used:,} of {num_rows:,} rows is used.", **values)
                if num_used == 1
                else Message("{path}: {num_used:,} of {num_rows:,} rows are used.", **values)
            )
            self._noted.append({"dataset-rows-capped": words})


def sources_of(spec: RunSpec, portions: Portions) -> list[Source]:
    """Return the data files of a run, ready to be read."""
    skips, column, seed = spec.data.skip_bad_rows, spec.evaluation.groups_by, spec.schedule.seed
    in_pairs, in_labels = spec.objective.kind in FROM_PAIRS, spec.objective.kind in LABELS
    found = [
        Source(source, skips, portions=portions, group_column=column, in_pairs=in_pairs, in_labels=in_labels)
        if source.most_rows is None
        else CappedSource(source, skips, portions, column, in_pairs, f"cap {seed} {number}", in_labels)
        for number, source in enumerate(spec.all_sources())
    ]
    for each in found:
        each.keeps_columns = spec.objective.kind in REINFORCEMENT
        each.has_stored = spec.objective.kind in STORED
    return found


def shares_of(spec: RunSpec, num_rows: Sequence[int], held_out: Sequence[int]) -> list[SourceShare]:
    """Return what each data file gives to a run.

    Args:
        spec: the run.
        num_rows: rows of each file, which follow each other.
        held_out: numbers of the rows that are held out.

    Raises:
        UserError: `dataset-weight` for a weight that gives no example.
    """
    sources = spec.data.sources
    places = np.searchsorted(np.cumsum(num_rows), np.asarray(held_out, np.int64), side="right")
    num_eval = np.bincount(places, minlength=len(sources)).tolist()
    num_train = [num - out for num, out in zip(num_rows, num_eval, strict=False)][: len(sources)]
    weights, replay = [source.weight for source in sources], [source.replay for source in sources]
    taken = with_replay(epoch_shares(num_train, weights), replay)
    for number, source in enumerate(sources):
        if (source.weight or source.replay) and not min(taken[number], num_train[number]):
            raise _without_examples(source, number, num_train[number], sum(taken))
    return [
        SourceShare(source.path, *counts)
        for source, *counts in zip(sources, num_train, num_eval, taken, strict=False)
    ]


def _without_examples(source: SourceSpec, number: int, num_train: int, num_examples: int) -> TunesmithError:
    if source.replay:
        return TunesmithError(
            "dataset-weight",
            "{path}: there is no row to train for its share of {share:g} % (data.sources[{number}].replay), because "
            "all are held out.",
            path=source.path,
            share=source.replay,
            number=number,
        )
    setting = f"data.sources[{number}].weight"
    if num_train:
        return TunesmithError(
            "dataset-weight",
            "{path}: its weight of {weight:g} ({setting}) is too low for an example. Examples in an epoch: {num:,}.",
            path=source.path,
            weight=source.weight,
            setting=setting,
            num=num_examples,
        )
    return TunesmithError(
        "dataset-weight",
        "{path}: there is no row to train for its weight of {weight:g} ({setting}), because all are held out.",
        path=source.path,
        weight=source.weight,
        setting=setting,
    )


def drawn_rows(shares: Sequence[SourceShare], seed: int, epoch: int) -> list[int]:
    """Return the training rows of an epoch, file by file: all as often as they fit in, and a random choice once more.

    Args:
        shares: of the files, whose training rows follow each other.
        seed: schedule.seed.
        epoch: from 0; every epoch makes a choice of its own.
    """
    rows: list[int] = []
    start = 0
    for place, share in enumerate(shares):
        own = range(start, start + share.num_train_rows)
        start += share.num_train_rows
        if own:
            times, rest = divmod(share.num_epoch_rows, len(own))
            rows += [*own] * times + sorted(random.Random(f"draw {seed} {epoch} {place}").sample(own, rest))
    return rows


def mixture_notes(spec: RunSpec, shares: Sequence[SourceShare]) -> dict[str, str]:
    """Return what a person should know of weights, a code and a sentence; nothing where there are none."""
    pairs = zip(spec.data.sources, shares, strict=True)
    weighted = [share for source, share in pairs if source.weight or source.replay]
    if not weighted:
        return {}
    words = [Message("Examples in an epoch: {num:,}.", num=sum(share.num_epoch_rows for share in shares))]
    words += [_told(share) for share in weighted[:MOST_TOLD]]
    if len(weighted) > MOST_TOLD:
        words.append(Message("Further files with a weight: {num:,}.", num=len(weighted) - MOST_TOLD))
    return {"dataset-mixture": joined(words)}


def planned_notes(
    spec: RunSpec, num_rows: Sequence[int] | None, examples: Sequence[int] | None = None
) -> dict[str, str]:
    """Return what weights will do, before rows are held out.

    Args:
        spec: the run.
        num_rows: of each file; None where they are not counted.
        examples: how many these make, where long ones are split; None for one of each.
    """
    sources = spec.data.sources
    total = sum(source.weight for source in sources)
    if num_rows is None:
        words = [
            Message(
                "{path}: {share:.0%} of the examples of the files with a weight.",
                path=each.path,
                share=each.weight / total,
            )
            for each in sources
            if each.weight
        ]
        words += [
            Message("{path}: {share:.0%} of the examples of an epoch.", path=each.path, share=each.replay / 100)
            for each in sources
            if each.replay
        ]
        return {"dataset-mixture": joined(words[:MOST_TOLD])} if words else {}
    share = 0.0 if spec.evaluation.path else spec.evaluation.percent / 100
    made = num_rows if examples is None else examples
    used = [source.examples_used(*numbers) for source, *numbers in zip(sources, num_rows, made, strict=True)]
    held_out = [round(num * share) for num in used]
    try:
        notes = mixture_notes(spec, shares_of(spec, [num - out for num, out in zip(used, held_out, strict=True)], []))
    except TunesmithError as error:
        return {error.code: error.message}
    num_left = sum(made) - sum(used)
    if not notes or not (sum(held_out) or num_left):
        return notes
    # Beside the number of all rows, that of an epoch would look like a mistake.
    values = {"num": sum(made), "held_out": sum(held_out), "num_left": num_left}
    read = Message(
        'Examples in the files: {num:,}. Held out: {held_out:,}. Left out by "Most rows": {num_left:,}.', **values
    )
    if sum(made) == sum(num_rows):
        read = Message(
            'Rows in the files: {num:,}. Held out: {held_out:,}. Left out by "Most rows": {num_left:,}.', **values
        )
    return {code: joined([read, words]) for code, words in notes.items()}


def _told(share: SourceShare) -> Message:
    times, rest = divmod(share.num_epoch_rows, share.num_train_rows)
    values = {"path": share.path, "num": share.num_epoch_rows, "rows": share.num_train_rows, "times": times}
    if not times:
        return Message("{path}: {num:,} of its {rows:,} rows, others in each epoch.", **values)
    if rest:
        more = times + 1
        return Message("{path}: {num:,} from {rows:,} rows, each taken {times} or {more} times.", **values, more=more)
    if share.num_train_rows == 1:
        return (
            Message("{path}: its only row, taken once.", **values)
            if times == 1
            else Message("{path}: its only row, taken {times} times.", **values)
        )
    if times > 1:
        return Message("{path}: {num:,} from {rows:,} rows, each taken {times} times.", **values)
    return Message("{path}: all {rows:,} rows, each taken once.", **values)
