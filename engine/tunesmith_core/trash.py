"""Deleted runs and models: they lie in the data root's trash until a person restores them or empties it.

Layout: `trash/NAME-NANOSECONDS/` holds `origin.json` (version, path or path_bytes, deleted_at) and the deleted folder
under its own name. `origin.json` is written first and the folder renamed into place last, so that a deletion cut off
anywhere leaves the folder where it was or whole in the trash.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tunesmith_core import files, paths
from tunesmith_core.errors import TunesmithError, wrap
from tunesmith_core.json_values import is_time
from tunesmith_core.messages import LISTED, joined
from tunesmith_core.runs import Run, display_name
from tunesmith_core.store import Library

ORIGIN = "origin.json"
ID_LETTERS = 8


@dataclass(frozen=True, slots=True)
class Deleted:
    """One run or model in the trash.

    Attributes:
        folder: in the trash; holds the deleted folder and `origin.json`.
        origin: where the deleted folder was.
        deleted_at: seconds since 1970.
    """

    folder: Path
    origin: Path
    deleted_at: float

    @property
    def id(self) -> str:
        """A short name that nothing else in the trash has: a folder of the same name may be deleted twice."""
        return hashlib.sha256(os.fsencode(self.folder.name)).hexdigest()[:ID_LETTERS]

    @property
    def path(self) -> Path:
        """The deleted folder as it lies in the trash."""
        return self.folder / self.origin.name

    @property
    def kind(self) -> Literal["run", "model"]:
        """What it was."""
        return "model" if self.origin.parent == paths.models_dir() else "run"

    @property
    def name(self) -> str:
        """What people call it."""
        return display_name(Run(self.path)) if self.kind == "run" else self.origin.name


def delete(run: Run, *, force: bool = False) -> Deleted:
    """Move a run's folder into the trash and forget the run.

    Args:
        run: of this data root, and made by Tunesmith.
        force: take any other folder, too.

    Raises:
        UserError: `run-foreign` without `force` for any other folder; `run-busy` while the run is going.
        EnvironmentProblem: the folder can't be moved.
    """
    path = run.path.absolute()
    _refuse_what_holds_more(path)
    if not force:
        _check_ours(run)
    if run.is_supervised():
        raise TunesmithError("run-busy", "The run {run} is still in progress.", run=run.id)
    deleted = delete_folder(path)
    try:
        with contextlib.closing(Library(paths.library_path())) as library:
            library.delete(run)
    except OSError as error:
        raise wrap(error) from error
    return deleted


def delete_folder(path: Path) -> Deleted:
    """Move a folder of ours into the trash, a run's or a model's. Raises EnvironmentProblem when it can't be moved."""
    deleted_at = time.time()
    deleted = Deleted(paths.trash_dir() / f"{path.name}-{time.time_ns():x}", path, deleted_at)
    try:
        files.private_folder(deleted.folder)
        # From the data root, which may be moved or copied with its trash.
        origin = path.relative_to(paths.data_root()) if path.is_relative_to(paths.data_root()) else path
        files.atomic_write_json(deleted.folder / ORIGIN, {"version": 1, **_spelled(origin), "deleted_at": deleted_at})
        files.crashpoint("trash.before-move")
        _move(path, deleted.path)
        files.crashpoint("trash.after-move")
    except OSError as error:
        raise wrap(error) from error
    finally:
        if not os.path.lexists(deleted.path):
            shutil.rmtree(deleted.folder, ignore_errors=True)
    return deleted


def contents() -> Iterator[Deleted]:
    """Yield what is in the trash, the last deleted first."""
    found = []
    for origin in paths.trash_dir().glob(f"*/{ORIGIN}"):
        try:
            values = files.read_json(origin)
            deleted = Deleted(origin.parent, paths.data_root() / _read(values), float(values["deleted_at"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if is_time(deleted.deleted_at) and os.path.lexists(deleted.path):
            found.append(deleted)
    yield from sorted(found, key=lambda each: each.deleted_at, reverse=True)


def find(name: str) -> Deleted:
    """Return what is in the trash under its id, or under the name of its folder or the one that people call it.

    Raises:
        UserError: `not-in-trash` when nothing fits, `trash-ambiguous`, with the ids, when several do.
    """
    everything = list(contents())
    by_name = [each for each in everything if name in (each.origin.name, each.name)]
    found = [each for each in everything if each.id == name] or by_name
    if len(found) > 1:
        raise TunesmithError(
            "trash-ambiguous",
            "{count} items in the trash are named {name!r}, last deleted first: {ids}.",
            count=len(found),
            name=name,
            ids=joined((each.id for each in found), LISTED),
        )
    if not found:
        raise TunesmithError("not-in-trash", "Nothing in the trash is named {name!r}.", name=name)
    return found[0]


def holding(origin: Path) -> Deleted | None:
    """Return what was deleted last from a place, None when the trash has nothing of it."""
    return next((each for each in contents() if each.origin == origin), None)


def restore(deleted: Deleted) -> Path:
    """Bring what was deleted back to where it was and return that place.

    Raises:
        UserError: `restore-blocked` when its place is taken.
        EnvironmentProblem: the folder can't be moved.
    """
    if os.path.lexists(deleted.origin):
        raise TunesmithError("restore-blocked", "{path} already exists.", path=deleted.origin)
    try:
        files.private_folder(deleted.origin.parent)
        _move(deleted.path, deleted.origin)
        shutil.rmtree(deleted.folder)
    except OSError as error:
        raise wrap(error) from error
    return deleted.origin


def erase(deleted: Deleted) -> None:
    """Delete something in the trash for good.

    Raises:
        EnvironmentProblem: a file can't be deleted.
    """
    try:
        # Links inside are removed, never followed.
        shutil.rmtree(deleted.folder)
    except OSError as error:
        raise wrap(error) from error


def _spelled(path: Path) -> dict[str, str]:
    """Return a path as JSON takes it, even if its name is not valid text."""
    text = os.fspath(path)
    try:
        text.encode()
    except UnicodeEncodeError:
        return {"path_bytes": os.fsencode(text).hex()}
    return {"path": path.as_posix()}


def _read(values: dict[str, str]) -> Path:
    if "path_bytes" in values:
        return Path(os.fsdecode(bytes.fromhex(values["path_bytes"])))
    return Path(values["path"])


def _check_ours(run: Run) -> None:
    """Refuse a folder that isn't surely a run of this data root."""
    if not _same(run.path.parent, paths.runs_dir()):
        raise TunesmithError("run-foreign", "{path} is not in {runs_dir}.", path=run.path, runs_dir=paths.runs_dir())
    if not run.path.is_symlink() and not run.is_proven():
        raise TunesmithError("run-foreign", "{path} has no valid run.json and spec.json.", path=run.path)


def _refuse_what_holds_more(path: Path) -> None:
    """Refuse the data root and whatever it lies in, the home folder and the present one: none can be a run."""
    for inner in (paths.runs_dir(), Path.home(), Path.cwd()):
        if not path.is_symlink() and inner.resolve().is_relative_to(path.resolve()):
            raise TunesmithError("run-foreign", "{path} holds {inner}.", path=path, inner=inner)


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def _move(source: Path, target: Path) -> None:
    """Rename a folder, or copy it to another disk and delete it only when the copy is whole."""
    try:
        files.replace(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.move(source, target)
