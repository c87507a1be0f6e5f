"""The library: an SQLite index over the run folders, for lists and curves without parsing every journal again.

Files are truth. The index may be deleted, damaged or written by another version at any time; it is then built anew,
the old file set aside when a newer version wrote it. Where it can't be written (full disk, read-only folder, held by
another process) it stays as it is, and an index in memory takes its place. Each run is ingested from the byte where
the last ingestion stopped.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunesmith_core import files
from tunesmith_core.errors import TunesmithError
from tunesmith_core.event_fields import are_named_texts
from tunesmith_core.json_values import MOST, is_count, is_number, is_text, is_time
from tunesmith_core.locks import FileLock
from tunesmith_core.protocol import Event, JournalReader
from tunesmith_core.runs import Run, RunState, RunStatus, dated_runs, settle
from tunesmith_core.spec import RunSpec

logger = logging.getLogger(__name__)

SCHEMA_MAJOR = 1
SCHEMA_MINOR = 0
LOCK_WAIT_S = 30.0

SERIES: dict[str, tuple[str, ...]] = {
    "step": ("loss", "lr", "grad_norm", "tokens_per_s", "step_s", "vram_peak_bytes", "reward"),
    "eval": ("loss",),
}
"""Numbers that are kept as series; those of `eval` are named eval_loss and so on."""

_SCHEMA = """
CREATE TABLE runs (
    id TEXT PRIMARY KEY, path TEXT NOT NULL, name TEXT NOT NULL, model TEXT NOT NULL, data TEXT NOT NULL,
    created REAL NOT NULL, state TEXT NOT NULL, journal_offset INTEGER NOT NULL, size_bytes INTEGER NOT NULL
);
CREATE TABLE metrics (
    run TEXT NOT NULL, name TEXT NOT NULL, step INTEGER NOT NULL, value REAL, t REAL NOT NULL,
    PRIMARY KEY (run, name, step)
) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One line of the list of runs.

    Attributes:
        created: seconds since 1970.
        status: where the run stands now.
        size_bytes: size of the run folder when it was last looked at.
    """

    run: Run
    name: str
    model: str
    data: str
    created: float
    status: RunStatus
    size_bytes: int


class Library:
    """The index in one file; one object per thread."""

    def __init__(self, path: Path) -> None:
        """Open the index, building it anew where it can't be used; where nothing can be written, one in memory."""
        self.path = path
        self._lock = FileLock(path.with_name(path.name + ".lock"))
        self._in_memory = False
        try:
            files.private_folder(path.parent)
            with self._lock.waiting(LOCK_WAIT_S):
                self._connection = self._open()
        except (OSError, sqlite3.OperationalError) as error:
            self._use_memory(error)

    def _use_memory(self, error: Exception) -> None:
        foreseen = isinstance(error, OSError) and error.errno in (errno.EROFS, errno.EACCES, errno.EPERM)
        level = logging.INFO if foreseen else logging.WARNING
        logger.log(level, "the index can't be written and is left as it is: %s", error)
        self._in_memory = True
        self._connection = sqlite3.connect(":memory:")
        self._connection.executescript(_SCHEMA)

    def _open(self) -> sqlite3.Connection:
        try:
            connection = self._connect()
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            logger.warning("the index is damaged and built anew: %s", error)
            self._remove()
            return self._connect()
        major = connection.execute("PRAGMA user_version").fetchone()[0] // 1000
        if major > SCHEMA_MAJOR:
            connection.close()
            self._set_aside(major)
            return self._connect()
        return connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=LOCK_WAIT_S)
        try:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            # By its name: closing the file after opening it once more would drop SQLite's locks. Its logs follow it.
            files.make_private(self.path)
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            if version // 1000 <= SCHEMA_MAJOR:
                _quick_check(connection)
                if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                    connection.executescript(_SCHEMA)
                    connection.execute(f"PRAGMA user_version = {SCHEMA_MAJOR * 1000 + SCHEMA_MINOR}")
                _check_schema(connection)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            connection.close()
            if isinstance(error, UnicodeDecodeError):
                # What SQLite says of a damaged table repeats its bytes, which Python takes for text.
                raise sqlite3.DatabaseError("the names of its tables are damaged") from error
            raise
        return connection

    def _remove(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)

    def _set_aside(self, major: int) -> None:
        logger.warning("the index was written by a newer version (%d) and is set aside", major)
        files.replace(self.path, self.path.with_name(f"{self.path.name}.v{major}"))
        self._remove()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def refresh(self, run: Run) -> None:
        """Take in what the run's journal has gained."""
        self._change(lambda: self._ingest(run, run.created_at))

    def refresh_all(self, runs_dir: Path | None = None) -> None:
        """Take in every run of a folder and forget the ones that are gone."""
        runs = dated_runs(runs_dir)
        present = {_bound(run.id) for _, run in runs}

        def take_in() -> None:
            for created, run in runs:
                self._ingest(run, created)
            for (identifier,) in self._connection.execute("SELECT id FROM runs").fetchall():
                if identifier not in present:
                    self._forget(identifier)

        self._change(take_in)

    def _change(self, change: Callable[[], None]) -> None:
        """Change the index as a whole; where that fails, the same is done to an index in memory."""
        if not self._in_memory:
            try:
                with self._lock.waiting(LOCK_WAIT_S), self._connection:
                    change()
            except (OSError, sqlite3.DatabaseError) as error:
                self._connection.close()
                self._use_memory(error)
            else:
                return
        with self._connection:
            change()

    def _ingest(self, run: Run, created: float) -> None:
        identifier = _bound(run.id)
        row = self._connection.execute(f"SELECT {_COLUMNS} FROM runs WHERE id = ?", (identifier,)).fetchone()
        known = _known(row) if row else None
        size = _size(run.journal_path)
        status, offset = (known.status, row[-1]) if known else (RunStatus(), 0)
        if row and (
            known is None
            or (known.run, known.created) != (run, created)
            or size < offset
            or status.state is RunState.DAMAGED
        ):
            # Another run of the same name, a moved one, a restored journal, or damage that may be repaired.
            self._forget(identifier)
            known, status, offset = None, RunStatus(), 0
        if known and size == offset:
            self._measure(known)
            return
        spec, problem = run.examined(created)
        reader = JournalReader(run.journal_path, offset)
        try:
            while events := reader.read():
                for event in events:
                    status.fold(event)
                self._store_metrics(identifier, events)
        except TunesmithError as error:
            logger.warning("%s: %s", ascii(run.id), error.message)
            problem = problem or (error if error.code != "protocol-mismatch" else None)
        status.mark(run, problem or reader.damage())
        self._store_run(run, spec, status, created, reader.offset)

    def _measure(self, known: RunSummary) -> None:
        """Note the size of a run that wrote nothing into its journal: exports and answers come, checkpoints go."""
        num_bytes = files.folder_bytes(known.run.path)
        if num_bytes != known.size_bytes:
            change = "UPDATE runs SET size_bytes = ? WHERE id = ?"
            self._connection.execute(change, (num_bytes, _bound(known.run.id)))

    def _store_run(self, run: Run, spec: RunSpec | None, status: RunStatus, created: float, offset: int) -> None:
        model, data = (spec.model.path, spec.data.sources[0].path) if spec else ("", "")
        self._connection.execute(
            "INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                _bound(run.id),
                _bound(str(run.path)),
                _bound((spec and spec.name) or run.id),
                model,
                data,
                created,
                json.dumps(dataclasses.asdict(status)),
                offset,
                files.folder_bytes(run.path),
            ),
        )

    def _store_metrics(self, identifier: str | bytes, events: list[Event]) -> None:
        rows: list[tuple[str | bytes, str, int, float | None, float]] = []
        for event in events:
            if event.type == "hello":
                # Steps after the checkpoint are done again; the old ones were never part of what is kept.
                self._insert(rows)
                rows = []
                resumed_from = event.data.get("resumed_from_step") or 0
                self._connection.execute("DELETE FROM metrics WHERE run = ? AND step > ?", (identifier, resumed_from))
            rows.extend(_metrics_of(identifier, event))
        self._insert(rows)

    def _insert(self, rows: list[tuple[str | bytes, str, int, float | None, float]]) -> None:
        self._connection.executemany("INSERT OR REPLACE INTO metrics VALUES (?, ?, ?, ?, ?)", rows)

    def list_runs(self) -> list[RunSummary]:
        """Return the runs as of the last refresh, newest first, live ones checked for life."""
        rows = self._connection.execute(f"SELECT {_COLUMNS} FROM runs ORDER BY created DESC, id DESC")
        summaries = list(filter(None, map(_known, rows.fetchall())))
        for summary in summaries:
            settle(summary.run, summary.status)
        return summaries

    def series(self, run_id: str, name: str) -> list[tuple[int, float | None, float]]:
        """Return (step, value, seconds since 1970) of one number of a run in order of steps; None = not finite."""
        rows = self._connection.execute(
            "SELECT step, value, t FROM metrics WHERE run = ? AND name = ? ORDER BY step", (_bound(run_id), name)
        )
        return [row for row in rows if is_number(row[0]) and (row[1] is None or is_number(row[1])) and is_time(row[2])]

    def delete(self, run: Run) -> None:
        """Forget a run; its folder is not touched."""
        self._change(lambda: self._forget(_bound(run.id)))

    def _forget(self, identifier: str | bytes) -> None:
        self._connection.execute("DELETE FROM runs WHERE id = ?", (identifier,))
        self._connection.execute("DELETE FROM metrics WHERE run = ?", (identifier,))


def _quick_check(connection: sqlite3.Connection) -> None:
    verdict = connection.execute("PRAGMA quick_check").fetchone()[0]
    if verdict != "ok":
        raise sqlite3.DatabaseError(verdict)


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Return whether the file itself is at fault, and not the disk or another process."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)


def _check_schema(connection: sqlite3.Connection) -> None:
    """Refuse tables that are not as this version makes them, line breaks aside."""
    found = connection.execute("SELECT sql FROM sqlite_master WHERE sql NOT NULL ORDER BY name DESC").fetchall()
    if " ".join(f"{sql};" for (sql,) in found).split() != _SCHEMA.split():
        raise sqlite3.DatabaseError("its tables are not those of this version")


def _bound(text: str) -> str | bytes:
    """Return a text as SQLite takes it: bytes for a file name that is no valid text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return os.fsencode(text)
    return text


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _check_of(annotation: str) -> Callable[[Any], bool]:  # Any: JSON values
    """Return what tells whether a JSON value fits a field of RunStatus."""
    kind, _, optional = annotation.partition(" | ")
    checks: dict[str, Callable[[object], bool]] = {
        "int": is_count,
        "float": is_number,
        "dict[str, str]": are_named_texts,
    }
    check = checks.get(kind, _is_object if kind.startswith("dict") else is_text)
    return (lambda value: value is None or check(value)) if optional else check


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


_COLUMNS = "path, name, model, data, created, state, size_bytes, journal_offset"
_CHECKS: dict[str, Callable[[Any], bool]] = {  # Any: JSON values
    field.name: _check_of(str(field.type)) for field in dataclasses.fields(RunStatus)
}


def _known(row: tuple[Any, ...]) -> RunSummary | None:  # Any: whatever stands in the file
    """Return a row of the index, or None when a value of it is not of its type."""
    path, *texts, created, state, size_bytes, offset = row
    try:
        values = json.loads(state)
        status = RunStatus(**{name: value for name, value in values.items() if name in _CHECKS})
        status.state = RunState(status.state)
        run = Run(Path(os.fsdecode(path)))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    sound = all(_CHECKS[name](value) for name, value in values.items() if name in _CHECKS) and is_time(created)
    if not sound or not all(type(number) is int and 0 <= number < MOST for number in (size_bytes, offset)):
        return None
    name, model, data = map(os.fsdecode, texts)
    return RunSummary(run, name, model, data, created, status, size_bytes)


def _metrics_of(identifier: str | bytes, event: Event) -> Iterator[tuple[str | bytes, str, int, float | None, float]]:
    step = event.data.get("step")
    if not isinstance(step, int):
        return
    prefix = "eval_" if event.type == "eval" else ""
    for name in SERIES.get(event.type, ()):
        value = event.data.get(name)
        if name in event.data and (value is None or isinstance(value, (int, float))):
            # A whole number may be one that SQLite does not take.
            yield identifier, prefix + name, step, None if value is None else float(value), event.t
