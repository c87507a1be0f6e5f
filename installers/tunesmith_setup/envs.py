"""Builds versioned environments beside the current one and switches to them by a pointer file.

An environment is built under a staging name, checked, given a manifest and renamed; only then does the pointer name it.
So an interruption at any point leaves the environment that was in use, and a folder without the final name is known to
be incomplete: it is removed and built again from the download cache.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tunesmith_core import files, paths
from tunesmith_core.environments import engine_environment, environment_python
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_setup import inventory, wheel_records
from tunesmith_setup.interpreters import Interpreter
from tunesmith_setup.progress import Progress, size_text
from tunesmith_setup.uvtool import Uv

MANIFEST = inventory.MANIFEST
STAGING_MARK = ".building-"
SYSTEM = "win" if sys.platform == "win32" else "linux"
NUM_DAMAGED_SHOWN = 5


def lock_path(locks: Path, name: str, interpreter: Interpreter) -> Path:
    """Return the lock file of a set of packages for this system and a Python version."""
    return locks / f"{name}-{SYSTEM}-{interpreter.tag}.txt"


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment as it should be.

    Attributes:
        kind: first part of its name, such as "launcher", "train-cpu" or "test".
        interpreter: the Python it is made with.
        locks: lock files that name all its packages.
        modules: what a child process must be able to import before the environment counts as good.
        installed_bytes: its expected size.
        pointer: file under envs that names the current environment of this kind, or None.
    """

    kind: str
    interpreter: Interpreter
    locks: tuple[Path, ...]
    modules: tuple[str, ...]
    installed_bytes: int
    pointer: str | None = None

    @property
    def name(self) -> str:
        """Folder name: kind, system, Python version and a digest of the locks."""
        digest = hashlib.sha256()
        for lock in self.locks:
            digest.update(lock.read_bytes())
        return f"{self.kind}-{SYSTEM}-{self.interpreter.tag}-{digest.hexdigest()[:8]}"

    @property
    def folder(self) -> Path:
        """Where the environment stands once it is complete."""
        return paths.envs_dir() / self.name

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return environment_python(self.folder)

    def is_complete(self) -> bool:
        """Return whether it was built to the end and its base Python still exists."""
        return (self.folder / MANIFEST).is_file() and self.python.exists()

    def packages(self) -> list[str]:
        """Return the names of the packages that its locks pin."""
        lines = [line for lock in self.locks for line in lock.read_text(encoding="utf-8").splitlines()]
        return [line.partition("==")[0] for line in lines if "==" in line and not line.startswith((" ", "#"))]

    def required_bytes(self) -> int:
        """Return the room the building takes: the environment and as much again in the download cache."""
        return 0 if self.is_complete() else 2 * self.installed_bytes


def site_packages(folder: Path) -> Path:
    """Return the folder of an environment that holds its packages."""
    if sys.platform == "win32":  # pragma: no cover
        return folder / "Lib" / "site-packages"
    return next((folder / "lib").glob("python3.*")) / "site-packages"


def build(environment: Environment, uv: Uv, progress: Progress) -> None:
    """Build an environment unless it is complete, and point to it.

    Raises:
        EnvironmentProblem: `environment-build-failed` or `disk-full`; the environment in use before still is.
    """
    if environment.is_complete():
        progress.note(f"{environment.name} is complete already")
    else:
        _remove_incomplete(environment)
        _check_room(environment)
        staging = environment.folder.with_name(f"{environment.name}{STAGING_MARK}{os.getpid()}")
        try:
            _install(environment, staging, uv)
            _verify(environment, staging)
            _seal(environment, staging)
            files.publish_folder(staging, environment.folder)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
        progress.note(f"{environment.name}: {size_text(files.folder_bytes(environment.folder))}")
    if environment.pointer:
        _switch(paths.envs_dir() / environment.pointer, environment.name)


def _switch(pointer: Path, name: str) -> None:
    if not pointer.is_file() or pointer.read_text(encoding="utf-8").strip() != name:
        files.crashpoint("environment.before-switch")
        files.atomic_write_text(pointer, name + "\n")


def _remove_incomplete(environment: Environment) -> None:
    """Remove what an interrupted build left; the name of a running one is never reused, so it can't be mixed up."""
    folder = environment.folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    for leftover in (folder, *folder.parent.glob(f"{folder.name}{STAGING_MARK}*")):
        shutil.rmtree(leftover, ignore_errors=True)


def _check_room(environment: Environment) -> None:
    free, required = files.free_bytes(paths.envs_dir()), environment.required_bytes()
    if free < required:
        raise EnvironmentProblem(
            "disk-full",
            f"{paths.envs_dir()}: {environment.kind} needs {size_text(required)}, {size_text(free)} are free.",
            hint=f"Free some space, or set {paths.HOME_VARIABLE} to a folder on another drive.",
        )


def _install(environment: Environment, staging: Path, uv: Uv) -> None:
    base = str(environment.interpreter.executable)
    uv.run("venv", "--quiet", "--relocatable", "--no-project", "--python", base, str(staging))
    files.crashpoint("environment.created")
    # Copies instead of hard links: a file damaged in the environment must not be damaged in the cache as well.
    options = ["--require-hashes", "--only-binary", ":all:", "--link-mode", "copy"]
    python, locks = str(environment_python(staging)), [str(lock) for lock in environment.locks]
    uv.run_offline_first("pip", "sync", *options, "--python", python, *locks)
    files.crashpoint("environment.installed")


def _verify(environment: Environment, staging: Path) -> None:
    damaged = wheel_records.damaged_files(site_packages(staging))
    if damaged:
        shown = "; ".join(damaged[:NUM_DAMAGED_SHOWN])
        raise EnvironmentProblem(
            "environment-build-failed", f"{environment.kind}: {len(damaged)} installed files are damaged: {shown}."
        )
    statement = f"import {', '.join(environment.modules)}"
    command = [str(environment_python(staging)), "-I", "-X", "utf8", "-c", statement]
    result = subprocess.run(command, env=engine_environment(), capture_output=True, check=False)
    if result.returncode != 0:
        raise EnvironmentProblem(
            "environment-build-failed",
            f"{environment.kind}: the installed packages can't be imported.",
            context=result.stderr.decode("utf-8", errors="replace")[-4000:],
        )
    files.crashpoint("environment.verified")


def _seal(environment: Environment, staging: Path) -> None:
    """Write the manifest, the last file: its presence says that all others are complete, on the disk too."""
    if sys.platform != "win32":  # pragma: no branch
        os.sync()
    manifest = {
        "version": 1,
        "name": environment.name,
        "kind": environment.kind,
        "python": str(environment.interpreter.executable),
        "locks": {lock.name: files.sha256_file(lock) for lock in environment.locks},
        "built_at": round(time.time(), 3),
    }
    inventory.seal(staging, manifest)
    files.crashpoint("environment.sealed")
