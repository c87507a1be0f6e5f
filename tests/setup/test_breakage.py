"""Random damage of environments: all of it is found and all of it is mended, online and from what is at hand.

The counts of the long test are those of the scorecard: 500 damages of a launcher environment, 25 of a training one.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.setup import breaking
from tests.setup.conftest import RecordedProgress, TinyIndex, wheel
from tunesmith_core import environments, paths
from tunesmith_core.environments import TRAINING_POINTER
from tunesmith_setup import envs, inventory, repair, scratch, uvtool
from tunesmith_setup.envs import Environment
from tunesmith_setup.interpreters import Interpreter
from tunesmith_setup.uvtool import Uv

LARGE = "".join(f"value_{number} = {number}\n" for number in range(2000))


@pytest.fixture
def tiny(
    home: Path, tmp_path: Path, interpreter: Interpreter, tiny_index: TinyIndex, monkeypatch: pytest.MonkeyPatch
) -> Environment:
    """What a tiny training environment should be; its lock is among the program's locks."""
    monkeypatch.setenv("UV_NO_PROGRESS", "1")
    locks = tmp_path / "locks"
    locks.mkdir()
    lock = locks / f"tiny-linux-{interpreter.tag}.txt"
    version = "__version__ = '2.6.0+cu124'\ncuda = '12.4'\n"
    torch = {"torch/__init__.py": "", "torch/version.py": version, "torch/lib/big.py": LARGE}
    tools = {"tiny_tools/__init__.py": "value = 1\n", "tiny_tools/main.py": "def main(): pass\n"}
    script = {"tiny_tools-1.0.dist-info/entry_points.txt": "[console_scripts]\ntiny-tool = tiny_tools.main:main\n"}
    lock.write_text(
        wheel(tiny_index.folder, "torch", "2.6.0", torch)
        + wheel(tiny_index.folder, "tiny-tools", "1.0", tools | script)
        + wheel(tiny_index.folder, "tiny-data", "3.1", {"tiny_data/__init__.py": "", "tiny_data/rows.txt": LARGE})
    )
    environment = Environment("train-tiny", interpreter, (lock,), ("torch", "tiny_tools"), 1000, TRAINING_POINTER)
    monkeypatch.setattr(scratch, "LOCKS", locks)
    monkeypatch.setattr(repair, "environment_of", lambda name, python: environment)
    return environment


@pytest.fixture
def built(tiny: Environment, real_uv: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a tiny training environment."""
    monkeypatch.setattr(uvtool, "obtain", lambda progress: Uv(real_uv))
    envs.build(tiny, Uv(real_uv), progress)
    assert repair.is_sound(tiny.folder)
    return tiny.folder


def found(folder: Path) -> bool:
    """Return whether the full check sees damage."""
    listed = inventory.read(folder)
    if listed is None or inventory.compare(folder, listed, full=True):
        return True
    return repair.starts(folder) is False


def mended(progress: RecordedProgress) -> bool:
    """Repair, and return whether the environment is then as it was built."""
    ladder = repair.Ladder(TRAINING_POINTER, progress)
    ladder.climb()
    return ladder.folder is not None and repair.is_sound(ladder.folder) and not found(ladder.folder)


def damages(count: int, chance: random.Random) -> list[Callable[[Path], str]]:
    """Return damages of files at random, and one of each other kind."""
    kinds = sorted(breaking.FILE_DAMAGES)
    files = [
        lambda folder, kind=kinds[number % 4]: f"{kind} {breaking.damage_file(folder, kind, chance)}"
        for number in range(count)
    ]
    return [
        *files,
        breaking.remove_interpreter,
        breaking.dangle_interpreter,
        breaking.stray_path_file,
        breaking.foreign_torch,
    ]


@pytest.mark.parametrize("online", [True, False], ids=["online", "from-the-local-store"])
def test_every_damage_is_found_and_mended(
    built: Path, tiny_index: TinyIndex, progress: RecordedProgress, online: bool
) -> None:
    chance = random.Random(7)
    if not online:
        tiny_index.close()
    for damage in damages(16, chance):
        if online:
            shutil.rmtree(uvtool.own_cache(), ignore_errors=True)
        what = damage(built)
        assert found(built), f"not found: {what}"
        assert mended(progress), f"not mended: {what}"
