"""An export in the making: a folder beside its place that is published whole, and continued after a kill."""

from __future__ import annotations

import contextlib
import hashlib
import math
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tunesmith_core import files, json_values, paths
from tunesmith_core.checkpoint_manifest import FileEntry, sealed
from tunesmith_core.errors import TunesmithError
from tunesmith_core.exports import SPARE_BYTES
from tunesmith_core.locks import FileLock

EXPORT_MANIFEST = "tunesmith-export.json"
"""What an export was made of, and its files with their hashes."""

PROOF_NAME = "proof.json"
"""How far the export is from the trained weights, where that was measured."""

VERSION = 1
Values = Mapping[str, Any]  # Any: JSON values


class Staging:
    """A folder in the making.

    Attributes:
        target: the folder to be.
        folder: where its files are made.
    """

    def __init__(self, target: Path, identity: Values) -> None:
        """Create the folder, or take over what a killed process left of the same export.

        Args:
            target: the folder to be.
            identity: what the export is made of; equal for equal content.

        Raises:
            OSError: as the file system says.
        """
        self.target, self._identity = target, identity
        self.folder = staging_folder(target)
        files.private_folder(self.folder)
        noted = _noted_files(self.folder, identity) or {}
        self._entries = {name: entry for name, entry in noted.items() if _holds(self.folder / name, entry)}
        for path in self.folder.iterdir():
            if path.name not in self._entries and path.name != EXPORT_MANIFEST:
                path.unlink()

    def check_space(self, num_bytes: int) -> None:
        """Refuse to begin what can't end.

        Args:
            num_bytes: of all files together.

        Raises:
            EnvironmentProblem: `disk-full`.
        """
        missing = num_bytes - sum(entry.bytes for entry in self._entries.values()) + SPARE_BYTES
        free = files.free_bytes(self.folder)
        if free < missing:
            raise TunesmithError(
                "disk-full",
                "{folder}: the export needs {size:.0f} MiB more, but only {free:.0f} MiB are free.",
                hint="Free some space, or choose a folder on another drive.",
                folder=self.target.parent,
                size=math.ceil(missing / 2**20),
                free=free // 2**20,
            )

    def holds(self, name: str) -> bool:
        """Return whether a file is finished, by this process or by a killed one."""
        return name in self._entries

    def part(self, name: str) -> Path:
        """Return where a file that takes long is written before it is finished."""
        return self.folder / f"{name}.part"

    def finish(self, name: str, sha256: str) -> None:
        """Give a file that was written as `part` and synced its name, and note it."""
        files.replace(self.part(name), self.folder / name)
        files.crashpoint("export.after-file")
        self._note(name, sha256)
        files.crashpoint("export.after-note")

    def publish(self) -> None:
        """Note every file that is not yet, and give the folder its name.

        Raises:
            UserError: `export-target-taken` when something took the place meanwhile.
        """
        for path in sorted(self.folder.iterdir()):
            if path.name not in self._entries and path.name != EXPORT_MANIFEST:
                files.fsync_file(path)
                self._entries[path.name] = FileEntry(path.stat().st_size, files.sha256_file(path))
        self._write()
        files.crashpoint("export.before-publish")
        try:
            files.publish_folder(self.folder, self.target)
        except FileExistsError as error:
            raise _taken(self.target) from error

    def _note(self, name: str, sha256: str) -> None:
        self._entries[name] = FileEntry((self.folder / name).stat().st_size, sha256)
        self._write()

    def _write(self) -> None:
        entries = {name: {"bytes": entry.bytes, "sha256": entry.sha256} for name, entry in self._entries.items()}
        values = {"version": VERSION, "identity": dict(self._identity), "files": entries}
        files.atomic_write_json(self.folder / EXPORT_MANIFEST, sealed(values))


def staging_folder(target: Path) -> Path:
    """Return where the files of a folder are made."""
    return target.with_name(f".{target.name}.export")


@contextlib.contextmanager
def staged(target: Path, identity: Values) -> Iterator[Staging]:
    """Make a folder; whatever ends that early, a kill excepted, leaves nothing.

    Args:
        target: the folder to be, which does not exist.
        identity: what the export is made of.

    Raises:
        UserError: `export-target-taken` when another process makes the same folder.
    """
    files.private_folder(target.parent)
    name = hashlib.sha256(str(target).encode()).hexdigest()[:16]
    lock = FileLock(paths.locks_dir() / f"export-{name}.lock")
    if not lock.acquire():
        raise TunesmithError(
            "export-target-taken",
            "Another export to {path} is in progress.",
            hint="Wait until it ends, or choose another folder.",
            path=target,
        )
    try:
        yield Staging(target, identity)
    finally:
        # After the end it has another name.
        shutil.rmtree(staging_folder(target), ignore_errors=True)
        lock.release()


def is_exported(target: Path, identity: Values) -> bool:
    """Return whether a folder is an export of the same content, whole to the bit; False when nothing is there.

    Raises:
        UserError: `export-target-taken` for anything else in its place.
    """
    if not target.exists():
        return False
    noted = _noted_files(target, identity)
    if noted is None:
        raise _taken(target)
    changed = sorted(name for name, entry in noted.items() if not _holds(target / name, entry))
    if changed:
        raise TunesmithError(
            "export-target-taken",
            "{path} is this export, but {names} changed since.",
            path=target,
            names=", ".join(changed[:3]),
        )
    return True


def _taken(target: Path) -> TunesmithError:
    return TunesmithError("export-target-taken", "{path} exists already and is not this export.", path=target)


def _noted_files(folder: Path, identity: Values) -> dict[str, FileEntry] | None:
    """Return the files that the manifest of an export names; None without a sound one of the same content."""
    try:
        values = files.read_json(folder / EXPORT_MANIFEST)
        if sealed(values)["sha256"] != values["sha256"] or values["version"] != VERSION:
            return None
        if values["identity"] != identity:
            return None
        return {name: json_values.read(FileEntry, entry) for name, entry in values["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _holds(path: Path, entry: FileEntry) -> bool:
    """Return whether a file is what was noted, to the bit."""
    try:
        return path.is_file() and path.stat().st_size == entry.bytes and files.sha256_file(path) == entry.sha256
    except OSError:
        return False
