"""Models from a hub on this computer: where they are, which are not whole yet, and whether they are what they were.

Layout: `models/ORG--NAME` is a whole model, with `tunesmith-download.json` that names its files and their hashes. While
it is downloaded, its files are in `models/.ORG--NAME.download`, the unfinished ones with the ending `.part`. The folder
gets its name when every file is there and verified, so that a crash leaves a download to continue or a whole model.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tunesmith_core import files, paths
from tunesmith_core.errors import TunesmithError, wrap
from tunesmith_core.hub_repository import HubFile, HubModel, chosen_files
from tunesmith_core.locks import FileLock, is_locked
from tunesmith_core.model_folder import hub_folder

RECORD = "tunesmith-download.json"
"""In the folder of a model from a hub: what was downloaded."""

SPARE_BYTES = 512 << 20
"""Left free on the drive by a download."""

VERSION = 1
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Download:
    """A model that comes or came from a hub.

    Attributes:
        model: what the hub said about it.
        asked: the hub id under which a run spec names it.
        revision: that was asked for; "" for the newest at that time.
    """

    model: HubModel
    asked: str
    revision: str = ""

    @property
    def folder(self) -> Path:
        """The folder of the whole model."""
        return hub_folder(self.asked, self.revision)

    @property
    def staging(self) -> Path:
        """The folder of the model while it is not whole."""
        return staging_of(self.folder)

    @property
    def files(self) -> tuple[HubFile, ...]:
        """What is downloaded. Raises UserError as `chosen_files`."""
        return chosen_files(self.model)

    @property
    def other_owner(self) -> str:
        """Who owns the repository by now, "" where that is who was asked for: a name may be given up and taken over."""
        owner = self.model.id.partition("/")[0]
        return "" if owner.casefold() == self.asked.partition("/")[0].casefold() else owner

    def check_owner(self) -> None:
        """Refuse another owner than the one that was asked for. Raises UserError `hub-owner-changed`."""
        if self.other_owner:
            raise TunesmithError(
                "hub-owner-changed",
                "{asked} now leads to {id}, which belongs to {owner}.",
                link=self.model.page,
                asked=self.asked,
                id=self.model.id,
                owner=self.other_owner,
            )

    @property
    def total_bytes(self) -> int:
        """Size of all files."""
        return sum(file.size_bytes for file in self.files)

    def done_bytes(self) -> int:
        """Return how much of it is on this computer."""
        return sum(held_bytes(self.staging, file) for file in self.files)

    def check_space(self) -> None:
        """Refuse to begin what can't end. Raises EnvironmentProblem `disk-full`."""
        check_room(self.folder.parent, self.total_bytes - self.done_bytes())

    def save(self, folder: Path) -> None:
        """Write the record into a folder. Raises OSError as the file system says."""
        values = {"version": VERSION, "id": self.asked, "revision": self.revision, "model": self.model.to_dict()}
        files.atomic_write_json(folder / RECORD, values)


def check_room(folder: Path, num_bytes: int) -> None:
    """Refuse to begin what can't end. Raises EnvironmentProblem `disk-full`."""
    missing = num_bytes + SPARE_BYTES
    free = files.free_bytes(folder)
    if free < missing:
        raise TunesmithError(
            "disk-full",
            "{folder}: {size:,.1f} GiB more are needed, but only {free:,.1f} GiB are free.",
            folder=folder,
            size=missing / 2**30,
            free=free / 2**30,
        )


def staging_of(folder: Path) -> Path:
    """Return where the files of a model are while it is not whole."""
    return folder.with_name(f".{folder.name}.download")


def part_of(staging: Path, file: HubFile) -> Path:
    """Return where a file is while it is not whole."""
    return staging / f"{file.path}.part"


def held_bytes(staging: Path, file: HubFile) -> int:
    """Return how many bytes of a file are on this computer."""
    for path in (staging / file.path, part_of(staging, file)):
        with contextlib.suppress(OSError):
            return min(path.stat().st_size, file.size_bytes)
    return 0


def lock_of(folder: Path) -> FileLock:
    """Return the lock that a download to a folder holds."""
    name = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    return FileLock(paths.locks_dir() / f"download-{name}.lock")


def read_record(folder: Path) -> Download | None:
    """Return what was downloaded into a folder, None for a folder that no download made."""
    try:
        values = files.read_json(folder / RECORD)
        if values["version"] != VERSION:
            return None
        return Download(HubModel.from_dict(values["model"]), str(values["id"]), str(values["revision"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def unfinished() -> Iterator[Download]:
    """Yield the downloads that were begun and are not whole, by name; also those that go on just now."""
    for record in sorted(paths.models_dir().glob(f".*.download/{RECORD}")):
        download = read_record(record.parent)
        if download and download.staging == record.parent:
            yield download


def is_going(download: Download) -> bool:
    """Return whether a process downloads it now."""
    return is_locked(lock_of(download.folder).path)


def discard(download: Download) -> None:
    """Delete what was downloaded of a model that is not whole.

    Raises:
        UserError: `download-busy` while a process downloads it.
        EnvironmentProblem: a file can't be deleted.
    """
    with held(download.folder):
        try:
            shutil.rmtree(download.staging)
        except FileNotFoundError:
            return
        except OSError as error:
            raise wrap(error) from error


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the lock of a download. Raises UserError `download-busy` when another process does."""
    lock = lock_of(folder)
    if not lock.acquire():
        raise TunesmithError("download-busy", "Another process is downloading {name}.", name=folder.name)
    try:
        yield
    finally:
        lock.release()


def is_whole(path: Path, file: HubFile) -> bool:
    """Return whether a file is what the hub said, to the bit. Raises OSError when it can't be read."""
    if path.stat().st_size != file.size_bytes:
        return False
    if file.sha256:
        return files.sha256_file(path) == file.sha256
    blob = hashlib.sha1(f"blob {file.size_bytes}\0".encode(), usedforsecurity=False)
    with files.open_file(path) as content:
        while piece := content.read(_PIECE_BYTES):
            blob.update(piece)
    return blob.hexdigest() == file.git_sha1


def changed_files(
    folder: Path, download: Download, on_file: Callable[[str], object] = lambda _name: None
) -> Iterator[str]:
    """Yield the names of files of a model that are missing or not what was downloaded.

    Args:
        folder: of the model.
        download: its record.
        on_file: called with each name before it is read.
    """
    for file in download.files:
        on_file(file.path)
        try:
            whole = is_whole(folder / file.path, file)
        except OSError:
            whole = False
        if not whole:
            yield file.path
