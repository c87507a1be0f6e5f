"""Random damage of environments: all of it is found and all of it is mended, online and from what is at hand.

The counts of the long test are those of the scorecard: 500 damages of a launcher environment, 25 of a training one.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import real_runs
from tests.setup import breaking
from tests.setup.conftest import LARGE, RecordedProgress, TinyIndex
from tunesmith_core import files
from tunesmith_core.environments import LAUNCHER_POINTER, MANIFEST, TRAINING_POINTER
from tunesmith_setup.environments import envs, kinds, profiles, repair
from tunesmith_setup.packages import inventory, stores, uvtool
from tunesmith_setup.packages.uvtool import Uv
from tunesmith_setup.probe.interpreters import Interpreter

Capture = pytest.CaptureFixture[str]


def found(folder: Path) -> set[str]:
    """Return the paths of an environment in which the full check sees damage; the list itself when that is damaged."""
    listed = inventory.read(folder)
    if listed is None:
        return {inventory.INVENTORY}
    return {damage.path for damage in inventory.compare(folder, listed, full=True)}


def mend(pointer: str, progress: RecordedProgress) -> None:
    """Repair, and check every byte of the result."""
    steps = repair.RepairSteps(pointer, progress)
    steps.take()
    assert steps.folder is not None
    assert found(steps.folder) == set()
    assert repair.starts(steps.folder)


class Tally:
    """Counts damages, and says how many were found and mended."""

    def __init__(self) -> None:
        self.num_done = self.num_found = self.num_mended = 0

    def round(self, folder: Path, pointer: str, paths: list[str], progress: RecordedProgress) -> None:
        """Look for the damages of one round, and mend them."""
        seen = found(folder)
        self.num_done += len(paths)
        self.num_found += sum(path in seen for path in paths)
        mend(pointer, progress)
        left = found(folder)
        self.num_mended += sum(path not in left for path in paths)
        assert set(paths) <= seen, f"not found: {set(paths) - seen}"

    def __str__(self) -> str:
        return f"{self.num_done} damages, {self.num_found} found, {self.num_mended} mended"


def damage_all_ways(
    folder: Path, pointer: str, num_rounds: int, per_round: int, progress: RecordedProgress, seed: int
) -> Tally:
    """Damage files at random in rounds, then list and manifest, then everything that is no single file."""
    chance, tally, packages = random.Random(seed), Tally(), stores.installed_packages(folder)
    for _ in range(num_rounds):
        tally.round(folder, pointer, list(breaking.damage_files(folder, per_round, chance)), progress)
    for name in (inventory.INVENTORY, MANIFEST):
        for damage in breaking.FILE_DAMAGES.values():
            damage(folder / name, chance)
            tally.round(folder, pointer, [name], progress)
    for other in breaking.OTHER_DAMAGES:
        if other is not breaking.foreign_torch or any(folder.glob("lib/python3.*/site-packages/torch")):
            tally.round(folder, pointer, [other(folder)], progress)
    assert stores.installed_packages(folder) == packages
    return tally


@pytest.mark.parametrize("online", [True, False], ids=["online", "from-the-local-store"])
def test_every_damage_is_found_and_mended(
    built_training: Path, tiny_index: TinyIndex, progress: RecordedProgress, online: bool
) -> None:
    if online:
        shutil.rmtree(uvtool.own_cache())
    else:
        tiny_index.close()
    tally = damage_all_ways(built_training, TRAINING_POINTER, 2, 8, progress, seed=7)
    assert (tally.num_found, tally.num_mended) == (tally.num_done, tally.num_done) == (28, 28)


def test_a_poisoned_cache_is_never_installed(
    built_training: Path, tiny_index: TinyIndex, progress: RecordedProgress
) -> None:
    name = "tiny_data/rows.txt"
    site = inventory.site_folders(built_training)[0]
    poisoned = list(uvtool.own_cache().glob(f"archive-v*/*/{name}"))
    for path in [*poisoned, site / name]:
        breaking.flip(path, random.Random(1))
    tally = Tally()
    tally.round(built_training, TRAINING_POINTER, [f"{site.relative_to(built_training).as_posix()}/{name}"], progress)
    assert poisoned
    assert tally.num_mended == 1
    assert any("tiny_data" in request for request in tiny_index.requests[-3:]), "fetched again"
    assert not any(path.read_text() != LARGE for path in uvtool.own_cache().glob(f"archive-v*/*/{name}")), "forgotten"


@pytest.fixture
def launcher(home: Path, interpreter: Interpreter, real_uv: Path, progress: RecordedProgress) -> Iterator[Path]:
    """A real launcher environment of its own, whose wheels are in the download cache of the data root."""
    environment = kinds.launcher_environment(interpreter)
    envs.build(environment, Uv(real_uv), progress)
    yield environment.folder
    shutil.rmtree(home)


@pytest.fixture
def training(home: Path, interpreter: Interpreter) -> Iterator[Path]:
    """A copy of the real training environment, with the original beside it as another environment."""
    original = real_runs.training_environment()
    environment = kinds.training_environment(interpreter, profiles.PROFILES["cpu"])
    environment.folder.parent.mkdir()
    command = ["cp", "--archive", "--reflink=auto", str(original), str(environment.folder)]
    subprocess.run(command, check=True, timeout=600)
    (home / "envs" / "train-original").symlink_to(original)
    locks = {lock.name: files.sha256_file(lock) for lock in environment.locks}
    inventory.seal(environment.folder, {"python": str(interpreter.executable), "locks": locks})
    (home / "envs" / TRAINING_POINTER).write_text(environment.name)
    yield environment.folder
    shutil.rmtree(home)


@pytest.mark.long
@pytest.mark.parametrize("online", [True, False], ids=["online", "from-the-local-store"])
def test_500_damages_of_a_real_launcher_environment(
    launcher: Path, progress: RecordedProgress, online: bool, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    if online:
        shutil.rmtree(uvtool.own_cache())
    else:
        monkeypatch.setenv("UV_OFFLINE", "1")
    tally = damage_all_ways(launcher, LAUNCHER_POINTER, 10, 25, progress, seed=11)
    with capsys.disabled():
        sys.stdout.write(f"\nlauncher, {'online' if online else 'local store'}: {tally}\n")
    assert tally.num_found == tally.num_mended == tally.num_done >= 250


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_25_damages_of_a_real_training_environment(
    training: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    chance, tally, packages = random.Random(13), Tally(), stores.installed_packages(training)
    monkeypatch.setenv("UV_OFFLINE", "1")
    for _ in range(2):
        tally.round(training, TRAINING_POINTER, list(breaking.damage_files(training, 10, chance)), progress)
    for other in breaking.OTHER_DAMAGES:
        tally.round(training, TRAINING_POINTER, [other(training)], progress)
    # Now without another environment to take files from: the wheels of small packages are fetched again.
    (training.parent / "train-original").unlink()
    monkeypatch.delenv("UV_OFFLINE")
    small = [name for name in breaking.damageable(training) if "/tqdm/" in name and name.endswith(".py")]
    for name in small[:5]:
        breaking.truncate(training / name, chance)
    tally.round(training, TRAINING_POINTER, small[:5], progress)
    with capsys.disabled():
        sys.stdout.write(f"\ntraining: {tally}\n")
    assert tally.num_found == tally.num_mended == tally.num_done >= 25
    assert stores.installed_packages(training) == packages
