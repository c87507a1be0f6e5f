"""Installs packages once more into a folder that is thrown away, so that single files can be taken from them.

The pins and hashes are those of the locks that the environment was built with, and uv writes the same start scripts and
records as it did then.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tunesmith_core import files, paths
from tunesmith_core.environments import MANIFEST, environment_python
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_core.settings import SettingsFile
from tunesmith_setup.packages import inventory
from tunesmith_setup.packages.stores import normal_name
from tunesmith_setup.packages.uvtool import LOCKS, Uv
from tunesmith_setup.probe import interpreters
from tunesmith_setup.probe.interpreters import Interpreter

PIN = re.compile(r"([A-Za-z0-9._-]+)==([^\s;\\]+)")
TAG = re.compile(r"-py(\d)(\d+)-")

Package = tuple[str, str]
"""Normal name and version of a package."""


def wheel_folder() -> Path | None:
    """Return the folder of wheels that the person named in the settings, or None."""
    chosen = str(getattr(SettingsFile().values, "wheel_folder", "") or "")
    return Path(chosen) if chosen else None


def manifest_of(folder: Path) -> dict[str, object]:
    """Return the manifest of an environment, from its list when the file is damaged; empty when both are gone."""
    listed = inventory.read(folder)
    try:
        text = listed.manifest if listed else None
        manifest = json.loads(text or (folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def locks_of(folder: Path) -> list[Path]:
    """Return the locks that an environment was built with, as far as the program still has locks of these names."""
    names = manifest_of(folder).get("locks")
    return [LOCKS / name for name in names if (LOCKS / name).is_file()] if isinstance(names, dict) else []


def pins(locks: Sequence[Path]) -> dict[Package, str]:
    """Return the lines that pin each package of some locks, with their hashes."""
    blocks: dict[Package, str] = {}
    for lock in locks:
        package: Package | None = None
        for line in lock.read_text(encoding="utf-8").splitlines(keepends=True):
            found = PIN.match(line)
            if found:
                package = (normal_name(found[1]), found[2])
                blocks[package] = ""
            elif not line.startswith((" ", "\t")):
                package = None
            if package:
                blocks[package] += line
    return blocks


def interpreter_for(folder: Path) -> Interpreter | None:
    """Return a Python of the version that an environment was built with: the very one, else another that is found."""
    found = TAG.search(folder.name)
    version = (int(found[1]), int(found[2])) if found else None
    recorded = manifest_of(folder).get("python")
    interpreter = interpreters.examine(str(recorded)) if recorded else None
    if interpreter and version in (None, interpreter.version):
        return interpreter
    return interpreters.find(version) if version else None


@contextmanager
def installed(folder: Path, packages: Sequence[Package], uv: Uv, *, fresh: bool) -> Iterator[Path | None]:
    """Install packages of an environment into a folder that exists only meanwhile.

    Args:
        folder: the environment that they belong to.
        packages: what to install; those that the locks do not pin are left out.
        uv: installs.
        fresh: whether the download cache is passed by, and forgets the packages.

    Yields:
        A whole environment, or None when nothing could be installed.
    """
    blocks = pins(locks_of(folder))
    wanted = [blocks[package] for package in packages if package in blocks]
    interpreter = interpreter_for(folder)
    workspace = paths.tmp_dir() / f"reinstall-{os.getpid()}"
    shutil.rmtree(workspace, ignore_errors=True)
    try:
        files.private_folder(workspace)
        done = bool(wanted) and interpreter is not None and _install(workspace, wanted, interpreter, uv, fresh=fresh)
        if fresh:
            uv.forget([name for name, _ in packages])
        yield workspace / "environment" if done else None
    finally:
        shutil.rmtree(workspace, ignore_errors=True)


@contextmanager
def skeleton(interpreter: Interpreter, uv: Uv) -> Iterator[Path]:
    """Yield an environment without packages, which exists only meanwhile. Raises EnvironmentProblem when uv fails."""
    workspace = paths.tmp_dir() / f"skeleton-{os.getpid()}"
    shutil.rmtree(workspace, ignore_errors=True)
    try:
        files.private_folder(workspace)
        _create(workspace / "environment", interpreter, uv)
        yield workspace / "environment"
    finally:
        shutil.rmtree(workspace, ignore_errors=True)


def _create(target: Path, interpreter: Interpreter, uv: Uv) -> None:
    uv.run("venv", "--quiet", "--relocatable", "--no-project", "--python", str(interpreter.executable), str(target))


def _install(workspace: Path, wanted: list[str], interpreter: Interpreter, uv: Uv, *, fresh: bool) -> bool:
    requirements, target = workspace / "requirements.txt", workspace / "environment"
    requirements.write_text("".join(wanted), encoding="utf-8")
    options = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--link-mode", "copy"]
    command = ["pip", "install", *options, "--python", str(environment_python(target)), "-r", str(requirements)]
    try:
        _create(target, interpreter, uv)
        if fresh:
            uv.run(*command, "--no-cache")
        else:
            uv.run_offline_first(*command)
    except EnvironmentProblem:
        return False
    return True
