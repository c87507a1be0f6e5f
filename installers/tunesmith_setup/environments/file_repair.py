"""Mends the files of an environment: a damaged one is replaced by a checked copy from the nearest place.

Every file is replaced by renaming the copy over it, so a repair that is killed leaves an environment that the next one
mends. Strangers are moved away and not deleted.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tunesmith_core import files, paths
from tunesmith_core.environments import MANIFEST
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_core.messages import Message
from tunesmith_setup.packages import inventory, scratch, stores
from tunesmith_setup.packages.inventory import Damage, Inventory, Kind
from tunesmith_setup.packages.uvtool import Uv
from tunesmith_setup.progress import Progress

STAGING_MARK = ".mending-"
QUARANTINE = "quarantine"


@dataclass(slots=True)
class FileRepair:
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
        staging = paths.envs_dir() / f"{STAGING_MARK}{os.getpid()}"
        files.private_folder(staging)
        try:
            self._quarantine([damage for damage in damages if _is_stranger(damage)])
            # First the packages' own records: they tell which package brought the other files.
            left = self._mend(expected, [damage for damage in damages if ".dist-info/" in damage.path], staging)
            left += self._mend(expected, [damage for damage in damages if ".dist-info/" not in damage.path], staging)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        for source, num_files in self.sources.items():
            self.progress.note(Message("Files: {count}. {source}", count=num_files, source=source))
        if not left and listed is None:
            self._list_again()
        return left

    def _mend(self, expected: Inventory, damages: list[Damage], staging: Path) -> list[Damage]:
        compiled = [damage for damage in damages if stores.is_compiled(damage.path)]
        missing = [damage for damage in damages if damage not in compiled and not _is_stranger(damage)]
        self._drop_compiled(expected, compiled)
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
        self._count(Message("Removed, Python compiles them again."), len(damages))

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
            self._count(Message("Of unknown origin, moved to {folder}.", folder=place), len(damages))

    def _remove_empty(self, folder: Path) -> None:
        """Remove a folder that held strangers only: even empty, a package's metadata folder counts as a package."""
        while folder != self.folder and not any(folder.iterdir()):
            folder.rmdir()
            folder = folder.parent

    def _restore(self, expected: Inventory, damage: Damage, staging: Path) -> bool:
        """Bring one file back from what is on this computer; return whether it is right now."""
        target = self.folder / damage.path
        if damage.path == MANIFEST:
            if expected.manifest is None:
                return False
            files.atomic_write_text(target, expected.manifest)
            self._count(stores.FROM_LIST)
            return True
        assert damage.entry is not None, "only strangers have no entry"
        copy = staging / "copy"
        if damage.entry.is_link:
            copy.symlink_to(damage.entry.digest.removeprefix(inventory.LINK_MARK))
            return self._put(copy, damage, stores.FROM_LIST)
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
        if not _can_stand(target):
            copy.unlink()
            return False
        files.crashpoint("repair.before-replace")
        try:
            files.replace(copy, target)
        except PermissionError as error:
            hint = Message("Close Tunesmith and its runs, allow its folder in the virus scanner, then repair again.")
            text = Message("{path} can't be replaced: {reason}.", path=target, reason=Message(str(error.strerror)))
            raise EnvironmentProblem("permission-or-antivirus", text, hint=hint) from error
        files.crashpoint("repair.after-replace")
        self._count(source)
        return True

    def _fetch(self, damages: list[Damage], staging: Path) -> list[Damage]:
        """Install the packages of damaged files once more, beside, and take the files from there."""
        owners = stores.packages_of(self.folder, [damage.path for damage in damages])
        packages = sorted(set(owners.values()))
        if not packages:
            return damages
        self.progress.note(Message("Reinstalling {packages}", packages=", ".join(name for name, _ in packages)))
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
        return self._put(copy, damage, Message("From reinstalled packages."))

    def _list_again(self) -> None:
        text = (self.folder / MANIFEST).read_text(encoding="utf-8")
        inventory.write(self.folder, inventory.take(self.folder, text))
        self.progress.note("Renewed the list of the environment's files")

    def _count(self, source: str, num_files: int = 1) -> None:
        self.sources[source] = self.sources.get(source, 0) + num_files


def _is_stranger(damage: Damage) -> bool:
    return damage.kind is Kind.UNEXPECTED and not stores.is_compiled(damage.path)


def _can_stand(target: Path) -> bool:
    """Make the folder of a file; return whether no folder stands in its place, and no file in its folder's."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        return False
    return target.is_symlink() or not target.is_dir()
