"""What a data file is, how its rows are read, and what is wrong with it: found out on worker threads. No Qt."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path

from tunesmith_core import datafmt, files
from tunesmith_core.datafmt.encoding import READ_AS, UTF_8, open_text, read_head, text_encoding
from tunesmith_core.datafmt.formats import LABELED, PREFERENCE
from tunesmith_core.datafmt.json_rows import Row
from tunesmith_core.datafmt.labels import one_sided
from tunesmith_core.datafmt.sniffing import head_rows
from tunesmith_core.datafmt.unsuited import UNSUITED
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.spec_sections import DataSpec, SourceSpec
from tunesmith_gui.services.workbook import NUM_KEPT, check_workbook, count_bad_of_workbook, look_at_workbook

NUM_SNIFFED_ROWS = 1000
"""Files with fewer rows are counted exactly."""
NUM_BEGINNING = 4000
"""Letters of a file that are shown where it has no rows to show."""
NUM_MEASURED = NUM_KEPT - 1
"""Files beside the first whose rows are measured by starting the libraries that read them."""
NUM_HEAD_ROWS = 20
"""Rows that are kept to show what is in a column."""


@dataclass(frozen=True, slots=True)
class OtherFile:
    """A data file beside the first.

    Attributes:
        path: of the file.
        sniffed: what its head tells, None when no row can be read.
        error: the first problem in it.
    """

    path: str
    sniffed: datafmt.Sniffed | None = None
    error: TunesmithError | None = None

    @property
    def num_rows(self) -> int | None:
        """How many rows it has, about; None where that can't be told."""
        return self.sniffed.num_rows_estimate if self.sniffed else None


@dataclass(frozen=True, slots=True)
class DataFacts:
    """A chosen data file, and those that are trained with it.

    Attributes:
        sniffed: what its head tells, None when no row can be read.
        head: its first rows; none of a file that the engine reads while there is no training environment.
        error: the first problem in it.
        skipping_helps: whether the rest can be trained on when bad rows are left out.
        num_good_rows, num_bad_rows: of its first rows, where bad rows are left out.
        num_unusable: rows that can't be used as they are, where all were looked at; else 0.
        encoding: in which it was read.
        sheets: names of a workbook's sheets.
        sheet: the one that was read; "" for the first.
        others: files beside it.
        num_rows: all of them, where somebody has counted.
        beginning: the first letters of a text file of which no row can be read.
        state: of the file on the disk, another one once it has changed.
        notes: what a person should know of how a workbook or another file that the engine reads is read.
        labels_problem: that all rows have the same label, where labels are learned from and all rows of the only file
            were looked at.
    """

    path: str
    sniffed: datafmt.Sniffed | None = None
    head: tuple[Row, ...] = ()
    error: TunesmithError | None = None
    skipping_helps: bool = False
    num_good_rows: int = 0
    num_bad_rows: int = 0
    encoding: str = UTF_8
    sheets: tuple[str, ...] = ()
    sheet: str = ""
    others: tuple[OtherFile, ...] = ()
    num_rows: int | None = None
    beginning: str = ""
    state: str = ""
    notes: tuple[str, ...] = ()
    num_unusable: int = 0
    labels_problem: TunesmithError | None = None

    @property
    def lacks_columns(self) -> bool:
        """Whether it is not known which column holds what, unless that is so in some rows only."""
        return self.error is not None and self.error.code == "dataset-column-missing" and not self.skipping_helps

    @property
    def column_names(self) -> list[str]:
        """The columns of the first rows, in the order in which they come."""
        return list(dict.fromkeys(name for row in self.head for name in row))

    @property
    def is_unsuited(self) -> bool:
        """Whether no columns are what is to be learned from, whichever are chosen."""
        return self.error is not None and self.error.code == UNSUITED

    @property
    def is_of_no_format(self) -> bool:
        """Whether the rows are not of the format as which they are to be read."""
        return self.lacks_columns or self.is_unsuited or self.are_all_bad

    @property
    def are_all_bad(self) -> bool:
        """Whether every row can be read, but none can be used."""
        return self.num_unusable > 0 and not self.skipping_helps


def look_at_data(data: DataSpec, *, in_pairs: bool = False, in_labels: bool = False) -> DataFacts:
    """Sniffs data files and checks their heads as the run would; a first that is not UTF-8 in the likeliest encoding.

    Args:
        data: the files.
        in_pairs: whether both answers of preference pairs are learned from; files of other rows are checked as such.
        in_labels: whether answers are learned from that are labeled good or bad; files of other rows as above.
    """
    others = tuple(
        _look_at_other(source, data.skip_bad_rows, measured=number < NUM_MEASURED)
        for number, source in enumerate(data.sources[1:])
    )
    learned = _Learned(in_pairs, in_labels)
    return replace(_look_at_first(data, learned), others=others, state=_state(Path(data.sources[0].path).expanduser()))


def _state(path: Path) -> str:
    """When a file or folder was changed, and its size; "" where it is gone."""
    with contextlib.suppress(OSError, ValueError):
        found = path.stat()
        return f"{found.st_mtime_ns} {files.folder_bytes(path) if path.is_dir() else found.st_size}"
    return ""


def _look_at_other(source: SourceSpec, skip_bad_rows: bool, *, measured: bool) -> OtherFile:
    sniffed: datafmt.Sniffed | None = None
    try:
        path = Path(source.path).expanduser()
        sniffed = datafmt.sniff(path, NUM_SNIFFED_ROWS, source.encoding, source.format, source.columns)
        if measured and sniffed.kind in datafmt.READ_BY_ENGINE:
            sniffed = look_at_workbook(path, sniffed, source).sniffed
            check_workbook(path, source, skip_bad_rows)
        datafmt.check_head(replace(source, path=str(path)), skip_bad_rows)
    except TunesmithError as error:
        return OtherFile(source.path, sniffed, error)
    except OSError as error:
        problem = TunesmithError("dataset-parse-error", "{path}: {reason}.", path=source.path, reason=error.strerror)
        return OtherFile(source.path, sniffed, problem)
    return OtherFile(source.path, sniffed)


def _look_at_first(data: DataSpec, learned: _Learned) -> DataFacts:
    facts = _read_head(data, learned)
    actions = facts.error.actions if facts.error else ()
    encoding = next((action.removeprefix(READ_AS) for action in actions if action.startswith(READ_AS)), "")
    if not encoding:
        return facts
    sources = [replace(data.sources[0], encoding=encoding), *data.sources[1:]]
    return _read_head(replace(data, sources=sources), learned)


def _read_head(data: DataSpec, learned: _Learned) -> DataFacts:
    given = data.sources[0].path
    path = Path(given).expanduser()
    source = replace(data.sources[0], path=str(path))
    sniffed: datafmt.Sniffed | None = None
    head: tuple[Row, ...] = ()
    sheets: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    try:
        sniffed = datafmt.sniff(path, NUM_SNIFFED_ROWS, source.encoding, source.format, source.columns)
        if sniffed.kind not in datafmt.READ_BY_ENGINE:
            head = tuple(head_rows(path, NUM_HEAD_ROWS, lambda _line, _error: None, source.encoding))
        else:
            looked = look_at_workbook(path, sniffed, source)
            sniffed, head, sheets, notes = looked.sniffed, looked.rows, looked.sheets, looked.notes
            source = replace(source, sheet=looked.sheet)
            if looked.error:
                raise looked.error
            if head:
                datafmt.resolve_layout(head, source.format, source.columns, str(path))
        # What else a file holds is said where the person chooses how to teach.
        learned = learned.where_it_holds(source, sniffed, head)
        num_good, num_bad = datafmt.check_head(source, data.skip_bad_rows, **learned.asked)
        if sniffed.kind in datafmt.READ_BY_ENGINE:
            num_good, num_bad = check_workbook(path, source, data.skip_bad_rows, **learned.asked)
        if learned.in_pairs and (note := datafmt.swapped_note(source)):
            notes = (*notes, note)
        if source.format == LABELED:
            notes = (*notes, *datafmt.label_notes(source))
    except UserError as error:
        counted = (0, 0) if sniffed is None else _count_bad(source, learned, sniffed.kind)
        beginning = "" if sniffed else _beginning(path, source.encoding)
        facts = DataFacts(given, sniffed, head, error, counted[0] > 0, 0, 0, source.encoding, sheets, source.sheet)
        num_unusable = counted[1] if _is_whole(sniffed) else 0
        return replace(facts, beginning=beginning, notes=notes, num_unusable=num_unusable)
    except OSError as error:
        return DataFacts(given, sniffed, head, UserError("dataset-parse-error", f"{path}: {error.strerror}."))
    facts = DataFacts(given, sniffed, head, None, False, num_good, num_bad, source.encoding, sheets, source.sheet)
    looks_at_labels = _is_whole(sniffed) and len(data.sources) == 1
    problem = _labels_problem(source, learned) if looks_at_labels else None
    return replace(facts, notes=notes, labels_problem=problem)


@dataclass(frozen=True, slots=True)
class _Learned:
    """What answers are learned from; see `look_at_data`."""

    in_pairs: bool
    in_labels: bool

    @property
    def asked(self) -> dict[str, bool]:
        return {"in_pairs": self.in_pairs, "in_labels": self.in_labels}

    def where_it_holds(self, source: SourceSpec, sniffed: datafmt.Sniffed, head: tuple[Row, ...]) -> _Learned:
        return _Learned(self.in_pairs and _holds_pairs(source, sniffed), self.in_labels and _has_labels(source, head))


def _beginning(path: Path, encoding: str) -> str:
    with contextlib.suppress(UserError, OSError):
        if datafmt.file_kind(path) not in datafmt.READ_BY_ENGINE:
            by_mark = text_encoding(path, read_head(path))
            with open_text(path, encoding if by_mark == "utf-8-sig" and encoding != UTF_8 else by_mark) as file:
                text = file.read(NUM_BEGINNING)
            return "" if "\0" in text else text
    return ""


def _is_whole(sniffed: datafmt.Sniffed | None) -> bool:
    """Whether the rows that were looked at are all of the file."""
    return sniffed is not None and (sniffed.num_rows_estimate or NUM_SNIFFED_ROWS) < NUM_SNIFFED_ROWS


def _count_bad(source: SourceSpec, learned: _Learned, kind: str) -> tuple[int, int]:
    """How many of the first rows are good and bad; (0, 0) where none can be read."""
    with contextlib.suppress(UserError, OSError):
        if kind in datafmt.READ_BY_ENGINE:
            return count_bad_of_workbook(Path(source.path), source, **learned.asked)
        return datafmt.count_bad(source, **learned.asked)
    return 0, 0


def _labels_problem(source: SourceSpec, learned: _Learned) -> TunesmithError | None:
    """That all rows have the same label; None where they don't, have none, or the engine reads the file."""
    if learned.in_labels:
        num_good, num_bad = datafmt.count_labels(source)
        return one_sided(num_good, num_bad) if num_good or num_bad else None
    label, num = datafmt.only_label(source) if source.format == LABELED else ("", 0)
    if not num:
        return None
    return TunesmithError(
        "dataset-classes",
        'All rows ({num:,}) have the label "{label}", so there is nothing to tell apart.',
        hint="Add rows with other labels, or map the column that holds them.",
        num=num,
        label=label,
    )


def _has_labels(source: SourceSpec, head: tuple[Row, ...]) -> bool:
    """Whether it is known which column says which answers are good."""
    with contextlib.suppress(UserError):
        layout = datafmt.resolve_layout(head, source.format, source.columns, source.path)
        return bool(datafmt.with_labels(layout, head, source.columns, source.path))
    return False


def _holds_pairs(source: SourceSpec, sniffed: datafmt.Sniffed) -> bool:
    return PREFERENCE in (source.format, sniffed.format if source.format == "auto" else "")
