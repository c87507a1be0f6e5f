"""Uninstalling frees every byte that was written, keeps what is the person's, and says both before."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import KILLED
from tests.setup.conftest import RecordedProgress
from tunesmith_core import files, paths, placement
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_core.locks import FileLock
from tunesmith_setup.commands import uninstall as command
from tunesmith_setup.environments import envs
from tunesmith_setup.installation import uninstall

OURS = {
    "envs/train.current": "train-cpu-1",
    "envs/train.previous": "train-cpu-0",
    "envs/train-cpu-1/bin/python": "x" * 1000,
    "cache/uv/wheel": "x" * 500,
    "tools/uv": "x" * 100,
    "tmp/leftover": "x",
    "quarantine/stray.pth": "x",
    "logs/window.log": "x",
    "locks/other.lock": "",
    "library.sqlite": "x",
    "library.sqlite-wal": "x",
}
PERSONAL = {
    "runs/one/spec.json": "x" * 300,
    "models/base/config.json": "x" * 200,
    "config/settings.json": "x",
}


@pytest.fixture(autouse=True)
def installed(home: Path) -> Path:
    """A data root as an installation leaves it."""
    for name, text in (OURS | PERSONAL).items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return home


def test_a_short_folder_of_environments_goes_too(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    work = tmp_path / "Tunesmith"
    monkeypatch.setenv("TUNESMITH_WORK", str(work))
    for name in ("envs", "cache", "tmp"):
        shutil.copytree(home / name, work / name)
    (work / placement.OWNER).write_text("{}")
    assert run("--yes") == 0
    assert f"Removed {work / 'envs'}" in capsys.readouterr().out
    assert not work.exists()


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(arguments))


def there(home: Path) -> set[str]:
    """Return the names of all files of the data root."""
    return {path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file()}


def test_runs_models_and_settings_are_kept_unless_they_are_named(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "photo.jpg").write_text("not ours")
    assert run("--yes") == 0
    assert there(home) == {*PERSONAL, "photo.jpg"}
    output = capsys.readouterr().out
    assert f"Remove: {home / 'envs'}, environments" in output
    assert f"Keep: {home / 'runs'}, runs" in output
    assert f"Keep: {home / 'photo.jpg'}, not created by Tunesmith" in output
    assert run("--yes", "--with-runs") == 0
    assert there(home) == {*PERSONAL, "photo.jpg"} - {"runs/one/spec.json"}


def test_with_everything_named_nothing_is_left(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--yes", "--with-runs", "--with-models") == 0
    assert not home.exists()
    assert "Freed" in capsys.readouterr().out
    assert run("--yes") == 0
    assert "Nothing is installed" in capsys.readouterr().out


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 5)])
def test_the_person_is_asked(
    answer: str, code: int, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    flushed: list[None] = []
    monkeypatch.setattr(sys.stdout, "flush", lambda: flushed.append(None), raising=False)
    # Without it the question would not be on the screen yet.
    monkeypatch.setattr(sys.stdin, "readline", lambda: answer if flushed else "", raising=False)
    assert run() == code
    assert (home / "envs").exists() == bool(code)
    assert "[y/N]" in capsys.readouterr().out


def test_without_a_terminal_nothing_goes_unasked(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    assert run() == 5
    assert set(OURS) <= there(home)
    assert "Nothing was removed" in capsys.readouterr().out


def test_a_going_run_or_installation_stops_it(
    home: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = uninstall.plan(with_runs=False, with_models=False)
    with (
        FileLock(home / "locks" / "setup.lock"),
        pytest.raises(EnvironmentProblem, match="An installation or a repair is running"),
    ):
        uninstall.remove(planned, progress)
    monkeypatch.setattr(envs, "has_live_run", lambda: True)
    with pytest.raises(EnvironmentProblem, match="A run is in progress"):
        uninstall.remove(planned, progress)
    assert set(OURS) <= there(home)


def test_every_part_is_named_with_what_becomes_of_it(home: Path, progress: RecordedProgress) -> None:
    (home / "photo.jpg").write_text("not ours")
    planned = uninstall.plan(with_runs=True, with_models=False)
    assert [(item.path.relative_to(home).as_posix(), item.what, item.num_bytes) for item in planned.removed] == [
        ("envs", "environments", 1022),
        ("cache", "caches and downloads", 500),
        ("tools", "tools", 100),
        ("tmp", "temporary files", 1),
        ("quarantine", "files that a repair set aside", 1),
        ("logs", "logs", 1),
        ("runs", "runs, with checkpoints and adapters", 300),
        ("library.sqlite", "index of runs", 1),
        ("library.sqlite-wal", "index of runs", 1),
        ("locks", "locks", 0),
    ]
    assert planned.num_bytes == 1927
    uninstall.show(planned, progress)
    assert [line.strip().replace(str(home), "HOME") for line in progress.lines][-4:] == [
        "Remove: HOME/locks, locks, 0 MiB",
        "Keep: HOME/models, base models, 0 MiB",
        "Keep: HOME/config, settings, 0 MiB",
        "Keep: HOME/photo.jpg, not created by Tunesmith, 0 MiB",
    ]


def test_what_has_gone_meanwhile_is_removed_and_an_interrupt_lets_others_work(
    home: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = uninstall.plan(with_runs=False, with_models=False)
    (home / "library.sqlite").unlink()

    def interrupt(path: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(shutil, "rmtree", interrupt)
        with pytest.raises(KeyboardInterrupt):
            uninstall.remove(planned, progress)
    assert not (home / "envs" / "train.current").exists()
    assert uninstall.remove(planned, progress) == []
    assert there(home) == set(PERSONAL)
    assert f"Removed {home / 'library.sqlite'}" in progress.text


def test_a_link_goes_and_its_target_stays(home: Path, tmp_path: Path, progress: RecordedProgress) -> None:
    elsewhere = tmp_path / "big-drive"
    (home / "cache").rename(elsewhere)
    (home / "cache").symlink_to(elsewhere)
    assert not uninstall.remove(uninstall.plan(with_runs=False, with_models=False), progress)
    assert not (home / "cache").is_symlink()
    assert (elsewhere / "uv" / "wheel").exists()


def test_what_can_not_be_removed_is_named(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = shutil.rmtree

    def refuse(path: Path, ignore_errors: bool = False) -> None:
        if path.name == "cache" or (path.name == "locks" and not ignore_errors):
            raise PermissionError(13, "Permission denied", str(path))
        remove(path, ignore_errors=ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", refuse)
    for name, num_mib in (("cache", 3), ("envs", 5)):
        (home / name / "big").write_bytes(bytes(num_mib << 20))
    assert run("--yes") == 3
    shown = capsys.readouterr().out
    assert f"{home / 'cache'} can't be removed: Permission denied" in shown
    assert "Freed 5 MiB.\nNot removed: 1." in shown


@pytest.mark.parametrize("point", ["uninstall.unpointed", "uninstall.removed"])
def test_killed_in_between_nothing_looks_installed_and_the_next_one_finishes(
    point: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command_line = "from tunesmith_setup import __main__; __main__.main(['uninstall', '--yes'])"
    environment = os.environ | {files.CRASHPOINT_VARIABLE: point, "PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.run(
        [sys.executable, "-c", command_line], env=environment, capture_output=True, timeout=120, check=False
    )
    assert killed.returncode == KILLED, killed.stderr.decode()
    assert not (home / "envs" / "train.current").exists()
    assert run("--yes") == 0
    assert there(home) == set(PERSONAL)
    assert "Freed" in capsys.readouterr().out


def test_what_a_chosen_folder_left_behind_goes_too(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The window's first environment stayed in the default folder when another folder was chosen at the first run."""
    monkeypatch.setenv("LOCALAPPDATA" if os.name == "nt" else "XDG_DATA_HOME", str(tmp_path / "local"))
    first = paths.default_root()
    (first / "envs" / "launcher-1").mkdir(parents=True)
    (first / "envs" / "launcher-1" / "python").write_text("x")
    monkeypatch.delenv("TUNESMITH_HOME")
    paths.record_root(home)
    assert run("--yes") == 0
    assert there(home) == set(PERSONAL)
    assert [path.name for path in first.iterdir()] == [paths.ROOT_RECORD], "runs and settings are still to be found"
    assert run("--yes", "--with-runs", "--with-models") == 0
    assert "environments of the first start" in capsys.readouterr().out
    assert not home.exists()
    assert not first.exists()
