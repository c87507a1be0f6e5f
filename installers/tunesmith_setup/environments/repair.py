"""Mends an environment: replaces just the damaged files, else its interpreter, else builds it again beside.

Each step is taken when the one before did not help, and each is judged afterwards by the same comparison
that found the fault. A repair that is killed leaves an environment that the next one mends. Runs, models and settings
stay untouched.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from tunesmith_core import environments, files, paths
from tunesmith_core.environments import MANIFEST, PROOF, environment_python
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_core.messages import Message
from tunesmith_setup.environments import envs, kinds, profiles
from tunesmith_setup.environments.envs import Environment
from tunesmith_setup.environments.file_repair import FileRepair
from tunesmith_setup.packages import inventory, scratch, uvtool
from tunesmith_setup.packages.uvtool import Uv
from tunesmith_setup.probe import interpreters
from tunesmith_setup.probe.interpreters import Interpreter
from tunesmith_setup.progress import Progress

START_TIMEOUT_S = 30
BROKEN_MARK = ".broken-"
STAGING_PATTERN = re.compile(r"\.(building|broken|removing)-")
NUM_NAMES_SHOWN = 5


def pointed_folder(pointer: str) -> Path | None:
    """Return the folder that a pointer names, whether or not it exists; None when nothing is pointed to."""
    try:
        name = (paths.envs_dir() / pointer).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
    return paths.envs_dir() / name if name and "\0" not in name else None


def complete_folders(pointer: str) -> list[Path]:
    """Return the environments of a pointer's kind that were built to their end, the newest first."""
    kind = pointer.partition(".")[0]
    complete = [path.parent for path in paths.envs_dir().glob(f"{kind}-*/{MANIFEST}")]
    complete = [folder for folder in complete if STAGING_PATTERN.search(folder.name) is None]
    return sorted(complete, key=lambda folder: folder.stat().st_mtime, reverse=True)


def starts(folder: Path) -> bool | None:
    """Return whether the Python of an environment starts; None when it did not answer in time."""
    # -S: a stray .pth must not run while the interpreter itself is looked at.
    command = [str(environment_python(folder)), "-I", "-S", "-B", "-c", "import encodings, os, ssl"]
    try:
        result = subprocess.run(
            command, env=environments.scrubbed_environment(), capture_output=True, timeout=START_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    except OSError:
        return False
    return result.returncode == 0


def is_sound(folder: Path) -> bool:
    """Return whether an environment is as it was built and its Python starts."""
    listed = inventory.read(folder)
    return listed is not None and not inventory.compare(folder, listed) and starts(folder) is True


def environment_of(name: str, interpreter: Interpreter) -> Environment | None:
    """Return what an environment of a name should be today; None for a kind that this program does not build."""
    kind = name.partition(f"-{envs.SYSTEM}-")[0]
    if kind == "launcher":
        return kinds.launcher_environment(interpreter)
    profile = profiles.PROFILES.get(kind.removeprefix("train-"))
    return kinds.training_environment(interpreter, profile) if profile and kind.startswith("train-") else None


class RepairSteps:
    """The steps that mend the environment which a pointer names, the cheapest first.

    Attributes:
        pointer: name of the pointer file.
        folder: the environment that it names, whether or not it is there.
    """

    def __init__(self, pointer: str, progress: Progress) -> None:
        self.pointer = pointer
        self.progress = progress
        self.folder = pointed_folder(pointer)
        self._uv: Uv | None = None

    def take(self) -> None:
        """Take one step after the other until the environment is sound.

        Raises:
            EnvironmentProblem: when none helps; the environment is as good as it was before, or better.
        """
        self._point()
        for step in (self._files, self._interpreter):
            step()
            if self.folder is not None and is_sound(self.folder):
                return
        self._rebuild()
        if self.folder is None or not is_sound(self.folder):
            raise EnvironmentProblem(
                "environment-build-failed", "{pointer}: rebuilding the environment did not help.", pointer=self.pointer
            )

    def _obtain_uv(self) -> Uv:
        self._uv = self._uv or uvtool.obtain(self.progress)
        return self._uv

    def _point(self) -> None:
        """Take back what a killed repair set aside, or point to the newest environment of the kind."""
        if self.folder is not None and not self.folder.is_dir():
            for broken in paths.envs_dir().glob(f"{self.folder.name}{BROKEN_MARK}*"):
                files.replace(broken, self.folder)
                break
        if self.folder is not None and self.folder.is_dir():
            return
        for folder in complete_folders(self.pointer):
            if is_sound(folder):
                files.atomic_write_text(paths.envs_dir() / self.pointer, f"{folder.name}\n")
                self.progress.note(Message("Using {name} again", name=folder.name))
                self.folder = folder
                return

    def _files(self) -> None:
        if self.folder is not None and self.folder.is_dir():
            FileRepair(self.folder, self.progress, self._obtain_uv).run()

    def _interpreter(self) -> None:
        """Give an environment whose base Python is gone another one of the same version."""
        folder = self.folder
        if folder is None or not folder.is_dir() or starts(folder) is not False:
            return
        listed = inventory.read(folder)
        interpreter = scratch.interpreter_for(folder)
        # A list is only made anew of an environment whose files are all right: otherwise it would bless the damage.
        if interpreter and listed is not None and not inventory.compare(folder, listed):
            with scratch.skeleton(interpreter, self._obtain_uv()) as fresh:
                _move_in(fresh, folder)
            _list_with(folder, interpreter)
            self.progress.note(Message("Python: {executable}", executable=interpreter.executable))

    def _rebuild(self) -> None:
        """Build the environment again; the broken one is set aside meanwhile and comes back when that fails."""
        environment = self._wanted()
        if self.pointer == environments.TRAINING_POINTER and envs.has_live_run():
            raise EnvironmentProblem("run-busy", "The environment has to be rebuilt, but a run is using it.")
        broken = environment.folder.with_name(f"{environment.name}{BROKEN_MARK}{os.getpid()}")
        if environment.folder.exists():
            files.replace(environment.folder, broken)
            files.crashpoint("repair.set-aside")
        try:
            envs.build(environment, self._obtain_uv(), self.progress)
        except BaseException:
            if broken.exists() and not environment.folder.exists():
                files.replace(broken, environment.folder)
            raise
        files.crashpoint("repair.rebuilt")
        shutil.rmtree(broken, ignore_errors=True)
        self.folder = environment.folder

    def _wanted(self) -> Environment:
        """Return what to build. Raises EnvironmentProblem `environment-missing` when nothing was ever installed."""
        if self.folder is None:
            raise EnvironmentProblem(
                "environment-missing", "{path} does not exist.", path=paths.envs_dir() / self.pointer
            )
        interpreter = scratch.interpreter_for(self.folder) or interpreters.choose()
        environment = environment_of(self.folder.name, interpreter)
        if environment is None:
            raise EnvironmentProblem(
                "environment-missing", "{path} is not an environment of this program.", path=self.folder
            )
        return environment


def _move_in(fresh: Path, folder: Path) -> None:
    """Rename the start files of a fresh environment over those of another."""
    for name in inventory.scan(fresh):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        files.replace(fresh / name, folder / name)
        files.crashpoint("repair.interpreter")


def _list_with(folder: Path, interpreter: Interpreter) -> None:
    """List an environment anew that got another Python; what was proven with the one before has to be proven again."""
    (folder / PROOF).unlink(missing_ok=True)
    manifest = scratch.manifest_of(folder) | {"python": str(interpreter.executable)}
    inventory.seal(folder, manifest)


def mend(pointer: str, progress: Progress) -> None:
    """Mend the environment that a pointer names, while no other installer is at work.

    Raises:
        EnvironmentProblem: when it can't be mended.
    """
    with kinds.only_one(progress):
        RepairSteps(pointer, progress).take()
