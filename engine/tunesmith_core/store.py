"""The library: an SQLite index over the run folders, for lists and curves without parsing every journal again.

Files are truth. The index may be deleted, damaged or written by a newer version at any time; it is then built anew,
the old file set aside when a newer version wrote it. Each run is ingested from the byte where the last ingestion
stopped.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunesmith_core import files
from tunesmith_core.errors import TunesmithError
from tunesmith_core.locks import FileLock
from tunesmith_core.protocol import Event, JournalReader
from tunesmith_core.runs import Run, RunState, RunStatus, display_name, iter_runs, settle

logger = logging.getLogger(__name__)

SCHEMA_MAJOR = 1
SCHEMA_MINOR = 0
LOCK_WAIT_S = 30.0

SERIES: dict[str, tuple[str, ...]] = {
    "step": ("loss", "lr", "grad_norm", "tokens_per_s", "step_s", "vram_peak_bytes"),
    "eval": ("loss",),
}
"""Numbers that are kept as series; those of `eval` are named eval_loss and so on."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
    id TEXT PRIMARY KEY, path TEXT NOT NULL, name TEXT NOT NULL, model TEXT NOT NULL, data TEXT NOT NULL,
    created REAL NOT NULL, state TEXT NOT NULL, journal_offset INTEGER NOT NULL, size_bytes INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS metrics (
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
        """Open the index, building it anew where it can't be used. Raises OSError when the folder can't be written."""
        self.path = path
        self._lock = FileLock(path.with_name(path.name + ".lock"))
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._lock.waiting(LOCK_WAIT_S):
            self._connection = self._open()

    def _open(self) -> sqlite3.Connection:
        try:
            connection = self._connect()
        except sqlite3.DatabaseError as error:
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
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            if version // 1000 <= SCHEMA_MAJOR:
                _quick_check(connection)
                connection.executescript(_SCHEMA)
                connection.execute(f"PRAGMA user_version = {SCHEMA_MAJOR * 1000 + SCHEMA_MINOR}")
        except sqlite3.DatabaseError:
            connection.close()
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
        with self._lock.waiting(LOCK_WAIT_S), self._connection:
            self._ingest(run)

    def refresh_all(self, runs_dir: Path | None = None) -> None:
        """Take in every run of a folder and forget the ones that are gone."""
        runs = list(iter_runs(runs_dir))
        with self._lock.waiting(LOCK_WAIT_S), self._connection:
            for run in runs:
                self._ingest(run)
            present = {run.id for run in runs}
            for (identifier,) in self._connection.execute("SELECT id FROM runs").fetchall():
                if identifier not in present:
                    self._forget(identifier)

    def _ingest(self, run: Run) -> None:
        row = self._connection.execute(
            "SELECT state, journal_offset, created FROM runs WHERE id = ?", (run.id,)
        ).fetchone()
        created = run.created_at
        status, offset = (_status_from_json(row[0]), row[1]) if row else (RunStatus(), 0)
        size = run.journal_path.stat().st_size if run.journal_path.exists() else 0
        if row and (created != row[2] or size < offset):
            # Another run of the same name, or a journal that was restored: begin again.
            self._forget(run.id)
            row, status, offset = None, RunStatus(), 0
        if row and size == offset:
            return
        reader = JournalReader(run.journal_path, offset)
        try:
            while events := reader.read():
                for event in events:
                    status.fold(event)
                self._store_metrics(run.id, events)
        except TunesmithError as error:
            logger.warning("%s: %s", run.id, error.message)
        self._store_run(run, status, created, reader.offset)

    def _store_run(self, run: Run, status: RunStatus, created: float, offset: int) -> None:
        try:
            spec = run.load_spec()
            model, data = spec.model.path, spec.data.sources[0].path
        except TunesmithError:
            model = data = ""
        self._connection.execute(
            "INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                run.id,
                str(run.path),
                display_name(run),
                model,
                data,
                created,
                json.dumps(dataclasses.asdict(status)),
                offset,
                files.folder_bytes(run.path),
            ),
        )

    def _store_metrics(self, identifier: str, events: list[Event]) -> None:
        rows: list[tuple[str, str, int, float | None, float]] = []
        for event in events:
            if event.type == "hello":
                # Steps after the checkpoint are done again; the old ones were never part of what is kept.
                self._insert(rows)
                rows = []
                resumed_from = event.data.get("resumed_from_step") or 0
                self._connection.execute("DELETE FROM metrics WHERE run = ? AND step > ?", (identifier, resumed_from))
            rows.extend(_metrics_of(identifier, event))
        self._insert(rows)

    def _insert(self, rows: list[tuple[str, str, int, float | None, float]]) -> None:
        self._connection.executemany("INSERT OR REPLACE INTO metrics VALUES (?, ?, ?, ?, ?)", rows)

    def list_runs(self) -> list[RunSummary]:
        """Return the runs as of the last refresh, newest first, live ones checked for life."""
        rows = self._connection.execute(
            "SELECT path, name, model, data, created, state, size_bytes FROM runs ORDER BY created DESC, id DESC"
        ).fetchall()
        summaries = []
        for path, name, model, data, created, state, size_bytes in rows:
            run = Run(Path(path))
            status = settle(run, _status_from_json(state))
            summaries.append(RunSummary(run, name, model, data, created, status, size_bytes))
        return summaries

    def series(self, run_id: str, name: str) -> list[tuple[int, float | None, float]]:
        """Return (step, value, seconds since 1970) of one number of a run in order of steps; None = not finite."""
        return self._connection.execute(
            "SELECT step, value, t FROM metrics WHERE run = ? AND name = ? ORDER BY step", (run_id, name)
        ).fetchall()

    def delete(self, run: Run) -> None:
        """Forget a run; its folder is not touched."""
        with self._lock.waiting(LOCK_WAIT_S), self._connection:
            self._forget(run.id)

    def _forget(self, identifier: str) -> None:
        self._connection.execute("DELETE FROM runs WHERE id = ?", (identifier,))
        self._connection.execute("DELETE FROM metrics WHERE run = ?", (identifier,))


def _quick_check(connection: sqlite3.Connection) -> None:
    verdict = connection.execute("PRAGMA quick_check").fetchone()[0]
    if verdict != "ok":
        raise sqlite3.DatabaseError(verdict)


def _status_from_json(text: str) -> RunStatus:
    values: dict[str, Any] = json.loads(text)  # Any: the fields of RunStatus
    known = {field.name for field in dataclasses.fields(RunStatus)}
    status = RunStatus(**{name: value for name, value in values.items() if name in known})
    status.state = RunState(status.state)
    return status


def _metrics_of(identifier: str, event: Event) -> Iterator[tuple[str, str, int, float | None, float]]:
    step = event.data.get("step")
    if not isinstance(step, int):
        return
    prefix = "eval_" if event.type == "eval" else ""
    for name in SERIES.get(event.type, ()):
        value = event.data.get(name)
        if name in event.data and (value is None or isinstance(value, (int, float))):
            yield identifier, prefix + name, step, value, event.t
