"""What a run will learn, for the window: the first rows as the model will see them, and how long rows are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from tunesmith_core.datafmt import StoredAnswer
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.messages import Message, joined
from tunesmith_core.model_folder import base_folder, known_tokens
from tunesmith_core.objectives import FROM_LABELS, FROM_PAIRS, FROM_STEPS, LABELS, STORED, sequences_per_row
from tunesmith_core.operations.limits import Portions
from tunesmith_core.position_limits import beyond_stated, positions_of, stated_context, too_long
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data.cuts import Cuts, fewest, needed_tokens
from tunesmith_engine.data.example import IGNORED_LABEL, Example
from tunesmith_engine.data.prepare import FileRows, few_trained, nothing_left, rendered_rows
from tunesmith_engine.data.read import Source, bad_rows_note, notes_of
from tunesmith_engine.data.render import Renderer
from tunesmith_engine.data.stored import StoredTargets, stored_targets
from tunesmith_engine.data.tokenising import Rendered, Tokenised
from tunesmith_engine.data.weighing import planned_notes
from tunesmith_engine.model.folder import check_token_ids
from tunesmith_engine.model.vocabulary import rows_with, words_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MAX_ROWS = 5000
"""Rows that are looked at; a preview is for a person who waits."""

MAX_PARTS = 32
"""Examples that are shown of a row that is split."""

MAX_PROBLEMS = 100
NUM_BARS = 24


def preview(
    spec: RunSpec,
    tokenizer: PreTrainedTokenizerBase,
    num_rows: int,
    portions: Portions | None = None,
    *,
    tokens: bool = False,
) -> dict[str, Any]:  # Any: JSON values
    """Return the first rows with the trained stretches told apart, and counts over the first 5000 rows.

    Bad rows are listed instead of raised, whatever the spec says about them.

    Args:
        spec: data section and model.
        tokenizer: the base model's own.
        num_rows: most rows to show, of pairs each with both of its answers.
        portions: told which row is being handled.
        tokens: whether each row that is shown also has its tokens one by one.

    Returns:
        rows: list of {line, place, part, answer, label, segments: [{text, trained}], num_tokens, num_trained_tokens,
        num_lost_tokens, is_cut, is_skipped}; of a row that is split one for each of its first parts, which are counted
        from 1; of a pair one for each answer, "better" and behind it "worse", of labels "good" or "bad", where others
        have ""; the label of a text that has one, else ""; the segment at the end of a step has also is_right; with
        `tokens` also tokens: [{id, text, trained, special}], the text empty behind the first token of a character that
        takes several, `special` the name of a control token, else empty.
        histogram: list of {from_tokens, to_tokens, num_rows}, the upper bound exclusive.
        num_rows, the examples that are not skipped, of which a row that is split has several; rows_looked_at, the
        readable rows of each source, and rows_used, how many examples a run makes of these; row_tokens, the tokens of
        one on average, None where there is none; num_skipped, bad rows and those that are skipped because they are too
        long; num_cut, num_untrained, longest_tokens, longest_kept_tokens (behind the cuts), context_length;
        learned_from, the fewest tokens with which a row has something to learn, 0 where none has; too_long, the error
        of rows for which the model has no positions, or None; unknown_token, the error of a token that it has no
        embedding for, or None; nothing_left, the error of a file that has nothing to learn, or None;
        is_complete, False when the file goes on behind the rows that were looked at; problems: list of {line, message},
        at most 100; notes: sentences about how rows become tokens; reasons: for each source a sentence that says by
        what its format was recognized; pairs: what became of prompts and completions, "chat" or "text"; num_tokens,
        num_trained_tokens, num_lost_tokens: of these rows, the last behind the context length.

    Raises:
        UserError: when no row can be shown at all, with the cause of the first.
    """
    problems: list[dict[str, Any]] = []

    def note(line: int, error: TunesmithError) -> None:
        if len(problems) < MAX_PROBLEMS:
            problems.append({"line": line, "message": error.message})

    portions = portions or Portions()
    column, in_pairs = spec.evaluation.groups_by, spec.objective.kind in FROM_PAIRS
    in_labels = spec.objective.kind in LABELS
    sources = [Source(each, True, note, portions, column, in_pairs, in_labels) for each in spec.data.sources]
    for source in sources:
        source.has_stored = spec.objective.kind in STORED
    stored = stored_targets(spec, tokenizer)
    show_tokens = tokenizer if tokens else None
    found = _looked_at(spec, sources, Renderer(tokenizer, spec.data, portions), num_rows, show_tokens, stored)
    return found | {"problems": problems} | _by_model(spec, tokenizer, found)


def _by_model(
    spec: RunSpec, tokenizer: PreTrainedTokenizerBase, found: dict[str, Any]
) -> dict[str, Any]:  # Any: JSON values
    """Return what the model says of the rows that were looked at: errors by name, and the notes with these before."""
    refusal, note_of_positions = _positions(spec, found["longest_kept_tokens"], found["learned_from"])
    unknown = _unknown_token(spec, tokenizer, found.pop("highest_token"))
    errors = {"too_long": refusal, "unknown_token": unknown}
    notes = [*filter(None, [unknown and unknown.message, note_of_positions]), *found["notes"]]
    return {"notes": notes, **{name: error and error.to_dict() for name, error in errors.items()}}


def _unknown_token(
    spec: RunSpec, tokenizer: PreTrainedTokenizerBase, highest: int
) -> TunesmithError | None:
    """Return the refusal of a token that the model has no embedding for, None where there is none or nobody can tell.

    Args:
        spec: of the run.
        tokenizer: with its new words.
        highest: number of a token that is learned or read.
    """
    try:
        folder = base_folder(spec.model.path, spec.model.revision)
        rows = known_tokens(folder)
    except TunesmithError:
        return None
    words = words_of(spec)
    if not rows:
        return None
    try:
        numbers = tokenizer.convert_tokens_to_ids(words)
        check_token_ids(highest, tokenizer, rows_with(rows, numbers) if words else rows, folder)
    except UserError as error:
        return error
    return None


def _positions(
    spec: RunSpec, longest_tokens: int, learned_from_tokens: int
) -> tuple[TunesmithError | None, str | None]:
    """Return why the model can't read the longest example, and what a person should know of its length."""
    positions = positions_of(spec)
    if refusal := too_long(longest_tokens, positions, spec.model.path):
        return refusal, joined([refusal.message, refusal.hint])
    return None, None if positions else beyond_stated(longest_tokens, stated_context(spec), learned_from_tokens)


@dataclass(slots=True)
class _Left:
    """What is left of the examples of a file.

    Attributes:
        path: of the file.
        num_tokens, num_trained_tokens: of the examples that are not left out, within the context length.
        num_learned: rows that are not left out.
        num_overlong: skipped because they are too long.
        num_untrained: without one within the context length.
        learned_from: the fewest tokens with which one of these has something to learn, 0 where none has.
        highest_token: number of a token of these within the context length.
        answers: of a pair that is being looked at, those before.
    """

    path: str
    num_tokens: int = 0
    num_trained_tokens: int = 0
    num_learned: int = 0
    num_overlong: int = 0
    num_untrained: int = 0
    learned_from: int = 0
    highest_token: int = 0
    answers: list[Tokenised] = field(default_factory=list)

    def skip(self, row: Tokenised, cuts: Cuts) -> Example:
        """Return the beginning of an example that a run leaves out."""
        return Example(row.example.input_ids[: cuts.limit], np.full(cuts.limit, IGNORED_LABEL, dtype=np.int32))

    def is_left_out(self, row: Tokenised, cuts: Cuts, spec: RunSpec) -> bool:
        """Return whether a run leaves an example out, and count it; of a pair at its second answer."""
        self.answers.append(row)
        if len(self.answers) < sequences_per_row(spec.objective.kind):
            return False
        rows, self.answers = self.answers, []
        answers = [each.example for each in rows]
        if spec.data.overlong == "skip" and cuts.skips(answers):
            self.num_overlong += 1
            return True
        self.learned_from = fewest([self.learned_from, needed_tokens(answers)])
        # A class is learned from the whole text.
        if spec.objective.kind in FROM_LABELS or cuts.learns(answers):
            self.num_learned += 1
            for each in rows:
                kept = cuts.cut(each.example, is_text=each.is_text)
                self.num_tokens += len(kept.input_ids)
                self.num_trained_tokens += kept.num_trained_tokens
                self.highest_token = max(self.highest_token, int(kept.input_ids.max()))
            return False
        self.num_untrained += 1
        return True

    def counts(self, num_tokens: int, num_bad: int) -> dict[str, Any]:  # Any: JSON values
        """Return what is left by the names of the answer; see `preview`.

        Args:
            num_tokens: of all rows, before they were cut.
            num_bad: bad rows.
        """
        return {
            "num_rows": self.num_learned + self.num_untrained,
            "row_tokens": self.num_tokens / self.num_learned if self.num_learned else None,
            "num_skipped": num_bad + self.num_overlong,
            "num_untrained": self.num_untrained,
            "num_tokens": self.num_tokens,
            "num_trained_tokens": self.num_trained_tokens,
            "num_lost_tokens": num_tokens - self.num_tokens,
            "learned_from": self.learned_from,
            "highest_token": self.highest_token,
        }

    def problem(self, cuts: Cuts) -> TunesmithError | None:
        """Return why nothing of the file can be learned; None where something can, or all its rows are bad."""
        if self.num_learned or not (self.num_overlong or self.num_untrained):
            return None
        file = FileRows(0, "", 0, self.num_overlong, self.num_untrained, self.learned_from)
        return nothing_left(self.path, file, cuts)


def _of_all(left: list[_Left]) -> _Left:
    """Return the counts of all files together."""
    names = [each.name for each in fields(_Left) if each.name.startswith("num_")]
    counts = {name: sum(getattr(file, name) for file in left) for name in names}
    highest = max(file.highest_token for file in left)
    return _Left("", learned_from=fewest([file.learned_from for file in left]), highest_token=highest, **counts)


@dataclass(slots=True)
class _Head:
    """The first rows of all sources, of each an equal share.

    Attributes:
        num_shown: rows of each source that are shown at most.
        is_complete: whether these are all rows.
        numbers: how many rows of each source were looked at.
        examples: how many these make.
        stored: tells whether what a bigger model found likely fits a row, where that is learned.
    """

    sources: list[Source]
    renderer: Renderer
    num_shown: int
    stored: StoredTargets | None = None
    is_complete: bool = True
    numbers: list[int] = field(default_factory=list)
    examples: list[int] = field(default_factory=list)

    def rows(self) -> Iterator[tuple[dict[str, Any], bool, Rendered, Tokenised]]:  # Any: JSON values
        """Yield {line, place, answer, label} of a row, whether it is to be shown, and the row as text and as tokens."""
        for source in self.sources:
            num_answers = 2 if source.in_pairs else 1
            found = _to_first_fault(source, self.renderer)
            # The place is known only while the file is read.
            placed = (
                (line, source.place(line), source.is_bad, source.label, source.stored, rendered)
                for line, rendered in found
            )
            looked_at = list(islice(placed, max(1, MAX_ROWS // len(self.sources))))
            self.is_complete &= next(found, None) is None
            self.numbers.append(len(looked_at) // num_answers)
            self.examples.append(self.numbers[-1])
            all_tokenised = self.renderer.tokenise(rendered for *_, rendered in looked_at)
            both = zip(looked_at, all_tokenised, strict=True)
            for number, ((line, place, is_bad, label, answer_kept, rendered), tokenised) in enumerate(both):
                if not self._fits(source, line, place, tokenised, answer_kept):
                    continue
                row, behind = divmod(number, num_answers)
                answer = "worse" if behind else "better" if source.in_pairs else ""
                if source.in_labels:
                    answer = "bad" if is_bad else "good"
                said = {"line": line, "place": place, "answer": answer, "label": label}
                yield said, row < self.num_shown, rendered, tokenised
        problems = [source.first_error for source in self.sources if source.first_error]
        if problems and not any(self.numbers):
            raise problems[0]

    def _fits(self, source: Source, line: int, place: str, tokenised: Tokenised, answer: StoredAnswer | None) -> bool:
        """Return whether a row can be learned with what it keeps, and note why not."""
        if self.stored is None or answer is None:
            return True
        try:
            self.stored.of(tokenised.example, answer, place)
        except UserError as error:
            source.bad_row(line, error)
            self.numbers[-1] -= 1
            self.examples[-1] -= 1
            return False
        return True


def _to_first_fault(source: Source, renderer: Renderer) -> Iterator[tuple[int, Rendered]]:
    """Yield the rows before a place from which on a file can't be read, which is told; see `rendered_rows`.

    Raises:
        UserError: what is wrong, when no row comes before it.
    """
    line = 0
    try:
        for line, rendered in rendered_rows(source, renderer):
            yield line, rendered
    except UserError as error:
        if not line or source.on_problem is None:
            raise
        source.on_problem(line + 1, error)


def _looked_at(
    spec: RunSpec,
    sources: list[Source],
    renderer: Renderer,
    num_rows: int,
    tokenizer: PreTrainedTokenizerBase | None,
    stored: StoredTargets | None,
) -> dict[str, Any]:  # Any: JSON values
    """Return what `preview` does but for the problems; with a tokenizer also the tokens of each row that is shown."""
    cuts = Cuts(spec.data.context_length, spec.data.overlong == "split", stated_context(spec))
    rows: list[dict[str, Any]] = []
    lengths: list[int] = []
    left = [_Left(source.path) for source in spec.data.sources]
    num_shown, num_answers = 0, sequences_per_row(spec.objective.kind)
    head = _Head(sources, renderer, -(-num_rows // len(sources)), stored)
    for said, is_shown, rendered, row in head.rows():
        file = left[len(head.numbers) - 1]
        leading = renderer.leading_text if rendered.starts_document else ""
        is_shown = is_shown and num_shown < num_rows * num_answers
        num_shown += is_shown
        parts = list(cuts.parts(row))
        head.examples[-1] += len(parts) - 1
        for part, tokenised in enumerate(parts, 1):
            lengths.append(length := len(tokenised.example.input_ids))
            is_skipped = spec.data.overlong == "skip" and length > cuts.limit
            example = file.skip(tokenised, cuts) if is_skipped else cuts.within(tokenised.example)
            head.examples[-1] -= file.is_left_out(tokenised, cuts, spec)
            if is_shown and part <= MAX_PARTS:
                # Only the first part has the leading tokens.
                shown = _shown_row(tokenised, example, leading if part == 1 else "", spec.objective.kind in FROM_STEPS)
                rows.append({**said, "part": part, "is_skipped": is_skipped, **shown})
                if tokenizer:
                    rows[-1]["tokens"] = _shown_tokens(tokenizer, tokenised, example)
    of_all = _of_all(left)
    problem = next(filter(None, (file.problem(cuts) for file in left)), None)
    of_lengths = _length_notes(spec, cuts, of_all, are_all=head.is_complete)
    if problem:
        of_lengths = _nothing_notes(problem, len(lengths), is_complete=head.is_complete)
    notes = renderer.notes | notes_of(sources) | bad_rows_note(spec, sources) | of_lengths
    notes |= planned_notes(spec, head.numbers if head.is_complete else None, head.examples)
    return {
        "rows": rows,
        "histogram": histogram(lengths),
        **of_all.counts(sum(lengths), sum(source.num_skipped_rows for source in sources)),
        "rows_looked_at": head.numbers,
        "rows_used": head.examples,
        "num_cut": cuts.num_cut,
        "longest_tokens": max(lengths),
        "longest_kept_tokens": cuts.longest_kept,
        "context_length": cuts.limit,
        "is_complete": head.is_complete,
        "nothing_left": problem.to_dict() if problem and head.is_complete else None,
        "notes": list(notes.values()),
        "reasons": [source.reason for source in sources],
        "pairs": "chat" if renderer.makes_chats else "text",
    }


def _nothing_notes(problem: TunesmithError, num_rows: int, *, is_complete: bool) -> dict[str, str]:
    """Return why a file has nothing to learn, as far as its rows were looked at, a code and a sentence."""
    first = Message("None of the first {num_rows:,} rows has a token to learn.", num_rows=num_rows)
    return {problem.code: joined([problem.message if is_complete else first, problem.hint])}


def _length_notes(spec: RunSpec, cuts: Cuts, left: _Left, *, are_all: bool) -> dict[str, str]:
    """Return what a person should know of what the context length leaves to learn, codes and sentences."""
    notes = cuts.notes(are_all=are_all)
    if spec.objective.kind in FROM_LABELS | FROM_STEPS:
        return notes
    return notes | few_trained(left.num_trained_tokens, left.num_tokens)


def _shown_row(
    tokenised: Tokenised, example: Example, leading: str, in_steps: bool
) -> dict[str, Any]:  # Any: JSON values
    num_tokens = len(example.input_ids)
    segments: list[dict[str, Any]] = []
    for text, label in zip(_token_texts(tokenised, num_tokens), example.labels, strict=True):
        trained = bool(label != IGNORED_LABEL)
        if in_steps and trained:
            segments.append({"text": text, "trained": True, "is_right": bool(label)})
        elif segments and segments[-1]["trained"] == trained:
            segments[-1]["text"] += text
        else:
            segments.append({"text": text, "trained": trained})
    segments[0]["text"] = leading + segments[0]["text"]
    return {
        "segments": [segment for segment in segments if segment["text"] or "is_right" in segment],
        "num_tokens": num_tokens,
        "num_trained_tokens": example.num_trained_tokens,
        "num_lost_tokens": len(tokenised.example.input_ids) - num_tokens,
        "is_cut": num_tokens < len(tokenised.example.input_ids),
    }


def _token_texts(tokenised: Tokenised, num_tokens: int) -> Iterator[str]:
    """Yield the text that each of the first tokens adds; the leading ones add none."""
    position = 0
    for end in tokenised.ends[:num_tokens].tolist():
        yield tokenised.text[position:end]
        position = max(position, end)


def _shown_tokens(
    tokenizer: PreTrainedTokenizerBase, tokenised: Tokenised, example: Example
) -> list[dict[str, Any]]:  # Any: JSON values
    special = {number: str(token) for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    num_tokens = len(example.input_ids)
    numbers, labels = example.input_ids.tolist(), example.labels.tolist()
    return [
        {"id": number, "text": text, "trained": label != IGNORED_LABEL, "special": special.get(number, "")}
        for number, label, text in zip(numbers, labels, _token_texts(tokenised, num_tokens), strict=True)
    ]


def histogram(lengths: list[int]) -> list[dict[str, int]]:
    """Count lengths in at most 24 bars of equal width, from 0 tokens to the longest."""
    width = max(lengths) // NUM_BARS + 1
    counts = [0] * (max(lengths) // width + 1)
    for length in lengths:
        counts[length // width] += 1
    return [
        {"from_tokens": bar * width, "to_tokens": (bar + 1) * width, "num_rows": count}
        for bar, count in enumerate(counts)
    ]
