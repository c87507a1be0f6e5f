"""Data roots and runs that are moved, read-only, somebody else's, renamed while they train, or links."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.core.test_supervisor import wait_for
from tests.processes import run_while_read_only
from tests.run_adapter import make_adapter
from tests.tiny_run import make_tiny_run
from tunesmith_core import cli, files, launch, paths, run_queue, trash
from tunesmith_core.errors import EnvironmentProblem, TunesmithError, UserError
from tunesmith_core.protocol import read_journal
from tunesmith_core.runs import Run, RunState, create_run, enter, open_run
from tunesmith_core.spec import RunSpec
from tunesmith_core.store import Library

Make = Callable[..., RunSpec]
Script = Callable[[dict[str, Any]], None]

needs_links = pytest.mark.skipif(os.name == "nt", reason="links need rights there")
needs_renames = pytest.mark.skipif(os.name == "nt", reason="Windows renames no folder that a process works in")


def listed() -> dict[str, tuple[Path, RunState]]:
    """What the list of runs shows."""
    with closing(Library(paths.library_path())) as library:
        library.refresh_all()
        return {each.run.id: (each.run.path, each.status.state) for each in library.list_runs()}


def steps(run: Run) -> list[int]:
    """The steps in a run's journal, which must be one journal: numbered without a gap."""
    events = read_journal(run.journal_path)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    return [event.data["step"] for event in events if event.type == "step"]


# Moved


def move(home: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Move a data root, as a person does who then chooses it there."""
    files.replace(home, target)
    for variable in (paths.HOME_VARIABLE, "TUNESMITH_WORK"):
        if variable in os.environ:
            monkeypatch.setenv(variable, str(target))


def test_runs_of_a_moved_root_are_listed_where_they_are_and_continue(
    home: Path, tmp_path: Path, fake_engine: Script, make_spec: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_engine({"*": [["hello"], ["steps", 2], ["checkpoint"], ["exit", 1]]})
    spec = make_spec("m")
    shutil.move(spec.model.path, home / "models" / "base")
    spec.model.path = str(home / "models" / "base")
    run = launch.start(spec)
    assert launch.wait(run).state is RunState.FAILED
    assert listed() == {"m-01": (run.path, RunState.FAILED)}
    moved = tmp_path / "other drive" / "Daten"
    moved.parent.mkdir()
    move(home, moved, monkeypatch)
    assert listed() == {"m-01": (moved / "runs" / "m-01", RunState.FAILED)}
    run = open_run("m-01")
    (moved / "fake-engine.json").write_text('{"*": [["hello", 2], ["steps", 1], ["result", "finished"]]}')
    shutil.rmtree(home, ignore_errors=True)
    launch.resume(run)
    assert launch.wait(run).state is RunState.FINISHED
    assert run.load_spec().model.path == str(moved / "models" / "base")
    assert steps(run) == [1, 2, 3]
    assert not home.exists(), "nothing goes where the root was"


@pytest.mark.parametrize("place", ["elsewhere", "models"])
def test_a_model_that_is_gone_is_not_taken_for_another(
    home: Path, tmp_path: Path, fake_engine: Script, make_spec: Make, place: str
) -> None:
    fake_engine({"*": [["hello"], ["steps", 2], ["checkpoint"], ["exit", 1]]})
    spec = make_spec("g")
    shutil.move(spec.model.path, tmp_path / place / "base")
    spec.model.path = str(tmp_path / place / "base")
    run = launch.start(spec)
    launch.wait(run)
    shutil.rmtree(tmp_path / place)
    if place == "elsewhere":
        (home / "models" / "base").mkdir(parents=True)
    before = run.spec_path.read_bytes()
    with pytest.raises(UserError) as caught:
        launch.resume(run)
    assert caught.value.code == "model-files-missing-or-corrupt"
    assert run.spec_path.read_bytes() == before


def test_a_spec_that_can_not_be_corrected_is_told(
    home: Path, tmp_path: Path, fake_engine: Script, make_spec: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_engine({"*": [["hello"], ["steps", 2], ["checkpoint"], ["exit", 1]]})
    run = launch.start(make_spec("w"))
    launch.wait(run)
    shutil.move(make_spec().model.path, home / "models" / "base")
    spec = run.load_spec()
    spec.model.path = str(tmp_path / "models" / "base")
    files.atomic_write_json(run.spec_path, spec.to_dict())

    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", "spec.json")

    monkeypatch.setattr(files, "atomic_write_json", refuse)
    with pytest.raises(EnvironmentProblem) as caught:
        launch.resume(run)
    assert caught.value.code == "permission-or-antivirus"


def test_the_trash_of_a_moved_root_goes_back_to_where_the_root_is(
    home: Path, tmp_path: Path, make_spec: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    trash.delete(create_run(make_spec("t")))
    move(home, tmp_path / "moved", monkeypatch)
    restored = Run(trash.restore(trash.find("t-01")))
    assert restored.path == tmp_path / "moved" / "runs" / "t-01"
    assert restored.damage() is None
    assert not home.exists()


# Read-only, and of somebody else


@pytest.fixture
def tiny(home: Path) -> Run:
    run = make_tiny_run(paths.runs_dir() / "tiny-01")
    run.adapter_path.rmdir()
    make_adapter(run.adapter_path)
    return run


ASK = """
import json, subprocess, sys
for words in json.loads(sys.argv[1]):
    done = subprocess.run([sys.executable, "-m", "tunesmith_core", *words.split()], capture_output=True, text=True)
    print(json.dumps([done.returncode, done.stdout + done.stderr]))
"""


@pytest.mark.parametrize("indexed", [False, True])
def test_a_read_only_root_is_shown_and_says_so(tiny: Run, home: Path, indexed: bool) -> None:
    (home / "trash").mkdir()
    if indexed:
        listed()
    before = {path: path.stat().st_mtime_ns for path in home.rglob("*")}
    commands = ("runs", "show tiny-01", "spec tiny-01", "trash", "delete tiny-01", "settings theme=dark")
    done = run_while_read_only(home, [sys.executable, "-c", ASK, json.dumps(commands)])
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [code for code, _ in answers] == [0, 0, 0, 0, 3, 3]
    assert "tiny-01  stopped" in answers[0][1]
    assert f"{home} is read-only. You can look at the runs there" in answers[0][1]
    assert "damaged" not in "".join(text for _, text in answers)
    assert "index" not in answers[0][1]
    assert all("Read-only file system" in text for _, text in answers[4:])
    assert {path: path.stat().st_mtime_ns for path in home.rglob("*")} == before


def test_another_persons_root_is_listed(
    tiny: Run, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the system answers somebody who may read there and nothing else."""
    really_open = os.open

    def refuse(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return really_open(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    monkeypatch.setattr(os, "geteuid", lambda: home.stat().st_uid + 1, raising=False)
    assert cli.main(["runs"]) == 0
    seen = capsys.readouterr()
    assert "tiny-01  stopped" in seen.out
    assert "read-only" in seen.err
    assert cli.main(["delete", "tiny-01"]) == 3
    assert "permission-or-antivirus" in capsys.readouterr().err
    assert tiny.path.is_dir()


def test_a_root_that_can_be_written_is_no_news(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert paths.read_only_problem() is None
    monkeypatch.setenv(paths.HOME_VARIABLE, str(home / "not there yet"))
    assert paths.read_only_problem() is None


# Renamed while it trains


@needs_renames
def test_a_run_that_is_renamed_while_it_trains_stays_one(fake_engine: Script, make_spec: Make) -> None:
    fake_engine({"*": [["hello"], ["obey"]]})
    first = launch.start(make_spec("r"))
    wait_for(lambda: len(steps(first)) > 2)
    renamed = Run(first.path.rename(first.path.with_name("renamed")))
    assert listed() == {"renamed": (renamed.path, RunState.RUNNING)}
    second = launch.start(make_spec("r"))
    assert second.path == first.path
    assert renamed.is_supervised()
    launch.send(renamed, "checkpoint")
    launch.stop(renamed)
    assert launch.wait(renamed).state is RunState.STOPPED
    with closing(Library(paths.library_path())) as library:
        assert [each.run.path for each in library.list_runs() if each.run.id == "renamed"] == [renamed.path]
    wait_for(lambda: second.status().state is RunState.RUNNING)
    launch.stop(second)
    assert launch.wait(second).state is RunState.STOPPED
    done = steps(renamed)
    assert done == list(range(1, len(done) + 1))
    assert steps(second)[0] == 1
    told = [event.data["path"] for event in read_journal(renamed.journal_path) if event.type == "checkpoint"]
    assert {f"checkpoints/{path.name}" for path in renamed.checkpoints_path.iterdir()} == set(told)
    assert not renamed.lease_path.exists()
    assert {name: state for name, (_, state) in listed().items()} == dict.fromkeys(
        ("renamed", "r-01"), RunState.STOPPED
    )


@needs_renames
def test_a_run_that_is_renamed_while_it_waits_for_the_device_gets_its_turn(
    fake_engine: Script, make_spec: Make
) -> None:
    fake_engine({"first": [["hello"], ["obey"]]})
    first = launch.start(make_spec("first"))
    wait_for(lambda: len(steps(first)) > 0)
    waiting = launch.start(make_spec("second"))
    wait_for(lambda: run_queue.place_of(waiting) is not None)
    renamed = Run(waiting.path.rename(waiting.path.with_name("renamed")))
    assert listed()["renamed"] == (renamed.path, RunState.QUEUED)
    launch.stop(first)
    launch.wait(first)
    assert launch.wait(renamed).state is RunState.FINISHED
    assert steps(renamed) == [1, 2, 3]
    assert not waiting.path.exists()


@needs_renames
def test_who_follows_a_run_that_is_renamed_is_told(fake_engine: Script, make_spec: Make) -> None:
    fake_engine({"*": [["hello"], ["obey"]]})
    run = launch.start(make_spec("f"))
    wait_for(lambda: len(steps(run)) > 0)
    renamed = Run(run.path.rename(run.path.with_name("renamed")))
    with pytest.raises(TunesmithError, match="was moved, renamed or deleted") as caught:
        launch.wait(run)
    assert caught.value.code == "run-not-found"
    launch.stop(renamed)
    launch.wait(renamed)


def test_an_entered_run_keeps_its_name(home: Path, make_spec: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    run = create_run(make_spec("e"))
    monkeypatch.chdir(home)
    inside = enter(run)
    assert (inside.id, inside.path.absolute(), inside.load_spec().name) == (run.id, run.path, "e")
    assert run_queue._ticket_name(inside) == run_queue._ticket_name(run)


# Links


@needs_links
def test_a_folder_of_runs_that_is_a_link_works(
    home: Path, tmp_path: Path, fake_engine: Script, make_spec: Make
) -> None:
    (tmp_path / "disk").mkdir()
    paths.runs_dir().symlink_to(tmp_path / "disk")
    run = launch.start(make_spec("l"))
    assert launch.wait(run).state is RunState.FINISHED
    assert listed() == {"l-01": (paths.runs_dir() / "l-01", RunState.FINISHED)}
    deleted = trash.delete(run)
    assert list((tmp_path / "disk").iterdir()) == []
    assert trash.restore(deleted) == run.path
    assert (tmp_path / "disk" / "l-01" / "run.json").is_file()
    assert paths.runs_dir().is_symlink()


@needs_links
@pytest.mark.parametrize("relative", [False, True])
def test_a_linked_run_is_listed_and_only_its_link_is_deleted(
    home: Path, tmp_path: Path, make_spec: Make, relative: bool
) -> None:
    real = make_tiny_run(tmp_path / "disk" / "real-01")
    paths.runs_dir().mkdir()
    link = paths.runs_dir() / "linked"
    target = Path(os.path.relpath(real.path, link.parent)) if relative else real.path
    link.symlink_to(target, target_is_directory=True)
    (paths.runs_dir() / "loop").symlink_to("loop")
    (paths.runs_dir() / "dangling").symlink_to("nowhere")
    before = {path: path.read_bytes() for path in real.path.rglob("*") if path.is_file()}
    assert listed() == {"linked": (link, RunState.STOPPED)}
    deleted = trash.delete(open_run("linked"))
    assert (link.is_symlink(), deleted.path.readlink()) == (False, target)
    assert listed() == {}
    trash.restore(trash.find("linked"))
    assert link.readlink() == target
    trash.erase(trash.delete(open_run("linked")))
    assert {path: path.read_bytes() for path in real.path.rglob("*") if path.is_file()} == before


@needs_links
def test_a_linked_run_that_trains_is_not_deleted(
    home: Path, tmp_path: Path, fake_engine: Script, make_spec: Make
) -> None:
    fake_engine({"*": [["hello"], ["obey"]]})
    run = launch.start(make_spec("b"))
    wait_for(lambda: len(steps(run)) > 0)
    link = paths.runs_dir() / "linked"
    link.symlink_to(run.path)
    with pytest.raises(UserError) as caught:
        trash.delete(Run(link))
    assert caught.value.code == "run-busy"
    assert link.is_symlink()
    launch.stop(Run(link))
    assert launch.wait(run).state is RunState.STOPPED
