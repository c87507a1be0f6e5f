"""Rows of any supported file, folder or archive as conversations: text through core, the rest through libraries."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path

from tunesmith_core import datafmt
from tunesmith_core.datafmt.encoding import ARROW, DOCX, HTML, MAX_NAME, PDF, WORKBOOKS, DataFile, row_place
from tunesmith_core.datafmt.formats import MAX_LISTED, PREFERENCE
from tunesmith_core.datafmt.labels import SCALE
from tunesmith_core.datafmt.sniffing import LAYOUT_ROWS, beginning
from tunesmith_core.datafmt.unsuited import UNSUITED
from tunesmith_core.datafmt.verdicts import WINNER
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.messages import Message, joined
from tunesmith_core.operations.limits import Portions
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_engine.data.given import DOCUMENTS, Given
from tunesmith_engine.data.groups import group_of, stable_hash
from tunesmith_engine.data.members import unpacked_into
from tunesmith_engine.data.parquet_rows import parquet_rows

PAIRS_TEXT = Message(
    "The data holds preference pairs. The chosen answers are trained, the rejected ones are not. An objective such as "
    "DPO learns from both."
)

MOST_NOTES = 3
"""Sentences of a kind that are said of files."""

UNREADABLE = frozenset({"dataset-parse-error", "dataset-empty"})
"""What is wrong with a document of which nothing can be read: of several it is left out."""

MOST_BAD_ROWS = 100_000
"""After so many at the beginning of a file no good one is expected; some bytes of Parquet can be a billion rows."""

READ_CPU_S, BYTES_PER_S = 18.0, 10_000_000
"""Beyond the usual limit: rows of Parquet come in batches, and opening a text file may mean reading all of it."""

WHOLE = frozenset({datafmt.PARQUET, ARROW, PDF, DOCX, *WORKBOOKS.values()})
"""Kinds of files that are read from any place in them, so that they must lie on the disk."""


@dataclass(slots=True)
class Source:
    """One data file being read, or the files of one folder or archive.

    Attributes:
        spec: the file and how its rows are laid out.
        skip_bad_rows: whether bad ones are left out.
        on_problem: told each bad row that is left out.
        portions: told where the reader is.
        group_column: by which rows belong together, "" for none.
        in_pairs: whether both answers of preference pairs are read, and nothing else is taken.
        in_labels: whether answers are read that are labeled good or bad, and nothing else is taken.
        has_stored: whether what a bigger model found likely is read, and nothing else is taken.
        keeps_columns: whether other columns than those of prompt and answer are kept.
        columns: those of the row that was read last.
        is_bad: whether the answer that was read last is labeled bad.
        label: of the text that was read last, "" where rows have none.
        stored: what a bigger model found likely at each token of the answer that was read last, where that is read.
        group: that of the row that was read last, of a piece of a document that of the document; None for none.
        document: from which the row came that was read last, or the file where that is none.
        has_documents: whether a file was one, in pieces.
        are_votes: whether the rows of the file that is being read say which of two answers is better.
        num_skipped_rows: bad rows left out so far.
        first_error: of the first of them, None while there is none.
        num_left_out_rows: rows so far whose label says that their answer is a bad one, and votes that are a tie.
        num_unreviewed: rows so far that a model wrote and nobody has reviewed, left out where only others are wanted.
        row_format: how the rows are read, known with the first of them.
        reason: a sentence that says by what that was recognized.
        sheet, sheets: of a workbook, which is read and which there are; of several in an archive or folder that of the
            first, and those that all have.
    """

    spec: SourceSpec
    skip_bad_rows: bool
    on_problem: Callable[[int, TunesmithError], None] | None = None
    portions: Portions = field(default_factory=Portions)
    group_column: str = ""
    in_pairs: bool = False
    in_labels: bool = False
    has_stored: bool = False
    keeps_columns: bool = False
    columns: dict[str, object] = field(default_factory=dict, init=False)
    is_bad: bool = field(default=False, init=False)
    label: str = field(default="", init=False)
    stored: datafmt.StoredAnswer | None = field(default=None, init=False)
    group: int | None = field(default=None, init=False)
    document: str = field(default="", init=False)
    has_documents: bool = field(default=False, init=False)
    are_votes: bool = field(default=False, init=False)
    num_skipped_rows: int = field(default=0, init=False)
    first_error: TunesmithError | None = field(default=None, init=False)
    num_left_out_rows: int = field(default=0, init=False)
    num_unreviewed: int = field(default=0, init=False)
    row_format: str = field(default="", init=False)
    reason: str = field(default="", init=False)
    sheet: str = field(default="", init=False)
    sheets: list[str] = field(default_factory=list, init=False)

    _noted: list[dict[str, str]] = field(default_factory=list, init=False)
    _file: DataFile | None = field(default=None, init=False)
    _kind: str = field(default="", init=False)
    _has_good: bool = field(default=False, init=False)
    _more_cpu_s: float = field(default=READ_CPU_S, init=False)

    @property
    def path(self) -> Path:
        """The file, or the folder or archive of files."""
        return Path(self.spec.path)

    @property
    def shown_path(self) -> str:
        """The file that is being read, of an archive with its place there."""
        return str(self._file or self.path)

    @property
    def notes(self) -> dict[str, str]:
        """What a person should know of the files so far: codes and sentences."""
        return _together(self._noted)

    @property
    def _named_columns(self) -> list[str]:
        """Columns that are read whatever they are called."""
        return [*self.spec.columns.values(), self.group_column]

    @property
    def kind(self) -> str:
        """What the file is that is being read; see `datafmt.file_kind`."""
        return self._kind

    def place(self, number: int) -> str:
        """Return "file, line 3" of the file that is being read, or "file, row 3" where rows are no lines."""
        return row_place(self._file or self.path, self._kind, number)

    def conversations(self) -> Iterator[tuple[int, datafmt.Conversation | datafmt.Preference]]:
        """Yield (line or row number from 1, conversation) of every good row.

        Each file of a folder or archive has a layout of its own.

        Raises:
            UserError: the first problem, unless bad rows are to be left out; `dataset-empty` when there is no row;
                the first problem also when every row was left out.
        """
        for rows in self._files():
            yield from self._conversations(rows)
        if not self._has_good and self.first_error:
            raise self.first_error
        if not self._has_good and self.spec.reviewed_only and self.num_unreviewed:
            raise TunesmithError(
                "dataset-empty", "{path}: a model wrote every row, and nobody has reviewed any.", path=self.path
            )
        if not self._has_good and self.are_votes:
            raise TunesmithError("dataset-empty", "{path}: every vote is a tie.", path=self.path)
        if not self._has_good:
            raise TunesmithError("dataset-empty", "{path}: the label of every row is false.", path=self.path)

    def _conversations(
        self, rows: Iterator[tuple[int, datafmt.Row]]
    ) -> Iterator[tuple[int, datafmt.Conversation | datafmt.Preference]]:
        head: list[tuple[int, datafmt.Row]] = []
        failure: UserError | None = None
        try:
            head.extend(beginning(rows, LAYOUT_ROWS))
        except UserError as error:
            failure = error
        if failure and not head:
            raise failure
        layout = self.layout_of([row for _, row in head])
        if not self.row_format:
            self.row_format, self.reason = layout.format, datafmt.recognition(layout, (row for _, row in head))
        self.are_votes = WINNER in layout.columns
        if self.in_pairs and (problem := datafmt.pairs_problem(layout, self.shown_path)):
            raise problem
        if layout.format == PREFERENCE and not (self.in_pairs or self.in_labels):
            self._noted[-1]["dataset-preference-pairs"] = PAIRS_TEXT
        for number, row in chain(head, _raised(failure) if failure else rows):
            self._announce(number)
            if not datafmt.is_wanted(row, layout):
                self._leave_out()
                continue
            if _is_true(row, "synthetic") and not _is_true(row, "reviewed"):
                self._note_unreviewed()
                if self.spec.reviewed_only:
                    continue
            try:
                found = self._converted(row, layout, partial(self.place, number))
            except UserError as error:
                if error.code == SCALE:
                    raise
                self.bad_row(number, error)
                continue
            self._has_good = True
            if self.group_column:
                self.group = group_of(row, self.group_column, self.place(number))
            elif len(found) > 1:
                # Both answers to a question are trained, or both held out.
                self.group = stable_hash([self.shown_path, number])
            if self.keeps_columns:
                read = set(layout.columns.values())
                self.columns = {name: value for name, value in row.items() if name not in read}
            for conversation, is_bad in found:
                self.is_bad = is_bad
                self.label = conversation.label if isinstance(conversation, datafmt.Labeled) else ""
                yield number, conversation
                self._announce(number)

    def _converted(
        self, row: datafmt.Row, layout: datafmt.Layout, place: Callable[[], str]
    ) -> list[tuple[datafmt.Conversation | datafmt.Preference, bool]]:
        """Return what a row gives, and whether its answer is labeled bad."""
        if self.in_labels:
            return [(each, not is_good) for each, is_good in datafmt.to_labeled(row, layout, place)]
        if self.has_stored:
            conversation = datafmt.to_messages(row, layout, place)
            self.stored = datafmt.stored_answer(row, layout, conversation, place)
            return [(conversation, False)]
        return [((datafmt.to_preference if self.in_pairs else datafmt.to_messages)(row, layout, place), False)]

    def layout_of(self, rows: list[datafmt.Row]) -> datafmt.Layout:
        """Return how the rows of the file that is being read are laid out, by the first of them.

        Raises:
            UserError: see `datafmt.resolve_layout`, `with_labels` and `with_stored`; that of a workbook also names its
            other sheets.
        """
        layout = self._layout_of(rows)
        if self.has_stored:
            return datafmt.with_stored(layout, rows, self.shown_path)
        if not self.in_labels:
            return layout
        return datafmt.with_labels(layout, rows, self.spec.columns, self.shown_path)

    def _layout_of(self, rows: list[datafmt.Row]) -> datafmt.Layout:
        path = self.shown_path
        try:
            return datafmt.resolve_layout(rows, self.spec.format, self.spec.columns, path)
        except UserError as error:
            others = [name for name in self.sheets if name != self.sheet]
            names_columns = "names" in error.message.values
            if error.code not in ("dataset-column-missing", UNSUITED) or self.spec.sheet or not others or names_columns:
                raise
            raise TunesmithError(
                error.code,
                '{source}: the columns of the sheet "{sheet}" are not recognized. The workbook has other sheets, and '
                "on the command line --sheet names the one to read: {names}.",
                hint=error.hint,
                source=path,
                sheet=self.sheet,
                names=", ".join(f'"{name[:MAX_NAME]}"' for name in others[:MAX_LISTED]),
                guess=error.message.values.get("guess", "{}"),
            ) from error

    def _recognizes(self, rows: list[datafmt.Row]) -> bool:
        """Return whether rows tell, with what was said about their columns, which column holds what."""
        with contextlib.suppress(UserError):
            datafmt.resolve_layout(rows, self.spec.format, self.spec.columns, str(self.path))
            return True
        return False

    def _leave_out(self) -> None:
        """Count a row whose answer is a bad one."""
        self.num_left_out_rows += 1
        words = (
            Message("{path}: votes that are a tie are left out ({num:,}).")
            if self.are_votes
            else Message("{path}: rows whose label is false are left out ({num:,}).")
        )
        left_out = Message(words.template, path=self.path, num=self.num_left_out_rows)
        self._noted[0]["dataset-rows-left-out"] = left_out

    def _note_unreviewed(self) -> None:
        """Count a row that a model wrote and nobody has looked at."""
        self.num_unreviewed += 1
        words = (
            Message("{path}: rows that a model wrote and nobody has reviewed are left out ({num:,}).", **self._counted)
            if self.spec.reviewed_only
            else Message("{path}: rows that a model wrote and nobody has reviewed ({num:,}).", **self._counted)
        )
        self._noted[0]["dataset-not-reviewed"] = words

    @property
    def _counted(self) -> dict[str, object]:
        return {"path": self.path, "num": self.num_unreviewed}

    def rows(self) -> Iterator[tuple[int, datafmt.Row]]:
        """Yield the rows of all files with their numbers; see `conversations` for the errors."""
        for rows in self._files():
            yield from rows

    def _files(self) -> Iterator[Iterator[tuple[int, datafmt.Row]]]:
        """Open one file after another and yield its rows."""
        # What is wrong with the path is said by whoever opens it.
        with contextlib.suppress(OSError, ValueError):
            self._more_cpu_s += self.path.stat().st_size / BYTES_PER_S
        self.portions.about(self.path)
        self._announce(0)
        given = Given(self.path)
        self._noted.append(given.notes)
        failure: UserError | None = None
        has_begun = False
        for place, (file, kind) in enumerate(given.files()):
            self._noted.append({})
            self.group = stable_hash([self.spec.path, place]) if kind in DOCUMENTS else None
            self.has_documents |= kind in DOCUMENTS
            with tempfile.TemporaryDirectory(prefix="tunesmith-", ignore_cleanup_errors=True) as folder:
                self.portions.about(Path(str(file)), kind)
                if file != self.path:
                    self._announce(0)
                self._kind = kind
                self._file = unpacked_into(Path(folder), file) if kind in WHOLE else file
                self.document = str(file) if kind in DOCUMENTS else self.spec.path
                rows = self._rows_of(self._file, kind)
                if kind in DOCUMENTS and isinstance(file, Path) and file != self.path:
                    try:
                        rows = chain([each for each in [next(rows, None)] if each], rows)
                    except UserError as error:
                        if error.code not in UNREADABLE:
                            raise
                        failure = failure or error
                        given.leave_out(error)
                        continue
                has_begun = True
                yield rows
        if failure and not has_begun:
            raise failure

    def _rows_of(self, file: DataFile, kind: str) -> Iterator[tuple[int, datafmt.Row]]:
        # Imported where they are needed, because older environments lack some of the libraries.
        if kind == datafmt.PARQUET:
            return parquet_rows(file, self._named_columns)
        if kind == ARROW:
            from tunesmith_engine.data.arrow_rows import arrow_rows

            return arrow_rows(file, self._named_columns)
        if kind in (PDF, DOCX, HTML):
            from tunesmith_engine.data.document_rows import document_rows

            return document_rows(file, kind, self.bad_row, self._noted[-1])
        if kind in datafmt.READ_BY_ENGINE:
            from tunesmith_engine.data.workbook_rows import WorkbookRows

            workbook = WorkbookRows(file, kind, self.bad_row, self.spec.sheet, self._recognizes)
            if not self.sheets:
                self.sheet, self.sheets = workbook.sheet, workbook.sheets
            # Of several workbooks only a sheet that all have can be chosen.
            self.sheets = [name for name in self.sheets if name in workbook.sheets]
            self._noted[-1] = workbook.notes
            return workbook.rows()
        return datafmt.read_rows(file, self.bad_row, self.spec.encoding, self._noted[-1])

    def bad_row(self, number: int, error: TunesmithError) -> None:
        """Count a bad row, or raise its error when bad rows are not to be left out."""
        if not self.skip_bad_rows:
            raise error
        self._announce(number)
        self.num_skipped_rows += 1
        self.first_error = self.first_error or error
        if self.on_problem:
            self.on_problem(number, error)
        if self.num_skipped_rows == MOST_BAD_ROWS and not self._has_good:
            raise self.first_error

    def _announce(self, number: int) -> None:
        """Say that a row was read and the next one comes."""
        self.portions.begin("reader", number, more_cpu_s=self._more_cpu_s)


def _is_true(row: datafmt.Row, column: str) -> bool:
    """Return whether a column says true, as JSON or in a copy as CSV."""
    return column in row and str(row[column]).lower() == "true"


def notes_of(sources: Iterable[Source]) -> dict[str, str]:
    """Return what a person should know of several sources: codes and sentences."""
    return _together(source.notes for source in sources)


def bad_rows_note(spec: RunSpec, sources: Sequence[Source]) -> dict[str, str]:
    """Return how many bad rows a run leaves out and what is wrong with the first, a code and a sentence."""
    first = next((source.first_error for source in sources if source.first_error), None)
    if first is None or not spec.data.skip_bad_rows:
        return {}
    words = Message("Bad rows left out: {number:,}.", number=sum(source.num_skipped_rows for source in sources))
    return {"dataset-rows-bad": joined([words, Message("The first: {reason}", reason=first.message)])}


def _together(parts: Iterable[dict[str, str]]) -> dict[str, str]:
    """Join the notes of several files: what is said of more than one stands behind each other."""
    sentences: dict[str, list[str]] = {}
    for part in parts:
        for code, said in part.items():
            same = sentences.setdefault(code, [])
            if said not in same and len(same) < MOST_NOTES:
                same.append(said)
    return {code: same[0] if len(same) == 1 else joined(same) for code, same in sentences.items()}


def _raised(error: UserError) -> Iterator[tuple[int, datafmt.Row]]:
    """Fail where the first rows ended, so that what is wrong with one of those is told before."""
    raise error
    yield
