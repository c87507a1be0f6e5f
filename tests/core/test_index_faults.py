"""The index under a full disk, another process, other tables and a data root that moved: never lost, never trusted."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tiny_run import make_tiny_run
from tunesmith_core import cli, paths, store
from tunesmith_core.locks import FileLock
from tunesmith_core.protocol import JournalWriter
from tunesmith_core.runs import Run, RunState, open_run
from tunesmith_core.spec import RunSpec
from tunesmith_core.store import Library


@pytest.fixture
def run(home: Path) -> Run:
    return make_tiny_run(paths.runs_dir() / "tiny-01")


def listed() -> list[tuple[Path, RunState]]:
    with contextlib.closing(Library(paths.library_path())) as library:
        library.refresh_all()
        return [(summary.run.path, summary.status.state) for summary in library.list_runs()]


def test_a_full_disk_leaves_the_index_and_lists_all_runs(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    listed()
    before = paths.library_path().read_bytes()
    more = [make_tiny_run(paths.runs_dir() / f"more-{number:03d}") for number in range(60)]
    with contextlib.closing(Library(paths.library_path())) as library:
        library._connection.execute("PRAGMA max_page_count = 1")
        for _ in range(2):
            library.refresh_all()
            assert len(library.list_runs()) == 1 + len(more)
    assert "disk is full" in caplog.text
    assert "damaged" not in caplog.text
    assert paths.library_path().read_bytes() == before
    assert len(listed()) == 61


def test_an_index_in_use_is_left_alone(
    run: Run, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed()
    monkeypatch.setattr(store, "LOCK_WAIT_S", 0.1)
    make_tiny_run(paths.runs_dir() / "more-01")
    with contextlib.closing(sqlite3.connect(paths.library_path())) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert len(listed()) == 2
        assert "database is locked" in caplog.text
    with FileLock(paths.library_path().with_name("library.sqlite.lock")):
        assert len(listed()) == 2
        assert "locked by another process" in caplog.text
    assert "damaged" not in caplog.text


def test_a_folder_that_takes_no_index_lists_its_runs(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    paths.library_path().with_name("file").touch()
    with contextlib.closing(Library(paths.library_path().with_name("file") / "library.sqlite")) as library:
        library.refresh_all()
        assert [summary.run for summary in library.list_runs()] == [run]
    assert caplog.text.count("can't be written") == 1


@pytest.mark.parametrize(
    "tables", ["CREATE TABLE runs (id)", "CREATE VIEW runs AS SELECT 1", "CREATE TABLE other (id)"]
)
def test_other_tables_are_built_anew_once(run: Run, caplog: pytest.LogCaptureFixture, tables: str) -> None:
    with contextlib.closing(sqlite3.connect(paths.library_path())) as other:
        other.execute(tables)
    assert listed() == [(run.path, RunState.STOPPED)]
    assert caplog.text.count("built anew") == 1
    listed()
    assert caplog.text.count("built anew") == 1


@pytest.mark.parametrize(
    "change",
    ["state = '[]'", "state = '{'", "state = '{\"state\": \"gone\"}'", "state = json_set(state, '$.step', 'x')",
     "state = json_set(state, '$.loss', 1e300)", "state = json_set(state, '$.error', 7)", "size_bytes = 'x'",
     "created = 'x'", "path = '/elsewhere/tiny-01'", "journal_offset = -1"],
)  # fmt: skip
def test_a_value_of_another_type_is_read_again(run: Run, change: str) -> None:
    listed()
    with contextlib.closing(sqlite3.connect(paths.library_path())) as other, other:
        other.execute(f"UPDATE runs SET {change}")
    with contextlib.closing(Library(paths.library_path())) as library:
        library.list_runs()
    assert listed() == [(run.path, RunState.STOPPED)]


@pytest.mark.parametrize(
    "change", ["value = 'x'", "value = 1e300", "t = -1.0", "t = 'x'", "step = 'x'", "step = 1e300"]
)
def test_a_point_of_another_type_is_left_out(run: Run, change: str) -> None:
    with contextlib.closing(Library(paths.library_path())) as library:
        library.refresh_all()
        whole = library.series(run.id, "loss")
        with contextlib.closing(sqlite3.connect(paths.library_path())) as other, other:
            other.execute(f"UPDATE metrics SET {change} WHERE name = 'loss' AND step = ?", (whole[0][0],))
        assert library.series(run.id, "loss") == whole[1:]


def test_a_moved_data_root_lists_its_runs_where_they_are(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    listed()
    moved = paths.data_root().with_name("moved")
    paths.data_root().rename(moved)
    monkeypatch.setenv("TUNESMITH_HOME", str(moved))
    assert listed() == [(moved / "runs" / run.id, RunState.STOPPED)]


def test_damage_is_marked_until_it_is_repaired(
    run: Run, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    listed()
    header = run.path / "run.json"
    content = header.read_text()
    header.write_text('{"created_at": NaN}')
    assert listed() == [(run.path, RunState.DAMAGED)]
    assert run.status().state is RunState.DAMAGED
    header.write_text(content)
    assert listed() == [(run.path, RunState.STOPPED)]
    events = run.journal_path.read_bytes()
    run.journal_path.write_bytes(events.replace(b'"loss":1.0', b'"loss":0.0625'))
    assert listed() == [(run.path, RunState.DAMAGED)]
    assert run.status().state is RunState.DAMAGED
    assert cli.main(["show", run.id]) == 0
    assert f"{run.journal_path}: lines that are damaged: 1." in capsys.readouterr().err
    run.journal_path.write_bytes(events)
    assert listed() == [(run.path, RunState.STOPPED)]
    run.journal_path.unlink()
    run.journal_path.mkdir()
    assert listed() == [(run.path, RunState.DAMAGED)]
    assert run.journal_path.name in caplog.text


def test_a_run_of_any_name_is_listed(run: Run) -> None:
    odd = run.path.with_name(os.fsdecode(b"\xff-01"))
    run.path.rename(odd)
    assert listed() == [(odd, RunState.STOPPED)]
    assert open_run(odd.name).path == odd


def test_a_newer_spec_is_not_damage(run: Run, make_spec: Callable[..., RunSpec]) -> None:
    run.spec_path.write_text('{"version": 99}')
    assert listed() == [(run.path, RunState.STOPPED)]


def test_a_whole_number_beyond_sqlite_is_drawn_as_a_decimal(run: Run) -> None:
    with contextlib.closing(JournalWriter(run.journal_path)) as journal:
        journal.write("step", step=4, loss=10**30)
    with contextlib.closing(Library(paths.library_path())) as library:
        library.refresh_all()
        assert library.series(run.id, "loss")[-1][:2] == (4, 1e30)


def test_settings_that_this_version_lacks_are_not_damage(run: Run) -> None:
    values = json.loads(run.spec_path.read_text())
    values["objective"]["kind"] = "a method of another program"
    run.spec_path.write_text(json.dumps(values))
    assert listed() == [(run.path, RunState.STOPPED)]
    assert run.status().state is RunState.STOPPED
    run.spec_path.write_text("[]")
    assert run.status().state is RunState.DAMAGED
