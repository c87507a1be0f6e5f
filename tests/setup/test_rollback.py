"""Going back to the previous environment: checked first, forward again by the same command, killed in between."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import KILLED
from tests.setup import breaking
from tests.setup.conftest import RecordedProgress
from tunesmith_core import files, paths
from tunesmith_core.environments import TRAINING_POINTER
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_setup.commands import rollback
from tunesmith_setup.environments import envs, repair, snapshots
from tunesmith_setup.packages import inventory


def pointed() -> tuple[str, str]:
    """Return the names of the current and of the previous environment."""
    pointer = paths.envs_dir() / TRAINING_POINTER
    return pointer.read_text().strip(), envs.previous_pointer(pointer).read_text().strip()


@pytest.fixture
def older(built_training: Path) -> Path:
    """An older environment beside the current one, which was in use before."""
    folder = paths.envs_dir() / "train-older"
    shutil.copytree(built_training, folder, symlinks=True)
    envs.previous_pointer(paths.envs_dir() / TRAINING_POINTER).write_text(f"{folder.name}\n")
    return folder


def run() -> int:
    parser = argparse.ArgumentParser()
    rollback.add_arguments(parser)
    return rollback.run(parser.parse_args([]))


def test_back_and_forward_again(built_training: Path, older: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    assert pointed() == (older.name, built_training.name)
    assert run() == 0
    assert pointed() == (built_training.name, older.name)
    assert f"Runs now use {built_training.name}" in capsys.readouterr().out


def test_it_helps_when_the_current_one_is_gone(built_training: Path, older: Path, progress: RecordedProgress) -> None:
    shutil.rmtree(built_training)
    assert snapshots.go_back(progress) == older.name
    assert repair.pointed_folder(TRAINING_POINTER) == older


@pytest.mark.parametrize("damage", ["file", "list", "python"])
def test_a_damaged_environment_is_not_gone_back_to(
    damage: str, built_training: Path, older: Path, progress: RecordedProgress
) -> None:
    if damage == "file":
        (inventory.site_folders(older)[0] / "torch/version.py").unlink()
    elif damage == "list":
        (older / inventory.INVENTORY).unlink()
    else:
        (older / "pyvenv.cfg").write_text("home = /nowhere/bin\n")
        breaking.dangle_interpreter(older)
        inventory.seal(older, {})
    with pytest.raises(EnvironmentProblem) as failure:
        snapshots.go_back(progress)
    assert failure.value.code == "environment-damaged"
    assert pointed() == (built_training.name, older.name)


def test_five_of_many_damaged_files_are_named(built_training: Path, older: Path, progress: RecordedProgress) -> None:
    site = inventory.site_folders(older)[0]
    for number in range(7):
        (site / f"stray{number}.pth").write_text("x")
    with pytest.raises(EnvironmentProblem) as failure:
        snapshots.go_back(progress)
    place = site.relative_to(older).as_posix()
    shown = "; ".join(f"{place}/stray{number}.pth (unexpected)" for number in range(5))
    assert failure.value.message == f"{older.name}: {shown}. The current one stays in use."
    assert progress.lines == [f"==> Checking {older.name}"]


def test_without_an_earlier_one_it_says_so(built_training: Path, progress: RecordedProgress) -> None:
    with pytest.raises(EnvironmentProblem, match="no earlier training environment"):
        snapshots.go_back(progress)
    envs.previous_pointer(paths.envs_dir() / TRAINING_POINTER).write_text(built_training.name)
    with pytest.raises(EnvironmentProblem, match="no earlier training environment"):
        snapshots.go_back(progress)


def test_killed_between_the_pointers_a_good_one_is_in_use(built_training: Path, older: Path) -> None:
    command = [sys.executable, "-c", "from tunesmith_setup import __main__; __main__.main(['rollback'])"]
    environment = os.environ | {files.CRASHPOINT_VARIABLE: "rollback.switched", "PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.run(command, env=environment, capture_output=True, timeout=120, check=False)
    assert killed.returncode == KILLED, killed.stderr.decode()
    assert repair.pointed_folder(TRAINING_POINTER) == older
    assert repair.is_sound(older)
    assert repair.is_sound(built_training)
