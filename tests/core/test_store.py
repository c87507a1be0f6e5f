"""The index: always opens, follows the journals, forgets what was redone, and can be deleted at any time."""

from __future__ import annotations

import logging
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tunesmith_core import files, paths, store
from tunesmith_core.protocol import Event, JournalWriter, encode
from tunesmith_core.runs import Run, RunState, create_run
from tunesmith_core.spec import RunSpec
from tunesmith_core.store import Library

Make = Callable[..., RunSpec]


@pytest.fixture
def library(home: Path) -> Iterator[Library]:
    library = Library(paths.library_path())
    yield library
    library.close()


def write(run: Run, *events: tuple[str, dict[str, object]]) -> None:
    writer = JournalWriter(run.journal_path)
    for kind, data in events:
        writer.write(kind, **data)
    writer.close()


def steps(first: int, last: int) -> list[tuple[str, dict[str, object]]]:
    return [("step", {"step": step, "loss": 10.0 / step, "lr": 0.1}) for step in range(first, last + 1)]


def test_runs_and_series_follow_the_journal(library: Library, make_spec: Make) -> None:
    run = create_run(make_spec("r"))
    library.refresh_all()
    write(run, ("hello", {}), *steps(1, 3), ("eval", {"step": 3, "loss": 1.0}), ("step", {"step": 4, "loss": None}))
    library.refresh(run)
    library.refresh(run)
    write(run, ("step", {"step": "odd", "loss": 1.0}), ("step", {"step": 5, "loss": "odd"}))
    write(run, ("result", {"status": "finished", "step": 4}))
    library.refresh(run)
    assert [point[:2] for point in library.series(run.id, "loss")] == [(1, 10.0), (2, 5.0), (3, 10 / 3), (4, None)]
    assert [point[:2] for point in library.series(run.id, "eval_loss")] == [(3, 1.0)]
    [summary] = library.list_runs()
    assert (summary.run, summary.name, summary.status.state) == (run, "r", RunState.FINISHED)
    assert summary.status == run.status()
    assert summary.model == run.load_spec().model.path
    assert summary.size_bytes == files.folder_bytes(run.path)
    (run.path / "exports").mkdir()
    (run.path / "exports" / "model.gguf").write_bytes(b"x" * 1000)
    library.refresh_all()
    assert library.list_runs()[0].size_bytes == summary.size_bytes + 1000, "an export came without a journal event"


def test_redone_steps_replace_the_lost_ones(library: Library, make_spec: Make) -> None:
    run = create_run(make_spec("r"))
    write(run, ("hello", {}), *steps(1, 5))
    library.refresh(run)
    write(run, ("hello", {"resumed_from_step": 3}), ("step", {"step": 4, "loss": 0.5}))
    library.refresh(run)
    assert [point[:2] for point in library.series(run.id, "loss")][2:] == [(3, 10 / 3), (4, 0.5)]


def test_newest_first_and_dead_ones_interrupted(library: Library, make_spec: Make) -> None:
    first, second = create_run(make_spec("a")), create_run(make_spec("b"))
    library.refresh_all()
    assert [summary.run.id for summary in library.list_runs()] == [second.id, first.id]
    assert {summary.status.state for summary in library.list_runs()} == {RunState.INTERRUPTED}
    second.path.rename(second.path.with_name(".trash"))
    library.refresh_all()
    assert [summary.run.id for summary in library.list_runs()] == [first.id]
    library.delete(first)
    assert library.list_runs() == []


def test_another_run_of_the_same_name_begins_again(library: Library, make_spec: Make) -> None:
    run = create_run(make_spec("r"))
    write(run, ("hello", {}), *steps(1, 5))
    library.refresh(run)
    (run.path / "run.json").write_text('{"created_at": 5.0}')
    run.journal_path.unlink()
    write(run, ("hello", {}), *steps(1, 20))
    library.refresh(run)
    assert len(library.series(run.id, "loss")) == 20
    run.journal_path.write_bytes(run.journal_path.read_bytes()[:500])
    library.refresh(run)
    assert 0 < len(library.series(run.id, "loss")) < 5
    run.journal_path.write_bytes(b"")
    library.refresh(run)
    assert library.series(run.id, "loss") == []


def test_a_damaged_spec_or_a_newer_journal_does_not_hide_a_run(
    library: Library, make_spec: Make, caplog: pytest.LogCaptureFixture
) -> None:
    run = create_run(make_spec("r"))
    (run.path / "spec.json").write_text("{")
    body = b'{"v":9,"seq":1,"t":0,"type":"step"'
    run.journal_path.write_bytes(body + b',"crc":"%08x"}\n' % zlib.crc32(body))
    library.refresh_all()
    assert [summary.name for summary in library.list_runs()] == [run.id]
    assert "version 9" in caplog.text


def test_the_index_can_be_deleted(home: Path, make_spec: Make) -> None:
    run = create_run(make_spec("r"))
    write(run, ("hello", {}), *steps(1, 3))
    for _ in range(2):
        library = Library(paths.library_path())
        library.refresh_all()
        assert len(library.series(run.id, "loss")) == 3
        library.close()
        for path in home.glob("library.sqlite*"):
            path.unlink()


@pytest.mark.parametrize("damage", ["garbage", "cut", "zeros", "pages", "names"])
def test_a_damaged_index_is_built_anew(
    home: Path, make_spec: Make, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    run = create_run(make_spec("r"))
    write(run, ("hello", {}), *steps(1, 300))
    library = Library(paths.library_path())
    library.refresh_all()
    library.close()
    path = paths.library_path()
    whole = path.read_bytes()
    damaged = {
        "garbage": b"not a database at all" * 100,
        "cut": whole[: len(whole) // 2],
        "zeros": bytes(len(whole)),
        "pages": whole[:4096] + bytes(x ^ 0x5A for x in whole[4096:]),
        "names": whole.replace(b"sqlite_autoindex_r", b"sqlite_autoindex_\xb5").replace(b"ex_m", b"ex_\xb5"),
    }
    path.write_bytes(damaged[damage])
    library = Library(path)
    library.refresh_all()
    assert len(library.series(run.id, "loss")) == 300
    assert "built anew" in caplog.text
    library.close()


def test_an_index_that_fails_its_own_check_is_not_trusted(home: Path) -> None:
    class Failing:
        def execute(self, _statement: str) -> Failing:
            return self

        def fetchone(self) -> tuple[str]:
            return ("row 5 missing from index",)

    with pytest.raises(sqlite3.DatabaseError, match="row 5"):
        store._quick_check(Failing())  # type: ignore[arg-type]


def test_an_index_of_a_newer_version_is_set_aside(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    connection = sqlite3.connect(paths.library_path())
    connection.execute("PRAGMA user_version = 7003")
    connection.execute("CREATE TABLE future (x)")
    connection.close()
    Library(paths.library_path()).close()
    kept = sqlite3.connect(home / "library.sqlite.v7")
    assert kept.execute("SELECT name FROM sqlite_master").fetchall() == [("future",)]
    kept.close()
    assert "newer version" in caplog.text


def test_a_long_run_is_ingested_by_parts(library: Library, make_spec: Make) -> None:
    run = create_run(make_spec("long"))
    lines = (encode(Event(n, float(n), "step", {"step": n, "loss": 1.0, "pad": "x" * 400})) for n in range(1, 12_001))
    run.journal_path.write_bytes(b"".join(lines))
    library.refresh(run)
    assert len(library.series(run.id, "loss")) == 12_000


def test_a_writer_waits_for_another(library: Library, make_spec: Make) -> None:
    run = create_run(make_spec("r"))
    other = store.FileLock(library._lock.path)
    assert other.acquire()
    timer = threading.Timer(0.2, other.release)
    timer.start()
    library.refresh(run)
    timer.join()
    assert len(library.list_runs()) == 1
