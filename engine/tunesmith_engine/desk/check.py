"""A check of data: one pass over all files, whose rows are looked at in batches."""

from __future__ import annotations

import contextlib
import gc
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunesmith_core import data_library
from tunesmith_core.datafmt import Row, is_wanted
from tunesmith_core.datafmt.encoding import row_place
from tunesmith_core.datafmt.row_index import Position
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.language_names import language_name
from tunesmith_core.messages import LISTED, Message, joined
from tunesmith_core.model_library import context_length
from tunesmith_core.objectives import FROM_PAIRS, LABELS
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kinds.data import CheckDataSpec
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_engine.desk.answers import answer_problem
from tunesmith_engine.desk.copies import MOST_ROWS, Copies, answered_otherwise, copies, leaked, swapped
from tunesmith_engine.desk.edited import Counted, Edited
from tunesmith_engine.desk.languages import MOST_CHARACTERS as MOST_LANGUAGE_BYTES
from tunesmith_engine.desk.languages import LanguageSample, other_languages
from tunesmith_engine.desk.lengths import Lengths, too_long_message, unlearned_message
from tunesmith_engine.desk.located import locate
from tunesmith_engine.desk.near import MOST_EVALUATION_ROWS, NearRows, has_library
from tunesmith_engine.desk.near import MOST_ROWS as MOST_NEAR_ROWS
from tunesmith_engine.desk.problems import MOST_SHOWN, Found, Problems
from tunesmith_engine.desk.reading import Meter, Opened, open_tolerantly, total_bytes
from tunesmith_engine.desk.rules import ERROR, NOTE, RULES, action_of
from tunesmith_engine.desk.schemas import Schemas
from tunesmith_engine.desk.shapes import Shape
from tunesmith_engine.desk.sieve import Sieve
from tunesmith_engine.desk.text_rules import text_rules

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BATCH_ROWS, BATCH_BYTES = 256, 1 << 20
MOST_FINDINGS = 100
"""In one text, whose kinds are told."""

ROWS_OBJECTS = 100_000
"""New objects after which Python looks for circles among them: rows have none, and usual are 700."""

_Looked = tuple[int, Row, bytes, list[str], str]
"""Line, row, all texts of it as UTF-8, these texts, and which of them is the answer, "" for none."""


def check_data(host: Host, spec: CheckDataSpec) -> dict[str, Any]:  # Any: JSON values
    """Return what is wrong with the data of a run, and where.

    Raises:
        TunesmithError: `foreign-limit`, and `dataset-column-missing` for columns that were named and are not there;
            whatever else is wrong with the data is in the answer.
    """
    gc.set_threshold(ROWS_OBJECTS)
    with host.portions as portions:
        tokenizer = None
        if spec.folder:
            from tunesmith_engine.operations import limited_tokenizer

            tokenizer = limited_tokenizer(Path(spec.folder), portions, spec.run.model.chat_template)
        else:
            portions.limit_memory(portions.limits.memory_bytes)
        check = Check(host, spec, tokenizer)
        sources = spec.run.all_sources()
        for number in range(len(sources)):
            check.read(number, bool(spec.run.evaluation.path) and number == len(sources) - 1)
        check.conclude()
        answer = check.answer()
    host.phase("hashing")
    return {**answer, "hash": data_library.content_hash([Path(source.path) for source in sources])}


@dataclass(frozen=True, slots=True)
class _Batch:
    """Rows of one file that are looked at together; as many of each.

    Attributes:
        first: number of the first row.
        lines: where they stand.
        rows: as they were read.
        texts: what is trained on of each, as UTF-8.
        questions: hashes of what is answered, 0 for none.
        answers: of each, "" for none.
    """

    first: int
    lines: Sequence[int]
    rows: Sequence[Row]
    texts: Sequence[bytes]
    questions: Sequence[int]
    answers: Sequence[str]


def _batch(first: int, looked: list[_Looked]) -> _Batch:
    lines, rows, texts, parts, answers = zip(*looked, strict=True) if looked else ((),) * 5
    questions = [
        hash(each[0]) if len(each) == 2 and each[1] is answer else _question(each, answer)
        for each, answer in zip(parts, answers, strict=True)
    ]
    return _Batch(first, lines, rows, texts, questions, answers)


def _question(texts: list[str], answer: str) -> int:
    return hash(tuple(text for text in texts if text is not answer)) if answer and len(texts) > 1 else 0


class Check:
    """What is known of all rows that were read so far.

    Args:
        host: told how far it is.
        spec: what is checked.
        tokenizer: None leaves out what needs one.
    """

    def __init__(self, host: Host, spec: CheckDataSpec, tokenizer: PreTrainedTokenizerBase | None) -> None:
        self._run, self._portions = spec.run, host.portions
        self._edited = Edited(spec.edited)
        self._sources = spec.run.all_sources()
        self._meter = Meter(host, total_bytes(self._sources))
        self._problems = Problems()
        # Of each row that could be read 1 byte for whether a rule named it; of the first MOST_ROWS also 8 for the text,
        # 8 for the question, 8 for the answer and 4 for the line. Behind them only rows that dearer rules look at have
        # a line.
        self._num_rows = 0
        self._hashes, self._questions, self._answers = array("q"), array("q"), array("q")
        self._lines, self._named = array("I"), bytearray()
        # Of preference pairs, their numbers among the rows, and hashes as they are and with the answers exchanged.
        self._pairs, self._exchanged, self._pair_rows = array("q"), array("q"), array("q")
        self._later_lines: dict[int, int] = {}
        # The number of the first row of each file, the file, and what it belongs to.
        self._starts: list[int] = []
        self._paths: list[str] = []
        self._kinds: list[str] = []
        self._specs: dict[str, SourceSpec] = {}
        self._num_train: int | None = None
        # Rows that a run never gets to, because it stops at their file or at one of them.
        self._unusable: list[range] = []
        # Rows that could not be read, are no conversation, are refused by the template, and whose label is false.
        self._num_unread = self._num_errors = self._num_unrendered = self._num_left_out = 0
        # That the context length leaves nothing of.
        self._num_unlearned = 0
        self._near, self._languages, self._has_near = NearRows(), LanguageSample(), has_library()
        special = getattr(tokenizer, "all_special_tokens", ())
        self._text_rules = text_rules(special)
        self._lengths = None
        if tokenizer is not None:
            most = 0
            with contextlib.suppress(UserError):
                most = context_length(Path(spec.folder))
            self._lengths = Lengths(tokenizer, spec.run, host.portions, most)
        self._formats: dict[str, str] = {}
        self._reasons: dict[str, str] = {}
        self._language_counts: dict[str, int] = {}
        self._notes: list[str] = []

    # One pass

    def read(self, number: int, is_held_out: bool) -> None:
        """Read the files of a source and look at each row."""
        spec = self._sources[number]
        self._specs[spec.path] = spec
        if is_held_out:
            self._num_train = self._num_rows

        broken: list[str] = []
        refused: list[Position] = []
        counted = Counted()

        def bad(path: str, line: int, error: TunesmithError) -> None:
            if line and self._edited.has(position := counted.position(path, line)):
                refused.append(position)
                return
            self._num_unread += line > 0
            if not line:
                broken.append(path)
            self._specs.setdefault(path, spec)
            self._problems.add_error(path, line, error)
            self._reasons.setdefault(path, error.message)

        kind = self._run.objective.kind
        for file in open_tolerantly(spec, self._portions, bad, kind in LABELS):
            broken_rule = self._begin(file, spec)
            if self._edited:
                file = replace(file, rows=self._edited.applied(file.path, file.rows, refused))
            schemas = Schemas(file.layout)
            self._read_rows(file, Shape(file.layout, kind in FROM_PAIRS | LABELS), schemas)
            for line, message in schemas.different():
                self._problems.add("mixed-schema", Found(file.path, line, message, keys=()), NOTE)
            self._problems.count_more("mixed-schema", schemas.num_more)
            self._notes += [note for note in file.source.notes.values() if note not in self._notes]
            num_rows = self._num_rows - self._starts[-1]
            if broken_rule:
                # All its rows, of which the first was counted when the problem was told.
                self._problems.count_more(broken_rule, max(0, num_rows - 1))
                self._unusable.append(range(self._starts[-1], self._num_rows))
            self._meter.end_file(file, num_rows)
            if num_rows and file.path in broken:
                self._num_unread += 1
                self._notes.append(
                    Message(
                        "{path}: rows behind the error are not counted. Rows before it: {number:,}.",
                        path=file.path,
                        number=num_rows,
                    )
                )

    def _begin(self, file: Opened, spec: SourceSpec) -> str:
        """Remember a file; return the rule that it breaks as a whole, "" for none."""
        self._starts.append(self._num_rows)
        self._paths.append(file.path)
        self._kinds.append(file.source.kind)
        self._specs.setdefault(file.path, spec)
        if file.problem is not None:
            if spec.columns:
                # All rows would be called bad, where a name was mistyped.
                raise file.problem
            self._reasons[file.path] = file.problem.message
            return self._problems.add_error(file.path, 0, file.problem)
        if file.layout:
            self._formats[file.path] = file.layout.format
            self._reasons[file.path] = file.reason
        return ""

    def _read_rows(self, file: Opened, shape: Shape, schemas: Schemas) -> None:
        looked: list[_Looked] = []
        num_bytes = 0
        # What is done for each of millions of rows is worth short ways.
        quick_texts, place = shape.quick_texts, shape.answer_place
        for line, row in file.rows:
            texts = quick_texts(row)
            if texts is not None:
                answer = "" if place is None else texts[place]
            elif (found := self._closely(line, row, shape, file, self._num_rows + len(looked))) is not None:
                texts, answer = found, shape.answer(row)
            else:
                continue
            text = "\n".join(texts).encode("utf-8", "surrogatepass")
            num_bytes += len(text)
            looked.append((line, row, text, texts, answer))
            if num_bytes > BATCH_BYTES or len(looked) >= BATCH_ROWS:
                self._look(_batch(self._num_rows, looked), shape, schemas, file)
                looked.clear()
                num_bytes = 0
                file.announce(line)
                self._meter.read(file, self._num_rows - self._starts[-1])
        self._look(_batch(self._num_rows, looked), shape, schemas, file)

    def _closely(self, line: int, row: Row, shape: Shape, file: Opened, number: int) -> list[str] | None:
        """Return the texts of a row after a close look, None when it can't be trained on or is left out.

        Args:
            line: where it stands.
            row: as it was read.
            shape: of the rows of its file.
            file: its file.
            number: what it gets when it is kept.
        """
        if file.layout is not None and not is_wanted(row, file.layout):
            self._num_left_out += 1
            return None
        try:
            problem = shape.look(row, file.source.place(line))
        except UserError as error:
            self._num_errors += 1
            self._problems.add_error(file.path, line, error, row)
            return None
        if problem:
            keys, words = problem
            self._problems.add("role-order", Found(file.path, line, words, keys=keys, row=row))
            self._name(number)
        if broken := shape.pair_problem(row):
            rule, keys, words = broken
            self._problems.add(rule, Found(file.path, line, words, keys=keys, row=row))
            self._name(number)
        elif number < MOST_ROWS and (hashes := shape.pair_hashes(row)):
            for kept, value in zip((self._pairs, self._exchanged, self._pair_rows), (*hashes, number), strict=True):
                kept.append(value)
        return [text for _, text in shape.leaves(row)]

    def _name(self, number: int) -> None:
        """Remember that a rule named the row that comes next, which those of its batch before it don't reach yet."""
        self._named.extend(bytes(number + 1 - len(self._named)))
        self._named[number] = 1

    def _look(self, batch: _Batch, shape: Shape, schemas: Schemas, file: Opened) -> None:
        """Apply the rules about texts to a batch."""
        schemas.add(batch.lines, batch.rows)
        self._num_rows += len(batch.lines)
        self._named.extend(bytes(self._num_rows - len(self._named)))
        if len(self._lines) < MOST_ROWS:
            self._lines.extend(batch.lines)
            self._hashes.extend(map(hash, batch.texts))
            self._questions.extend(batch.questions)
            # Of no text it is 0.
            self._answers.extend(map(hash, batch.answers))
        sieve = Sieve(batch.texts)
        for rule in self._text_rules:
            for place in sieve.rows_with(rule.marks, rule.groups):
                row = batch.rows[place]
                for keys, text in shape.leaves(row, rule.name):
                    if findings := list(islice(rule.find(text), MOST_FINDINGS)):
                        what = joined(dict.fromkeys(each.what for each in findings), LISTED)
                        message = Message('column "{column}": {what}.', column=str(keys[0]), what=what)
                        line = batch.lines[place]
                        spans = tuple((each.start, each.end) for each in findings)
                        found = Found(file.path, line, message, None, keys, findings[0].start, row, spans=spans)
                        self._problems.add(rule.name, found)
                        self._named[batch.first + place] |= RULES[rule.name].severity != NOTE
                        break
        self._sample(batch, file)

    def _sample(self, batch: _Batch, file: Opened) -> None:
        """Take what dearer rules need."""
        start, limit = (self._num_train, MOST_EVALUATION_ROWS) if self._num_train is not None else (0, MOST_NEAR_ROWS)
        if self._has_near and batch.first < start + limit:
            for row, text in enumerate(batch.texts, batch.first):
                self._near.add(row, text.decode("utf-8", "replace"))
                self._keep_line(row, batch)
        for row in self._languages.wanted(batch.first, len(batch.texts)):
            text = batch.texts[row - batch.first][:MOST_LANGUAGE_BYTES]
            self._languages.add(row, text.decode("utf-8", "ignore"))
            self._keep_line(row, batch)
        if self._lengths and file.layout:
            for row, text in enumerate(batch.texts, batch.first):
                if self._lengths.wants(row, len(text)):
                    self._keep_line(row, batch)
                    place = file.source.place(self._line(row))
                    self._lengths.add(row, batch.rows[row - batch.first], file.layout, place)

    def _keep_line(self, row: int, batch: _Batch) -> None:
        if row >= len(self._lines):
            self._later_lines[row] = batch.lines[row - batch.first]

    def _line(self, row: int) -> int:
        return self._lines[row] if row < len(self._lines) else self._later_lines[row]

    # What can be said at the end

    def conclude(self) -> None:
        """Apply the rules that need all rows."""
        num_rows = len(self._hashes)
        num_train = num_rows if self._num_train is None else min(self._num_train, num_rows)
        self._add_copies("exact-duplicate", copies(self._hashes, 0, num_train))
        if self._num_train is not None:
            self._add_copies("exact-duplicate", copies(self._hashes, num_train, num_rows))
            self._add_copies("leakage", leaked(self._hashes, num_train))
        self._conclude_pairs()
        self._conclude_near(num_train)
        self._conclude_questions(num_train)
        self._conclude_answers(num_train)
        self._conclude_languages()
        self._conclude_lengths()
        for rows in self._unusable:
            self._named[rows.start : rows.stop] = bytes(len(rows))
            self._num_unrendered += len(rows)
        if self._num_left_out:
            words = Message(
                "Rows whose label is false or whose vote is a tie are left out: {number:,}.", number=self._num_left_out
            )
            self._notes.append(words)
        if self._num_rows > len(self._hashes):
            words = Message("Only the first {number:,} rows were searched for duplicates.", number=len(self._hashes))
            self._notes.append(words)

    def _found(self, row: int, message: str) -> Found:
        return Found(self._path_of(row), self._line(row), message, keys=())

    def _path_of(self, row: int) -> str:
        return self._paths[bisect_right(self._starts, row) - 1]

    def _place(self, row: int) -> str:
        number = bisect_right(self._starts, row) - 1
        return row_place(Path(Path(self._paths[number]).name), self._kinds[number], self._line(row))

    def _add_copies(self, rule: str, found: Copies) -> None:
        for row, first in zip(found.rows[:MOST_SHOWN].tolist(), found.firsts[:MOST_SHOWN].tolist(), strict=True):
            self._problems.add(rule, self._found(row, Message("the same as {place}.", place=self._place(first))))
        self._problems.count_more(rule, max(0, len(found.rows) - MOST_SHOWN))
        for row in found.rows.tolist():
            self._named[row] = 1

    def _conclude_pairs(self) -> None:
        found = swapped(self._pairs, self._exchanged)
        for place, first in zip(found.rows.tolist(), found.firsts.tolist(), strict=True):
            row, before = self._pair_rows[place], self._place(self._pair_rows[first])
            words = Message("the same answers as {place}, the other way round.", place=before)
            self._problems.add("swapped-pair", self._found(row, words))
            self._named[row] = 1

    def _conclude_near(self, num_train: int) -> None:
        for row, first in self._near.pairs:
            if row < len(self._hashes) and self._hashes[row] == self._hashes[first]:
                continue
            message = Message("nearly the same as {place}.", place=self._place(first))
            if row >= num_train > first:
                message = Message("nearly the same as the evaluation row at {place}.", place=self._place(row))
                self._problems.add("leakage", self._found(first, message))
                self._named[first] = 1
            else:
                self._problems.add("near-duplicate", self._found(row, message))
        if num_train > MOST_NEAR_ROWS and self._has_near:
            self._notes.append(
                Message("Only the first {number:,} rows were searched for near duplicates.", number=MOST_NEAR_ROWS)
            )

    def _conclude_questions(self, num_train: int) -> None:
        found = answered_otherwise(self._questions, self._answers, num_train)
        for row, first in zip(found.rows[:MOST_SHOWN].tolist(), found.firsts[:MOST_SHOWN].tolist(), strict=True):
            words = Message("the same question as {place}, with another answer.", place=self._place(first))
            self._problems.add("other-answer", self._found(row, words))
        self._problems.count_more("other-answer", max(0, len(found.rows) - MOST_SHOWN))

    def _conclude_answers(self, num_train: int) -> None:
        problem = answer_problem(self._answers[:num_train])
        if problem is None:
            return
        shown = (row for row in range(num_train) if self._answers[row] == problem.hash)
        for row, _ in zip(shown, range(min(MOST_SHOWN, problem.num_rows)), strict=False):
            self._problems.add(problem.rule, self._found(row, problem.message), problem.severity)
        self._problems.count_more(problem.rule, max(0, problem.num_rows - MOST_SHOWN))

    def _conclude_languages(self) -> None:
        try:
            languages = self._languages.languages()
        except ImportError:
            return
        counts = Counter(languages.values())
        others = set(other_languages(languages))
        # One row alone is more often a wrong guess than a language.
        told = ((code, number) for code, number in counts.most_common() if number > 1 or len(counts) == 1)
        self._language_counts = dict(told) if self._languages.speaks_for_all(languages) else {}
        for row, code in languages.items():
            if code in others:
                words = Message("probably {language}.", language=language_name(code))
                self._problems.add("language-mix", self._found(row, words))

    def _conclude_lengths(self) -> None:
        if self._lengths is None:
            return
        with contextlib.suppress(UserError):
            self._lengths.count()
        num_measured = self._num_rows - len(self._lengths.refused)
        # A run stops where nothing is left.
        severity = ERROR if 0 < self._lengths.num_left_out == num_measured else ""
        for each in self._lengths.too_long:
            message = too_long_message(each.num_tokens, self._run.data.context_length)
            self._problems.add("over-long", self._found(each.row, message), severity)
            self._named[each.row] = self._run.data.overlong != "skip"
        for each in self._lengths.unlearned:
            message = unlearned_message(each.num_tokens, self._run.data.context_length)
            self._problems.add("unlearned", self._found(each.row, message), severity)
            self._named[each.row] = 0
        for row, said in self._lengths.refused:
            self._problems.add("role-order", self._found(row, said), ERROR)
            self._num_unrendered += 1
            self._named[row] = 0
        if self._lengths.problem:
            self._problems.add("unwritable", self._found(self._lengths.problem_row, self._lengths.problem.message))
            self._unusable, self._num_unrendered = [range(self._num_rows)], 0
        else:
            self._num_unlearned = self._lengths.num_left_out
            if note := self._lengths.note(num_measured):
                self._notes.append(note)
        if self._lengths.num_unmeasured:
            num = self._lengths.num_unmeasured
            self._notes.append(Message("Long rows that were not measured: {number:,}.", number=num))

    def answer(self) -> dict[str, Any]:  # Any: JSON values
        """Return everything as JSON values, without the hash."""
        problems = self._problems
        locate((each for found in problems.found.values() for each in found), self._specs, self._portions)
        num_read = self._num_rows + self._num_unread + self._num_errors
        num_refused = self._num_unread + self._num_errors + self._num_unrendered + self._num_unlearned
        return {
            "num_rows": num_read + self._num_left_out,
            "num_left_out_rows": self._num_left_out,
            "num_good_rows": num_read - num_refused,
            "num_problem_rows": num_refused + sum(self._named),
            "formats": self._formats,
            "reasons": self._reasons,
            "problems": [self._told(name) for name in RULES if problems.counts.get(name)],
            "languages": self._language_counts,
            "lengths": self._lengths.histogram() if self._lengths else None,
            "notes": self._notes,
        }

    def _told(self, name: str) -> dict[str, Any]:  # Any: JSON values
        rule, problems = RULES[name], self._problems
        severity = problems.severities[name]
        data, order, overlong = self._run.data, list(self._specs), self._run.data.overlong
        if overlong == "split" and not {"text", "tokens"}.intersection(self._formats.values()):
            overlong = "truncate"  # as a run does with chats
        return {
            "rule": name,
            "severity": severity,
            "count": problems.counts[name],
            "action": action_of(rule, severity, skips_bad_rows=data.skip_bad_rows, overlong=overlong),
            "actions": list(rule.actions),
            "title": rule.title,
            "rows": [
                {
                    "path": each.path,
                    "line": each.line,
                    "column": each.column,
                    "message": each.message,
                    "keys": list(each.keys or ()),
                    "spans": each.spans,
                    "row": problems.shown_row(each.row),
                }
                for each in sorted(problems.found[name], key=lambda each: (order.index(each.path), each.line))
            ],
        }
