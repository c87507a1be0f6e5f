"""Rows of a data file for the window: index them, find some, save an edited copy; see `datafmt.row_index`.

A process of its own does it, because a thread that reads a million rows would take the interpreter from the window.
"""

from __future__ import annotations

import dataclasses
import shutil
import struct
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tunesmith_core import datafmt, files, paths
from tunesmith_core.datafmt import row_index
from tunesmith_core.datafmt.json_rows import Row
from tunesmith_core.datafmt.row_index import RowIndex
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.folder import Operation
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kind import AbsolutePath, Kind, Place
from tunesmith_core.operations.limits import Limits
from tunesmith_core.process_identity import current
from tunesmith_core.spec_sections import SourceSpec

MOST_CPU_S = 18.0
"""Beyond the usual limit: opening a file may mean reading all of it."""
PLACE_BYTES = 8

Placed = tuple[str, int, Row]
"""A row with its file and its number there."""
ReadRows = Callable[[Callable[[str, int, TunesmithError], None]], Iterator[Placed]]
"""Opens a file, given what is told of each bad row: its file, its number there and what is wrong."""


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """A data file, and the folder for its index."""

    source: SourceSpec
    folder: AbsolutePath

    @staticmethod
    def from_dict(values: dict[str, Any]) -> IndexSpec:  # Any: JSON values
        """Rebuild a spec from its JSON values."""
        return IndexSpec(SourceSpec(**values["source"]), values["folder"])

    @property
    def path(self) -> Path:
        """The data file."""
        return Path(self.source.path)


@dataclass(frozen=True, slots=True)
class FindSpec:
    """A text that is looked for in indexed rows; the places of those that hold it are appended to a file."""

    folder: AbsolutePath
    text: str
    target: AbsolutePath


@dataclass(frozen=True, slots=True)
class EditedRows:
    """What a person has changed in the rows of the first source of a run.

    Attributes:
        edits: what stands in place of rows, by their places in the index.
        folder: the index of the source, see `datafmt.row_index`; "" where nothing was changed.
        deleted: a file with the places of rows that are left out, as FIND_ROWS writes it.
    """

    edits: dict[str, Row] = field(default_factory=dict)
    folder: AbsolutePath = AbsolutePath("")
    deleted: AbsolutePath = AbsolutePath("")


@dataclass(frozen=True, slots=True)
class SaveRowsSpec:
    """Indexed rows, with changes, as a new file: JSONL, or a table by the end of its name."""

    target: AbsolutePath
    edited: EditedRows

    def to_dict(self) -> dict[str, Any]:  # Any: JSON values
        """Return the spec as JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> SaveRowsSpec:  # Any: JSON values
        """Rebuild a spec from `to_dict`."""
        return cls(values["target"], EditedRows(**values["edited"]))


def new_folder() -> Path:
    """Make the folder of an index; remove those whose owner died. Raises OSError."""
    parent = paths.tmp_dir() / "rows"
    for left in map(Operation, list(parent.glob("*"))):
        owner = left.leased("owner")
        if owner is not None and not owner.alive():
            shutil.rmtree(left.path, ignore_errors=True)
    folder = Operation(files.private_folder(parent / uuid.uuid4().hex[:8]))
    folder.lease(owner=current())
    return folder.path


def index_rows(host: Host, spec: IndexSpec) -> dict[str, Any]:  # Any: JSON values
    """Index a file; copy its rows where they are no JSON lines. Return how many there are."""
    path, encoding = spec.path, spec.source.encoding
    kind = datafmt.file_kind(path)
    if row_index.serves_as_it_is(path, kind, encoding):
        return {"num_rows": row_index.index_lines(path, Path(spec.folder), _teller(host, path.stat().st_size))}

    def opened(bad: Callable[[str, int, TunesmithError], None]) -> Iterator[Placed]:
        name = str(path)
        rows = datafmt.read_rows(path, lambda number, error: bad(name, number, error), encoding)
        return ((name, number, row) for number, row in rows)

    return copied(host, spec, kind, opened)


def copied(host: Host, spec: IndexSpec, kind: str, read: ReadRows) -> dict[str, Any]:  # Any: JSON values
    """Copy the rows that a reader finds; return how many there are. Raises UserError where the reader does."""
    path = spec.path
    with host.portions as portions:
        portions.about(path, kind)
        portions.limit_memory(portions.limits.memory_bytes)

        def announced() -> Iterator[tuple[str, int, Row | str]]:
            portions.begin("reader", 0, more_cpu_s=MOST_CPU_S)
            for file, number, row in _with_bad_rows(read):
                yield file, number, row
                portions.begin("reader", number, more_cpu_s=MOST_CPU_S)

        return {"num_rows": row_index.copy_rows(announced(), path, Path(spec.folder), _teller(host, 0))}


def _with_bad_rows(read: ReadRows) -> Iterator[tuple[str, int, Row | str]]:
    """Yield good rows, and of bad ones what is wrong with them, in the order of the file."""
    waiting: list[tuple[str, int, str]] = []
    for placed in read(lambda file, number, error: waiting.append((file, number, error.message))):
        yield from waiting
        waiting.clear()
        yield placed
    yield from waiting


def find_rows(host: Host, spec: FindSpec) -> dict[str, Any]:  # Any: JSON values
    """Look for a text; return how many rows hold it."""
    index, num_found, told_s = RowIndex(Path(spec.folder)), 0, time.monotonic()
    with Path(spec.target).open("wb") as target:
        for place, is_found in row_index.find(index, spec.text):
            if is_found:
                target.write(place.to_bytes(PLACE_BYTES, "little"))
                num_found += 1
            if not place % 256 and time.monotonic() - told_s > row_index.TELL_EVERY_S:
                told_s = time.monotonic()
                target.flush()
                host.event("progress", name="finding", done_bytes=place, total_bytes=len(index), num_found=num_found)
    return {"num_found": num_found}


def save_rows(host: Host, spec: SaveRowsSpec) -> dict[str, Any]:  # Any: JSON values
    """Save a copy; return how many rows it has."""
    edited = spec.edited
    index = RowIndex(Path(edited.folder))
    edits = {int(place): row for place, row in edited.edits.items()}

    def tell(done: int, _num_bytes: int) -> None:
        host.phase("saving", done, len(index), "rows")

    deleted = frozenset(places_in(Path(edited.deleted)) if edited.deleted else ())
    return {"num_rows": row_index.save(index, Path(spec.target), edits, deleted, tell)}


def places_in(path: Path) -> Iterator[int]:
    """Yield the places in a file, as FIND_ROWS writes it."""
    return (place for (place,) in struct.iter_unpack("<Q", path.read_bytes()))


def _teller(host: Host, total_bytes: int) -> row_index.Tell:
    def tell(num_rows: int, done_bytes: int) -> None:
        host.event("progress", name="reading", rows=num_rows, done_bytes=done_bytes, total_bytes=total_bytes)

    return tell


INDEX_ROWS = Kind(
    name="index-rows",
    title="Reading the rows",
    spec=IndexSpec,
    function="tunesmith_core.operations.kinds.rows:index_rows",
    place=Place.SAME,
    grace_s=1.0,
    limits=Limits(),
)
COPY_ROWS = Kind(
    name="copy-rows",
    title="Reading the rows",
    spec=IndexSpec,
    function="tunesmith_engine.operations:copy_rows",
    grace_s=1.0,
    limits=Limits(),
)
FIND_ROWS = Kind(
    name="find-rows",
    title="Finding rows",
    spec=FindSpec,
    function="tunesmith_core.operations.kinds.rows:find_rows",
    place=Place.SAME,
    grace_s=1.0,
)
SAVE_ROWS = Kind(
    name="save-rows",
    title="Saving a copy of the rows",
    cut_short="The copy is not saved.",
    spec=SaveRowsSpec,
    function="tunesmith_core.operations.kinds.rows:save_rows",
    place=Place.SAME,
)
SAVE_TABLE = Kind(
    name="save-table",
    title="Saving a copy of the rows",
    cut_short="The copy is not saved.",
    spec=SaveRowsSpec,
    function="tunesmith_engine.operations:save_table",
)
