"""Mends an environment: replaces just the damaged files, else its interpreter, else builds it again beside.

Each rung of the ladder is tried when the one before did not help, and each is judged afterwards by the same comparison
that found the fault. Every file is replaced by renaming a checked copy over it, so a repair that is killed leaves an
environment that the next repair mends. Runs, models and settings are never touched; strangers are moved, not deleted.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tunesmith_core import environments, files, paths, runs
from tunesmith_core.environments import environment_python
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_setup import envs, install, interpreters, inventory, profiles, scratch, stores, uvtool
from tunesmith_setup.envs import Environment
from tunesmith_setup.interpreters import Interpreter
from tunesmith_setup.inventory import Damage, Inventory, Kind
from tunesmith_setup.progress import Progress
from tunesmith_setup.uvtool import Uv

START_TIMEOUT_S = 30
MENDING_MARK = ".mending-"
BROKEN_MARK = ".broken-"
STAGING_PATTERN = re.compile(r"\.(building|broken|removing)-")
QUARANTINE = "quarantine"
NUM_NAMES_SHOWN = 5


def pointed_folder(pointer: str) -> Path | None:
    """Return the folder that a pointer names, whether or not it exists; None when nothing is pointed to."""
    try:
        name = (paths.envs_dir() / pointer).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
    return paths.envs_dir() / name if name and "\0" not in name else None


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


@dataclass(slots=True)
class Mending:
    """One repair of the files of an environment.

    Attributes:
        folder: the environment.
        progress: takes what is done.
        obtain_uv: gives uv when it is needed.
        sources: how many files came from where.
    """

    folder: Path
    progress: Progress
    obtain_uv: Callable[[], Uv]
    sources: dict[str, int] = field(default_factory=dict)

    def run(self) -> list[Damage]:
        """Replace what is damaged; return what could not be mended."""
        listed = inventory.read(self.folder)
        # Without a good list, the wheels' own records tell most.
        expected = listed or inventory.from_records(self.folder)
        damages = inventory.compare(self.folder, expected, full=True)
        staging = paths.envs_dir() / f"{MENDING_MARK}{os.getpid()}"
        staging.mkdir(parents=True, exist_ok=True)
        try:
            # First the packages' own records: they tell which package brought the other files.
            left = self._mend(expected, [damage for damage in damages if ".dist-info/" in damage.path], staging)
            left += self._mend(expected, [damage for damage in damages if ".dist-info/" not in damage.path], staging)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        for source, num_files in self.sources.items():
            self.progress.note(f"{num_files} {'file' if num_files == 1 else 'files'}: {source}")
        if not left and listed is None:
            self._list_again()
        return left

    def _mend(self, expected: Inventory, damages: list[Damage], staging: Path) -> list[Damage]:
        compiled = [damage for damage in damages if stores.is_compiled(damage.path)]
        strangers = [damage for damage in damages if damage.kind is Kind.UNEXPECTED and damage not in compiled]
        missing = [damage for damage in damages if damage not in compiled and damage not in strangers]
        self._drop_compiled(expected, compiled)
        self._quarantine(strangers)
        left = [damage for damage in missing if not self._restore(expected, damage, staging)]
        return self._fetch(left, staging) if left else []

    def _drop_compiled(self, expected: Inventory, damages: list[Damage]) -> None:
        """Remove compiled Python that is damaged, from the list too: Python makes it again when it likes."""
        if not damages:
            return
        for damage in damages:
            (self.folder / damage.path).unlink(missing_ok=True)
            expected.entries.pop(damage.path, None)
        if expected.complete:
            inventory.write(self.folder, expected)
        self._count("removed, Python compiles them again", len(damages))

    def _quarantine(self, damages: list[Damage]) -> None:
        """Move files that nobody installed out of the way: what they do when Python starts is unknown."""
        place = paths.data_root() / QUARANTINE / f"{self.folder.name}-{time.strftime('%Y%m%d-%H%M%S')}"
        for damage in damages:
            target = place / damage.path
            target.parent.mkdir(parents=True, exist_ok=True)
            files.replace(self.folder / damage.path, target)
            files.crashpoint("repair.quarantined")
            self._remove_empty((self.folder / damage.path).parent)
        if damages:
            self._count(f"moved to {place}, nobody knows where they come from", len(damages))

    def _remove_empty(self, folder: Path) -> None:
        """Remove a folder that held strangers only: even empty, a package's metadata folder counts as a package."""
        while folder != self.folder and not any(folder.iterdir()):
            folder.rmdir()
            folder = folder.parent

    def _restore(self, expected: Inventory, damage: Damage, staging: Path) -> bool:
        """Bring one file back from what is on this computer; return whether it is right now."""
        target = self.folder / damage.path
        if damage.path == inventory.MANIFEST:
            if expected.manifest is None:
                return False
            files.atomic_write_text(target, expected.manifest)
            self._count("the list of the environment")
            return True
        assert damage.entry is not None, "only strangers have no entry"
        copy = staging / "copy"
        if damage.entry.is_link:
            copy.symlink_to(damage.entry.digest.removeprefix(inventory.LINK_MARK))
            return self._put(copy, damage, "the list of the environment")
        source = stores.intact_copy(self.folder, damage.path, damage.entry, copy, scratch.wheel_folder())
        return source is not None and self._put(copy, damage, source)

    def _put(self, copy: Path, damage: Damage, source: str) -> bool:
        """Rename a checked copy over a damaged file, with its time and permission; return whether that was possible."""
        target, entry = self.folder / damage.path, damage.entry
        if entry and not entry.is_link:
            if entry.executable:
                copy.chmod(copy.stat().st_mode | 0o111)
            if entry.mtime_ns is not None:
                os.utime(copy, ns=(entry.mtime_ns, entry.mtime_ns))
            files.fsync_file(copy)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            files.crashpoint("repair.before-replace")
            files.replace(copy, target)
        except OSError:
            # A folder stands where the file belongs, or a running program holds it: building anew is left.
            copy.unlink(missing_ok=True)
            return False
        files.crashpoint("repair.after-replace")
        self._count(source)
        return True

    def _fetch(self, damages: list[Damage], staging: Path) -> list[Damage]:
        """Install the packages of damaged files once more, beside, and take the files from there."""
        owners = stores.packages_of(self.folder, [damage.path for damage in damages])
        packages = sorted(set(owners.values()))
        if not packages:
            return damages
        self.progress.note(f"reinstalling {', '.join(name for name, _ in packages)}")
        left = damages
        for fresh in (False, True):
            # What the download cache gives may be damaged as well: then only a fresh download is left.
            with scratch.installed(self.folder, packages, self.obtain_uv(), fresh=fresh) as folder:
                left = [damage for damage in left if not self._take(folder, damage, staging)]
            if not left:
                break
        return left

    def _take(self, folder: Path | None, damage: Damage, staging: Path) -> bool:
        copy = staging / "copy"
        if folder is None or damage.entry is None or not stores.from_folder(folder, damage.path, damage.entry, copy):
            return False
        return self._put(copy, damage, "reinstalled packages")

    def _list_again(self) -> None:
        text = (self.folder / inventory.MANIFEST).read_text(encoding="utf-8")
        inventory.write(self.folder, inventory.take(self.folder, text))
        self.progress.note("listed all files of the environment again")

    def _count(self, source: str, num_files: int = 1) -> None:
        self.sources[source] = self.sources.get(source, 0) + num_files


def environment_of(name: str, interpreter: Interpreter) -> Environment | None:
    """Return what an environment of a name should be today; None for a kind that this program does not build."""
    kind = name.partition(f"-{envs.SYSTEM}-")[0]
    if kind == "launcher":
        return install.launcher_environment(interpreter)
    profile = profiles.PROFILES.get(kind.removeprefix("train-"))
    return install.training_environment(interpreter, profile) if profile and kind.startswith("train-") else None


def has_live_run() -> bool:
    """Return whether a run is going or waiting on this data root."""
    return any(run.is_supervised() for run in runs.iter_runs())


class Ladder:
    """The rungs that mend the environment which a pointer names, the cheapest first.

    Attributes:
        pointer: name of the pointer file.
        folder: the environment that it names, whether or not it is there.
    """

    def __init__(self, pointer: str, progress: Progress) -> None:
        self.pointer = pointer
        self.progress = progress
        self.folder = pointed_folder(pointer)
        self._uv: Uv | None = None

    def climb(self) -> None:
        """Try one rung after the other until the environment is sound.

        Raises:
            EnvironmentProblem: when none helps; the environment is as good as it was before, or better.
        """
        self._point()
        for rung in (self._files, self._interpreter):
            rung()
            if self.folder is not None and is_sound(self.folder):
                return
        self._rebuild()
        if self.folder is None or not is_sound(self.folder):
            raise EnvironmentProblem("environment-build-failed", f"{self.pointer}: building it again did not help.")

    def _obtain_uv(self) -> Uv:
        self._uv = self._uv or uvtool.obtain(self.progress)
        return self._uv

    def _point(self) -> None:
        """Point to the newest environment of the kind when the pointer names none."""
        if self.folder is not None and self.folder.is_dir():
            return
        kind = self.pointer.partition(".")[0]
        complete = [path.parent for path in paths.envs_dir().glob(f"{kind}-*/{inventory.MANIFEST}")]
        complete = [folder for folder in complete if STAGING_PATTERN.search(folder.name) is None]
        for folder in sorted(complete, key=lambda folder: folder.stat().st_mtime, reverse=True):
            if is_sound(folder):
                files.atomic_write_text(paths.envs_dir() / self.pointer, f"{folder.name}\n")
                self.progress.note(f"{self.pointer} names {folder.name} again")
                self.folder = folder
                return

    def _files(self) -> None:
        if self.folder is not None and self.folder.is_dir():
            Mending(self.folder, self.progress, self._obtain_uv).run()

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
            self.progress.note(f"Python: {interpreter.executable}")

    def _rebuild(self) -> None:
        """Build the environment again; the broken one is set aside meanwhile and comes back when that fails."""
        environment = self._wanted()
        if self.pointer == environments.TRAINING_POINTER and has_live_run():
            raise EnvironmentProblem("run-busy", "The environment must be built again, and a run is using it.")
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
            raise EnvironmentProblem("environment-missing", f"{paths.envs_dir() / self.pointer} does not exist.")
        interpreter = scratch.interpreter_for(self.folder) or interpreters.choose()
        environment = environment_of(self.folder.name, interpreter)
        if environment is None:
            raise EnvironmentProblem("environment-missing", f"{self.folder} is no environment of this program.")
        return environment


def _move_in(fresh: Path, folder: Path) -> None:
    """Rename the start files of a fresh environment over those of another."""
    for name in inventory.scan(fresh):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        files.replace(fresh / name, folder / name)
        files.crashpoint("repair.interpreter")


def _list_with(folder: Path, interpreter: Interpreter) -> None:
    """List an environment anew that got another Python; what was proven with the one before has to be proven again."""
    (folder / inventory.PROOF).unlink(missing_ok=True)
    manifest = scratch.manifest_of(folder) | {"python": str(interpreter.executable)}
    inventory.seal(folder, manifest)


def mend(pointer: str, progress: Progress) -> None:
    """Mend the environment that a pointer names, while no other installer is at work.

    Raises:
        EnvironmentProblem: when it can't be mended.
    """
    with install.only_one(progress):
        Ladder(pointer, progress).climb()
