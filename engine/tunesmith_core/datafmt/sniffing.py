"""A first look at a data file: what it is, how its rows are laid out, and whether its head is sound."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any

from tunesmith_core import files
from tunesmith_core.datafmt.conversion import is_wanted, pairs_problem, to_messages, to_preference
from tunesmith_core.datafmt.encoding import FOLDER, UTF_8, open_bytes, row_place
from tunesmith_core.datafmt.formats import Conversation, Labeled, Layout, Place, Preference
from tunesmith_core.datafmt.json_rows import BadRow, Row
from tunesmith_core.datafmt.labels import SCALE, to_labeled, with_labels
from tunesmith_core.datafmt.layouts import resolve_layout
from tunesmith_core.datafmt.parquet_footer import count_rows
from tunesmith_core.datafmt.reading import PARQUET, READ_BY_ENGINE, file_kind, read_rows
from tunesmith_core.datafmt.stored import StoredAnswer, stored_answer, with_stored
from tunesmith_core.datafmt.verdicts import WINNER
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.json_values import shortened
from tunesmith_core.messages import LISTED, Message, joined
from tunesmith_core.spec_sections import SourceSpec

LAYOUT_ROWS = 50
"""Rows that are looked at to find the layout of a file."""

SCANNED_BYTES = 64 * 1024**2
"""Up to this size the lines of a JSONL file are all measured, which takes well under a second."""

PARSED_BYTES = 8 * 1024**2
"""Up to this size the rows of other files are all read, which takes some tenths of a second."""

UNFOLDED_BYTES = 8 * PARSED_BYTES

TEMPLATE_TOKENS = 128
"""Room for what a chat template adds: role marks, and a system prompt of its own."""

UNTRAINED_ROLES = ("rejected", "label", "class")
"""Roles of columns that decide what is trained, and are not trained themselves."""

MOST_LABELS, MOST_ALIKE = 10, 3
"""So many labels are told with their numbers, and so many groups of labels that look the same."""

HEAD_ROWS = 1000
HEAD_BYTES = 8 * 1024**2
WRITTEN_LETTERS = 1000
"""A text is as long as it is written; a longer one is counted, so that no second copy of it is made."""
ESCAPED = '"\\\n\r\t'
"""What takes two characters in JSON."""


@dataclass(frozen=True, slots=True)
class Sniffed:
    """What the head of a file tells.

    Attributes:
        kind: what `file_kind` returns.
        format: a key of ROLES; "auto" when no format fits or the engine reads the file.
        columns: names of the columns of the first rows; empty when the engine reads the file.
        mapping: role to column.
        num_rows_estimate: exact for Parquet and for files that end within the head, malformed rows included; None for
            workbooks.
        num_bytes: size of the file.
        longest_row_bytes: bytes of the longest row as JSON, without columns that are not trained; None where finding it
            would take long.
    """

    kind: str
    format: str
    columns: tuple[str, ...]
    mapping: Mapping[str, str]
    num_rows_estimate: int | None
    num_bytes: int
    longest_row_bytes: int | None = None

    def max_tokens(self, system_prompt: str = "") -> int | None:
        """Return what no example can exceed, since a token stands for at least one byte; None where it is not known.

        Args:
            system_prompt: what is put before each chat.
        """
        if self.longest_row_bytes is None:
            return None
        return self.longest_row_bytes + len(system_prompt.encode("utf-8", "replace")) + TEMPLATE_TOKENS


def sniff(
    path: Path,
    num_rows: int = LAYOUT_ROWS,
    encoding: str = UTF_8,
    format_name: str = "auto",
    columns: Mapping[str, str] | None = None,
) -> Sniffed:
    """Look at the first rows of a file.

    Args:
        path: of the file.
        num_rows: most rows to look at.
        encoding: see `read_rows`.
        format_name, columns: of the data source; they say what is trained, and change nothing about what is recognized.

    Raises:
        UserError: `dataset-parse-error` or `dataset-empty` when no row can be read; a malformed row is left out.
    """
    kind = file_kind(path)
    num_bytes = files.folder_bytes(path) if kind == FOLDER else path.stat().st_size
    if kind in READ_BY_ENGINE:
        return Sniffed(kind, "auto", (), {}, count_rows(path) if kind == PARQUET else None, num_bytes)
    num_malformed = 0

    def count(_line: int, _error: TunesmithError) -> None:
        nonlocal num_malformed
        num_malformed += 1

    rows = head_rows(path, num_rows, count, encoding)
    present = tuple(dict.fromkeys(name for row in rows for name in row))
    estimate = len(rows) + num_malformed
    if len(rows) == num_rows:
        used = sum(row_bytes(row) for row in rows)
        estimate = max(len(rows), round(num_bytes * len(rows) / used))
    trained = trained_columns(rows, path, format_name, columns)
    if len(rows) < num_rows:
        longest: int | None = max(trained_bytes(row, trained) for row in rows)
    else:
        longest = _longest_row_bytes(path, kind, num_bytes, encoding, None if trained == set(present) else trained)
    layout = _layout(rows, path)
    return Sniffed(kind, layout.format, present, layout.columns, estimate, num_bytes, longest)


def _layout(
    rows: list[Row], path: Path, format_name: str = "auto", columns: Mapping[str, str] | None = None
) -> Layout:
    try:
        return resolve_layout(rows, format_name, columns, str(path))
    except UserError:
        return Layout("auto", {})


def trained_columns(
    rows: list[Row], path: Path, format_name: str = "auto", columns: Mapping[str, str] | None = None
) -> set[str]:
    """Return the columns of which an example is made; all of them where the layout of the rows is not known."""
    layout = _layout(rows, path, format_name, columns)
    # Of votes either answer may be the better one.
    untrained = {WINNER} if WINNER in layout.columns else UNTRAINED_ROLES
    used = {name for role, name in layout.columns.items() if role not in untrained}
    return used or {name for row in rows for name in row}


def trained_bytes(row: Row, trained: set[str]) -> int:
    """Return the bytes of a row without columns that are not trained; of a row of another layout all of them."""
    return row_bytes({name: value for name, value in row.items() if name in trained} or row)


def _longest_row_bytes(path: Path, kind: str, num_bytes: int, encoding: str, trained: set[str] | None) -> int | None:
    """Return the bytes of the longest row of a file.

    Args:
        path, kind, num_bytes, encoding: of the file.
        trained: the columns that count; None for all.
    """
    if num_bytes > (SCANNED_BYTES if kind == "jsonl" else PARSED_BYTES):
        return None
    # The lines of a larger file are measured as they are, with what is not trained.
    if kind == "jsonl" and (trained is None or num_bytes > PARSED_BYTES):
        with open_bytes(path) as file:
            return max(map(len, file))
    longest = num_read = 0
    try:
        for _, row in read_rows(path, _ignore, encoding):
            whole = row_bytes(row)
            longest = max(longest, whole if trained is None else trained_bytes(row, trained))
            # Rows of a wide table take far more than the bytes of the file, for each has all columns.
            num_read += whole
            if num_read > UNFOLDED_BYTES:
                return None
    except UserError:
        # Not the head is broken but something behind it, which the check that comes later names.
        return None
    return longest


def head_rows(path: Path, num_rows: int, on_bad_row: BadRow | None = None, encoding: str = UTF_8) -> list[Row]:
    """Return the first rows of a file; see `read_rows` for the errors.

    Where bad rows are told to somebody, those before a place from which on nothing can be read are returned.
    """
    rows: list[Row] = []
    try:
        for _, row in _head(path, num_rows, on_bad_row, encoding):
            rows.append(row)
    except UserError:
        if on_bad_row is None or not rows:
            raise
    return rows


def beginning(rows: Iterator[tuple[int, Row]], num_rows: int) -> Iterator[tuple[int, Row]]:
    """Yield at most so many rows, and no more once they come to 8 million bytes."""
    num_bytes = 0
    for number, row in itertools.islice(rows, num_rows):
        yield number, row
        num_bytes += row_bytes(row)
        if num_bytes > HEAD_BYTES:
            return


class _HeadEnds(Exception):
    """So many rows were bad that the head ends."""


def _head(path: Path, num_rows: int, on_bad_row: BadRow | None, encoding: str) -> Iterator[tuple[int, Row]]:
    num_bad = num_good = 0

    def bad_row(line: int, error: TunesmithError) -> None:
        nonlocal num_bad
        if on_bad_row is None:
            raise error
        on_bad_row(line, error)
        num_bad += 1
        if num_bad == HEAD_ROWS:
            raise _HeadEnds from error

    try:
        for numbered in beginning(read_rows(path, bad_row, encoding), num_rows):
            num_good += 1
            yield numbered
    except _HeadEnds as end:
        if not num_good and isinstance(end.__cause__, TunesmithError):
            raise end.__cause__ from None


def _ignore(_line: int, _error: TunesmithError) -> None:
    """Leave a malformed row to the check that comes later."""


def row_bytes(row: Row) -> int:
    """Return the bytes of a row as JSON, to within a few, without a second copy of long texts."""
    num_bytes, parts = 0, list[object]([row])
    while parts:
        part = parts.pop()
        if isinstance(part, str) and len(part) <= WRITTEN_LETTERS:
            # A table of thousands of columns has their names in each row.
            written = encode_basestring(part)
            num_bytes += len(written) if written.isascii() else len(written.encode("utf-8", "replace"))
        elif isinstance(part, str):
            num_bytes += 2 + len(part.encode("utf-8", "replace")) + sum(part.count(each) for each in ESCAPED)
        elif isinstance(part, dict):
            parts += [*part.keys(), *part.values()]
            num_bytes += max(2, 4 * len(part))
        elif isinstance(part, list | tuple):
            parts += part
            num_bytes += max(2, 2 * len(part))
        else:
            # Python refuses to write numbers of thousands of digits.
            num_bytes += part.bit_length() * 3 // 10 + 1 if isinstance(part, int) else len(repr(part))
    return num_bytes


def check_head(
    source: SourceSpec, skip_bad_rows: bool = False, num_rows: int = HEAD_ROWS, *, in_pairs: bool = False,
    in_labels: bool = False, has_stored: bool = False,
) -> tuple[int, int]:
    """Check that the first rows of a file can be trained on, so that a mistake shows before a model is loaded.

    At most `num_rows` rows and 8 million bytes are looked at; of a Parquet file only that it holds rows,
    and of a workbook nothing: see `head_problem`.

    Args:
        source: the file and its mapping.
        skip_bad_rows: whether bad rows are left out.
        num_rows: most rows to look at.
        in_pairs: whether both answers of preference pairs are learned from.
        in_labels: whether answers are learned from that are labeled good or bad.
        has_stored: whether what a bigger model found likely is learned from.

    Returns:
        How many of them are good, and how many bad; none are looked at where the engine reads the file.

    Raises:
        UserError: the first problem, with file, line and column; with skip_bad_rows only when no row of the
            head is good.
    """
    if _is_left_to_engine(source):
        return 0, 0
    problems: dict[int, TunesmithError] = {}

    def bad_row(line: int, error: TunesmithError) -> None:
        if not skip_bad_rows:
            raise error
        problems.setdefault(line, error)

    ways = {"in_pairs": in_pairs, "in_labels": in_labels, "has_stored": has_stored}
    num_good = sum(1 for _ in _good_rows(source, bad_row, num_rows, **ways))
    if not num_good:
        raise next(iter(problems.values()))
    return num_good, len(problems)


def head_problem(found: dict[str, Any], skip_bad_rows: bool) -> TunesmithError | None:  # Any: JSON values
    """Return what `check_head` would raise for a file that the engine reads, from what it found in the first rows."""
    problem = found.get("refused")
    if not skip_bad_rows or not found.get("num_good"):
        problem = problem or found.get("first_bad")
    return TunesmithError.from_dict(problem) if problem else None


def count_bad(source: SourceSpec, *, in_pairs: bool = False, in_labels: bool = False) -> tuple[int, int]:
    """Return how many of the first rows are good, and how many bad, as `check_head` does, also where none is good.

    Raises:
        UserError: what no row can be read with.
    """
    bad: set[int] = set()
    if _is_left_to_engine(source):
        return 0, 0
    rows = _good_rows(source, lambda line, _error: bad.add(line), HEAD_ROWS, in_pairs=in_pairs, in_labels=in_labels)
    return sum(1 for _ in rows), len(bad)


def count_labels(source: SourceSpec) -> tuple[int, int]:
    """Return how many answers of the first rows are labeled good, and how many bad; bad rows are left out.

    Raises:
        UserError: as `check_head`.
    """
    if _is_left_to_engine(source):
        return 0, 0
    num_good = num_bad = 0
    for answers in _good_rows(source, _ignore, HEAD_ROWS, in_labels=True):
        num_good += sum(is_good for _, is_good in answers)
        num_bad += sum(not is_good for _, is_good in answers)
    return num_good, num_bad


def only_label(source: SourceSpec) -> tuple[str, int]:
    """Return the one label that all of the first rows have, and how many these are; ("", 0) for several labels.

    Raises:
        UserError: as `check_head`.
    """
    if _is_left_to_engine(source):
        return "", 0
    labels = [row.label for row in _good_rows(source, _ignore, HEAD_ROWS) if isinstance(row, Labeled)]
    return (labels[0], len(labels)) if len(set(labels)) == 1 else ("", 0)


def label_notes(source: SourceSpec) -> list[Message]:
    """Return which labels the first rows have and how often, and those that differ in case and blanks only.

    Nothing is said of a single label, which is an error, and of a file that the engine reads.

    Raises:
        UserError: as `check_head`.
    """
    if _is_left_to_engine(source):
        return []
    counts = Counter(row.label for row in _good_rows(source, _ignore, HEAD_ROWS) if isinstance(row, Labeled))
    if len(counts) < 2:
        return []
    quoted = [Message("“{label}” {num:,}", label=shortened(name), num=num) for name, num in counts.most_common()]
    listed = joined(quoted[:MOST_LABELS], LISTED)
    more = len(quoted) - MOST_LABELS
    told = Message("Labels and their rows: {labels}.", labels=listed)
    if more > 0:
        told = Message("Labels and their rows: {labels}, and {more:,} other labels.", labels=listed, more=more)
    alike: dict[str, list[str]] = {}
    for name in counts:
        alike.setdefault(" ".join(name.casefold().split()), []).append(f"“{shortened(name)}”")
    return [
        told,
        *(
            Message("{labels} differ in case or blanks only. They are learned as different classes.", labels=same)
            for names in alike.values()
            if len(names) > 1
            for same in (joined(names, LISTED),)
        ),
    ][: 1 + MOST_ALIKE]


def swapped_note(source: SourceSpec) -> Message | None:
    """Return what a person should know of pairs that another of the first rows has the other way round.

    Raises:
        UserError: as `check_head`.
    """
    if _is_left_to_engine(source):
        return None
    pairs = [(repr(row.chosen), repr(row.rejected)) for row in _pairs(source)]
    known = set(pairs)
    num = sum((rejected, chosen) in known for chosen, rejected in pairs)
    if not num:
        return None
    return Message(
        "Pairs that contradict another one: {num:,} of {num_pairs:,}. What is the better answer in one is the worse "
        "one in the other, so nothing is learned from them.",
        num=num,
        num_pairs=len(pairs),
    )


def _pairs(source: SourceSpec) -> Iterator[Preference]:
    rows = _good_rows(source, _ignore, HEAD_ROWS, in_pairs=True)
    return (row for row in rows if isinstance(row, Preference))


def _is_left_to_engine(source: SourceSpec) -> bool:
    """Return whether the engine reads the file; one of Parquet must hold rows."""
    path = Path(source.path)
    kind = file_kind(path)
    if kind == PARQUET:
        count_rows(path)
    return kind in READ_BY_ENGINE


def _good_rows(
    source: SourceSpec,
    bad_row: BadRow,
    num_rows: int,
    *,
    in_pairs: bool = False,
    in_labels: bool = False,
    has_stored: bool = False,
) -> Iterator[Any]:  # Any: what the rows are converted to
    """Yield what is learned from each of the first rows, nothing of those that are not wanted; bad ones are told.

    Columns that nobody recognizes come before a bad row: until they are mapped, no row is good.
    """
    path = Path(source.path)
    head = head_rows(path, LAYOUT_ROWS, _ignore, source.encoding)
    layout = resolve_layout(head, source.format, source.columns, str(path))
    if in_labels:
        layout = with_labels(layout, head, source.columns, str(path))
    if has_stored:
        layout = with_stored(layout, head, str(path))
    if in_pairs and (problem := pairs_problem(layout, str(path))):
        raise problem
    convert: Any = to_preference if in_pairs else _all_labeled if in_labels else to_messages
    convert = _with_answer if has_stored else convert
    kind = file_kind(path)
    for line, row in _head(path, num_rows, bad_row, source.encoding):
        try:
            yield convert(row, layout, row_place(path, kind, line)) if is_wanted(row, layout) else ()
        except UserError as error:
            if error.code == SCALE:
                raise
            bad_row(line, error)


def _with_answer(row: Row, layout: Layout, place: Place) -> StoredAnswer:
    return stored_answer(row, layout, to_messages(row, layout, place), place)


def _all_labeled(row: Row, layout: Layout, place: Place) -> list[tuple[Conversation, bool]]:
    return list(to_labeled(row, layout, place))
