"""Deleting runs: only our own, whole or not at all, and back again."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.processes import KILLED
from tunesmith_core import cli, files, paths, trash
from tunesmith_core.errors import EnvironmentProblem, UserError
from tunesmith_core.runs import Run, create_run, iter_runs, open_run
from tunesmith_core.spec import RunSpec
from tunesmith_core.store import Library

Make = Callable[..., RunSpec]

HEADERS: dict[str, object] = {
    "none": None,
    "empty": {},
    "list": [1, 2],
    "text": "run",
    "no version": {"created_at": 1.0},
    "version of another program": {"version": "2.1.0", "created_at": 1.0},
    "no date": {"version": 1},
    "date as text": {"version": 1, "created_at": "yesterday"},
    "date zero": {"version": 1, "created_at": 0},
    "NaN date": {"version": 1, "created_at": float("nan")},
}
SPECS: dict[str, object] = {
    "OpenAPI": {"openapi": "3.1.0", "info": {}},
    "empty": {},
    "list": [],
    "text": "spec",
    "no version": {"model": {"path": "x"}},
}


def tree(folder: Path) -> dict[str, str]:
    """Every file below a folder with its content."""
    return {str(path): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def project(folder: Path, header: object = None, spec: object = None) -> Path:
    """Make a folder with a person's work and a spec.json in it."""
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "work.txt").write_text("a year of work")
    for name, value in (("run.json", header), ("spec.json", spec)):
        if value is not None:
            (folder / name).write_text(json.dumps(value))
    return folder


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("header", HEADERS)
def test_no_foreign_folder_is_touched(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: str, spec: str
) -> None:
    outside = project(tmp_path / "project", HEADERS[header], SPECS[spec])
    inside = project(paths.runs_dir() / "project", HEADERS[header], SPECS[spec])
    monkeypatch.chdir(outside)
    before = tree(tmp_path)
    for name in (".", "..", str(outside), "../project", str(home), "project", str(inside), "src", "~", "/", ""):
        with pytest.raises(UserError, match=r"There is no run|is not in|has no valid|holds"):
            trash.delete(open_run(name))
    assert tree(tmp_path) == before


def test_a_valid_run_elsewhere_needs_force(
    home: Path, tmp_path: Path, make_spec: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    run = create_run(make_spec("r"), tmp_path / "mine")
    assert cli.main(["delete", str(run.path)]) == 2
    assert run.path.is_dir()
    before = tree(run.path)
    assert "error[run-foreign]" in capsys.readouterr().err
    assert cli.main(["delete", "--force", str(run.path)]) == 0
    assert str(run.path) in capsys.readouterr().out
    assert not run.path.exists()
    trash.restore(trash.find(run.id))
    assert tree(run.path) == before


@pytest.mark.parametrize("place", ["home", "data root", "runs", "here"])
def test_force_takes_nothing_that_holds_more(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    paths.runs_dir().mkdir()
    here = tmp_path / "here"
    (here / "below").mkdir(parents=True)
    monkeypatch.chdir(here / "below")
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "person" / "home")
    folder = {"home": tmp_path / "person", "data root": home, "runs": paths.runs_dir(), "here": here}[place]
    folder.mkdir(exist_ok=True)
    (folder / "spec.json").write_text("{}")
    with pytest.raises(UserError, match="holds"):
        trash.delete(Run(folder), force=True)
    assert (folder / "spec.json").is_file()


def test_deleting_and_restoring(home: Path, make_spec: Make) -> None:
    run = create_run(make_spec("d"))
    before = tree(run.path)
    with closing(Library(paths.library_path())) as library:
        library.refresh_all()
        deleted = trash.delete(run)
        assert library.list_runs() == []
    assert list(iter_runs()) == []
    assert [each.origin.name for each in trash.contents()] == [run.id]
    origin = files.read_json(deleted.folder / trash.ORIGIN)
    assert origin == {"version": 1, "path": f"runs/{run.id}", "deleted_at": deleted.deleted_at}
    assert trash.restore(deleted) == run.path
    assert tree(run.path) == before
    assert list(paths.trash_dir().iterdir()) == []


def test_a_run_comes_back_where_its_folder_is_gone(home: Path, tmp_path: Path, make_spec: Make) -> None:
    place = tmp_path / "deep" / "er"
    place.mkdir(parents=True)
    run = create_run(make_spec("d"), place)
    deleted = trash.delete(run, force=True)
    place.rmdir()
    place.parent.rmdir()
    assert trash.restore(deleted) == run.path
    assert run.spec_path.is_file()


def test_a_run_that_can_not_be_moved_leaves_nothing_in_the_trash(
    home: Path, make_spec: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = create_run(make_spec("d"))

    def refuse(_source: Path, _target: Path) -> None:
        raise PermissionError(errno.EACCES, "in use")

    with monkeypatch.context() as patch:
        patch.setattr(trash, "_move", refuse)
        with pytest.raises(EnvironmentProblem):
            trash.delete(run)
    assert list(paths.trash_dir().iterdir()) == []
    assert run.spec_path.is_file()


def test_a_run_that_the_index_can_not_forget_is_in_the_trash_all_the_same(
    home: Path, make_spec: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = create_run(make_spec("d"))

    def refuse(_library: Library, _run: Run) -> None:
        raise PermissionError(errno.EACCES, "in use")

    monkeypatch.setattr(Library, "delete", refuse)
    with pytest.raises(EnvironmentProblem):
        trash.delete(run)
    assert not run.path.exists()
    assert [path.name for path in paths.trash_dir().iterdir()]


def test_a_place_that_is_taken_stays_so(home: Path, make_spec: Make) -> None:
    run = create_run(make_spec("d"))
    deleted = trash.delete(run)
    run.path.mkdir()
    with pytest.raises(UserError) as caught:
        trash.restore(deleted)
    assert caught.value.code == "restore-blocked"
    assert deleted.path.is_dir()


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_of_a_linked_run_only_the_link_goes(home: Path, tmp_path: Path, make_spec: Make) -> None:
    real = create_run(make_spec("r"), tmp_path / "disk")
    paths.runs_dir().mkdir()
    link = paths.runs_dir() / "linked"
    link.symlink_to(real.path)
    before = tree(real.path)
    trash.erase(trash.delete(Run(link)))
    assert not link.is_symlink()
    assert tree(real.path) == before


@pytest.mark.parametrize("work", ["delete", "restore", "erase"])
def test_a_folder_that_can_not_be_moved_stays(
    home: Path, make_spec: Make, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    run = create_run(make_spec("d"))
    deleted = None if work == "delete" else trash.delete(run)
    kept = deleted.path if deleted else run.path
    before = tree(kept)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "x")

    with monkeypatch.context() as patched:
        patched.setattr(trash.files, "replace", refuse)
        if work == "erase":
            patched.setattr(trash.shutil, "rmtree", refuse)
        with pytest.raises(EnvironmentProblem) as caught:
            trash.delete(run) if deleted is None else getattr(trash, work)(deleted)
    assert caught.value.code == "permission-or-antivirus"
    assert tree(kept) == before


def test_another_disk_gets_a_copy(home: Path, make_spec: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    run = create_run(make_spec("d"))
    before = set(tree(run.path).values())
    rename = files.replace

    def replace(source: Path, target: Path) -> None:
        if source == run.path:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        rename(source, target)

    monkeypatch.setattr(files, "replace", replace)
    deleted = trash.delete(run)
    assert not run.path.exists()
    assert set(tree(deleted.path).values()) == before


@pytest.mark.parametrize("point", ["trash.before-move", "trash.after-move"])
def test_a_deletion_that_is_killed_leaves_the_run_whole(home: Path, make_spec: Make, point: str) -> None:
    run, other = create_run(make_spec("k")), create_run(make_spec("k"))
    before = set(tree(run.path).values())
    code = f"from tunesmith_core import runs, trash; trash.delete(runs.open_run({run.id!r}))"
    environment = os.environ | {files.CRASHPOINT_VARIABLE: point, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == KILLED
    moved = point == "trash.after-move"
    assert [each.origin.name for each in trash.contents()] == ([run.id] if moved else [])
    assert set(tree(trash.find(run.id).path if moved else run.path).values()) == before
    assert [each.id for each in iter_runs()] == ([other.id] if moved else [run.id, other.id])


@pytest.mark.parametrize("time", ["NaN", "Infinity", "-1", "1e300"])
def test_a_time_that_no_clock_shows_is_passed_over(home: Path, make_spec: Make, time: str) -> None:
    deleted = trash.delete(create_run(make_spec("d")))
    text = f'{{"path": {json.dumps(str(deleted.origin))}, "deleted_at": {time}}}'
    (deleted.folder / trash.ORIGIN).write_text(text, encoding="utf-8")
    assert list(trash.contents()) == []


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"path": 3, "deleted_at": 1}', '{"path": "/x", "deleted_at": "x"}'])
def test_what_is_foreign_in_the_trash_is_left_alone(home: Path, make_spec: Make, text: str) -> None:
    deleted = trash.delete(create_run(make_spec("d")))
    strange = paths.trash_dir() / "strange"
    strange.mkdir()
    (strange / trash.ORIGIN).write_text(text)
    assert list(trash.contents()) == [deleted]


@pytest.mark.skipif(sys.platform == "win32", reason="names that are bytes are those of Linux")
def test_a_name_that_is_no_text_goes_to_the_trash_and_back(make_spec: Make) -> None:
    made = create_run(make_spec("odd"))
    run = Run(made.path.rename(made.path.with_name("odd-\udcff")))
    before = tree(run.path)
    trash.delete(run)
    assert list(iter_runs()) == []
    (deleted,) = trash.contents()
    assert deleted.origin.name == run.id
    assert tree(trash.restore(deleted)) == before


def test_a_deleted_run_is_found_by_its_name(make_spec: Make) -> None:
    run = create_run(make_spec("My chat (2)"))
    trash.delete(run)
    assert trash.find("My chat (2)").origin == run.path


def test_two_of_one_name_are_restored_by_their_ids(
    home: Path, make_spec: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    run = create_run(make_spec("t"))
    first = trash.delete(run)
    run.path.mkdir(parents=True)
    (run.path / "second").touch()
    second = trash.delete(run, force=True)
    model = paths.models_dir() / "tiny"
    model.mkdir(parents=True)
    trash.delete_folder(model)
    assert cli.main(["restore", run.id]) == 2
    refused = capsys.readouterr().err
    assert "error[trash-ambiguous]" in refused
    assert f"{second.id}, {first.id}" in refused
    assert not run.path.exists()
    assert cli.main(["trash"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in listed[2:]] == [[second.id, "run"], [first.id, "run"]]
    assert listed[1].split()[1] == "model"
    assert time.strftime("%Y-%m-%d") in listed[2]
    assert cli.main(["restore", first.id]) == 0
    assert run.spec_path.is_file()
    assert cli.main(["restore", second.id]) == 2
    assert "Rename the folder that is there now" in capsys.readouterr().err
    assert cli.main(["restore", "tiny"]) == 0
    assert model.is_dir()
    assert cli.main(["restore", "other"]) == 2
    assert "error[not-in-trash]" in capsys.readouterr().err
