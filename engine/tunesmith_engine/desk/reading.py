"""Rows of data files for the desk: all of them, whatever is wrong with some, and how far the reader is."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tunesmith_core import datafmt, files
from tunesmith_core.datafmt.sniffing import LAYOUT_ROWS, beginning, row_bytes
from tunesmith_core.errors import EnvironmentProblem, TunesmithError, UserError
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.limits import Portions
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_engine.data.read import BYTES_PER_S, READ_CPU_S, Source

TELL_EVERY_S = 0.5
ROWS_TOGETHER = 256
"""After so many the reader says where it is."""

OnBad = Callable[[str, int, TunesmithError], None]
Rows = Iterator[tuple[int, datafmt.Row]]


class TolerantSource(Source):
    """A data source whose bad rows are told and left out, however many they are.

    Args:
        spec: the file, folder or archive.
        portions: told where the reader is.
        on_bad: told file and line of each row that can't be read, and line 0 with what is wrong with the whole file.
    """

    def __init__(self, spec: SourceSpec, portions: Portions, on_bad: OnBad) -> None:
        super().__init__(spec, skip_bad_rows=True, portions=portions)
        self._on_bad = on_bad

    def files(self) -> Iterator[Rows]:
        """Open one file after another and yield its rows."""
        return self._files()

    def bad_row(self, number: int, error: TunesmithError) -> None:
        """Tell a bad row; an error that ends the file because all rows were bad was told before."""
        if error is self.first_error:
            return
        self.num_skipped_rows += 1
        self.first_error = self.first_error or error
        self._on_bad(self.shown_path, number, error)


@dataclass(slots=True)
class Opened:
    """A data file whose first rows were read.

    Attributes:
        source: what it belongs to.
        path: the file, of an archive with its place there.
        layout: None where it was not recognized.
        reason: what it is and why; "" where it was not recognized.
        problem: why it was not; None also where nothing can be read, which was told.
        rows: all of them.
        num_bytes: size of the file, 0 where it is a part of another.
        mean_row_bytes: of the first rows.
    """

    source: TolerantSource
    path: str
    layout: datafmt.Layout | None
    reason: str
    problem: UserError | None
    rows: Rows
    num_bytes: int
    mean_row_bytes: float

    def announce(self, number: int) -> None:
        """Say that the rows behind one come next."""
        more_cpu_s = READ_CPU_S + self.num_bytes / BYTES_PER_S
        self.source.portions.begin("reader", number, more_cpu_s=more_cpu_s)


def open_tolerantly(
    spec: SourceSpec, portions: Portions, on_bad: OnBad, in_labels: bool = False
) -> Iterator[Opened]:
    """Open one file of a source after another and recognize its layout; see TolerantSource."""
    source = TolerantSource(spec, portions, on_bad)
    source.in_labels = in_labels
    try:
        for rows in source.files():
            yield _opened(source, rows)
    except (UserError, EnvironmentProblem) as error:
        source.bad_row(0, error)


def _opened(source: TolerantSource, rows: Rows) -> Opened:
    path = source.shown_path
    num_bytes = _size(path)
    head: list[tuple[int, datafmt.Row]] = []
    try:
        head.extend(beginning(rows, LAYOUT_ROWS))
    except UserError as error:
        source.bad_row(0, error)
        rows = iter(())
    if not head:
        return Opened(source, path, None, "", None, iter(()), num_bytes, 1.0)
    layout, reason, problem = None, "", None
    try:
        first = [row for _, row in head]
        layout = source.layout_of(first)
        reason = datafmt.recognition(layout, first)
    except UserError as error:
        problem = error
    mean = sum(row_bytes(row) for _, row in head) / len(head)
    return Opened(source, path, layout, reason, problem, _all(source, head, rows), num_bytes, mean)


def _all(source: Source, head: list[tuple[int, datafmt.Row]], rows: Rows) -> Rows:
    yield from head
    head.clear()
    try:
        yield from rows
    except UserError as error:
        source.bad_row(0, error)


class Meter:
    """Tells how far all files are.

    Args:
        host: told.
        total_bytes: of all files, as often as they are read.
        clock: seconds.

    Attributes:
        num_skipped: rows that `every_row` could not read.
    """

    def __init__(self, host: Host, total_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._host, self._total, self._clock = host, total_bytes, clock
        self._start_s = self._pass_s = self._told_s = clock()
        self._done_rows = self._done_bytes = 0
        self.num_skipped = 0

    def begin_pass(self) -> None:
        """Say that all files are read once more."""
        self._done_rows = self.num_skipped = 0
        self._pass_s = self._clock()

    def read(self, file: Opened, num_rows: int) -> None:
        """Say from time to time that so many rows of a file were read."""
        now_s = self._clock()
        if now_s - self._told_s >= TELL_EVERY_S:
            self._told_s = now_s
            done_bytes = min(file.num_bytes, round(num_rows * file.mean_row_bytes))
            self._tell(self._done_rows + num_rows, self._done_bytes + done_bytes)

    def end_file(self, file: Opened, num_rows: int) -> None:
        """Say that a file was read."""
        self._done_rows += num_rows
        self._done_bytes += file.num_bytes
        self._tell(self._done_rows, self._done_bytes)

    def _tell(self, num_rows: int, done_bytes: int) -> None:
        # Files of an archive are larger than it.
        done_bytes = min(done_bytes, self._total)
        now_s = self._clock()
        elapsed_s, pass_s = max(1e-6, now_s - self._start_s), max(1e-6, now_s - self._pass_s)
        remaining_s = elapsed_s * (self._total - done_bytes) / done_bytes if done_bytes else None
        self._host.event(
            "progress",
            rows=num_rows,
            done_bytes=done_bytes,
            total_bytes=self._total,
            rows_per_s=num_rows / pass_s,
            remaining_s=remaining_s,
        )


def total_bytes(sources: Iterable[SourceSpec]) -> int:
    """Return the size of all files that are there."""
    return sum(map(_size, (source.path for source in sources)))


def _size(path: str) -> int:
    with contextlib.suppress(OSError, ValueError):
        place = Path(path)
        return files.folder_bytes(place) if place.is_dir() else place.stat().st_size
    return 0


def every_row(host: Host, sources: Iterable[SourceSpec], meter: Meter) -> Iterator[tuple[Opened, datafmt.Row]]:
    """Yield the rows of files that can be read, and the file of each; the meter counts the others.

    Raises:
        UserError: what is wrong with a file that can't be read, or not to its end, or whose columns were named
            and are not there.
    """
    failures: list[TunesmithError] = []

    def bad(_path: str, line: int, error: TunesmithError) -> None:
        meter.num_skipped += 1
        if not line:
            failures.append(error)

    for source in sources:
        for file in open_tolerantly(source, host.portions, bad):
            if file.problem is not None and source.columns:
                raise file.problem
            number = 0
            for number, (line, row) in enumerate(file.rows, 1):
                yield file, row
                if number % ROWS_TOGETHER == 0:
                    file.announce(line)
                    meter.read(file, number)
            if not number and file.source.first_error:
                failures.append(file.source.first_error)
            meter.end_file(file, number)
            if failures:
                break
        if failures:
            raise failures[0]
