"""Packages are installed once more into a folder that is new and exists only meanwhile."""

from __future__ import annotations

import os
import shutil
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tunesmith_core import paths
from tunesmith_core.environments import environment_python
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_setup.packages import scratch
from tunesmith_setup.packages.uvtool import Uv
from tunesmith_setup.probe.interpreters import Interpreter

PINS = "torch==2.6.0 --hash=sha256:1\nTiny_Tools==1.0 --hash=sha256:2\n"


class RecordingUv(Uv):
    """Writes down what it is asked for, makes folders, and fails where it shall."""

    done: list[tuple[str, ...]]

    def __init__(self, failing: str = "") -> None:
        object.__setattr__(self, "executable", Path("/nowhere/uv"))
        object.__setattr__(self, "done", [])
        object.__setattr__(self, "failing", failing)

    def run(self, *arguments: str) -> None:
        self.done.append(("run", *arguments))
        if arguments[0] == self.failing:  # type: ignore[attr-defined]
            raise EnvironmentProblem("environment-build-failed", "no")
        if arguments[0] == "venv":
            Path(arguments[-1]).mkdir()

    def run_offline_first(self, *arguments: str) -> None:
        self.run(*arguments)
        self.done[-1] = ("offline first", *arguments)

    def forget(self, packages: list[str]) -> None:
        self.done.append(("forget", *packages))


@pytest.fixture
def folder(home: Path, tmp_path: Path, interpreter: Interpreter, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment that was built with a lock of two packages."""
    lock = tmp_path / "lock.txt"
    lock.write_text(PINS)
    monkeypatch.setattr(scratch, "locks_of", lambda _folder: [lock])
    monkeypatch.setattr(scratch, "interpreter_for", lambda _folder: interpreter)
    return home / "envs" / "train-cpu-1"


@pytest.mark.parametrize("fresh", [False, True])
def test_only_what_the_locks_pin_is_installed_with_its_hashes(
    folder: Path, interpreter: Interpreter, fresh: bool
) -> None:
    uv, wanted = RecordingUv(), [("tiny-tools", "1.0"), ("torch", "2.7.0")]
    with scratch.installed(folder, wanted, uv, fresh=fresh) as found:
        assert found == paths.tmp_dir() / f"reinstall-{os.getpid()}" / "environment"
        requirements = found.parent / "requirements.txt"
        assert requirements.read_text() == "Tiny_Tools==1.0 --hash=sha256:2\n"
    created, installed, *forgotten = uv.done
    python = str(interpreter.executable)
    assert created == ("run", "venv", "--quiet", "--relocatable", "--no-project", "--python", python, str(found))
    options = ("--no-deps", "--require-hashes", "--only-binary", ":all:", "--link-mode", "copy")
    target = ("--python", str(environment_python(found)), "-r", str(requirements))
    how, past_the_cache = ("run", ["--no-cache"]) if fresh else ("offline first", [])
    assert installed == (how, "pip", "install", *options, *target, *past_the_cache)
    assert forgotten == ([("forget", "tiny-tools", "torch")] if fresh else [])


def test_nothing_is_installed_without_pins_python_or_success(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for failing in ("venv", "pip"):
        with scratch.installed(folder, [("torch", "2.6.0")], RecordingUv(failing), fresh=False) as found:
            assert found is None
    unused = RecordingUv()
    with scratch.installed(folder, [("torch", "9")], unused, fresh=False) as found:
        assert found is None
    monkeypatch.setattr(scratch, "interpreter_for", lambda _folder: None)
    with scratch.installed(folder, [("torch", "2.6.0")], unused, fresh=False) as found:
        assert found is None
    assert unused.done == []


@pytest.mark.parametrize("name", ["reinstall", "skeleton"])
def test_the_folder_is_new_and_gone_afterwards(folder: Path, interpreter: Interpreter, name: str) -> None:
    def context() -> AbstractContextManager[Path | None]:
        if name == "skeleton":
            return scratch.skeleton(interpreter, RecordingUv())
        return scratch.installed(folder, [], RecordingUv(), fresh=False)

    workspace = paths.tmp_dir() / f"{name}-{os.getpid()}"
    (workspace / "environment" / "old").mkdir(parents=True)
    with context() as found:
        assert [path.name for path in workspace.iterdir()] == (["environment"] if name == "skeleton" else [])
        assert found == (workspace / "environment" if name == "skeleton" else None)
        assert not (workspace / "environment" / "old").exists()
        if os.name == "posix":
            assert workspace.stat().st_mode & 0o077 == 0
    assert not workspace.exists()
    with context():
        shutil.rmtree(workspace)
