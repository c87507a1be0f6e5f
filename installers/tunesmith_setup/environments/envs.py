"""Builds versioned environments beside the current one and switches to them by a pointer file.

An environment is built under a staging name, every file is compared with its wheel's record, a manifest is written and
the folder renamed; then the engine proves that it trains here, and only then does the pointer name it. So an
interruption at any point leaves the environment that was in use, and a folder without the final name is known to be
incomplete: it is removed and built again from the download cache. The environment that was in use before stays.
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

from tunesmith_core import files, paths, runs
from tunesmith_core.environments import (
    KNOWN_STARTUP_FILES,
    MANIFEST,
    engine_environment,
    environment_python,
    startup_files,
)
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_core.messages import Message
from tunesmith_setup.environments import proof
from tunesmith_setup.packages import downloads, growth, inventory, scratch, stores, uvtool, wheel_sizes
from tunesmith_setup.packages.growth import Growth
from tunesmith_setup.packages.inventory import Damage
from tunesmith_setup.packages.uvtool import Uv
from tunesmith_setup.packages.wheel_sizes import Weight
from tunesmith_setup.probe.interpreters import Interpreter
from tunesmith_setup.progress import Progress, size_text

STAGING_MARK = ".building-"
REMOVING_MARK = ".removing-"
SYSTEM = "win" if sys.platform == "win32" else "linux"
NUM_DAMAGED_SHOWN = 5
IMPORT_TIMEOUT_S = 600


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
        device: "cuda" or "cpu" when the engine must prove that it trains on that, before it is pointed to.
    """

    kind: str
    interpreter: Interpreter
    locks: tuple[Path, ...]
    modules: tuple[str, ...]
    installed_bytes: int
    pointer: str | None = None
    device: str | None = None

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

    def is_current(self) -> bool:
        """Return whether its pointer names it."""
        return bool(self.pointer) and _pointed(paths.envs_dir() / str(self.pointer)) == self.name

    def packages(self) -> list[str]:
        """Return the names of the packages that its locks pin."""
        return [name for name, _ in scratch.pins(self.locks)]

    def missing(self) -> Weight:
        """Return what is still to be downloaded, and what that takes in the download cache."""
        if self.is_complete():
            return Weight(0, 0)
        measured = wheel_sizes.total(self.locks, wheel_sizes.fetched(uvtool.own_cache()))
        # A lock that was not measured: wheels shrink files to about half.
        return measured if self._measured() else Weight(self.installed_bytes // 2, self.installed_bytes)

    def disk_bytes(self) -> int:
        """Return what it takes on the disk, whether it is there or not."""
        return self._measured() or self.installed_bytes

    def _measured(self) -> int:
        return wheel_sizes.total(self.locks, set()).disk_bytes

    def required_bytes(self) -> int:
        """Return the room the building takes: the environment, and in the download cache what is not there yet."""
        return 0 if self.is_complete() else self.disk_bytes() + self.passing_bytes()

    def passing_bytes(self) -> int:
        """Return the room that downloads take until they are installed: as wheels, and unpacked."""
        missing = self.missing()
        return missing.download_bytes + missing.disk_bytes


def site_packages(folder: Path) -> Path:
    """Return the folder of an environment that holds its packages."""
    if sys.platform == "win32":  # pragma: no cover
        return folder / "Lib" / "site-packages"
    return next((folder / "lib").glob("python3.*")) / "site-packages"


def build(environment: Environment, uv: Uv, progress: Progress) -> None:
    """Build an environment unless it is complete, prove it unless it is proven, and point to it.

    Raises:
        EnvironmentProblem: `environment-build-failed`, `disk-full`, or why it can't train here; the environment in use
            before still is.
    """
    if environment.is_complete():
        progress.note(Message("{name} is already complete", name=environment.name))
    else:
        _remove_incomplete(environment)
        _check_room(environment)
        staging = environment.folder.with_name(f"{environment.name}{STAGING_MARK}{os.getpid()}")
        try:
            _fill(environment, staging, uv, progress)
            _check_imports(environment, staging)
            _seal(environment, staging)
            files.publish_folder(staging, environment.folder)
        except FileNotFoundError as error:
            raise _disappeared(environment, error) from error
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        progress.note(f"{environment.name}: {size_text(files.folder_bytes(environment.folder))}")
    downloads.clear(environment.locks)
    try:
        if environment.device and not proof.is_proven(environment.folder):
            proof.prove(environment.folder, environment.device, progress)
        if environment.pointer:
            _switch(paths.envs_dir() / environment.pointer, environment.name)
            _remove_older(paths.envs_dir() / environment.pointer, progress)
    except FileNotFoundError as error:
        raise _disappeared(environment, error) from error


def _disappeared(environment: Environment, error: FileNotFoundError) -> EnvironmentProblem:
    """Return what is told when somebody, or a virus scanner, takes files away while they are in use."""
    return EnvironmentProblem(
        "environment-missing",
        "{kind}: {path} disappeared in the meantime.",
        hint="Run the same command again: it brings back what is missing.",
        kind=environment.kind,
        path=error.filename or paths.envs_dir(),
    )


def previous_pointer(pointer: Path) -> Path:
    """Return the file that names the environment which was in use before, such as envs/train.previous."""
    return pointer.with_suffix(".previous")


def _pointed(pointer: Path) -> str:
    return pointer.read_text(encoding="utf-8").strip() if pointer.is_file() else ""


def _switch(pointer: Path, name: str) -> None:
    before = _pointed(pointer)
    if before == name:
        return
    if before and environment_python(pointer.parent / before).exists():
        files.atomic_write_text(previous_pointer(pointer), before + "\n")
    files.crashpoint("environment.before-switch")
    files.atomic_write_text(pointer, name + "\n")
    files.crashpoint("environment.switched")


def has_live_run() -> bool:
    """Return whether a run is going or waiting on this data root."""
    return any(run.is_supervised() for run in runs.iter_runs())


def _remove_older(pointer: Path, progress: Progress) -> None:
    """Remove the environments of a kind except the current and the previous one; none while a run may use them."""
    kept = {_pointed(pointer), _pointed(previous_pointer(pointer))}
    older = [path for path in pointer.parent.glob(f"{pointer.stem}-*") if path.is_dir() and path.name not in kept]
    if not older or has_live_run():
        return
    for folder in older:
        try:
            _remove(folder)
        except OSError:
            # On Windows a program that runs from it holds it: the next installation tries again.
            continue
        progress.note(Message("Removed {name}, which nothing uses anymore", name=folder.name))


def _remove(folder: Path) -> None:
    """Remove an environment, or leave it whole. Raises OSError when another program holds it."""
    removing = folder.with_name(f"{folder.name.partition(REMOVING_MARK)[0]}{REMOVING_MARK}{os.getpid()}")
    files.replace(folder, removing)
    files.crashpoint("environment.removing")
    shutil.rmtree(removing, ignore_errors=True)


def _remove_incomplete(environment: Environment) -> None:
    """Remove what an interrupted build left; the name of a running one is never reused, so it can't be mixed up.

    Raises:
        OSError: when another program holds the folder that has the environment's name.
    """
    folder = environment.folder
    files.private_folder(folder.parent)
    if folder.exists():
        _remove(folder)
    for leftover in folder.parent.glob(f"{folder.name}{STAGING_MARK}*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _check_room(environment: Environment) -> None:
    free, required = files.free_bytes(paths.envs_dir()), environment.required_bytes()
    if free < required:
        raise EnvironmentProblem(
            "disk-full",
            "{folder}: {kind} needs {required}, {free} are free.",
            hint=Message(
                "Free some space, or set {variable} to a folder on another drive.",
                variable=paths.HOME_VARIABLE,
            ),
            folder=paths.envs_dir(),
            kind=environment.kind,
            required=size_text(required),
            free=size_text(free),
        )


def _fill(environment: Environment, staging: Path, uv: Uv, progress: Progress) -> None:
    """Install the packages and compare every file with its wheel's record, before anything of it runs.

    What a damaged download cache gave is downloaded once more.

    Raises:
        EnvironmentProblem: `environment-build-failed`.
    """
    downloads.fetch_large(environment.locks, environment.interpreter.executable, uv, progress)
    _install(environment, staging, uv, progress)
    progress.note("Checking every installed file")
    damages = _damages(staging)
    packages = sorted({name for name, _ in stores.packages_of(staging, [item.path for item in damages]).values()})
    if packages:
        progress.note(Message("Downloading damaged packages again: {packages}", packages=", ".join(packages)))
        uv.forget(packages)
        shutil.rmtree(staging)
        _install(environment, staging, uv, progress)
        damages = _damages(staging)
    if damages:
        shown = "; ".join(map(str, damages[:NUM_DAMAGED_SHOWN]))
        raise EnvironmentProblem(
            "environment-build-failed",
            "{kind}: installed files are damaged ({count}): {shown}.",
            kind=environment.kind,
            count=len(damages),
            shown=shown,
        )
    if environment.pointer:
        _refuse_startup_files(environment, staging)
    files.crashpoint("environment.verified")


def _install(environment: Environment, staging: Path, uv: Uv, progress: Progress) -> None:
    base = str(environment.interpreter.executable)
    locks = downloads.with_fetched(environment.locks)
    missing, disk_bytes = environment.missing(), environment.disk_bytes()
    fetched = locks != list(environment.locks)
    grown = Growth(uvtool.own_cache(), staging, missing, disk_bytes, fetched=fetched)
    uv.run("venv", "--quiet", "--relocatable", "--no-project", "--python", base, str(staging))
    files.crashpoint("environment.created")
    # Copies instead of hard links: a file damaged in the environment must not be damaged in the cache as well.
    options = ["--require-hashes", "--only-binary", ":all:", "--link-mode", "copy"]
    python = str(environment_python(staging))
    command = ["pip", "sync", *options, "--python", python]
    with growth.reported(grown, progress):
        try:
            uv.run_offline_first(*command, *map(str, locks))
        except EnvironmentProblem:
            if not downloads.drop_damaged():
                raise
            uv.run_offline_first(*command, *map(str, environment.locks))
    if fetched:
        downloads.forget_origin(site_packages(staging))
    files.crashpoint("environment.installed")


def _damages(staging: Path) -> list[Damage]:
    """Return every file that is not as its wheel recorded, or that no wheel brought."""
    damages = inventory.compare(staging, inventory.from_records(staging), full=True)
    return [damage for damage in damages if damage.path != MANIFEST]


def _refuse_startup_files(environment: Environment, staging: Path) -> None:
    """Refuse files that Python runs at every start, except known ones: a package of the lock must not bring any."""
    found = {path.name for path in startup_files(site_packages(staging))} - KNOWN_STARTUP_FILES
    if found:
        raise EnvironmentProblem(
            "environment-build-failed",
            "{kind}: packages contain files that Python would run at every start: {names}.",
            kind=environment.kind,
            names=", ".join(sorted(found)),
        )


def _check_imports(environment: Environment, staging: Path) -> None:
    if environment.device:
        return  # importing is the first step of the proof
    statement = f"import {', '.join(environment.modules)}"
    command = [str(environment_python(staging)), "-I", "-X", "utf8", "-c", statement]
    result = subprocess.run(
        command,
        env=engine_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=IMPORT_TIMEOUT_S,
        creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        check=False,
    )
    if result.returncode != 0:
        raise EnvironmentProblem(
            "environment-build-failed",
            "{kind}: the installed packages can't be imported.",
            context=result.stderr.decode("utf-8", errors="replace")[-4000:],
            kind=environment.kind,
        )


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
        "built_at": time.time(),
    }
    inventory.seal(staging, manifest)
    files.crashpoint("environment.sealed")
